"""In what PowerShells differ, as far as scripts here depend on it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PowerShell:
    name: str
    # Under $ErrorActionPreference = 'Stop', a line on a redirected stderr of a program is an exception.
    stderr_stops: bool
    # Quotes inside an argument of a program, and backslashes at its end, are escaped; empty arguments are passed on.
    escapes: bool
    # Its .NET has all classes at hand; that of 5.1 waits for Add-Type.
    has_all_classes: bool
    # Full paths of .NET have long names for short ones (NAME~1).
    lengthens: bool


WINDOWS_POWERSHELL = PowerShell("5.1", stderr_stops=True, escapes=False, has_all_classes=False, lengthens=True)
# Since 7.3, where PSNativeCommandArgumentPassing is 'Windows'.
POWERSHELL_7 = PowerShell("7", stderr_stops=False, escapes=True, has_all_classes=True, lengthens=False)
