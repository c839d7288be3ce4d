"""The path of a request below the server's own."""

from __future__ import annotations

from starlette.types import Scope


def route_path(scope: Scope) -> str:
    """The path below the root path."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))
