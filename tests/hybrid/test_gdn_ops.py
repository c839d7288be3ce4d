"""gdn_tree and gdn_commit (ggml_ops/gdn/gdn_tree.h): ggml_ops/tests/test_gdn_ops.cpp, built against the libraries
beside libdflash."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.engine.native_program import compile_program


@pytest.fixture(scope="module")
def program(repo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The native test. The Metal kernels are part of it, as C++: what inject.cmake makes of them, without Metal's
    attributes."""
    folder = tmp_path_factory.mktemp("gdn")
    gdn = repo / "ggml_ops" / "gdn"
    metal = (
        (gdn / "metal" / "gdn_tree.metal")
        .read_text()
        .replace("@GDN_TREE_GPU@", (gdn / "gdn_tree_gpu.h").read_text())
    )
    (folder / "gdn_tree.metal.inc").write_text(re.sub(r"\[\[.*?\]\]", "", metal.replace('#include "common.h"', "")))
    include = [".", "tests", "llama.cpp/ggml/include", "llama.cpp/ggml/src"]
    flags = ("-g", "-pthread", "-fsanitize=undefined,address", f"-I{folder}")
    return compile_program(repo, folder, ["tests/test_gdn_ops.cpp"], include, ["ggml", "ggml-cpu", "ggml-base"], *flags)


def run(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(program), *arguments], capture_output=True, text=True, timeout=300)


def test_ops(program: Path) -> None:
    """Bits of ggml_gated_delta_net along every path, float64, padding, several sequences, any number of threads, the
    GPUs' kernels."""
    done = run(program)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_wrong_parent_is_seen(program: Path) -> None:
    done = run(program, "wrong-parent")
    assert done.returncode == 1, "the test cannot fail"


def test_a_parent_that_comes_later_ends_the_program(program: Path) -> None:
    done = run(program, "bad-parent")
    assert done.returncode < 0 and "gdn_tree: bad parent" in done.stderr
