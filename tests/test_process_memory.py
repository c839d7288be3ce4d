"""What a process keeps in memory."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest

from dflash_local.process_memory import collect_rarely, keep_all


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = gc.get_threshold()
    keep_all()  # a server that could not start in this process may have left the threshold high
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


def test_imports_are_not_looked_through_and_what_they_made_stays() -> None:
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    collect_rarely()
    n_collections = gc.get_stats()[0]["collections"]
    kept = [[] for _ in range(50_000)]  # type: ignore[var-annotated]
    assert gc.get_stats()[0]["collections"] == n_collections
    keep_all()
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() >= frozen + len(kept)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc")
def test_large_blocks_go_back_to_the_system() -> None:
    """Of 64 blocks of 4 MiB every second one is freed: no trimming could give these back. glibc has seen such a block
    freed before, and so would keep them."""
    code = (
        "import ctypes, sys, dflash_local.process_memory as memory\n"
        "libc = ctypes.CDLL(None)\n"
        "libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]\n"
        "def block():\n"
        "    at = libc.malloc(4 << 20)\n"
        "    ctypes.memset(at, 1, 4 << 20)\n"
        "    return at\n"
        "def resident(): return int(open('/proc/self/statm').read().split()[1]) >> 8\n"
        "if sys.argv[1:]: memory.return_large_blocks()\n"
        "libc.free(block())\n"
        "before, blocks = resident(), [block() for _ in range(64)]\n"
        "for at in blocks[::2]: libc.free(at)\n"
        "print(resident() - before)"
    )

    def kept(*args: str) -> int:
        return int(subprocess.run([sys.executable, "-c", code, *args], check=True, capture_output=True).stdout)

    assert 126 <= kept("return") <= 132
    assert kept() > 240
