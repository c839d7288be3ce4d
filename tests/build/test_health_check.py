"""The containers' health check, without a container: whom it asks, and what it says."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from dflash_local.baseline import free_port
from tests.tls_server import certificate, needs_openssl

HEALTHY = Path(__file__).resolve().parents[2] / "containers" / "dflash-healthy"


class Health(BaseHTTPRequestHandler):
    """Healthy at /health and /prefix/health; loading a model at /loading/health."""

    def do_GET(self) -> None:
        known = {"/health": 200, "/prefix/health": 200, "/loading/health": 503}
        self.send_response(known.get(self.path, 404))
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serving(tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """The port of such a server."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Health) as server:
        if tls:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def check(port: int, **variables: str) -> str:
    """What is wrong, or nothing. There is a proxy that answers nobody."""
    proxies = dict.fromkeys(("http_proxy", "https_proxy"), f"http://127.0.0.1:{free_port()}")
    environment = {"PATH": os.environ["PATH"], **proxies, "LLAMA_ARG_PORT": str(port), **variables}
    done = subprocess.run([sys.executable, HEALTHY], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == bool(done.stderr)
    assert len(done.stderr.splitlines()) <= 1
    return done.stderr


def test_asks_where_serve_listens() -> None:
    with serving() as port:
        assert check(port) == ""
        assert check(port, LLAMA_ARG_API_PREFIX="/prefix/") == ""


@pytest.mark.parametrize(("prefix", "status"), [("/loading", 503), ("/other", 404)])
def test_anything_but_health_is_unhealthy(prefix: str, status: int) -> None:
    with serving() as port:
        said = check(port, LLAMA_ARG_API_PREFIX=prefix)
    assert said.startswith(f"http://127.0.0.1:{port}{prefix}/health: ") and str(status) in said


def test_nobody_is_unhealthy() -> None:
    port = free_port()
    assert check(port).startswith(f"http://127.0.0.1:{port}/health: ")


def test_what_is_no_port_is_unhealthy() -> None:
    assert "http://127.0.0.1:eighty" in check(0, LLAMA_ARG_PORT="eighty")


@needs_openssl
def test_a_certificate_for_another_name_is_fine(tmp_path: Path) -> None:
    path, tls = certificate(tmp_path, "DNS:example.test")
    with serving(tls) as port:
        assert check(port, LLAMA_ARG_SSL_CERT_FILE=str(path)) == ""
        assert check(port) != ""
