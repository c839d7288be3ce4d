"""dflash::sampler against llama.cpp's common_sampler_sample(), token for token (ggml_ops/tests/test_sampling.cpp)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.engine.native_program import compile_program

SOURCES = (
    "accept/sampling",
    "accept/sampling_params",
    "accept/token_constraints",
    "files/gbnf",
    "base/json_fields",
    "accept/logits_row",
    "accept/block_accept",
)


@pytest.fixture(scope="module")
def program(repo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The native test, linked to the libraries that lie beside libdflash."""
    sources = ["tests/test_sampling.cpp", *(f"{name}.cpp" for name in SOURCES)]
    include = [".", "llama.cpp", "llama.cpp/include", "llama.cpp/ggml/include"]
    return compile_program(
        repo, tmp_path_factory.mktemp("sampler"), sources, include, ["llama-common", "llama", "ggml", "ggml-base"]
    )


@pytest.mark.slow
def test_shortcuts_sample_as_llama_cpp(program: Path, pocket: dict[str, Path]) -> None:
    done = subprocess.run([str(program), str(pocket["target"]), "200"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    agreed = int(done.stdout.splitlines()[-1].removesuffix(" draws agree"))
    assert agreed > 100_000
