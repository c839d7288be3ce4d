"""Tls: a certificate and its key, known to fit before a server starts with them."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from dflash_local.errors import RequestError

FLAGS = "--ssl-key-file and --ssl-cert-file"


@dataclass(frozen=True)
class Tls:
    """PEM files, as paths."""

    key: str
    cert: str

    @classmethod
    def of(cls, key: str | None, cert: str | None) -> Tls | None:
        """From the two flags; None if neither is given.

        Raises:
            RequestError: one is missing, cannot be read, or they do not belong together.
        """
        if not key and not cert:
            return None
        if not key or not cert:
            missing = "--ssl-cert-file" if key else "--ssl-key-file"
            raise RequestError(f"HTTPS needs {FLAGS}: {missing} is missing", param=missing, hint=f"give {missing}")
        for flag, path in (("--ssl-key-file", key), ("--ssl-cert-file", cert)):
            try:
                with open(path, "rb"):  # noqa: PTH123  what a flag names is a str all the way to OpenSSL
                    pass
            except OSError as error:
                raise RequestError(
                    f"cannot read {path}: {error.strerror}", param=flag, hint=f"give {flag} a PEM file"
                ) from None
        try:
            # Without a password OpenSSL would ask on the terminal.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password=lambda: "")
        except (ssl.SSLError, ValueError) as error:
            raise RequestError(
                f"{cert} and {key} are no certificate and its key: {error}",
                param="--ssl-cert-file",
                hint="give the PEM certificate and the unencrypted PEM key that belongs to it",
            ) from None
        return cls(key, cert)
