"""`--auto-convert`: what is in the cache, and when it is written."""

from __future__ import annotations

import errno
import os
import queue
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from filelock import FileLock

from dflash_local.cli.flags.auto_convert import auto_convert
from dflash_local.convert import convert
from dflash_local.errors import ConvertError, HubError, ModelError
from dflash_local.file_lock import locked

from ..convert import samples
from ..convert.dialect_samples import raw, write_dialect

RIGHTS = "check its rights, or point DFLASH_CACHE elsewhere"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DFLASH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "drafters"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return samples.write_target(tmp_path / "target.gguf")


@pytest.fixture
def drafter(tmp_path: Path, target: Path) -> Path:
    convert(samples.write_checkpoint(tmp_path / "checkpoint", samples.config()), target, tmp_path / "a.gguf")
    return tmp_path / "a.gguf"


@pytest.fixture
def foreign(tmp_path: Path, drafter: Path) -> Path:
    return write_dialect(tmp_path / "b.gguf", "B", drafter)


def test_a_drafter_of_ours_stays_where_it_is(cache: Path, target: Path, drafter: Path) -> None:
    assert auto_convert(drafter, target) == drafter
    assert not cache.exists()


def test_written_once(cache: Path, target: Path, drafter: Path, foreign: Path) -> None:
    first = auto_convert(foreign, target)
    assert first.parent == cache and raw(first) == raw(drafter)
    before = first.stat()
    assert auto_convert(foreign, target) == first
    assert first.stat().st_mtime_ns == before.st_mtime_ns
    assert [path.name for path in sorted(cache.iterdir())] == [".lock", first.name]


def test_written_again_if_anything_changes(
    cache: Path, target: Path, foreign: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {auto_convert(foreign, target)}
    os.utime(foreign, ns=(1, 1))
    found.add(auto_convert(foreign, target))
    samples.write_target(target, {"tokenizer.ggml.tokens": [f"other{i}" for i in range(samples.N_VOCAB)]})
    found.add(auto_convert(foreign, target))
    monkeypatch.setattr("dflash_local.cli.flags.auto_convert.VERSION", -1)
    found.add(auto_convert(foreign, target))
    assert len(found) == 4


def test_a_full_disk(cache: Path, target: Path, foreign: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(HubError, match="No space left on device") as error:
            auto_convert(foreign, target)
    assert error.value.hint == "free some, or point DFLASH_CACHE at a larger disk"
    assert [path.name for path in cache.iterdir()] == [".lock"]
    assert auto_convert(foreign, target).exists()


def test_a_cache_that_cannot_be_made(
    tmp_path: Path, target: Path, foreign: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DFLASH_CACHE", str(tmp_path / "file"))
    with pytest.raises(HubError, match="cannot use the cache") as error:
        auto_convert(foreign, target)
    assert error.value.hint == RIGHTS


def test_a_cache_that_can_only_be_read(
    cache: Path, target: Path, foreign: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept in it is used; what is not there cannot be written."""
    first = auto_convert(foreign, target)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(FileLock, "acquire", refuse)
    assert auto_convert(foreign, target) == first
    os.utime(foreign, ns=(1, 1))
    with pytest.raises(HubError, match="drafters: Read-only file system") as error:
        auto_convert(foreign, target)
    assert error.value.hint == RIGHTS


def test_another_process_that_writes_is_waited_for(
    cache: Path, target: Path, foreign: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for what is there already. What a killed process left is removed before the next is written."""
    kept = auto_convert(foreign, target)
    (cache / ".left.part").write_bytes(b"half")
    notes: queue.Queue[str] = queue.Queue()
    monkeypatch.setattr("dflash_local.cli.flags.auto_convert.note", notes.put)
    with ThreadPoolExecutor(1) as pool:
        with locked(cache / ".lock"):
            assert pool.submit(auto_convert, foreign, target).result(60) == kept
            os.utime(foreign, ns=(1, 1))
            found = pool.submit(auto_convert, foreign, target)
            assert notes.get(timeout=60) == f"another process writes into {cache}: waiting for it"
        assert found.result(60) != kept
    assert not list(cache.glob("*.part"))


def test_bad_files(cache: Path, tmp_path: Path, target: Path, foreign: Path) -> None:
    foreign.write_bytes(foreign.read_bytes()[:-100])
    with pytest.raises(ConvertError, match="ends before the data"):
        auto_convert(foreign, target)
    with pytest.raises(ConvertError, match="cannot read"):
        auto_convert(tmp_path / "missing.gguf", target)
    with pytest.raises(ModelError, match="cannot read"):
        auto_convert(write_dialect(foreign, "B", tmp_path / "a.gguf"), tmp_path / "missing.gguf")
    assert not cache.exists()


SLOW = """
import os, sys, time
from pathlib import Path
from dflash_local.cli.flags.auto_convert import auto_convert
sync = os.fsync
os.fsync = lambda descriptor: (time.sleep(1), sync(descriptor))
print(auto_convert(Path(sys.argv[1]), Path(sys.argv[2])))
"""


def test_of_several_processes_one_writes(cache: Path, target: Path, drafter: Path, foreign: Path) -> None:
    command = [sys.executable, "-c", SLOW, str(foreign), str(target)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    results = [(*process.communicate(timeout=60), process.returncode) for process in running]
    assert {code for *_, code in results} == {0}
    (path,) = {out.strip() for out, *_ in results}
    assert sum("rewriting" in err for _, err, _ in results) == 1
    assert raw(Path(path)) == raw(drafter)
