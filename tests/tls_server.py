"""TLS for a test's server: a certificate that is its own authority."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl, which makes a certificate")


def certificate(folder: Path, name: str = "IP:127.0.0.1") -> tuple[Path, ssl.SSLContext]:
    """The PEM file of a certificate for `name`, such as DNS:example.test, and the context of a server that has it."""
    key, path = folder / "key.pem", folder / "certificate.pem"
    extensions = (f"subjectAltName={name}", "keyUsage=digitalSignature,keyCertSign")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-noenc", "-subj", "/CN=test", "-days", "1"]
    added = [word for extension in extensions for word in ("-addext", extension)]
    subprocess.run([*command, *added, "-keyout", key, "-out", path], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path, key)
    return path, context
