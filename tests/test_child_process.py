"""Child processes: whose modules they import, and how they end: asked first, killed if they do not."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dflash_local.child_process import OWN_GROUP, end_process, module_command
from tests.patience import PATIENCE

WAITS = "import os, signal, time; {}; print(os.getpgid(0) == os.getpid(), flush=True); time.sleep(1000)"
DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"


@pytest.mark.parametrize("version", [(3, 10), (3, 11)])
def test_modules_are_not_of_the_current_folder(
    version: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever they are called; the command's words arrive."""
    for name in ("argparse", "queue", "runpy"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('foreign')")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "version_info", min(version, sys.version_info))
        command = [*module_command("dflash_local.cli"), "serve", "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.startswith("usage: dflash-local serve ") and done.stderr == ""


def test_a_signal_that_interrupts_the_wait_kills_it(monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-c", WAITS.format(DEAF)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, **OWN_GROUP) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"True\n"
        real = process.wait

        def wait(timeout: float | None = None) -> int:
            if timeout is not None:
                raise KeyboardInterrupt
            return real()

        monkeypatch.setattr(process, "wait", wait)
        with pytest.raises(KeyboardInterrupt):
            end_process(process, PATIENCE)
        assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize(("code", "patience", "end"), [("pass", PATIENCE, signal.SIGTERM), (DEAF, 0.1, signal.SIGKILL)])
def test_a_process_is_ended(code: str, patience: float, end: signal.Signals) -> None:
    command = [sys.executable, "-c", WAITS.format(code)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, **OWN_GROUP) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"True\n"  # a group of its own
        end_process(process, patience, attempts=2)
        assert process.returncode == -end
