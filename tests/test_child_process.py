"""How child processes end: asked first, killed if they do not."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from dflash_local.child_process import OWN_GROUP, end_process
from tests.patience import PATIENCE

WAITS = "import os, signal, time; {}; print(os.getpgid(0) == os.getpid(), flush=True); time.sleep(1000)"
DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"


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
