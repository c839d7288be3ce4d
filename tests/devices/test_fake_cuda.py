"""The CUDA backend as it was built, on a CUDA runtime without a GPU (ggml_ops/tests/fake_cuda): what its host side
launches, and what becomes of a call that fails. Kernels compute nothing there: their results are the emulation's tests.

Needs the CUDA toolkit's headers and a folder with a build: DFLASH_TEST_CUDA=DIR, made by
`pip install --no-deps --target DIR` of the wheel that `dflash-local build --backend cuda --no-install` left.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dflash_local.demo.inflate import inflate
from dflash_local.demo.pocket import bundled_pair
from dflash_local.demo.shapes import SHAPES, Pair

pytestmark = pytest.mark.slow

RUNTIME = Path(__file__).resolve().parents[2] / "ggml_ops" / "tests" / "fake_cuda" / "build.sh"
N_LAYERS = 12  # of the shape 0.1b
ANSWERS = """
import sys
from dflash_local import Engine
from dflash_local.errors import DFlashError
try:
    with Engine(sys.argv[1], sys.argv[2], n_gpu_layers=99, budget=16, cost_cache=False) as engine:
        for _ in range(2):
            answer = engine.generate("Write a Python function.", max_tokens=40, temperature=0, ignore_eos=True)
            print("answered", len(answer.tokens))
except DFlashError as error:
    print("error:", error)
"""


# Trees of several sizes in turn: kernels that were launched one by one, as graphs were captured, and graphs launched.
WIDTHS = """
import os, sys
from dflash_local import Engine
def counts():
    text = open(os.environ["FAKE_CUDA_LOG"]).read()
    return [text.count(word) for word in ("\\nlaunched", "\\ncaptured", "\\ngraph of")]
with Engine(sys.argv[1], sys.argv[2], n_gpu_layers=99, cost_cache=False) as engine:
    for again in range(6):
        before = counts() if again == 2 else before if again else []
        for budget in (16, 32, 8):
            engine.generate("Write a function.", max_tokens=40, temperature=0, ignore_eos=True, budget=budget)
    print(*(after - n for n, after in zip(before, counts())))
"""


@pytest.fixture(scope="module")
def build() -> Path:
    if not (folder := os.environ.get("DFLASH_TEST_CUDA")):
        pytest.skip("needs a CUDA build in $DFLASH_TEST_CUDA")
    return Path(folder).resolve()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return inflate(bundled_pair(), tmp_path_factory.mktemp("pair"), SHAPES["0.1b"], "q4_k_m")


@pytest.fixture(scope="module")
def environment(build: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("cuda")
    made = subprocess.run([RUNTIME, folder], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"needs the CUDA toolkit's headers: {made.stderr[-200:]}")
    cache = {"DFLASH_CACHE": str(folder / "cache")}
    return {**os.environ, **cache, "PYTHONPATH": str(build), "LD_LIBRARY_PATH": str(folder)}


def answers(
    pair: Pair, environment: dict[str, str], script: str = ANSWERS, **settings: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script, str(pair.target), str(pair.drafter)]
    return subprocess.run(command, env={**environment, **settings}, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def tuned(pair: Pair, environment: dict[str, str]) -> None:
    """The first start times kernels, and finds ours faster because they are fewer."""
    done = answers(pair, environment, FAKE_CUDA_KERNEL_US="20")
    assert done.stdout == "answered 40\nanswered 40\n", done.stderr


def test_kernels_of_a_pass(pair: Pair, environment: dict[str, str], tuned: None, tmp_path: Path) -> None:
    """15 for each layer of the target, and what a pass has once; with ggml's own kernels a layer has 32."""
    log = tmp_path / "log"
    assert answers(pair, environment, FAKE_CUDA_LOG=str(log)).returncode == 0
    text = log.read_text()
    graphs = {int(n) for n in re.findall(r"graph of (\d+) kernels", text)}
    assert max(graphs) <= 15 * N_LAYERS + 30, graphs
    assert "few_rows_kernel" in text and "tile_norms_kernel" in text and "top_k_merge_kernel" in text
    assert "DeviceSegmentedRadixSort" not in text


def test_a_change_of_width_captures_nothing(
    pair: Pair, environment: dict[str, str], tuned: None, tmp_path: Path
) -> None:
    done = answers(pair, environment, WIDTHS, FAKE_CUDA_LOG=str(tmp_path / "log"))
    launched, captured, graphs = map(int, done.stdout.split())
    assert (launched, captured) == (0, 0) and graphs > 50, done.stderr


@pytest.mark.parametrize(
    ("call", "most"),
    [
        ("cudaMalloc", 20), ("cudaMallocHost", 6), ("cudaStreamCreateWithFlags", 6), ("cudaEventCreateWithFlags", 4),
        ("cudaStreamBeginCapture", 4), ("cudaStreamEndCapture", 4), ("cudaGraphInstantiate", 4),
        ("cudaGraphLaunch", 40), ("cudaLaunchKernel", 2000), ("cudaStreamSynchronize", 250), ("cudaMemcpyAsync", 900),
    ],
)  # fmt: skip
def test_a_call_that_fails_ends_in_an_answer_or_one_line(
    pair: Pair, environment: dict[str, str], tuned: None, call: str, most: int
) -> None:
    """At the first call, at the last ones of a load, and in between; it never waits for ever."""
    for n in sorted({1, 2, 3, *(round(most * part / 8) for part in range(1, 9))}):
        done = answers(pair, environment, FAKE_CUDA_FAIL=f"{call}:{n}")
        # A state that is saved as the device fails ends the process: upstream reads it in a destructor.
        assert done.returncode in (0, -6), (n, done.stderr)
        assert re.search(r"^answered 40$|^error: .*(memory|CUDA|could not|failed)", done.stdout, re.MULTILINE) or (
            done.returncode == -6 and "CUDA error" in done.stderr
        ), (n, done.stdout, done.stderr)


def test_two_devices(pair: Pair, environment: dict[str, str], tuned: None, tmp_path: Path) -> None:
    """Layers are split between them, and either may fail."""
    log, two = tmp_path / "log", {"FAKE_CUDA_DEVICES": "2", "DFLASH_FEW_ROWS": "1"}
    assert answers(pair, environment, FAKE_CUDA_LOG=str(log), **two).stdout == "answered 40\nanswered 40\n"
    for device in (0, 1):
        assert re.search(rf"^captured on {device}: \S*few_rows_kernel", log.read_text(), re.MULTILINE)
    for n in (1, 3, 10, 25, 40):
        done = answers(pair, environment, FAKE_CUDA_FAIL=f"cudaGraphLaunch:{n}", **two)
        assert done.returncode == 0 and re.search("^answered 40|^error: .*CUDA", done.stdout), (n, done.stderr)
