"""How a program of this machine reaches a server, by the flags of `serve`."""

from __future__ import annotations

from dflash_local.cli.flags.http_flags import HttpFlags, url_from_here
from dflash_local.errors import RequestError


def url_of(args: HttpFlags) -> str:
    """The server's address, without /v1. Raises RequestError if it has none that is known before."""
    from dflash_local.server.sockets import is_unix

    host = args.host[0]
    if is_unix(host):
        raise RequestError(f"programs cannot reach the UNIX socket {host}", param="--host", hint="give an address")
    if args.port == 0:
        raise RequestError("--port 0 takes a port that is not known before", param="--port", hint="give a number")
    return url_from_here(host, args.listening_port, "https" if args.ssl_cert_file else "http") + args.api_prefix


def key_of(args: HttpFlags) -> str | None:
    """The key that the server wants; None for one that wants none. Raises RequestError."""
    from dflash_local.server.security.api_keys import read_keys

    keys = read_keys(args.api_key, args.api_key_file)
    return keys[0] if keys else None
