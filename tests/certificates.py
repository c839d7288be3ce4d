"""Certificates for servers of tests, by openssl, and the contexts that serve with them."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

NEEDS_OPENSSL = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl, which makes a certificate")


def serving_context(folder: Path, name: str) -> tuple[ssl.SSLContext, Path]:
    """For a server with a certificate of its own for `name`, such as IP:127.0.0.1, and the file of that certificate."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-noenc", "-subj", "/CN=test", "-days", "1"]
    command += ["-addext", f"subjectAltName={name}", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context, certificate
