"""Reads commands with their arguments."""

from __future__ import annotations

import re

from tests.release.powershell.expressions import ExpressionReader
from tests.release.powershell.syntax import Command, Constant, Expression, Named, Redirection, Splat

_COMMAND = re.compile(r"[A-Za-z_%?][^\s(){};,|&\"'$<>]*")
_PARAMETER = re.compile(r"-([A-Za-z_]\w*)(:?)")
_SPLAT = re.compile(r"@([A-Za-z_]\w*)")
_REDIRECTION = re.compile(r"(\*|\d)?>(>|&1)?")
_WORD = re.compile(r"[^\s(){};,|&\"'$<>@]+")
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_ENDS = ("\n", ";", "|", ")", "}")


class CommandReader(ExpressionReader):
    def starts_command(self) -> bool:
        return self.sees("&") or _COMMAND.match(self.text, self.place) is not None

    def command(self) -> Command:
        name = self._name()
        arguments: list[Expression | Named | Splat] = []
        redirections: list[Redirection] = []
        while True:
            self.blanks()
            if self.ended or self.sees(*_ENDS):
                return Command(name[0], name[1], tuple(arguments), tuple(redirections))
            if self.sees("&", "<"):
                raise self.unknown("this sign")
            if found := self.match(_REDIRECTION):
                redirections.append(self._redirection(found))
            else:
                arguments.append(self._argument())

    def _name(self) -> tuple[Expression, bool]:
        if self.take("&"):
            self.blanks()
            word = self.match(_COMMAND)
            return (Constant(word[0]) if word else self.postfix(self.primary())), True
        word = self.match(_COMMAND)
        assert word
        # Under strict mode 2.0, PowerShell refuses a function that is called like a method.
        if self.sees("(", "$", '"', "'"):
            raise self.unknown("a command without a blank after its name")
        return Constant(word[0]), False

    def _redirection(self, found: re.Match[str]) -> Redirection:
        if found[1] not in ("2", "*") or found[2] == ">":
            raise self.unknown("this redirection")
        if found[2]:
            return Redirection(found[1], None)
        self.blanks()
        return Redirection(found[1], self._value())

    def _argument(self) -> Expression | Named | Splat:
        if splat := self.match(_SPLAT):
            return Splat(splat[1])
        if parameter := self.match(_PARAMETER):
            if parameter[2]:
                self.blanks()
            return Named(parameter[1], self.list_of(self._value) if parameter[2] else None)
        return self.list_of(self._value)

    def _value(self) -> Expression:
        if self.sees("$", '"', "'", "(", "@", "{"):
            value = self.postfix(self.primary())
            if not self.ended and not self.sees(*_ENDS, " ", "\t", ","):
                raise self.unknown("an argument of several parts")
            return value
        word = self.match(_WORD)
        if not word:
            raise self.wrong("an argument")
        # A parenthesis begins the next argument, as in `New-Object Name($x)`; other signs would go on with this one.
        if self.sees("$", '"', "'", "@") or "`" in word[0] or word[0].startswith("["):
            raise self.unknown("an argument of several parts")
        number = _NUMBER.fullmatch(word[0])
        if not number:
            return Constant(word[0])
        return Constant(float(word[0]) if number[1] else int(word[0]), word[0])
