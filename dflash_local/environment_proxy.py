"""EnvironmentProxy: through which proxy a server is asked, and what says so; and variables that except a server."""

from __future__ import annotations

import os
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from dflash_local.server_address import is_loopback

_SYSTEM = "the system's proxy settings"  # of macOS and Windows, where no variable names a proxy


@dataclass(frozen=True)
class EnvironmentProxy:
    """The proxy at `url`, which `source` names: a variable of the environment, or the system's settings."""

    url: str
    source: str

    @property
    def hint(self) -> str:
        """Advice when the proxy fails."""
        return f"correct {self.source}; hosts of NO_PROXY are asked directly"

    @classmethod
    def of(cls, address: str) -> EnvironmentProxy | None:
        """That of the server at this URL; None if it is asked directly. None for this machine: a proxy would take
        127.0.0.1 for itself."""
        from urllib.request import getproxies, getproxies_environment, proxy_bypass

        parts = urlsplit(address)
        host, host_and_port = parts.hostname or "", parts.netloc.rpartition("@")[2]
        if _is_this_machine(host):
            return None
        if proxy_bypass(host) or proxy_bypass(host_and_port):  # NO_PROXY may name a port, too
            return None
        proxies = getproxies()
        kind = parts.scheme if parts.scheme in proxies else "all"
        url = proxies.get(kind)
        if url is None:
            return None
        source = f"{kind.upper()}_PROXY" if kind in getproxies_environment() else _SYSTEM
        return cls(url if "://" in url else f"http://{url}", source)


def bypass_variables(address: str) -> dict[str, str]:
    """Variables with which a program asks the server at this URL directly, too, if that is on this machine; none where
    the environment names no proxy, or excepts the server already."""
    from urllib.request import getproxies_environment

    host, proxies = urlsplit(address).hostname or "", getproxies_environment()
    excepted = proxies.pop("no", "")
    if not proxies or not _is_this_machine(host):
        return {}
    # Programs look at either name; on Windows both are one.
    names = ("NO_PROXY",) if os.name == "nt" else ("NO_PROXY", "no_proxy")
    wanted = {name: _excepting(host, os.environ.get(name) or excepted) for name in names}
    return {name: value for name, value in wanted.items() if value != os.environ.get(name)}


def _excepting(host: str, hosts: str) -> str:
    """The value of NO_PROXY, with the host."""
    from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]

    if proxy_bypass_environment(host, {"no": hosts}):
        return hosts
    return ",".join(filter(None, (hosts, host)))


def _is_this_machine(host: str) -> bool:
    """Whether a host can only mean this machine, or is 0.0.0.0 or ::, where this machine answers, too."""
    if is_loopback(host):
        return True
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False
