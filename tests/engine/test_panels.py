"""Quantized weights in panels: a whole model against stock."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dflash_local import native
from tests.fast import some_fast

SCORES = """
import json, sys
from dflash_local import Engine
with Engine(sys.argv[1], n_ctx=512, n_threads=int(sys.argv[2]), warmup=False) as engine:
    text = "The capital of France is Paris. 17 + 25 = 42. def area(width, height): return width * height"
    tokens = engine.tokenize(text)
    print(json.dumps([engine.score(tokens, 1, width).logit.tolist() for width in (1, 3, 8, 13)]))
"""


@pytest.mark.parametrize(
    "ftype",
    some_fast(
        ["q4_0", "q4_1", "q5_0", "q5_1", "q4_k_m", "q5_k_m", "q8_0", "iq4_nl", "q2_k", "q3_k_m"],
        ["q4_1", "q5_0", "q4_k_m", "q3_k_m"],
    ),
)
def test_whole_model(pocket: dict[str, Path], tmp_path: Path, ftype: str) -> None:
    """With and without panels the same logits but for the order of sums; with them, the same bits for any set and
    number of threads."""
    target = tmp_path / "target.gguf"
    native.quantize(pocket["target"], target, ftype)

    def scores(panels: str, threads: int) -> np.ndarray:
        environment = {**os.environ, "DFLASH_PANELS": panels}
        command = [sys.executable, "-c", SCORES, str(target), str(threads)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
        assert done.returncode == 0, done.stderr
        return np.array(json.loads(done.stdout.splitlines()[-1]))

    stock, ours = scores("0", 1), scores("1", 2)
    assert np.abs(stock - ours).max() < 0.03 * (stock.max() - stock.min())
    # of a set that the CPU lacks nothing is left: that would be stock
    np.testing.assert_array_equal(ours, scores("avx2" if platform.machine() == "x86_64" else "1", 1))
