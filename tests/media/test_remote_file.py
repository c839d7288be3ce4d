"""Files over HTTP: from allowed hosts at public addresses only, within bounds of time and size."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpcore
import pytest

from dflash_local.media import remote_file
from dflash_local.media.media_hosts import MediaHosts
from dflash_local.media.public_address import is_public
from dflash_local.media.remote_file import RemoteFileError, RemoteFiles
from dflash_local.tls_context import tls_context
from tests.media.samples import png


@pytest.mark.parametrize(
    "address", ["93.184.216.34", "1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "172.32.0.1"]
)
def test_public_addresses(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.9.9.9", "0.0.0.0", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1",
        "169.254.169.254", "100.64.0.1", "192.0.0.8", "192.0.2.1", "198.18.0.1", "198.51.100.7", "203.0.113.9",
        "224.0.0.1", "239.1.1.1",
        "240.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12::1", "fec0::1",
        "ff02::1", "2001:db8::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::1", "2002:7f00:1::", "2001::1", "100::1", "hello", "", "127.1", "0x7f000001", "2130706433",
    ],
)  # fmt: skip
def test_other_addresses(address: str) -> None:
    assert not is_public(address)


class _Site:
    """A web server of this machine, under the name pictures.example, whose pages are functions of its handler."""

    def __init__(self, server: ThreadingHTTPServer, pages: dict[str, Callable[[BaseHTTPRequestHandler], None]]) -> None:
        self.pages, self.port = pages, server.server_address[1]
        self.asked: list[tuple[str, str]] = []  # hosts and paths

    def files(self, **options: object) -> RemoteFiles:
        """What fetches from it, although its address is not public."""
        options = {
            "hosts": MediaHosts.of(f"pictures.example:{self.port},*.other.example:{self.port}"),
            "resolve": lambda host, port: ["127.0.0.1"],
            "is_allowed": lambda address: True,
            **options,
        }
        return RemoteFiles(**options)  # type: ignore[arg-type]

    def url(self, path: str = "/a.png", host: str = "pictures.example") -> str:
        return f"http://{host}:{self.port}{path}"


@contextmanager
def _serving() -> Iterator[_Site]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.asked.append((self.headers["Host"], self.path))
            found.pages[self.path.partition("?")[0]](self)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    found = _Site(server, {"/a.png": lambda handler: _send(handler, png())})
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def site() -> Iterator[_Site]:
    with _serving() as found:
        yield found


def _send(handler: BaseHTTPRequestHandler, data: bytes, status: int = 200, **headers: str) -> None:
    handler.send_response(status)
    for name, value in {"Content-Length": str(len(data)), **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(data)


def _to(location: str, status: int = 302) -> Callable[[BaseHTTPRequestHandler], None]:
    return lambda handler: _send(handler, b"", status, Location=location)


def test_a_file_is_fetched(site: _Site) -> None:
    assert site.files().read(site.url("/a.png?size=2#top")) == png()
    assert site.asked == [(f"pictures.example:{site.port}", "/a.png?size=2")]


def test_redirects_are_followed_to_allowed_hosts(site: _Site) -> None:
    site.pages |= {
        "/1": _to("/2", 301),
        "/2": _to(site.url("/3", "x.other.example"), 307),
        "/3": _to(f"//pictures.example:{site.port}/a.png", 308),
        "/0": _to("/1", 303),
        "/round": _to("/round"),
    }
    assert site.files().read(site.url("/1")) == png()
    for path in ("/0", "/round"):
        with pytest.raises(RemoteFileError, match="redirected more than 3 times"):
            site.files().read(site.url(path))


@pytest.mark.parametrize(
    "target",
    [
        "http://127.0.0.1/a.png", "http://169.254.169.254/latest/meta-data/", "http://[::1]/", "http://localhost/",
        "http://evil.example/", "file:///etc/passwd", "ftp://pictures.example/", "gopher://x", "http://[::",
        "http://pictures.example:22/",
    ],
)  # fmt: skip
def test_redirects_elsewhere_are_refused(site: _Site, target: str) -> None:
    site.pages["/away"] = _to(target)
    with pytest.raises(RemoteFileError, match=r"not allowed|must be a URL|no valid URL|could not be fetched"):
        site.files().read(site.url("/away"))
    assert len(site.asked) == 1


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "[::1]", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "0", "localhost", "169.254.169.254",
        "10.0.0.1", "[::ffff:127.0.0.1]", "pictures.example.evil.example", "pictures.example@evil.example",
        "evil.example#pictures.example", "evil.example\\@pictures.example", "ⓔvil.example", "user@pictures.example",
    ],
)  # fmt: skip
def test_hosts_that_are_not_listed_are_not_asked(site: _Site, host: str) -> None:
    def resolve(host: str, port: int) -> list[str]:
        raise AssertionError(f"{host} was looked up")

    with pytest.raises(RemoteFileError):
        site.files(resolve=resolve).read(f"http://{host}:{site.port}/a.png")
    assert site.asked == []


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"], ["::1"], ["10.1.2.3"], ["169.254.169.254"], ["192.168.0.9"], ["100.64.0.1"], ["fd00::1"],
        ["::ffff:127.0.0.1"], ["0.0.0.0"], ["1.1.1.1", "127.0.0.1"],
    ],
)  # fmt: skip
def test_names_that_lead_to_private_addresses(site: _Site, addresses: list[str]) -> None:
    files = site.files(resolve=lambda host, port: addresses, is_allowed=is_public)
    with pytest.raises(RemoteFileError, match="whose address is not public") as caught:
        files.read(site.url())
    assert not any(address in str(caught.value) for address in addresses)
    assert site.asked == []


def test_a_listed_name_of_this_machine_is_refused_by_the_systems_resolver(site: _Site) -> None:
    for host in ("localhost", "127.0.0.1"):
        files = RemoteFiles(MediaHosts.of(f"{host}:{site.port}"))
        with pytest.raises(RemoteFileError, match="not public"):
            files.read(site.url(host=host))
    assert site.asked == []


def test_the_connection_goes_to_the_address_that_was_checked(site: _Site) -> None:
    """A name that changes its address leads nowhere else: it is looked up once for each connection."""
    answers = iter([["127.0.0.1"], ["10.0.0.1"]])
    files = site.files(resolve=lambda host, port: next(answers))
    assert files.read(site.url()) == png()
    assert next(answers) == ["10.0.0.1"]


def test_a_redirect_is_looked_up_and_checked_again(site: _Site) -> None:
    site.pages["/away"] = _to(site.url("/a.png", "x.other.example"))
    asked: list[str] = []

    def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"] if host == "pictures.example" else ["10.0.0.1"]

    with pytest.raises(RemoteFileError, match="not public"):
        site.files(resolve=resolve, is_allowed=lambda address: address == "127.0.0.1").read(site.url("/away"))
    assert asked == ["pictures.example", "x.other.example"]


def test_the_next_address_is_tried_if_one_does_not_answer(site: _Site) -> None:
    assert site.files(resolve=lambda host, port: ["127.0.0.2", "127.0.0.1"]).read(site.url()) == png()


@pytest.mark.parametrize("status", [204, 206, 400, 401, 403, 404, 500])
def test_other_answers_are_errors(site: _Site, status: int) -> None:
    site.pages["/a.png"] = lambda handler: _send(handler, b"", status)
    with pytest.raises(RemoteFileError, match=f"answered {status}"):
        site.files().read(site.url())


def test_large_files_are_refused(site: _Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_file, "MAX_BYTES", 1000)

    def endless(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        for _ in range(10_000):
            handler.wfile.write(bytes(1000))

    site.pages |= {"/said": lambda handler: _send(handler, bytes(1001)), "/unsaid": endless}
    site.pages["/lied"] = lambda handler: _send(handler, b"", Content_Length="9" * 30)
    for path in ("/said", "/unsaid", "/lied"):
        with pytest.raises(RemoteFileError, match=r"is longer than|could not be fetched"):
            site.files().read(site.url(path))


def test_compressed_answers_are_refused(site: _Site) -> None:
    site.pages["/a.png"] = lambda handler: _send(handler, b"x", Content_Encoding="gzip")
    with pytest.raises(RemoteFileError, match="compressed"):
        site.files().read(site.url())


@pytest.mark.parametrize("drips", ["head", "body"])
def test_a_slow_answer_is_given_up(site: _Site, drips: str) -> None:
    """Byte by byte, so that no single read takes long."""

    def drip(handler: BaseHTTPRequestHandler) -> None:
        start = b"HTTP/1.1 200 OK\r\nX: " if drips == "head" else b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n"
        handler.wfile.write(start)
        for _ in range(400):
            handler.wfile.write(b"x")
            handler.wfile.flush()
            time.sleep(0.05)

    site.pages["/a.png"] = drip
    began = time.monotonic()
    with pytest.raises(RemoteFileError, match=r"did not come within 0\.4 s"):
        site.files(timeout=0.4).read(site.url())
    assert time.monotonic() - began < 15  # of 20


def test_hosts_that_cannot_be_reached(site: _Site) -> None:
    def unknown(host: str, port: int) -> list[str]:
        raise socket.gaierror(-2, "Name or service not known")

    with pytest.raises(RemoteFileError, match="host that is not known"):
        site.files(resolve=unknown).read(site.url())
    with pytest.raises(RemoteFileError, match="has no address"):
        site.files(resolve=lambda host, port: []).read(site.url())
    with pytest.raises(RemoteFileError, match="could not be fetched"):
        site.files(resolve=lambda host, port: ["127.0.0.2"]).read(site.url())

    def greet(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"SSH-2.0-OpenSSH\r\n")

    site.pages["/a.png"] = greet
    with pytest.raises(RemoteFileError, match="could not be fetched"):
        site.files().read(site.url())


def test_without_authorities_no_https(site: _Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tls_context.cache_clear()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    assert site.files().read(site.url()) == png()
    with pytest.raises(RemoteFileError, match="SSL_CERT_FILE names no authorities") as failure:
        site.files().read(site.url().replace("http:", "https:"))
    assert str(tmp_path) not in str(failure.value)


def test_an_address_that_swallows_connections_leaves_time_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """As IPv6 does where a network only pretends to have it."""
    waits: list[float] = []
    connect = httpcore.SyncBackend.connect_tcp

    def swallowed(self: httpcore.SyncBackend, host: str, port: int, timeout: float, *rest: object) -> object:
        waits.append(timeout)
        if host != "127.0.0.1":
            raise httpcore.ConnectTimeout("timed out")
        return connect(self, host, port, timeout, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(httpcore.SyncBackend, "connect_tcp", swallowed)
    with _serving() as site:
        files = site.files(resolve=lambda host, port: ["::1", "127.0.0.1"])
        assert files.read(site.url()) == png()
    assert waits[0] < 0.6 * remote_file.TIMEOUT < waits[1]
