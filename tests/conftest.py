"""Fixtures that several folders of tests share."""

from __future__ import annotations

import gc
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from dflash_local.cache_dir import cache_dir
from dflash_local.demo.pocket import DRAFTERS
from tests.cli import mtp_target
from tests.patience import PATIENCE

ROOT = Path(__file__).resolve().parent.parent


# Imports make a million objects that stay: the collector would look at them again and again, a quarter of the time
# until the first test.
gc.set_threshold(100_000, 20, 100)
# Shells start background jobs with SIGINT ignored, and children inherit that: tests that press Ctrl-C would wait for
# ever.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Of others (torch, upstream's server): two threads that spin at their barriers take a minute for a second's work once
# something else needs a core. Read when OpenMP is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# httpx gives up after five seconds. Nothing that is shipped asks by this default.
for part in ("connect", "read", "write", "pool"):
    setattr(httpx._config.DEFAULT_TIMEOUT_CONFIG, part, PATIENCE)


# The files that take longest, longest first: one that begins last is what all others wait for.
LONGEST = (
    "ggml_ops/test_native.py",
    "parity/test_drafter.py",
    "engine/test_shared_cache.py",
    "demo/test_inflate.py",
    "lossless/test_prediction.py",
    "lossless/test_distribution.py",
    "fuzz/test_gguf_files.py",
    "placement/test_bus.py",
    "server/test_sleep.py",
    "placement/test_reuse.py",
    "lossless/test_bit_exact.py",
    "server/test_router.py",
    "engine/test_slot_files.py",
    "lossless/test_tokens.py",
    "plan/test_memory.py",
    "parity/test_hybrid_architectures.py",
    "lossless/test_block_distribution.py",
    "hub/test_pairing.py",
    "server/test_life.py",
    "parity/test_dspark.py",
)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {ROOT / "tests" / name: place for place, name in enumerate(LONGEST)}
    if gone := [str(path) for path in places if not path.is_file()]:
        raise pytest.UsageError(f"LONGEST in tests/conftest.py names files that are not there: {', '.join(gone)}")
    items.sort(key=lambda item: places.get(item.path, len(places)))


@pytest.fixture(scope="session")
def compiler() -> str:
    """A C compiler's name."""
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name):
            return name
    pytest.skip("no C compiler")


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache folder of the session's own, here and in every process that a test starts: no test may write into the
    user's.

    Except for sources and what is compiled of them once for all sessions.
    """
    before = os.environ.get("DFLASH_CACHE")
    folder = tmp_path_factory.mktemp("cache")
    for name in ("containers", "cross", "peer", "sdist", "server-tests", "source", "wheel-tests"):
        (cache_dir() / name).mkdir(parents=True, exist_ok=True)
        with suppress(OSError):  # Windows keeps links from ordinary users
            (folder / name).symlink_to(cache_dir() / name, target_is_directory=True)
    os.environ["DFLASH_CACHE"] = str(folder)
    yield folder
    if before is None:
        del os.environ["DFLASH_CACHE"]
    else:
        os.environ["DFLASH_CACHE"] = before


@pytest.fixture(scope="session")
def repo() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def pocket() -> dict[str, Path]:
    """The pocket models: `target` with its drafters, `hybrid-target` with `hybrid-dflash`, and `mtp` and `hybrid-mtp`,
    files of their MTP layers alone (that of `target` as hy_v3)."""
    folder = ROOT / "dflash_local" / "demo"
    names = ("target", *DRAFTERS, "mtp", "hybrid-target", "hybrid-dflash", "hybrid-mtp")
    files = {name: folder / f"pocket-{name}.gguf" for name in names}
    missing = [path.name for path in files.values() if not path.is_file()]
    assert not missing, f"{folder} lacks {missing}"
    return files


@pytest.fixture(scope="session")
def untrained_mtp(pocket: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The hybrid target with a next-token (MTP) layer that has learned little. Under a name like `mtp-*.gguf` it stands
    for a file that has the layer alone: an engine reads nothing else of it then."""
    return mtp_target.write(pocket["hybrid-target"], tmp_path_factory.mktemp("mtp") / "own-F16.gguf", range(4, 1600))


@pytest.fixture(scope="session")
def target_f32(pocket: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pocket target in f32."""
    from tests.parity.f32 import widen

    return widen(pocket["target"], tmp_path_factory.mktemp("f32") / "target.gguf")
