"""Reads scripts: `parse()`."""

from __future__ import annotations

import re

from tests.release.powershell.commands import CommandReader
from tests.release.powershell.syntax import (
    Assignment,
    Block,
    Command,
    Expression,
    Foreach,
    Function,
    If,
    Index,
    Leave,
    Member,
    Parameter,
    Pipeline,
    Statement,
    Try,
    Variable,
)  # fmt: skip

_WORD = re.compile(r"[A-Za-z]+(?![\w-])")
_OTHER_WORDS = {
    "while", "for", "do", "switch", "class", "trap", "data", "begin", "process", "end", "break", "continue", "filter",
    "using", "enum", "until", "dynamicparam", "clean", "else", "elseif", "catch", "finally",
}  # fmt: skip
_ASSIGNMENT = re.compile(r"(\+?=)(?!=)")
_OTHER_ASSIGNMENT = re.compile(r"[-*/%]=|\+\+|--|\?\?=?|\?[.\[]|\?|&&|\|\|")
_FUNCTION = re.compile(r"[A-Za-z][\w-]*")
_BINDING = re.compile(r"\[\s*CmdletBinding\s*\(([^)]*)\)\s*\]", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"\[\s*\w+\s*\(")
_TYPE = re.compile(r"\[\s*([A-Za-z_][\w.]*(?:\[\])?)\s*\]")


def parse(text: str, file: str = "") -> Block:
    """The whole of a script. Raises Thrown where PowerShell would not parse it, NotInSubset where this cannot."""
    return Parser(text, file).script()


class Parser(CommandReader):
    def script(self) -> Block:
        block = self._inside("")
        if not self.ended:
            raise self.wrong("the end of the script")
        return block

    def block(self) -> Block:
        self.must("{")
        return self._inside("}")

    def _inside(self, end: str) -> Block:
        self.lines()
        binding = self.match(_BINDING)
        options = frozenset(re.sub(r"\s", "", binding[1]).lower().split(",")) if binding else None
        self.lines()
        parameters: tuple[Parameter, ...] = ()
        before = self.place
        word = self.match(_WORD)
        if word and word[0].lower() == "param":
            self.blanks()
            parameters = self._parameters()
        elif binding:
            raise self.wrong("param")
        else:
            self.place = before
        return Block(self.statements(end), parameters, options, self.file)

    def _parameters(self) -> tuple[Parameter, ...]:
        self.must("(")
        parameters = []
        self.lines()
        while not self.take(")"):
            if _ATTRIBUTE.match(self.text, self.place):
                raise self.unknown("this attribute")
            type_name = self.match(_TYPE)
            variable = self.variable()
            self.lines()
            default = None
            if self.take("="):
                self.lines()
                default = self.expression(commas=False)
                self.lines()
            parameters.append(Parameter(variable.name, type_name[1].lower() if type_name else "", default))
            if not self.sees(")"):
                self.must(",")
                self.lines()
        return tuple(parameters)

    def statements(self, end: str) -> tuple[Statement, ...]:
        statements: list[Statement] = []
        while True:
            self.match(re.compile(r"[\s;]+"))
            self.lines()
            if self.sees(";"):
                continue
            if end and self.take(end):
                return tuple(statements)
            if self.ended:
                if end:
                    raise self.wrong(repr(end))
                return tuple(statements)
            statements.append(self.statement())
            self.blanks()
            if not self.ended and not self.sees("\n", ";", *([end] if end else ())):
                raise self.wrong("the end of a statement")

    def statement(self) -> Statement:
        before = self.place
        word = self.match(_WORD)
        if word:
            name = word[0].lower()
            reader = {
                "if": self._if, "foreach": self._foreach, "try": self._try, "function": self._function,
                "return": self._leave, "throw": self._leave, "exit": self._leave,
            }.get(name)  # fmt: skip
            if reader:
                return reader(name)
            if name in _OTHER_WORDS:
                raise self.unknown(f"`{name}`")
        self.place = before
        return self._pipeline()

    def _pipeline(self) -> Statement:
        line = self.line
        first: Expression | Command = self.command() if self.starts_command() else self.expression()
        self.blanks()
        if not isinstance(first, Command):
            if found := self.match(_ASSIGNMENT):
                if not isinstance(first, (Variable, Member, Index)):
                    raise self.unknown("this target of an assignment")
                self.lines()
                return Assignment(first, found[1], self.statement(), line=line)
            if self.sees(">", "2>", "*>") or _OTHER_ASSIGNMENT.match(self.text, self.place):
                raise self.unknown("this sign after an expression")
        elements = [first]
        while self.sees("|") and not self.sees("||"):
            self.place += 1
            self.lines()
            if not self.starts_command():
                raise self.wrong("a command")
            elements.append(self.command())
            self.blanks()
        return Pipeline(tuple(elements), line=line)

    def _condition(self) -> Statement:
        self.blanks()
        self.must("(")
        self.lines()
        statement = self.statement()
        self.lines()
        self.must(")")
        self.lines()
        return statement

    def _if(self, _: str) -> If:
        line = self.line
        clauses = [(self._condition(), self.block())]
        while True:
            word = self._next_word("elseif", "else")
            if word == "elseif":
                clauses.append((self._condition(), self.block()))
                continue
            if word:
                self.lines()
            return If(tuple(clauses), self.block() if word else None, line=line)

    def _next_word(self, *words: str) -> str:
        """One of `words`, perhaps some lines below; or "", and nothing is read."""
        before = self.place
        self.lines()
        found = self.match(_WORD)
        if found and found[0].lower() in words:
            return found[0].lower()
        self.place = before
        return ""

    def _foreach(self, _: str) -> Foreach:
        line = self.line
        self.blanks()
        self.must("(")
        self.lines()
        variable = self.variable()
        self.lines()
        word = self.match(_WORD)
        if not word or word[0].lower() != "in":
            raise self.wrong("in")
        self.lines()
        source = self.statement()
        self.lines()
        self.must(")")
        self.lines()
        return Foreach(variable.name, source, self.block(), line=line)

    def _try(self, _: str) -> Try:
        line = self.line
        self.lines()
        body = self.block()
        handler = last = None
        if self._next_word("catch"):
            self.lines()
            if self.sees("["):
                raise self.unknown("a catch of some types")
            handler = self.block()
        if self._next_word("finally"):
            self.lines()
            last = self.block()
        if handler is last is None:
            raise self.wrong("catch or finally")
        return Try(body, handler, last, line=line)

    def _function(self, _: str) -> Function:
        line = self.line
        self.blanks()
        name = self.match(_FUNCTION)
        if not name:
            raise self.wrong("the name of a function")
        self.blanks()
        parameters = self._parameters() if self.sees("(") else ()
        self.lines()
        body = self.block()
        if parameters and body.parameters:
            raise self.wrong("parameters once")
        block = Block(body.statements, parameters or body.parameters, body.binding, self.file)
        return Function(name[0], block, line=line)

    def _leave(self, word: str) -> Leave:
        line = self.line
        self.blanks()
        if self.ended or self.sees("\n", ";", "}", ")"):
            return Leave(word, None, line=line)
        return Leave(word, self.statement(), line=line)
