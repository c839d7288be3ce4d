"""Quantized weights in panels: kernels against ggml's dot products (ggml_ops/tests/test_panels.cpp), a model against
stock."""

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
from tests.engine.native_program import KERNELS, compile_program

SCORES = """
import json, sys
from dflash_local import Engine
with Engine(sys.argv[1], n_ctx=512, n_threads=int(sys.argv[2]), warmup=False) as engine:
    text = "The capital of France is Paris. 17 + 25 = 42. def area(width, height): return width * height"
    tokens = engine.tokenize(text)
    print(json.dumps([engine.score(tokens, 1, width).logit.tolist() for width in (1, 3, 8, 13)]))
"""


def build(repo: Path, folder: Path, name: str, *flags: str) -> Path:
    """A native program with the kernels, linked to the ggml that lies beside libdflash."""
    sources = [
        f"tests/{name}.cpp",
        "cpu/gemm/packed_weights.cpp",
        "cpu/gemm/packed_gemm_choice.cpp",
        "cpu/quantize_rows/quantize_rows.cpp",
        *KERNELS,
    ]
    include = [".", "tests", "llama.cpp/ggml/include", "llama.cpp/ggml/src"]
    return compile_program(repo, folder, sources, include, ["ggml-cpu", "ggml-base"], *flags)


def run(program: Path, *arguments: str) -> str:
    done = subprocess.run([str(program), *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("sanitizers", ["address", pytest.param("address,undefined", marks=pytest.mark.slow)])
def test_kernels(repo: Path, tmp_path: Path, sanitizers: str) -> None:
    """Compiling takes most of it: 17 s with one sanitizer, 28 s with both."""
    run(build(repo, tmp_path, "test_panels", f"-fsanitize={sanitizers}"))


@pytest.mark.slow
def test_speed(repo: Path, tmp_path: Path) -> None:
    """Prints the tables of docs/kernels.md (-s). Where a CPU has AMX, wide passes take it: there it has to be the
    faster."""
    program = build(repo, tmp_path, "time_panels", "-O3", "-pthread")
    print(run(program, "2", "1024", "3072"))
    for shape in (("1024", "3072"), ("3072", "1024")):
        table = run(program, "1", *shape)
        print(table)
        lines = [line.replace(" ", "").split("|")[1:-1] for line in table.splitlines()[2:]]
        wide = {(kind, kernel): max(map(float, speeds[-5:])) for kind, kernel, *speeds in lines}
        for (kind, kernel), speed in wide.items():
            assert kernel != "amx" or speed > wide[kind, "avx512-vnni"], kind


@pytest.mark.slow
def test_speed_of_products(repo: Path, tmp_path: Path) -> None:
    """Prints every buffer type's speed through ggml (-s). Panels come first; nothing else may be faster by more than
    noise."""
    include = ["llama.cpp/ggml/include"]
    program = compile_program(repo, tmp_path, ["tests/time_products.cpp"], include, ["ggml", "ggml-cpu", "ggml-base"])
    for kind in ("q4_0", "q8_0", "q4_K", "q5_K", "q6_K", "iq4_nl", "mxfp4"):
        table = run(program, "2", "1024", "3072", "600", kind)
        print(table)
        rows = [line.replace(" ", "").split("|")[1:-1] for line in table.splitlines()[1:]]
        assert rows[0][1] == "CPU_PANELS"
        for n, (ours, *others) in enumerate(zip(*(row[2:] for row in rows), strict=True)):
            assert float(ours) > 0.85 * max(map(float, others)), (kind, n)


@pytest.mark.parametrize("ftype", ["q4_0", "q4_k_m", "q5_k_m", "q8_0", "iq4_nl"])
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
