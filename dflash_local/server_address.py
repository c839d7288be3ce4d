"""Addresses of servers: which URLs are some, which hosts are this machine, and how messages show them."""

from __future__ import annotations

import re
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from dflash_local.errors import RequestError

# What comes before a host, its first group before a user's name and password: as URLs have it, and with a password of
# any letters.
_USER = re.compile(r"^([^/?#]*//)?[^/?#]*@")
_ANY_USER = re.compile(r"^((?:[^/?#:@]*:)?//|(?!(?:[^/?#:@]*:)?//)).*:.*@", re.DOTALL)
_URL_WORD = re.compile(r"(--[\w-]+=)?([\w+.-]+://.*)", re.DOTALL)


def server_address(url: str) -> str:
    """A server's URL without a final slash or /v1. Raises RequestError if it is none."""
    parts = http_url(url)
    if parts is None or parts.query or parts.fragment:  # a path is added
        hint = "such as http://127.0.0.1:8080"
        if "@" in url:
            hint += "; in a password, / ? # @ are written %2F %3F %23 %40"
        raise RequestError(f"{shown_wrong_address(url)!r} is no URL of a server", param="url", hint=hint)
    return parts._replace(path=parts.path.rstrip("/").removesuffix("/v1")).geturl()


def http_url(url: str) -> SplitResult | None:
    """The parts of an http(s) URL with a host; None if it is none."""
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port, or the brackets of an IPv6 address
        return None
    return parts if is_url else None


def shown_address(url: str) -> str:
    """A URL for messages: without a user's name and password."""
    return _USER.sub(r"\1", url) if http_url(url) else shown_wrong_address(url)


def shown_url(word: str) -> str:
    """A word of a command line. If it is a URL, or a flag with one, that is without a user's name and password."""
    match = _URL_WORD.fullmatch(word)
    return (match[1] or "") + shown_address(match[2]) if match else word


def shown_wrong_address(url: str) -> str:
    """What is refused as a URL, for messages. A password may have / ? # as they are, so nothing is shown of what comes
    before the last @, if that has a colon behind the scheme's."""
    return _USER.sub(r"\1", _ANY_USER.sub(r"\1", url))


def is_loopback(host: str) -> bool:
    """Whether a name or an address can only mean this machine."""
    name = host.lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
