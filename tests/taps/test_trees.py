"""Trees over the targets that patches/0015 opens: nodes equal their paths, as in tests/trees; where the memory cannot
hold siblings, chains are drafted, and plain text comes out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dflash_local.errors import PairError
from tests.engine.test_tiny_pairs import check_drafted_text, drafter, prefer
from tests.fuzz import gguf_image
from tests.fuzz.architectures import HEADS, HEADS_KV, pair
from tests.parity.f32 import engine_f32
from tests.trees.models import tokenizer
from tests.trees.test_target_rows import check_steps

from .models import ARCHS, CHAINS, COMMON_ONES

Target = Callable[[str], Path]

TREES = [arch for arch in ARCHS if arch not in CHAINS]
RARE = [arch for arch in TREES if arch not in COMMON_ONES]


@pytest.mark.parametrize("cache", ["exact", "flash"])
@pytest.mark.parametrize("arch", [arch for arch in TREES if arch in COMMON_ONES])
def test_nodes_equal_their_paths(target: Target, arch: str, cache: str) -> None:
    check_steps(target(arch), cache, True, f"{arch} {cache}", 3)


@pytest.mark.slow
@pytest.mark.parametrize("kv_unified", [True, False])
@pytest.mark.parametrize("arch", RARE)
def test_nodes_of_rare_ones_equal_their_paths(target: Target, arch: str, kv_unified: bool) -> None:
    check_steps(target(arch), "exact", kv_unified, f"{arch} {kv_unified}", 3)


def test_a_layer_that_has_no_tap_is_refused(target: Target, tmp_path: Path) -> None:
    """deci may leave attention out of a layer, and the norm before it, too."""
    made = gguf_image.read(target("deci"))
    for key in ("attention.head_count", "attention.head_count_kv"):
        value = HEADS if key == "attention.head_count" else HEADS_KV
        at = next(i for i, known in enumerate(made.pairs) if known.key == f"deci.{key}".encode())
        made.pairs[at] = pair(f"deci.{key}", [value, 0, value])
    made.tensors = [tensor for tensor in made.tensors if not tensor.name.startswith(b"blk.1.attn_")]
    (tmp_path / "target.gguf").write_bytes(made.encode()[0])
    for taps in ([0, 2], [0, 1]):
        (tmp_path / "drafter.gguf").write_bytes(drafter(tokenizer(), taps, [False]).encode()[0])
        if taps == [0, 2]:
            engine_f32(tmp_path / "target.gguf", tmp_path / "drafter.gguf", n_ctx=256).close()
        else:
            with pytest.raises(PairError, match="target_layers has 1, which the target"):
                engine_f32(tmp_path / "target.gguf", tmp_path / "drafter.gguf", n_ctx=256)


@pytest.mark.parametrize("arch", [*CHAINS, "deepseek2", "qwen3vlmoe", "gemma3", "llama4"])
def test_drafted_text_is_plain_text(target: Target, tmp_path: Path, arch: str) -> None:
    target_file, drafter_file = tmp_path / "target.gguf", tmp_path / "drafter.gguf"
    target_file.write_bytes(prefer(gguf_image.read(target(arch))).encode()[0])
    drafter_file.write_bytes(drafter(tokenizer(), [0, 2], [False]).encode()[0])
    with engine_f32(target_file, drafter_file, n_ctx=256) as engine:
        assert (engine.info["no_tree"] != "") == (arch in CHAINS)
        check_drafted_text(engine, 4)
