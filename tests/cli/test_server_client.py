"""The client of servers at a URL: what `chat --url` and `launch` say of servers that fail, proxies, keys, TLS."""

from __future__ import annotations

import io
import json
import socket
import ssl
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from dflash_local import cli, server_client
from dflash_local.baseline import free_port
from dflash_local.cli.chat.backends import ServerBackend
from dflash_local.cli.launch import server_facts
from dflash_local.cli.launch.server_facts import Loading, ask_facts, client_at
from dflash_local.environment_proxy import EnvironmentProxy, bypass_variables
from dflash_local.errors import RequestError, ServerError
from dflash_local.retry_after import retry_after
from dflash_local.server_address import server_address, shown_address, shown_wrong_address
from dflash_local.server_client import ServerClient
from dflash_local.tls_context import tls_context
from tests.media.samples import png
from tests.patience import PATIENCE
from tests.tls_server import certificate, needs_openssl

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
BODY = {"messages": [{"role": "user", "content": "hi"}]}


class RawServer:
    """Sends the same bytes to everyone who asks, and then closes the connection, or is silent until the end."""

    def __init__(self, data: bytes, *, is_silent: bool = False, tls: ssl.SSLContext | None = None) -> None:
        self.n_connections, self.requests = 0, list[bytes]()
        self._data, self._is_silent, self._tls = data, is_silent, tls
        self._end = threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self._socket.getsockname()[1]}"

    def run(self) -> None:
        with suppress(OSError):  # closed at the end
            while True:
                plain, _ = self._socket.accept()
                self.n_connections += 1
                with suppress(OSError), self._answering(plain) as connection:
                    self.requests.append(_request(connection))
                    connection.sendall(self._data)
                    if self._is_silent:
                        self._end.wait(PATIENCE)

    def _answering(self, plain: socket.socket) -> socket.socket:
        return self._tls.wrap_socket(plain, server_side=True) if self._tls else plain

    def stop(self) -> None:
        self._end.set()
        with suppress(OSError):  # Linux: it wakes accept()
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def _request(connection: socket.socket) -> bytes:
    """All of it: a connection that is closed with something unread is reset. Of TLS only the hello."""
    data = connection.recv(65536)
    while b"\r\n\r\n" not in data and not data.startswith(b"\x16") and (more := connection.recv(65536)):
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0)
    while len(body) < length and (more := connection.recv(65536)):
        body += more
    return head + b"\r\n\r\n" + body


@contextmanager
def raw_server(data: bytes, *, is_silent: bool = False, tls: ssl.SSLContext | None = None) -> Iterator[RawServer]:
    server = RawServer(data, is_silent=is_silent, tls=tls)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join(PATIENCE)


def answer(status: str, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def events(*texts: str) -> bytes:
    """A stream that ends as it should."""
    return STREAM + b"".join(chunk(f"data: {text}\n\n".encode()) for text in (*texts, "[DONE]")) + chunk(b"")


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def delta(text: str) -> str:
    return json.dumps({"choices": [{"delta": {"content": text}}]}, ensure_ascii=False)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_client, "SILENCE_TIMEOUT", 0.2)
    monkeypatch.setattr(server_facts, "_SILENCE_TIMEOUT", 0.2)


def two_lines(text: str) -> list[str]:
    """The lines of the error in what was printed."""
    assert "Traceback" not in text
    lines = text[text.index("error: ") :].splitlines()
    assert len(lines) == 2 and lines[1].startswith("  fix: "), text
    return lines


BUSY = answer("503 Service Unavailable", b'{"error": {"message": "Loading model"}}', "Retry-After: 7")
CLOSED = answer("401 Unauthorized", b'{"error": {"message": "Invalid API key"}}')
FOREIGN = answer("403 Forbidden", b'{"error": {"message": "no page of yours"}}')
ELSEWHERE = answer("308 Permanent Redirect", b"", "Location: https://me:secret@x/v1/chat/completions")
NOWHERE = answer("302 Found", b"")
ASTRAY = answer("302 Found", b"", "Location: http://[::1")
PAGE = answer("200 OK", b"<html>", "Content-Type: text/html")
BROKEN = STREAM + chunk(f"data: {delta('half')}\n\n".encode()) + b"ff\r\ndata: {"
HALF = chunk(f"data: {delta('half')}\n\n".encode())
EARLY = STREAM + HALF + chunk(b"")
CUT = STREAM + HALF + chunk(f"data: {delta('cut off')}".encode()) + chunk(b"")


