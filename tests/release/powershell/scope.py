"""Variables and functions. A scope's parent is that of its caller: PowerShell's scopes are dynamic."""

from __future__ import annotations

from typing import Any

from tests.release.powershell.faults import Thrown
from tests.release.powershell.syntax import Block
from tests.release.powershell.values import converted

MISSING = object()
CONSTANTS = {"true": True, "false": False, "null": None}


class Scope:
    def __init__(self, parent: Scope | None = None, file: str = "") -> None:
        self.parent = parent
        self.own: dict[str, Any] = {"pscommandpath": file}
        self.types: dict[str, str] = {}
        self.functions: dict[str, Block] = {}
        self.strict: bool | None = None

    def find(self, name: str) -> Any:
        name = name.lower()
        if name in CONSTANTS:
            return CONSTANTS[name]
        scope: Scope | None = self
        while scope is not None:
            if (value := scope.here(name)) is not MISSING:
                return value
            scope = scope.parent
        return MISSING

    def here(self, name: str) -> Any:
        return self.own.get(name, MISSING)

    def set(self, name: str, value: Any) -> None:
        name = name.lower()
        if name == "null":
            return
        if name in CONSTANTS or name in ("pid", "home", "executioncontext", "pscommandpath"):
            raise Thrown(f"Cannot overwrite variable {name} because it is read-only or constant.")
        self.own[name] = converted(value, self.types[name]) if self.types.get(name) else value

    def function(self, name: str) -> Block | None:
        scope: Scope | None = self
        while scope is not None:
            if name.lower() in scope.functions:
                return scope.functions[name.lower()]
            scope = scope.parent
        return None

    @property
    def is_strict(self) -> bool:
        scope: Scope | None = self
        while scope is not None:
            if scope.strict is not None:
                return scope.strict
            scope = scope.parent
        return False

    @property
    def root(self) -> Scope:
        return self if self.parent is None else self.parent.root


class ItemScope(Scope):
    """The scope of a block that runs in its caller's, as those of Where-Object and `catch` do: only `$_` is its own."""

    def __init__(self, outer: Scope, item: Any) -> None:
        super().__init__(outer.parent)
        self.own, self.types, self.functions = outer.own, outer.types, outer.functions
        self.outer = outer
        self.item = item

    def here(self, name: str) -> Any:
        if name == "_":
            return self.item
        return self.outer.here(name)

    @property
    def is_strict(self) -> bool:
        return self.outer.is_strict
