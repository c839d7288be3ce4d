"""A window with PowerShell, or a process that runs a script: what the tests use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.release.powershell.faults import Exited, Thrown
from tests.release.powershell.interpreter import Interpreter
from tests.release.powershell.parser import parse
from tests.release.powershell.values import text_of
from tests.release.powershell.version import PowerShell
from tests.release.powershell.windows import Machine


@dataclass
class Session:
    machine: Machine
    powershell: PowerShell

    def __post_init__(self) -> None:
        self.interpreter = Interpreter(self.machine, self.powershell)
        self.closed = False
        self.failed = False  # the last line, by an error that nothing caught

    @property
    def variables(self) -> dict[str, Any]:
        """Those that outlive a line, by names in lower case."""
        return self.interpreter.root.own

    @property
    def functions(self) -> list[str]:
        return list(self.interpreter.root.functions)

    def type(self, line: str) -> str:
        """Run a line. Returns what the window shows; `closed` says whether it is still there."""
        console = self.interpreter.console = []
        self.failed = False
        try:
            for value in self.interpreter.statements(parse(line).statements, self.interpreter.root):
                console.append(text_of(value))
        except Thrown as fault:
            console.append(fault.message)
            self.failed = True
        except Exited:
            self.closed = True
        return "".join(f"{text}\n" for text in console)

    def fails(self, line: str) -> bool:
        """Run a line. Whether an error has ended it."""
        self.type(line)
        return self.failed


@dataclass(frozen=True)
class Ended:
    code: int
    said: str


def run_file(machine: Machine, powershell: PowerShell, path: str, arguments: str = "") -> Ended:
    """`powershell -File PATH ARGUMENTS`, with the arguments as they would be typed."""
    session = Session(machine, powershell)
    said = session.type(f"& '{path}' {arguments}")
    # An error that nothing catches ends a script with 1; else its code is that of `exit`, or 0.
    return Ended(1 if session.failed else session.interpreter.exit_code, said)
