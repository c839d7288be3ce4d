"""Which authorities are trusted: the system's, and httpx's where there are none. What is an error of TLS."""

from __future__ import annotations

import ssl
from pathlib import Path

import httpx
import pytest

from dflash_local.errors import ServerError
from dflash_local.tls_context import tls_context, tls_error


def test_authorities_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "company.pem"
    one = ssl.DER_cert_to_PEM_cert(httpx.create_ssl_context().get_ca_certs(binary_form=True)[0])
    own.write_text(one, encoding="ascii")
    monkeypatch.setenv("SSL_CERT_FILE", str(own))
    found = tls_context.__wrapped__()
    assert found.verify_mode is ssl.CERT_REQUIRED and found.check_hostname
    assert ssl.PEM_cert_to_DER_cert(one) in found.get_ca_certs(binary_form=True)


def test_a_system_without_authorities(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    nothing = ssl.DefaultVerifyPaths("", "", "", "", "", "")
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: nothing)
    monkeypatch.setattr(ssl, "create_default_context", lambda: ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    certified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    monkeypatch.setattr(httpx, "create_ssl_context", lambda: certified)
    assert tls_context.__wrapped__() is certified


def test_a_folder_of_authorities_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    gone = ssl.DefaultVerifyPaths("", str(tmp_path / "gone"), "", "", "", "")
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: gone)
    with pytest.raises(ServerError, match="authorities to trust in ") as failure:
        tls_context.__wrapped__()
    assert failure.value.hint and "SSL_CERT_DIR" in failure.value.hint


def test_the_error_behind_a_fault() -> None:
    cause, fault = ssl.SSLCertVerificationError(1, "no"), httpx.ConnectError("no")
    assert tls_error(fault) is None
    fault.__context__ = OSError()
    fault.__context__.__cause__ = cause
    assert tls_error(fault) is cause
