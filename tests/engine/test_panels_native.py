"""Quantized weights in panels: kernels against ggml's dot products (ggml_ops/tests/test_panels.cpp), a model against stock."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dflash_local import native
from dflash_local.buildlog import BuildLog
from dflash_local.upstream import Upstream

SCORES = """
import json, sys
from dflash_local import Engine
with Engine(sys.argv[1], n_ctx=512, n_threads=int(sys.argv[2]), warmup=False) as engine:
    tokens = engine.tokenize("The capital of France is Paris. 17 + 25 = 42. def area(width, height): return width * height")
    print(json.dumps([engine.score(tokens, 1, width).logit.tolist() for width in (1, 3, 8, 13)]))
"""


@pytest.fixture(scope="module")
def program(repo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The native test, linked to the ggml that lies beside libdflash."""
    compiler = os.environ.get("CXX") or shutil.which("c++")
    assert compiler, "a C++ compiler is needed"
    folder = tmp_path_factory.mktemp("panels")
    upstream = Upstream.read(repo / "patches" / "UPSTREAM")
    with BuildLog(folder / "unpack.log") as log:
        upstream.unpack(upstream.fetch(log), folder / "tree")
    ggml = folder / "tree" / "vendor" / "llama.cpp" / "ggml"
    ours = repo / "ggml_ops"
    libraries = native.library_path().parent
    include = [f"-I{path}" for path in (ours / "ops", ours / "tests", ggml / "include", ggml / "src")]
    files = [ours / "tests" / "test_panels.cpp", ours / "ops" / "panel_pack.cpp", ours / "ops" / "panel_x86.cpp"]
    link = [f"-L{libraries}", "-lggml-cpu", "-lggml-base", f"-Wl,-rpath,{libraries}"]
    target = folder / "test_panels"
    command = [compiler, "-std=c++17", "-O1", "-g", "-fsanitize=undefined,address", *include, *map(str, files), *link, "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return target


def test_kernels(program: Path) -> None:
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("ftype", ["q4_0", "q4_k_m", "q8_0"])
def test_whole_model(pocket: dict[str, Path], tmp_path: Path, ftype: str) -> None:
    """With and without panels the same logits but for the order of sums; with them, the same bits for every number of threads."""
    target = tmp_path / "target.gguf"
    native.quantize(pocket["target"], target, ftype)

    def scores(panels: str, threads: int) -> np.ndarray:
        environment = {**os.environ, "DFLASH_PANELS": panels}
        command = [sys.executable, "-c", SCORES, str(target), str(threads)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
        assert done.returncode == 0, done.stderr
        return np.array(json.loads(done.stdout.splitlines()[-1]))

    stock, ours = scores("0", 1), scores("1", 1)
    assert np.abs(stock - ours).max() < 0.03 * (stock.max() - stock.min())
    np.testing.assert_array_equal(ours, scores("1", 2))
