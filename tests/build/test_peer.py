"""dflash_local.build.peer: upstream's own server, for measuring against."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dflash_local.build import peer
from dflash_local.build.log import BuildLog
from dflash_local.errors import BuildError
from tests.patience import wait_until


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The flags of each server that is compiled, which takes no time here."""
    flags_of_all: list[list[str]] = []

    def compiled(scratch: Path, flags: list[str], log: BuildLog) -> Path:
        flags_of_all.append(flags)
        log.say("upstream's own server, once")
        folder = scratch / "bin"
        folder.mkdir()
        (folder / peer.PROGRAM).touch()
        return folder

    monkeypatch.setenv("DFLASH_CACHE", str(tmp_path))
    monkeypatch.delenv("DFLASH_PEER_BIN", raising=False)
    monkeypatch.setattr(peer, "_compile", compiled)
    return flags_of_all


def test_it_has_the_flags_of_the_installed_build(made: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that only a variable of the shell gave then, and no others."""
    homes = set()
    for flags in (["-DGGML_NATIVE=OFF"], ["-DGGML_NATIVE=OFF", "CXXFLAGS=-O1"], ["-DGGML_OPENMP=OFF"]):
        stamp = {"backend": "cpu", "machine": "this", "flags": flags}
        monkeypatch.setattr(peer, "installed_stamp", lambda stamp=stamp: stamp)
        homes.add(peer.build())
    assert [[flag for flag in flags if flag not in peer.FLAGS] for flags in made] == [
        ["-DGGML_NATIVE=OFF"], ["-DGGML_NATIVE=OFF", "CXXFLAGS=-O1"], [],
    ]  # fmt: skip
    assert len(homes) == 3


def test_a_cache_that_cannot_be_written_is_named(
    made: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("DFLASH_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr(peer, "installed_stamp", lambda: {"backend": "cpu"})
    with pytest.raises(BuildError, match=re.escape(str(tmp_path / "file"))) as error:
        peer.build()
    assert str(error.value.hint).endswith("or set DFLASH_CACHE") and made == []


def test_progress_leaves_stdout_alone(
    made: list[list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`bench --format json` prints its figures there, also when the server had to be built first."""
    monkeypatch.setattr(peer, "installed_stamp", lambda: {"backend": "cpu"})
    assert (peer.build() / peer.PROGRAM).is_file()
    assert not [flag for flag in made[0] if "OPENMP" in flag], "upstream's threads are its own"
    out, err = capsys.readouterr()
    assert (out, err) == ("", "upstream's own server, once\n")


def test_builds_wait_for_each_other(
    made: list[list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = list[str]()
    compiled = peer._compile

    def is_told() -> bool:
        told.append(capsys.readouterr().err)
        return "waiting for another build" in "".join(told)

    def slow(scratch: Path, flags: list[str], log: BuildLog) -> Path:
        wait_until(is_told)
        return compiled(scratch, flags, log)

    monkeypatch.setattr(peer, "installed_stamp", lambda: {"backend": "cpu"})
    monkeypatch.setattr(peer, "_compile", slow)
    with ThreadPoolExecutor() as threads:
        first, second = threads.submit(peer.build), threads.submit(peer.build)
        assert first.result() == second.result() and len(made) == 1
