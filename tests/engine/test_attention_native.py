"""Attention that reads K and V once for all rows, and float products: tiles and ops (ggml_ops/tests), a model against
stock."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.engine.native_program import KERNELS, compile_program

SCORES = """
import json, sys
from dflash_local import Engine
types = dict.fromkeys(("cache_type_k", "cache_type_v"), sys.argv[3])
with Engine(sys.argv[1], n_ctx=1024, n_threads=int(sys.argv[2]), warmup=False, **types) as engine:
    text = "The capital of France is Paris. 17 + 25 = 42. def area(width, height): return width. " * 20
    tokens = engine.tokenize(text)[:560]
    print(json.dumps([engine.score(tokens, 520, width).logit.tolist() for width in (1, 2, 9, 40)]))
"""


def test_tiles_and_op(repo: Path, tmp_path: Path) -> None:
    sources = ["tests/test_flash_attention.cpp", "cpu/gemm/packed_weights.cpp", *KERNELS]
    include = [".", "tests", "llama.cpp/ggml/include", "llama.cpp/ggml/src", "llama.cpp/ggml/src/ggml-cpu"]
    program = compile_program(
        repo, tmp_path, sources, include, ["ggml-cpu", "ggml-base"], "-g", "-fsanitize=undefined,address"
    )
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("shape", [("16", "8", "64"), ("32", "8", "128")])
def test_speed(repo: Path, tmp_path: Path, shape: tuple[str, ...]) -> None:
    """Prints the tables of docs/kernels.md (-s): stock's times, then ours. Nowhere may ours be slower by more than
    noise."""
    program = compile_program(
        repo, tmp_path, ["tests/time_attention.cpp"], ["llama.cpp/ggml/include"], ["ggml", "ggml-cpu", "ggml-base"]
    )

    def times(ours: str) -> np.ndarray:
        environment = {**os.environ, "DFLASH_ATTENTION": ours}
        done = subprocess.run([str(program), "2", *shape], capture_output=True, text=True, env=environment, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        print(done.stdout)
        return np.array(
            [[float(cell) for cell in line.strip("| ").split("|")] for line in done.stdout.splitlines()[1:]]
        )[:, 1:]

    assert (times("0") > 0.9 * times("1")).all()


def test_products(repo: Path, tmp_path: Path) -> None:
    include = ["tests", "llama.cpp/ggml/include", "llama.cpp/ggml/src"]
    libraries = ["ggml-cpu", "ggml-base"]
    program = compile_program(
        repo, tmp_path, ["tests/test_products.cpp"], include, libraries, "-g", "-fsanitize=undefined,address"
    )
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("cache", ["f16", "q8_0"])
def test_whole_model(pocket: dict[str, Path], cache: str) -> None:
    """Ours and stock the same logits but for rounding; ours the same bits for every number of threads."""

    def scores(ours: str, threads: int) -> np.ndarray:
        environment = {**os.environ, "DFLASH_ATTENTION": ours}
        command = [sys.executable, "-c", SCORES, str(pocket["target"]), str(threads), cache]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
        assert done.returncode == 0, done.stderr
        return np.array(json.loads(done.stdout.splitlines()[-1]))

    stock, ours = scores("0", 1), scores("1", 1)
    assert 0 < np.abs(stock - ours).max() < 0.02 * (stock.max() - stock.min())
    np.testing.assert_array_equal(ours, scores("1", 2))
