"""What an app serves, as its process sees it: a Service, or a Router."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dflash_local.server.settings import Settings


class Served(Protocol):
    """What a server needs from its app's state."""

    settings: Settings
    stop: Callable[[], None]  # ends the server; the server sets it

    @property
    def failure(self) -> Exception | None:
        """Why it ended by itself."""

    def start(self) -> None:
        """Begin; the event loop runs."""

    def drain(self) -> None:
        """Expect no more requests; those that would never end by themselves, if there are any, must end now."""
        return

    async def close(self) -> None:
        """End everything that runs."""
