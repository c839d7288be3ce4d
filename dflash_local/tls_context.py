"""TLS: which authorities are trusted, by `chat --url` and `launch` as by fetched media, and what failed of it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl


@cache
def tls_context() -> ssl.SSLContext:
    """For connections to servers: the system's authorities, where a company adds its own, or those of SSL_CERT_FILE;
    those that httpx brings where there are none. Do not change it: it is the same for all callers."""
    import ssl

    context = ssl.create_default_context()
    paths = ssl.get_default_verify_paths()
    # What is in a folder of authorities is not counted, since it is read only when one is needed.
    if paths.cafile or (paths.capath and any(Path(paths.capath).iterdir())) or context.cert_store_stats()["x509_ca"]:
        return context
    import httpx

    return httpx.create_ssl_context()


def tls_error(error: BaseException | None) -> ssl.SSLError | None:
    """The TLS error that a fault of the network comes from, if it does."""
    import ssl

    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    return error
