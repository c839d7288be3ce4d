"""MediaHosts: the hosts that images and audio may be fetched from."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAME = re.compile(r"(\*\.)?[a-z0-9_](?:[a-z0-9_.-]{0,251}[a-z0-9])?(?::(\d{1,5}))?")
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class MediaHosts:
    """Exact host names (`example.com`, `example.com:8443`), and `*.example.com` for all names below one.

    Raises:
        ValueError: a name is malformed.
    """

    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self.names:
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name!r:.80} is no host name: write example.com or *.example.com")

    @classmethod
    def of(cls, text: str) -> MediaHosts:
        """From a list with commas. Raises ValueError."""
        names = (name.strip().rstrip(".").lower() for name in text.split(","))
        return cls(tuple(name for name in names if name))

    def allow(self, scheme: str, host: str, port: int) -> bool:
        """Whether a URL of this host may be fetched. Without a port in the list, it must be the scheme's own."""
        host = host.lower().rstrip(".")
        return any(self._fits(name, host, port, _PORTS.get(scheme, 0)) for name in self.names)

    @staticmethod
    def _fits(name: str, host: str, port: int, usual: int) -> bool:
        name, _, wanted = name.partition(":")
        if port != int(wanted or usual):
            return False
        return host.endswith(name[1:]) if name.startswith("*.") else host == name
