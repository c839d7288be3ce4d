"""A drafter whose file has several sections of M-RoPE: its rows of a picture are rotated by their places in it, within
1e-3 of the authors' model with such rotations. With one section, by their places in the text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from dflash_local import Engine
from dflash_local.demo.pocket import HYBRID, bundled_pair
from tests.gguf_files import numbers
from tests.media import tiny_projectors
from tests.media.test_drafts import noise

from .f32 import engine_f32, widen
from .reference import BLOCK_SIZE, MASK, SHAPE, load_drafter
from .test_drafter import assert_close
from .test_hybrid import DRAFTER

pytestmark = pytest.mark.parity
ROWS, COLUMNS, UNIT = 3, 5, 8  # of the picture; pixels of a row or column
Positions = Callable[[int, int], torch.Tensor]


def of_picture(before: int, after: int) -> torch.Tensor:
    """Time, height and width [3, n] of so many tokens before a picture, its rows, and tokens after it."""
    rows = [(before, before + y, before + x) for y in range(ROWS) for x in range(COLUMNS)]
    last = before + max(ROWS, COLUMNS)
    text = [range(before), range(last, last + after)]
    return torch.tensor([(i, i, i) for i in text[0]] + rows + [(i, i, i) for i in text[1]]).T


def of_text(before: int, after: int) -> torch.Tensor:
    return torch.arange(before + ROWS * COLUMNS + after).expand(3, -1)


class Rotations(torch.nn.Module):  # type: ignore[misc]
    """cos and sin of all rows: the first sizes[0] of a head's pairs turn with time, the next ones with height and
    width."""

    def __init__(self, sizes: tuple[int, int, int], positions: torch.Tensor) -> None:
        super().__init__()
        self.sizes, self.positions = sizes, positions

    def forward(self, hidden: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        head, theta = SHAPE["head_dim"], SHAPE["rope_parameters"]["rope_theta"]
        axis = torch.repeat_interleave(torch.arange(3), torch.tensor(self.sizes))
        angles = self.positions[axis].T * theta ** (-torch.arange(0, head, 2) / head)
        both = torch.cat([angles, angles], -1)[None].to(hidden.dtype)
        return both.cos(), both.sin()


class Sections(NamedTuple):
    sizes: tuple[int, int, int]
    positions: Positions


def question(engine: Engine) -> Sequence[int]:
    shown = {"type": "image", "image": noise(5, COLUMNS * UNIT, ROWS * UNIT)}
    content = [shown, {"type": "text", "text": "What is 48 plus 24?"}]
    chat = engine.apply_chat({"messages": [{"role": "user", "content": content}]})
    return engine.tokenize_prompt(chat.prompt, chat.media)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("pictures")
    (folder / "mmproj.gguf").write_bytes(tiny_projectors.projector("qwen2vl_merger-256").encode()[0])
    widen(bundled_pair(HYBRID).target, folder / "target.gguf")
    yield folder


@pytest.mark.parametrize(
    "given", [Sections((12, 10, 10), of_picture), Sections((32, 0, 0), of_text)], ids=["several", "one"]
)
def test_drafts(files: Path, given: Sections) -> None:
    keys = {"dflash.rope.dimension_sections": [*given.sizes, 0]}
    drafter = widen(bundled_pair(HYBRID).drafter, files / "drafter.gguf", keys)
    projector = files / "mmproj.gguf"
    with engine_f32(files / "target.gguf", None, mmproj=projector, n_ctx=1024) as engine:
        prompt = question(engine)
        tokens = list(prompt)
        assert sum(token < 0 for token in tokens) == ROWS * COLUMNS
        taps, _, _ = engine.tap(prompt, [layer + 1 for layer in DRAFTER.taps])
    embeddings, head = _target(files / "target.gguf")

    reference = load_drafter(drafter, DRAFTER)
    before = tokens.index(min(tokens))
    after = len(tokens) - 1 - before - ROWS * COLUMNS
    reference.rotary_emb = Rotations(given.sizes, given.positions(before, after + BLOCK_SIZE))
    block = torch.tensor([[tokens[-1], *[MASK] * (BLOCK_SIZE - 1)]])
    hidden = reference(
        target_hidden=torch.from_numpy(taps[:-1].reshape(1, len(tokens) - 1, -1)),
        noise_embedding=embeddings[block],
        position_ids=torch.arange(len(tokens) - 1 + BLOCK_SIZE)[None],
    )[0]

    with engine_f32(files / "target.gguf", drafter, mmproj=projector, n_ctx=1024) as engine:
        probe = engine.draft_probe(question(engine), BLOCK_SIZE)
    assert_close(probe.hidden, hidden.numpy())
    assert_close(probe.logits, (hidden @ head.T).numpy())


def _target(path: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Its embeddings and its head, [n_vocab, n_embd]."""
    weights = numbers(path)
    return torch.from_numpy(weights["token_embd.weight"]), torch.from_numpy(weights["output.weight"])
