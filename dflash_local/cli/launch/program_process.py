"""The process of a program that `launch` starts, and the signals that end it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from dflash_local.child_process import end_process
from dflash_local.cli.launch.program import Program
from dflash_local.cli.launch.setup import Place
from dflash_local.errors import DFlashError

_PATIENCE = 10.0  # seconds for a program to end when it is asked to


def executable_of(program: Program) -> str:
    """Its path. Raises DFlashError if it is not installed."""
    if path := shutil.which(program.command):
        return path
    raise DFlashError(f"{program.title} is not installed: there is no '{program.command}'", hint=program.install)


def run_program(program: Program, executable: str, place: Place, passed: Sequence[str]) -> int:
    """Run a program with the user's arguments until it ends. Returns its exit status.

    Raises:
        DFlashError: it cannot be started, or its files cannot be written.
    """
    setup = program.setup_at(place)
    setup.write_files()
    command = [executable, *setup.arguments, *passed]
    # The terminal sends Ctrl-C to the program, too, which decides what it means.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        status = _run(command, {**os.environ, **setup.variables})
    except OSError as error:  # such as a script whose interpreter is gone
        message = f"{program.title} cannot be started: {executable}: {error.strerror or error}"
        raise DFlashError(message, hint=program.install) from None
    finally:
        signal.signal(signal.SIGINT, before)
    return 128 - status if status < 0 else status


def _run(command: Sequence[str], variables: Mapping[str, str]) -> int:
    process = subprocess.Popen(command, env=variables)
    try:
        return process.wait()
    finally:
        if process.poll() is None:
            end_process(process, _PATIENCE)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """The end of this process, or of its terminal, is the end of all that it started."""

    def end(number: int, _frame: object) -> None:
        sys.exit(128 + number)

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        if before[number] != signal.SIG_IGN:  # nohup
            signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
