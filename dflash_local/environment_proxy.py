"""EnvironmentProxy: through which proxy a server is asked, and which variable says so."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit


@dataclass(frozen=True)
class EnvironmentProxy:
    """The proxy at `url`, which `variable` of the environment names."""

    url: str
    variable: str

    @property
    def hint(self) -> str:
        """What helps if it does not."""
        return f"correct {self.variable}; hosts of NO_PROXY are asked directly"

    @classmethod
    def of(cls, address: str) -> EnvironmentProxy | None:
        """That of the server at this URL; None if it is asked directly, as one on this machine is: 127.0.0.1 of a proxy
        is the proxy."""
        from urllib.request import getproxies, proxy_bypass

        parts = urlsplit(address)
        host, host_and_port = parts.hostname or "", parts.netloc.rpartition("@")[2]
        if _is_here(host) or proxy_bypass(host) or proxy_bypass(host_and_port):  # NO_PROXY may name a port, too
            return None
        proxies = getproxies()
        kind = parts.scheme if parts.scheme in proxies else "all"
        url = proxies.get(kind)
        if url is None:
            return None
        return cls(url if "://" in url else f"http://{url}", f"{kind.upper()}_PROXY")


def _is_here(host: str) -> bool:
    """Whether a URL's host is this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        found = ip_address(host)
    except ValueError:
        return False
    return found.is_loopback or found.is_unspecified