# ---- chat ----


@pytest.mark.parametrize(
    ("data", "message", "hint"),
    [
        (BROKEN, "broke off its answer", "its log"),
        (b"", "cannot talk to", "another program"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "cannot talk to", "another program"),
        (CLOSED, "Invalid API key", "--api-key KEY"),
        (BUSY, "Loading model", "try again in 7 s"),
        (answer("502 Bad Gateway", b"<html>"), "answered 502 Bad Gateway", "NO_PROXY"),
        (ELSEWHERE, "redirects to https://x\n", "that address"),
        (NOWHERE, "redirects and names no address (302)", "another program"),
        (ASTRAY, "Invalid URL in location header", "another program"),
        (PAGE, "does not stream events, it sent text/html", "another program"),
        (events('{"choices": ['), "an event that is no JSON object", "another program"),
        (events('["choices"]'), "an event that is no JSON object", "another program"),
        (events("{}"), "does not answer as OpenAI's", "check the address"),
        (events('{"text": "hi"}'), "does not answer as OpenAI's", "check the address"),
        (events('{"choices": [{"text": "hi"}]}'), "does not answer as OpenAI's", "check the address"),
        (events('{"error": {"message": "a pass \\u001b[31mfailed"}}'), "a pass ␛[31mfailed", "its log"),
        (events('{"error": 7}'), "broke off its answer", "its log"),
        (EARLY, "ended its answer early", "a proxy on the way"),
        (CUT, "ended its answer early", "a proxy on the way"),
    ],
)
def test_chat_says_what_is_wrong(
    data: bytes, message: str, hint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("hi"))
    with raw_server(data) as server:
        assert cli.main(["chat", "--url", server.url]) == 1
    output = capsys.readouterr()
    first, second = two_lines(output.err)
    assert message in first + "\n" and hint in second
    assert output.out.strip() == ("half" if data in (BROKEN, EARLY, CUT) else "")


def test_only_who_wants_a_key_is_given_one() -> None:
    with raw_server(FOREIGN) as server, pytest.raises(ServerError, match="no page of yours") as failure:
        list(ServerClient(server.url).events("/v1/chat/completions", BODY))
    assert (failure.value.status, failure.value.hint) == (403, None)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("data", [b"", BROKEN])
def test_chat_does_not_wait_for_a_silent_server(
    data: bytes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("hi"))
    with raw_server(data, is_silent=True) as server:
        assert cli.main(["chat", "--url", server.url]) == 1
    assert f"{server.url} was silent for 0.2 s" in two_lines(capsys.readouterr().err)[0]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(("data", "is_silent"), [(b"", False), (b"", True), (b"no HTTP\r\n", False)])
def test_what_a_server_reads_cannot_be_had(
    data: bytes,
    is_silent: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "house.png").write_bytes(png(4, 3))
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"/image {tmp_path / 'house.png'}"))
    with raw_server(data, is_silent=is_silent) as server:
        assert cli.main(["chat", "--url", server.url]) == 0
    two_lines(capsys.readouterr().err)


@pytest.mark.parametrize("data", [BUSY, CLOSED, PAGE, answer("200 OK", b'{"modalities": 1}'), answer("404 No", b"[]")])
def test_what_a_server_reads_is_not_known(data: bytes) -> None:
    with raw_server(data) as server:
        assert ServerBackend(server.url).abilities() is None


