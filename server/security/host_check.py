"""Host names: which are this machine's, and which a client may have asked for."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from dflash_local.server.http_errors import HTTPError, error_response
from dflash_local.server.middleware.http_middleware import HTTPMiddleware

ANY = "*"
# Names that nobody can register, so that no foreign web page has them: RFC 6761, RFC 6762, RFC 8375, ICANN's .internal.
PRIVATE_SUFFIXES = (".localhost", ".local", ".internal", ".home.arpa", ".test")


class HostCheck(HTTPMiddleware):
    """ASGI middleware for a server that listens on this machine only: 403 for requests to a foreign host name. That
    stops a web page whose own name points here (DNS rebinding): for the browser it is of the same origin.

    Addresses and names that nobody can register are fine: containers and tunnels use them.
    """

    def __init__(self, app: ASGIApp, allowed: Sequence[str]) -> None:
        super().__init__(app)
        self._allowed = {name.lower() for name in allowed}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._allows(host := Headers(scope=scope).get("host", "")):
            await error_response(_refusal(host))(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _allows(self, host: str) -> bool:
        name = _without_port(host).lower().rstrip(".")
        return name in self._allowed or ANY in self._allowed or _is_private(name)


def _is_private(name: str) -> bool:
    if "." not in name or name.endswith(PRIVATE_SUFFIXES):
        return True
    try:
        return bool(ip_address(name))
    except ValueError:
        return False


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _refusal(host: str) -> HTTPError:
    return HTTPError(
        403,
        f"this server does not answer to the name {host!r:.80}: start it with --allowed-hosts to add it",
        code="host_not_allowed",
    )
