"""The pocket-VL, inflated with its projector, computes what it computes small."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFValueType

from benchmarks.pocket_vl import scenes
from benchmarks.pocket_vl.pictures import data_url
from dflash_local import Engine
from dflash_local.convert.gguf_metadata import array, read_header, string
from dflash_local.demo.inflate import inflate, inflate_projector
from dflash_local.demo.pocket import SeeingPair, seeing_pair
from dflash_local.demo.shapes import Experts, Pair, Shape, Tower
from dflash_local.errors import ModelError
from dflash_local.inspection import Taps
from tests.gguf_files import rewritten

SHAPE = Shape(9, 512, 1024, 8, 4, 2048, 2)
TOWER = Tower(5, 288, 320)  # two new layers, three copies of the stream, new heads and units
LAYERS, PLACES = (1, 2, 3, 5), (1, 3, 5, 8)  # real layers, and where they come to be


@pytest.fixture(scope="module")
def inflated(tmp_path_factory: pytest.TempPathFactory) -> SeeingPair:
    small, folder = seeing_pair(), tmp_path_factory.mktemp("seeing")
    target, drafter = inflate(Pair(small.target, small.drafter), folder, SHAPE)
    return SeeingPair(target, inflate_projector(small.mmproj, folder / "mmproj.gguf", TOWER, SHAPE), drafter)


def behind_pictures(pair: SeeingPair, layers: tuple[int, ...]) -> Taps:
    """Taps of the words after two pictures, which have seen all of the pictures' rows."""
    shown = [{"type": "image_url", "image_url": {"url": data_url(scenes.draw(scenes.scene(i)))}} for i in (0, 1)]
    asked = {"messages": [{"role": "user", "content": [*shown, {"type": "text", "text": "What differs?"}]}]}
    with Engine(pair.target, mmproj=pair.mmproj, n_ctx=512, n_threads=1, warmup=False, lookup=False) as engine:
        prompt = engine.chat_tokens(engine.apply_chat(asked))
        first = len(prompt) - next(i for i, token in enumerate(reversed(prompt)) if token < 0)
        return engine.tap(prompt, layers, 8, first)


def test_pictures_leave_the_same_states(inflated: SeeingPair) -> None:
    small, large = behind_pictures(seeing_pair(), LAYERS), behind_pictures(inflated, PLACES)
    width = small.hidden.shape[-1]
    assert np.abs(large.hidden[..., :width] - small.hidden).max() < 1e-3 * np.abs(small.hidden).max()
    assert not large.hidden[..., width + 1 :].any()  # behind the constant channel
    assert np.abs(large.log_probs - small.log_probs).max() < 0.01


def test_what_adds_to_the_rows_moves_with_its_layer(inflated: SeeingPair) -> None:
    keys, tensors = read_header(inflated.mmproj)
    # The real layers, all but the last with a merger of its own, come second, third and fifth.
    assert list(keys["clip.vision.is_deepstack_layers"].data) == [False, True, True, False, False]
    assert tensors["v.deepstack.2.fc2.weight"].shape == (SHAPE.n_embd, 4 * TOWER.n_embd)
    assert not tensors["v.blk.0.attn_out.weight"].numbers().any() and tensors["v.blk.0.attn_qkv.weight"].numbers().any()


@pytest.mark.parametrize(
    ("tower", "shape", "field"),
    [
        (TOWER._replace(n_layer=2), SHAPE, "clip.vision.block_count"),
        (TOWER._replace(n_embd=200), SHAPE, "clip.vision.embedding_length"),
        (TOWER._replace(n_ff=128), SHAPE, "clip.vision.feed_forward_length"),
        (TOWER, replace(SHAPE, n_embd=256), "clip.vision.projection_dim"),
    ],
)
def test_a_size_that_does_not_fit_is_refused(tmp_path: Path, tower: Tower, shape: Shape, field: str) -> None:
    with pytest.raises(ModelError) as caught:
        inflate_projector(seeing_pair().mmproj, tmp_path / "out.gguf", tower, shape)
    assert caught.value.field == field and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "field"),
    [({"head": 128}, "rope.dimension_sections"), ({"experts": Experts(4, 2, 768)}, "expert_count")],
)
def test_a_target_that_sees_keeps_its_heads_and_feed_forward(
    tmp_path: Path, change: dict[str, Any], field: str
) -> None:
    small = seeing_pair()
    with pytest.raises(ModelError) as caught:
        inflate(Pair(small.target, small.drafter), tmp_path / "out", replace(SHAPE, **change))
    assert caught.value.field == field


def test_other_projectors_are_refused(tmp_path: Path) -> None:
    small = seeing_pair()
    other = rewritten(small.mmproj, tmp_path / "other.gguf", {"clip.projector_type": string("gemma3")})
    with pytest.raises(ModelError, match="gemma3 is not qwen3vl_merger"):
        inflate_projector(other, tmp_path / "out.gguf", TOWER, SHAPE)
    with pytest.raises(ModelError, match="only a clip model"):
        inflate_projector(small.target, tmp_path / "out.gguf", TOWER, SHAPE)
    flat = {"clip.vision.is_deepstack_layers": array(GGUFValueType.BOOL, [False, True, False])}
    lost = rewritten(small.mmproj, tmp_path / "lost.gguf", flat)
    with pytest.raises(ModelError, match=r"v\.deepstack\.0.* cannot be inflated"):
        inflate_projector(lost, tmp_path / "out.gguf", TOWER, SHAPE)
