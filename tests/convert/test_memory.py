"""The memory limit, on a checkpoint that would break it if it were read as a whole (benchmarks/convert_memory.py, made
smaller)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import convert_memory
from dflash_local.demo.shapes import SHAPES
from tests.fast import some_fast


@pytest.mark.parametrize("outtype", some_fast(["f16", "q8_0"], ["f16"]))
def test_peak_memory(tmp_path: Path, outtype: str) -> None:
    shape = replace(SHAPES["8b"], n_embd=2048, n_ff=6144, n_head=16)
    (measured,) = convert_memory.measure(tmp_path, [outtype], 450_000_000, shape, shard_bytes=200_000_000)
    assert measured.checkpoint > measured.limit > measured.idle
    assert measured.peak < measured.limit, measured
    assert not list(tmp_path.iterdir())
