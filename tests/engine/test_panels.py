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

LOCKED = """
import ctypes, json, re, resource, sys
from pathlib import Path
from dflash_local import Engine

hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
resource.setrlimit(resource.RLIMIT_MEMLOCK, (hard, hard))
needed = 3 * Path(sys.argv[1]).stat().st_size // 2
libc, block = ctypes.CDLL(None), ctypes.create_string_buffer(needed)
if libc.mlock(block, ctypes.c_size_t(needed)) != 0:
    sys.exit("not allowed")
libc.munlock(block, ctypes.c_size_t(needed))

def kilobytes(name, text):
    return sum(int(n) for n in re.findall(rf"^{name}:\\s+(\\d+) kB", text, re.MULTILINE))

with Engine(sys.argv[1], n_ctx=256, mlock=True, warmup=False) as engine:
    mappings = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text(), flags=re.MULTILINE)
    of_file = sum(kilobytes("Locked", mapping) for mapping in mappings if ".gguf" in mapping)
    locked = kilobytes("VmLck", Path("/proc/self/status").read_text())
    print(json.dumps([of_file, locked, engine.info["placement"]["CPU"]["target"] / 1024]))
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


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_mlock_locks(pocket: dict[str, Path], tmp_path: Path) -> None:
    """All weights where passes read them, and not the file, of which nothing reads those in panels again."""
    target = tmp_path / "target.gguf"
    native.quantize(pocket["target"], target, "q4_0")
    command = [sys.executable, "-c", LOCKED, str(target)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if "not allowed" in done.stderr:
        pytest.skip("this process may not lock enough memory")
    assert done.returncode == 0, done.stderr
    of_file, locked, weights = json.loads(done.stdout.splitlines()[-1])
    assert of_file == 0
    assert locked >= weights


def test_an_unknown_set_is_told(pocket: dict[str, Path], tmp_path: Path) -> None:
    """It packs no weights, and nothing but the speed would show it."""
    target = tmp_path / "target.gguf"
    native.quantize(pocket["target"], target, "q8_0")
    environment = {**os.environ, "DFLASH_PANELS": "avx-512"}
    command = [sys.executable, "-c", "import logging; logging.basicConfig()" + SCORES, str(target), "1"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "DFLASH_PANELS=avx-512 packs no weights on this CPU: it may be 0, 1" in done.stderr
