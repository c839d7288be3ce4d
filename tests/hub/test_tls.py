"""TLS of the Hub: which certificates are trusted, and one error at once for those that are not."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dflash_local.errors import HubError
from dflash_local.hub.client import Hub
from dflash_local.hub.url_file import fetch_url
from tests.tls_server import certificate, needs_openssl

from .stand_in import StandIn, stand_in

REPO, CONTENT = "user/Model", b"GGUF\3" + bytes(19)  # the shortest GGUF: no keys, no tensors
pytestmark = pytest.mark.usefixtures("cache_folder", "own_folders", "new_session")


@pytest.fixture
def new_session(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """huggingface_hub makes its session once, and this test another one: by its own variables."""
    from huggingface_hub import close_session

    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    close_session()
    yield
    close_session()


@pytest.fixture
def pem(tmp_path: Path) -> Path:
    """The certificate of `secure`."""
    return tmp_path / "certificate.pem"


@pytest.fixture
def secure(tmp_path: Path, pem: Path) -> Iterator[StandIn]:
    path, context = certificate(tmp_path)
    assert path == pem
    with stand_in(context) as server:
        server.add(REPO, {"model.gguf": CONTENT})
        yield server


def failure(endpoint: str) -> HubError:
    with pytest.raises(HubError) as caught:
        Hub(endpoint=endpoint).files(REPO)
    return caught.value


@needs_openssl
def test_a_certificate_that_is_not_trusted(secure: StandIn, waits: list[float]) -> None:
    error = failure(secure.endpoint)
    assert error.message.startswith(f"cannot get {REPO} from {secure.endpoint}: no TLS connection: ")
    assert "CERTIFICATE_VERIFY_FAILED" in error.message
    assert error.hint and "SSL_CERT_FILE" in error.hint and error.cache_may_serve
    with pytest.raises(HubError, match="no TLS connection") as caught:
        fetch_url(f"{secure.cdn}/{REPO}/model.gguf", Hub(endpoint="https://hub.invalid"))
    assert caught.value.hint == error.hint
    assert (secure.requests, waits) == ([], [])


@needs_openssl
def test_an_authority_of_the_user(secure: StandIn, pem: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(pem))
    hub = Hub(endpoint=secure.endpoint)
    assert hub.download(hub.files(REPO))[0].read_bytes() == CONTENT
    assert fetch_url(f"{secure.cdn}/{REPO}/model.gguf", hub).read_bytes() == CONTENT


def test_authorities_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: list[float]) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    error = failure("https://127.0.0.1:1")
    assert error.message.startswith("cannot go online: ") and error.hint and "correct SSL_CERT_FILE" in error.hint
    assert waits == []


def test_a_server_without_tls(server: StandIn, waits: list[float]) -> None:
    error = failure(server.endpoint.replace("http:", "https:"))
    assert "no TLS connection" in error.message and error.hint and "http://" in error.hint
    assert waits == []


def test_a_server_that_breaks_off(waits: list[float]) -> None:
    """It may be busy, and is asked again."""

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection = listener.accept()[0]
                with connection:
                    connection.recv(1 << 16)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        try:
            error = failure(f"https://127.0.0.1:{listener.getsockname()[1]}")
        finally:
            listener.shutdown(socket.SHUT_RDWR)
    assert "EOF" in error.message and (error.status, len(waits)) == (0, 3)
