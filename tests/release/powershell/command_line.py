"""A program's arguments on Windows: one line of text, which PowerShell writes and the program's C library splits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from subprocess import list2cmdline

from tests.release.powershell.version import PowerShell


def write(arguments: Sequence[str], powershell: PowerShell, program: str) -> str:
    # PowerShell 7 writes for scripts of cmd as it did before 7.3: it escapes backslashes at the end, but no quotes.
    is_script = program.lower().endswith((".cmd", ".bat"))
    if powershell.escapes and not is_script:
        return list2cmdline(arguments)
    words = []
    for argument in filter(None, arguments):
        if not _needs_quotes(argument):
            words.append(argument)
            continue
        end = re.search(r"\\*$", argument)
        assert end
        words.append(f'"{argument}{end[0] if powershell.escapes else ""}"')
    return " ".join(words)


def _needs_quotes(argument: str) -> bool:
    """NeedQuotes() of PowerShell's NativeCommandParameterBinder: a blank outside quotes that are not escaped."""
    quotes, after_backslash = 0, False
    for letter in argument:
        if letter == '"' and not after_backslash:
            quotes += 1
        elif letter.isspace() and quotes % 2 == 0:
            return True
        after_backslash = letter == "\\"
    return False


def split(line: str) -> list[str]:
    """As the C library of Microsoft's compilers does. Two quotes inside quotes are one."""
    arguments = []
    place = 0
    while place < len(line):
        if line[place] in " \t":
            place += 1
            continue
        argument, place = _argument(line, place)
        arguments.append(argument)
    return arguments


def _argument(line: str, place: int) -> tuple[str, int]:
    text, quoted = "", False
    while place < len(line) and (quoted or line[place] not in " \t"):
        slashes = len(line[place:]) - len(line[place:].lstrip("\\"))
        place += slashes
        if line[place : place + 1] == '"':
            text += "\\" * (slashes // 2)
            if slashes % 2:
                text += '"'
            elif quoted and line[place + 1 : place + 2] == '"':
                text += '"'
                place += 1
            else:
                quoted = not quoted
            place += 1
        elif slashes:
            text += "\\" * slashes
        else:
            text += line[place]
            place += 1
    return text, place
