"""Every op of a target's pass gives a row the same bits in every pass, alone and in a step with other ops, and
attention without flash attention is right (ggml_ops/tests)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.engine.native_program import KERNELS, compile_program

SANITIZE = ["-g", "-fsanitize=undefined,address"]
LLAMA = ["llama.cpp/ggml/include", "llama.cpp/ggml/src", "llama.cpp/ggml/src/ggml-cpu"]


@pytest.fixture(scope="module")
def program(repo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    return compile_program(
        repo, folder, ["tests/test_row_invariance.cpp"], [".", "tests", *LLAMA], ["ggml-cpu", "ggml-base"], *SANITIZE
    )


def run(program: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(program), *arguments], capture_output=True, text=True, timeout=300, env={**os.environ, **environment}
    )


def test_every_op(program: Path) -> None:
    done = run(program)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("switch", "name"), [("DFLASH_DENSE", "MUL_MAT f16"), ("DFLASH_ATTENTION", "attention without flash attention f16")]
)
def test_stock_kernels_fail(program: Path, switch: str, name: str) -> None:
    """The same program notices that stock kernels compute a row otherwise in other passes."""
    done = run(program, name, **{switch: "0"})
    assert done.returncode == 1, done.stdout + done.stderr
    assert "rows differ" in done.stdout


def test_attention_no_flash(repo: Path, tmp_path: Path) -> None:
    sources = ["tests/test_attention_no_flash.cpp", "cpu/gemm/packed_weights.cpp", *KERNELS]
    done = run(compile_program(repo, tmp_path, sources, [".", "tests", *LLAMA], ["ggml-cpu", "ggml-base"], *SANITIZE))
    assert done.returncode == 0, done.stdout + done.stderr


def test_op_fusion(repo: Path, tmp_path: Path) -> None:
    """And the program notices where products of one input are not moved together."""
    program = compile_program(
        repo, tmp_path, ["tests/test_op_fusion.cpp"], ["tests", *LLAMA], ["ggml-cpu", "ggml-base"], *SANITIZE
    )
    done = run(program)
    assert done.returncode == 0, done.stdout + done.stderr
    assert run(program, DFLASH_FUSED="0").returncode != 0
