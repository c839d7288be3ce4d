"""How a script ends early: errors of PowerShell, which `try` catches, and what this interpreter does not know, which
nothing catches."""

from __future__ import annotations

from typing import Any


class NotInSubset(Exception):
    """The script uses something that this interpreter does not have. It is never ignored: add it, or do without."""


class Thrown(Exception):
    """A terminating error. `kind` is the .NET name of its exception."""

    def __init__(self, message: str, kind: str = "RuntimeException") -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind


class NetFault(Exception):
    """An exception that a .NET method raises; PowerShell says around it which method that was."""

    def __init__(self, message: str, kind: str = "Exception") -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind


class Returned(Exception):
    """`return`: its value has been written already."""


class Exited(Exception):
    """`exit`."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def unknown(what: Any) -> NotInSubset:
    return NotInSubset(f"{what} is not in the subset of PowerShell that tests/release/powershell knows")
