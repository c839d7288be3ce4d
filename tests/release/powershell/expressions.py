"""Reads expressions."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.release.powershell.cursor import Cursor
from tests.release.powershell.syntax import (
    Array,
    ArrayOf,
    Binary,
    Block,
    Cast,
    Constant,
    Expandable,
    Expression,
    Grouped,
    Index,
    Inner,
    Invocation,
    Member,
    Statement,
    Table,
    TypeName,
    Unary,
    Variable,
)  # fmt: skip

# From those that bind last to those that bind first.
LEVELS = (
    ("-and", "-or", "-xor"),
    ("-band", "-bor", "-bxor"),
    (
        "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-match", "-notmatch", "-like", "-notlike", "-contains",
        "-notcontains", "-in", "-notin", "-replace", "-split", "-join", "-is", "-isnot",
    ),
    ("+", "-"),
    ("*", "/", "%"),
)  # fmt: skip
_OPERATOR = re.compile(r"-[a-z]+\b|[-+*/%](?![-+=])", re.IGNORECASE)
_VARIABLE = re.compile(r"\$(?:\{(?P<braced>[^}:]+)\}|(?:(?P<scope>\w+):(?!:))?(?P<name>\w+))")
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?![\w.])")
_TYPE = re.compile(r"\[\s*([A-Za-z_][\w.]*(?:\[\])?)\s*\]")
_NAME = re.compile(r"[A-Za-z_]\w*")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "`": "`", '"': '"', "$": "$", "'": "'"}


class ExpressionReader(Cursor):
    def statements(self, end: str) -> tuple[Statement, ...]:
        raise NotImplementedError

    def statement(self) -> Statement:
        raise NotImplementedError

    def block(self) -> Block:
        raise NotImplementedError

    def expression(self, level: int = 0, commas: bool = True) -> Expression:
        """Operators of LEVELS[level] and above. Without `commas`, one ends it: it separates arguments."""
        if level == len(LEVELS):
            return self.list_of(self.unary) if commas else self.unary()
        left = self.expression(level + 1, commas)
        while (operator := self._operator(LEVELS[level])) is not None:
            self.lines()
            left = Binary(operator, left, self.expression(level + 1, commas))
        return left

    def _operator(self, known: tuple[str, ...]) -> str | None:
        before = self.place
        self.blanks()
        found = self.match(_OPERATOR)
        if found and found[0].lower() in known:
            return found[0].lower()
        if found and not any(found[0].lower() in level for level in LEVELS):
            raise self.unknown(f"the operator {found[0]}")
        self.place = before
        return None

    def list_of(self, item: Callable[[], Expression]) -> Expression:
        """One item, or an array of several with commas between them."""
        items = [item()]
        while True:
            before = self.place
            self.blanks()
            if not self.take(","):
                self.place = before
                return items[0] if len(items) == 1 else Array(tuple(items))
            self.lines()
            items.append(item())

    def unary(self) -> Expression:
        self.blanks()
        if self.take("!"):
            return Unary("-not", self.unary())
        if found := self.match(re.compile(r"-(?:not|join|split)\b", re.IGNORECASE)):
            return Unary(found[0].lower(), self.unary())
        if self.sees("-", "+", ","):
            raise self.unknown("this unary operator")
        if found := self.match(_TYPE):
            if self.sees("::"):
                return self.postfix(TypeName(found[1]))
            self.blanks()
            if self.sees("\n", ")", "}", ",", ";", "|") or self.ended:
                return TypeName(found[1])
            return Cast(found[1], self.unary())
        return self.postfix(self.primary())

    def primary(self) -> Expression:
        if self.take("'"):
            return self.literal()
        if self.take('"'):
            return self.expandable()
        if self.take("$("):
            return Inner(self.statements(")"))
        if self.take("@("):
            return ArrayOf(self.statements(")"))
        if self.take("@{"):
            return self.table()
        if self.sees("@'", '@"'):
            raise self.unknown("a here-string")
        if self.sees("{"):
            return self.block()
        if self.take("("):
            return self.grouped()
        if self.sees("$"):
            return self.variable()
        if found := self.match(_NUMBER):
            return Constant(float(found[0]) if "." in found[0] else int(found[0]), found[0])
        if re.match(r"[\d.]", self.text[self.place : self.place + 1]):
            raise self.unknown("this number")
        raise self.wrong("an expression")

    def grouped(self) -> Expression:
        self.lines()
        statement = self.statement()
        self.lines()
        self.must(")")
        return Grouped(statement)

    def variable(self) -> Variable:
        found = self.match(_VARIABLE)
        if not found:
            raise self.unknown("this variable")
        scope = (found["scope"] or "").lower()
        if scope not in ("", "env", "global"):
            raise self.unknown(f"the scope {scope}:")
        return Variable(found["braced"] or found["name"], scope)

    def literal(self) -> Constant:
        text = ""
        while True:
            end = self.text.find("'", self.place)
            if end < 0:
                raise self.wrong("the end of a string")
            text += self.text[self.place : end]
            self.place = end + 1
            if not self.take("'"):
                return Constant(text)
            text += "'"

    def expandable(self) -> Expression:
        parts: list[str | Expression] = [""]
        while True:
            if self.ended:
                raise self.wrong("the end of a string")
            if self.sees('"') and not self.sees('""'):
                self.place += 1
                break
            part = self._part()
            if isinstance(part, str) and isinstance(parts[-1], str):
                parts[-1] += part
            else:
                parts.append(part)
        if all(isinstance(part, str) for part in parts):
            return Constant("".join(map(str, parts)))
        return Expandable(tuple(parts))

    def _part(self) -> str | Expression:
        if self.take('""'):
            return '"'
        if self.take("$("):
            return Inner(self.statements(")"))
        if _VARIABLE.match(self.text, self.place):
            found = self.variable()
            # "$name:" names a drive, and PowerShell refuses one without a name after it.
            if self.sees(":") and not self.sees("::"):
                raise self.wrong("a name after the colon")
            return found
        escaped = self.take("`")
        letter = self.text[self.place]
        self.place += 1
        if escaped and letter not in _ESCAPES:
            raise self.unknown(f"the escape `{letter}")
        return _ESCAPES[letter] if escaped else letter

    def table(self) -> Table:
        pairs = []
        self.lines()
        while not self.take("}"):
            name = self.match(_NAME)
            if not name:
                raise self.unknown("this key")
            self.blanks()
            self.must("=")
            self.lines()
            pairs.append((name[0], self.expression()))
            self.blanks()
            if not self.sees("}"):
                if not self.sees("\n", ";"):
                    raise self.wrong("the next key")
                self.match(re.compile(r"[\s;]+"))
                self.lines()
        return Table(tuple(pairs))

    def postfix(self, target: Expression) -> Expression:
        while True:
            if self.sees("::") or (self.sees(".") and not self.sees("..")):
                self.place += 2 if self.sees("::") else 1
                name = self.match(_NAME)
                if not name:
                    raise self.unknown("this name of a member")
                target = Invocation(target, name[0], self.arguments()) if self.take("(") else Member(target, name[0])
            elif self.take("["):
                self.lines()
                target = Index(target, self.expression())
                self.lines()
                self.must("]")
            else:
                return target

    def arguments(self) -> tuple[Expression, ...]:
        arguments = []
        self.lines()
        while not self.take(")"):
            arguments.append(self.expression(commas=False))
            self.lines()
            if not self.sees(")"):
                self.must(",")
                self.lines()
        return tuple(arguments)
