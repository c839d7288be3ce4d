"""The demo with the pocket pair as it is: its answer, and its server from start to curl line."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from benchmarks.http_load import free_port
from dflash_local import cli
from dflash_local.demo import inflate


@pytest.mark.parametrize("drafter", ["dflash", "hybrid"])
def test_once_answers_and_shows_both_speeds(drafter: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["demo", "--once", "--shape", "pocket", "--drafter", drafter]) == 0
    out = capsys.readouterr().out
    assert "def largest_result(results):" in out
    assert len(re.findall(r"^(?:plain|drafted) +\d+\.\d tokens/s", out, re.MULTILINE)) == 2
    tokens_per_pass = re.search(r"([\d.]+) tokens per target pass", out)
    assert tokens_per_pass and float(tokens_per_pass[1]) >= 1.0


def test_a_cache_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file stands in its way, which stops root too."""
    (tmp_path / "file").touch()
    cache = tmp_path / "file" / "cache"
    monkeypatch.setenv("DFLASH_CACHE", str(cache))
    assert cli.main(["demo", "--once", "--shape", "0.1b"]) == 1
    message, fix = capsys.readouterr().err.splitlines()
    assert message.startswith(f"error: cannot keep the demo's models in {cache / 'pocket'}: ")
    assert fix.startswith("  fix: set DFLASH_CACHE to a folder that can be written")


def test_a_full_disk_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setenv("DFLASH_CACHE", str(tmp_path))
    monkeypatch.setattr(inflate, "inflate", full)
    assert cli.main(["demo", "--once", "--shape", "0.1b"]) == 1
    message, fix = capsys.readouterr().err.splitlines()
    assert message == f"error: cannot keep the demo's models in {tmp_path / 'pocket'}: {os.strerror(errno.ENOSPC)}"
    assert "DFLASH_CACHE" in fix
    assert list((tmp_path / "pocket").iterdir()) == []


def test_server_says_how_to_talk_to_it() -> None:
    port = free_port()
    command = [sys.executable, "-m", "dflash_local.demo", "--shape", "pocket", "--port", str(port)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"}
    ) as process:
        assert process.stdout is not None
        try:
            curl = next(line for line in process.stdout if "curl" in line)
            found = re.search(r"curl (\S+) -d '(.*)'", curl)
            assert found
            with urllib.request.urlopen(found[1], data=found[2].encode(), timeout=60) as response:
                answer = json.loads(response.read())
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)
    assert "def largest_result" in answer["choices"][0]["message"]["content"]
    assert answer["timings"]["predicted_n"] > 20
