"""TLS: which authorities are trusted, by `chat --url` and `launch` as by fetched media, and what failed of it."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from dflash_local.errors import ServerError

if TYPE_CHECKING:
    import ssl

# For a server whose certificate is not trusted, or which has none.
TLS_HINT = "SSL_CERT_FILE names authorities to trust; a server without TLS has an address with http://"


@cache
def tls_context() -> ssl.SSLContext:
    """For connections to servers: the system's authorities, where a company adds its own, or those of SSL_CERT_FILE;
    those that httpx brings where there are none. Do not change it: it is the same for all callers.

    Raises:
        ServerError: SSL_CERT_FILE names no file of authorities, or the folder of SSL_CERT_DIR cannot be read.
    """
    import ssl

    context = ssl.create_default_context()
    if named := os.environ.get("SSL_CERT_FILE"):
        _load(context, named)
    paths = ssl.get_default_verify_paths()
    if paths.cafile or (paths.capath and _has_files(Path(paths.capath))) or context.cert_store_stats()["x509_ca"]:
        return context
    import httpx

    return httpx.create_ssl_context()


def _load(context: ssl.SSLContext, file: str) -> None:
    """Load authorities; OpenSSL takes the same file by itself, but ignores a wrong one. Raises ServerError."""
    try:
        context.load_verify_locations(file)
    except OSError as error:
        message = f"cannot read the authorities to trust from {file}: {error.strerror}"
        raise ServerError(message, hint="correct SSL_CERT_FILE") from None


def _has_files(folder: Path) -> bool:
    """Whether a folder of authorities has some; they are not counted before one is needed. Raises ServerError."""
    try:
        return any(folder.iterdir())
    except OSError as error:
        message = f"cannot read the authorities to trust in {folder}: {error.strerror}"
        raise ServerError(message, hint="correct SSL_CERT_DIR, or the folder's rights") from None


def tls_error(error: BaseException | None) -> ssl.SSLError | None:
    """The TLS error that a fault of the network comes from, if it does."""
    import ssl

    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    return error