@pytest.mark.parametrize(
    ("flags", "names", "path"),
    [([], {}, b"/props"), (["--model-name", "a b"], {"model": "a b"}, b"/props?model=a+b&autoload=0")],
)
def test_which_of_several_models(
    flags: list[str], names: dict[str, str], path: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it reads is asked for without loading it."""
    (tmp_path / "house.png").write_bytes(png(4, 3))
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"hi\n/image {tmp_path / 'house.png'}"))
    with raw_server(events(delta("whole"))) as server:
        assert cli.main(["chat", "--url", server.url, *flags]) == 0
    asked, looked = server.requests
    body = json.loads(asked.partition(b"\r\n\r\n")[2])
    assert body == {**names, "messages": BODY["messages"], "stream": True}
    assert looked.startswith(b"GET " + path + b" HTTP/1.1\r\n")


def test_a_text_may_have_any_line_separator() -> None:
    text = "a\u2028b\x85c\x0bd"
    with raw_server(events(delta(text))) as server:
        changes = [*ServerBackend(server.url).answer([], {})]
    assert "".join(change.content for change in changes) == text


def test_an_error_that_is_none() -> None:
    with raw_server(events(json.dumps({**json.loads(delta("whole")), "error": None}))) as server:
        changes = [*ServerBackend(server.url).answer([], {})]
    assert "".join(change.content for change in changes) == "whole"


def test_a_server_may_send_no_done() -> None:
    last = json.dumps({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    data = STREAM + chunk(f"data: {delta('whole')}\n\ndata: {last}\n\n".encode()) + chunk(b"")
    with raw_server(data) as server:
        changes = [*ServerBackend(server.url).answer([], {})]
    assert "".join(change.content for change in changes) == "whole"


# ---- launch ----


@pytest.mark.parametrize(
    ("data", "is_silent", "message"),
    [
        (b"", False, "cannot talk to"),
        (b"", True, "was silent"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", False, "cannot talk to"),
        (answer("200 OK", b"{")[:-1], False, "broke off its answer"),
        (CLOSED, False, "wants a key: Invalid API key"),
        (answer("401 Unauthorized", b""), False, "wants a key\n"),
        (FOREIGN, False, "answered 403: no page of yours"),
        (BUSY, False, "answered 503: Loading model"),
        (PAGE, False, "not as dflash-local"),
        (answer("301 Moved Permanently", b"", "Location: /a/v1/models"), False, "/a\n"),
        (NOWHERE, False, "redirects and names no address (302)"),
        *((answer("200 OK", body), False, "not as dflash-local") for body in (b"[]", b'{"data": 1}', b'{"data": [1]}')),
    ],
)
def test_launch_says_what_is_wrong(
    data: bytes,
    is_silent: bool,
    message: str,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if is_silent:  # the others answer, however late
        request.getfixturevalue("impatient")
    with raw_server(data, is_silent=is_silent) as server:
        assert cli.main(["launch", "codex", "--url", server.url, "--print"]) == 1
    assert message in two_lines(capsys.readouterr().err)[0] + "\n"


def test_launch_with_a_user_in_the_url(capsys: pytest.CaptureFixture[str]) -> None:
    models = json.dumps({"data": [{"id": "m", "owned_by": "dflash-local"}]}).encode()
    with raw_server(answer("200 OK", models)) as server:
        url = server.url.replace("//", "//me:secret@")
        assert cli.main(["launch", "codex", "--url", url, "--print"]) == 0
    assert b"Authorization: Basic bWU6c2VjcmV0\r\n" in server.requests[0]
    assert "export DFLASH_API_KEY=none\n" in capsys.readouterr().out


def test_launch_waits_while_a_server_loads() -> None:
    with raw_server(answer("503 Service Unavailable", b'{"progress": 0.25}')) as server:
        assert ask_facts(client_at(server.url)) == Loading(0.25)


# ---- the address, the key, proxies, TLS ----


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:8080",
        "ftp://x",
        "http://",
        "http://x:99999",
        "http://[::1",
        "http://x:0",
        "http://x/v1?a=1",
        "http://x#a",
    ],
)
def test_what_is_no_url(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RequestError, match="is no URL"):
        server_address(url)
    assert cli.main(["chat", "--url", url]) == 1
    two_lines(capsys.readouterr().err)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://v1", "http://v1"),
        ("http://v1/v1/", "http://v1"),
        ("https://[::1]:1/a/v1", "https://[::1]:1/a"),
        ("http://x/", "http://x"),
    ],
)
def test_an_address(url: str, address: str) -> None:
    assert server_address(url) == address


@pytest.mark.parametrize("key", ["a\nX-Other: 1", "\udcff", "secret "])
def test_a_key_that_no_header_can_have(key: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RequestError, match="API key") as refused:
        ServerClient("http://127.0.0.1:1", key)
    assert "secret" not in str(refused.value)
    assert cli.main(["chat", "--url", "http://127.0.0.1:1", "--api-key", key]) == 1
    two_lines(capsys.readouterr().err)


def test_a_key_beside_a_user() -> None:
    """httpx would drop the key without a word."""
    with pytest.raises(RequestError, match="only one of them"):
        ServerClient("http://me:password@127.0.0.1:1", "key")


@pytest.mark.parametrize("kind", ["text/event-stream", "application/json"])
def test_answers_have_a_longest_part(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_client, "LONGEST_PART", 1 << 20)
    with raw_server(answer("200 OK", b"x" * (2 << 20), f"Content-Type: {kind}")) as server:
        client = ServerClient(server.url)
        with pytest.raises(ServerError, match="more than 1 MiB at once"):
            if "event" in kind:
                list(client.events("/a", BODY))
            else:
                client.ask("/a")


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": "Fri, 31 Dec 99999 23:59:59 GMT"}, None),
        ({"RateLimit": '"api";r=0;t=11'}, 11.0),
        ({"RateLimit": '"api";r=499;t=287'}, None),  # requests are left
        ({"RateLimit": f'"api";r={"0" * 5000};t=11'}, 11.0),
        ({}, None),
    ],
)
def test_when_to_ask_again(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


def test_a_password_is_sent_but_not_shown() -> None:
    with raw_server(BUSY) as server:
        client = ServerClient(server.url.replace("//", "//me:secret@"))
        assert client.address == server.url
        with pytest.raises(ServerError):
            list(client.events("/v1/chat/completions", BODY))
    assert b"Authorization: Basic bWU6c2VjcmV0" in server.requests[0]
    with pytest.raises(ServerError) as closed:
        client.ask("/props")
    with pytest.raises(RequestError) as wrong:
        server_address("http://me:secret@host:99999")
    assert "secret" not in f"{closed.value}{wrong.value}"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://me:secret@host:8080/v1", "http://host:8080/v1"),
        ("me:secret@host:8080", "host:8080"),
        ("me@host", "host"),
        ("//me:secret@host", "//host"),
        ("https://me:s@cret@[::1]:8080/a", "https://[::1]:8080/a"),
        ("me:secret@[::1]", "[::1]"),
        ("me:secret@host/a@b", "b"),  # where its password ends, nobody knows
        ("http://me:se#cret@host", "http://host"),
        ("socks5://me:se/cret@host:1", "socks5://host:1"),
        ("//me:se//cret@host", "//host"),
        ("me:se\n?cret@host", "host"),
        *((url, url) for url in ("http://host/a@b", "http://host?a@b", "host/a@b", "host#a@b", "http://[::1]/a@b")),
        *((url, url) for url in ("host/to//a@b", "host?to=//a@b", "[::1]:8080", "")),
    ],
)
def test_what_is_shown_of_an_address(url: str, shown: str) -> None:
    assert shown_address(url) == shown


@pytest.mark.parametrize(
    "url",
    [
        "me:xyz@host:8080",
        "http://me:xyz#xyz@host",
        "http://me:12#xyz@host",  # a URL of the host `me`
        "http://me:12?xyz@host",
        "http://me:xyz/xyz@host",
        "me:xyz@x/yz@host",
    ],
)
def test_a_password_of_what_is_refused_is_not_shown(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["chat", "--url", url]) == 1
    first, second = two_lines(capsys.readouterr().err)
    assert not {*"xyz"} & {*first.replace("host", "")} and "host" in first and "%23" in second


def test_what_is_shown_of_a_refused_address() -> None:
    assert shown_wrong_address("http://me:xyz@x/yz@host") == "http://host"
    for url in ("host?to=//a@b", "http://host#a@b", "http://host:1?a=b"):
        assert shown_wrong_address(url) == url


@pytest.mark.parametrize(
    ("host", "hint"),
    [
        ("no-such-host.invalid", "running there"),
        ("bad host", "running there"),
        ("a" * 70 + ".invalid", "the name of the host"),
        ("a..b", "the name of the host"),
        ("xn--a", "the name of the host"),  # no punycode
    ],
)
def test_a_host_that_cannot_be_found(host: str, hint: str) -> None:
    with pytest.raises(ServerError, match="cannot talk to") as failure:
        ServerClient(f"http://{host}").ask("/health")
    assert hint in (failure.value.hint or "")


def test_a_server_that_does_not_read() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        client = ServerClient(f"http://127.0.0.1:{deaf.getsockname()[1]}", silence=0.2)
        with pytest.raises(ServerError, match=r"read nothing of a request for 0\.2 s") as failure:
            client.ask("/tokenize", {"content": "x" * (32 << 20)})
    assert failure.value.status is None


def test_a_key_of_any_letters() -> None:
    with raw_server(answer("200 OK", b"{}")) as server:
        assert ServerClient(server.url + "/v1/", "schlüssel-ключ").ask("/props").object == {}
    assert server.requests[0].startswith(b"GET /props HTTP/1.1\r\n")
    assert "Authorization: Bearer schlüssel-ключ\r\n".encode() in server.requests[0]


def test_a_proxy_is_for_other_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    with raw_server(answer("200 OK", b'{"at": "the proxy"}')) as proxy, raw_server(answer("200 OK", b"{}")) as server:
        monkeypatch.setenv("http_proxy", proxy.url)
        assert ServerClient("http://elsewhere.invalid:8080").ask("/props").object == {"at": "the proxy"}
        for url in (server.url, server.url.replace("127.0.0.1", "localhost")):
            assert ServerClient(url).ask("/props").object == {}
    assert [request.partition(b"\r\n")[0] for request in proxy.requests] == [
        b"GET http://elsewhere.invalid:8080/props HTTP/1.1"
    ]


def test_a_proxy_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("all_proxy", "gopher://127.0.0.1:70")
    ServerClient("http://127.0.0.1:1")
    assert cli.main(["chat", "--url", "http://elsewhere.invalid"]) == 1
    first, second = two_lines(capsys.readouterr().err)
    assert "the proxy of ALL_PROXY cannot be used" in first and "correct ALL_PROXY" in second


@pytest.mark.parametrize("proxy", ["http://me:xyz#xyz@host:1", "gopher://me:12#xyz@host", "http://[::1"])
def test_what_is_no_url_of_a_proxy(
    proxy: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("http_proxy", proxy)
    assert cli.main(["chat", "--url", "http://elsewhere.invalid"]) == 1
    first, second = two_lines(capsys.readouterr().err)
    assert "is no URL of a proxy" in first and "xyz" not in first and "correct HTTP_PROXY" in second


def test_a_password_of_a_proxy_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}#xyz@host")  # as it is written: at 127.0.0.1
    with pytest.raises(ServerError, match=r"through the proxy http://host: ") as failure:
        ServerClient("http://elsewhere.invalid").ask("/props")
    assert "xyz" not in str(failure.value)


@pytest.mark.parametrize("proxy", ["http://me:secret@127.0.0.1:{port}", "http://a..b"])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_is_down(
    scheme: str, proxy: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is not the server: `launch` must not say that none runs."""
    proxy = proxy.format(port=free_port())
    monkeypatch.setenv(f"{scheme}_proxy", proxy)
    assert cli.main(["launch", "codex", "--url", f"{scheme}://elsewhere.invalid"]) == 1
    first, second = two_lines(capsys.readouterr().err)
    assert f"{scheme}://elsewhere.invalid through the proxy {shown_address(proxy)}: " in first
    assert f"correct {scheme.upper()}_PROXY; hosts of NO_PROXY" in second


def test_a_proxy_that_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    with raw_server(answer("407 Proxy Authentication Required", b"")) as proxy:
        monkeypatch.setenv("https_proxy", proxy.url)
        with pytest.raises(ServerError, match=r"through the proxy .*: 407 Proxy Authentication") as failure:
            ServerClient("https://elsewhere.invalid").ask("/props")
    assert failure.value.status is None and "HTTPS_PROXY" in (failure.value.hint or "")


@pytest.mark.parametrize(
    ("address", "proxy"),
    [
        ("https://there.example", EnvironmentProxy("http://secure.invalid:1", "HTTPS_PROXY")),
        ("http://there.example", EnvironmentProxy("socks5://any.invalid", "ALL_PROXY")),
        ("http://sub.company.example", None),
        ("http://me@company.example:8080", None),
        ("http://port.example:8080", None),
        ("http://port.example:8081", EnvironmentProxy("socks5://any.invalid", "ALL_PROXY")),
        ("http://[fd00::1]:8080", None),
        ("http://[::1]", None),
        ("http://0.0.0.0:8080", None),
    ],
)
def test_which_proxy(address: str, proxy: EnvironmentProxy | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "secure.invalid:1")
    monkeypatch.setenv("all_proxy", "socks5://any.invalid")
    monkeypatch.setenv("no_proxy", "company.example, port.example:8080,fd00::1")
    assert EnvironmentProxy.of(address) == proxy


@pytest.mark.parametrize(
    ("address", "excepted", "variables"),
    [
        ("http://[::1]:8080", "", {"NO_PROXY": "::1", "no_proxy": "::1"}),
        ("http://0.0.0.0:8080", "", {"NO_PROXY": "0.0.0.0", "no_proxy": "0.0.0.0"}),
        ("http://localhost:8080", "a, b", {"NO_PROXY": "a, b,localhost", "no_proxy": "a, b,localhost"}),
        ("http://localhost:8080", "a, localhost", {"NO_PROXY": "a, localhost"}),
        ("http://127.0.0.1:8080", "*", {"NO_PROXY": "*"}),
        ("http://there.example", "", {}),
    ],
)
def test_variables_that_except_a_server(
    address: str, excepted: str, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", excepted)
    assert bypass_variables(address) == {}
    monkeypatch.setenv("https_proxy", "secure.invalid:1")
    assert bypass_variables(address) == variables
    monkeypatch.setenv("NO_PROXY", "*")  # a program looks at the one or at the other
    assert bypass_variables(address).keys() == variables.keys() - {"NO_PROXY"}


def test_a_proxy_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """As macOS and Windows have one without a variable."""
    monkeypatch.setattr(urllib.request, "getproxies", lambda: {"http": "http://127.0.0.1:1"})
    found = EnvironmentProxy.of("http://there.example")
    assert found is not None and "correct the system's proxy settings" in found.hint


@pytest.fixture
def fresh_authorities() -> Iterator[None]:
    tls_context.cache_clear()
    yield
    tls_context.cache_clear()


@needs_openssl
@pytest.mark.usefixtures("fresh_authorities")
def test_a_certificate_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, context = certificate(tmp_path, "IP:127.0.0.1")
    with raw_server(answer("200 OK", b'{"at": "the server"}'), tls=context) as server:
        with pytest.raises(ServerError, match=r"no TLS connection to .* self-signed certificate") as failure:
            ServerClient(server.url).ask("/props")
        assert server.n_connections == 1  # another try would end alike
        assert failure.value.status is None and "SSL_CERT_FILE" in (failure.value.hint or "")
        tls_context.cache_clear()
        monkeypatch.setenv("SSL_CERT_FILE", str(path))
        assert ServerClient(server.url).ask("/props").object == {"at": "the server"}


@pytest.mark.usefixtures("fresh_authorities")
@pytest.mark.parametrize("text", [None, "no certificate"])
def test_authorities_that_cannot_be_read(
    text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "company.pem"
    if text is not None:
        path.write_text(text, encoding="ascii")
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    assert cli.main(["chat", "--url", "https://elsewhere.invalid"]) == 1
    first, second = two_lines(capsys.readouterr().err)
    assert str(path) in first and second == "  fix: correct SSL_CERT_FILE"
    with raw_server(answer("200 OK", b"{}")) as server:  # needs none
        assert ServerClient(server.url).ask("/props").object == {}
    monkeypatch.setenv("http_proxy", "https://proxy.invalid")
    with pytest.raises(ServerError, match="authorities"):
        ServerClient("http://elsewhere.invalid")


def test_a_server_without_tls() -> None:
    with raw_server(b"HTTP/1.1 400 Bad Request\r\n\r\n") as server, pytest.raises(ServerError) as failure:
        ServerClient(server.url.replace("http", "https")).ask("/props")
    assert "no TLS connection" in failure.value.message and "http://" in (failure.value.hint or "")


@pytest.mark.parametrize("date", ["Wed, 21 Oct 2015 07:28:00 GMT", "soon"])
def test_when_to_try_again(date: str) -> None:
    refusal = answer("429 Too Many Requests", b'{"error": "too many requests"}', f"Retry-After: {date}")
    with raw_server(refusal) as server, pytest.raises(ServerError, match="too many requests") as failure:
        list(ServerClient(server.url).events("/v1/chat/completions", BODY))
    assert failure.value.status == 429
    assert failure.value.hint == ("try again in 0 s" if date != "soon" else None)
