"""The parts of a parsed script."""

from __future__ import annotations

from dataclasses import dataclass, field


class Expression:
    """Has one value, which may be an array."""


@dataclass(frozen=True)
class Statement:
    """Writes values, none or many, to its pipeline."""

    line: int = field(default=0, compare=False, kw_only=True)


@dataclass(frozen=True)
class Constant(Expression):
    value: object
    text: str = ""  # of a number without quotes: parameters of type string get it as it was written


@dataclass(frozen=True)
class Expandable(Expression):
    parts: tuple[str | Expression, ...]


@dataclass(frozen=True)
class Variable(Expression):
    name: str
    scope: str = ""  # "global", "env", or none


@dataclass(frozen=True)
class TypeName(Expression):
    name: str


@dataclass(frozen=True)
class Cast(Expression):
    type: str
    operand: Expression


@dataclass(frozen=True)
class Unary(Expression):
    operator: str
    operand: Expression


@dataclass(frozen=True)
class Binary(Expression):
    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True)
class Array(Expression):
    """`a, b`"""

    items: tuple[Expression, ...]


@dataclass(frozen=True)
class ArrayOf(Expression):
    """`@(...)`"""

    statements: tuple[Statement, ...]


@dataclass(frozen=True)
class Inner(Expression):
    """`$(...)`"""

    statements: tuple[Statement, ...]


@dataclass(frozen=True)
class Grouped(Expression):
    """`(...)`"""

    statement: Statement


@dataclass(frozen=True)
class Table(Expression):
    """`@{...}`"""

    pairs: tuple[tuple[str, Expression], ...]


@dataclass(frozen=True)
class Member(Expression):
    target: Expression
    name: str


@dataclass(frozen=True)
class Invocation(Expression):
    target: Expression
    name: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True)
class Index(Expression):
    target: Expression
    index: Expression


@dataclass(frozen=True)
class Parameter:
    name: str
    type: str
    default: Expression | None


@dataclass(frozen=True)
class Block(Expression):
    """A script, a function's body, or `{...}`. `file` is the script that it was read from, if it was."""

    statements: tuple[Statement, ...]
    parameters: tuple[Parameter, ...] = ()
    binding: frozenset[str] | None = None  # CmdletBinding's arguments, in lower case, if it is there
    file: str = ""


@dataclass(frozen=True)
class Named:
    """`-Name` of a command's arguments, and its value if that comes after a colon."""

    name: str
    value: Expression | None = None


@dataclass(frozen=True)
class Splat:
    variable: str


@dataclass(frozen=True)
class Redirection:
    source: str  # "2" or "*"
    target: Expression | None  # None is `&1`


@dataclass(frozen=True)
class Command:
    name: Expression
    called: bool  # by `&`
    arguments: tuple[Expression | Named | Splat, ...]
    redirections: tuple[Redirection, ...]


@dataclass(frozen=True)
class Pipeline(Statement):
    elements: tuple[Expression | Command, ...]


@dataclass(frozen=True)
class Assignment(Statement):
    target: Expression
    operator: str
    value: Statement


@dataclass(frozen=True)
class If(Statement):
    clauses: tuple[tuple[Statement, Block], ...]
    otherwise: Block | None


@dataclass(frozen=True)
class Foreach(Statement):
    variable: str
    source: Statement
    body: Block


@dataclass(frozen=True)
class Try(Statement):
    body: Block
    handler: Block | None
    last: Block | None


@dataclass(frozen=True)
class Function(Statement):
    name: str
    body: Block


@dataclass(frozen=True)
class Leave(Statement):
    """`return`, `throw` or `exit`."""

    word: str
    value: Statement | None
