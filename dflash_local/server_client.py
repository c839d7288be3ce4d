"""ServerClient: requests to a server with llama-server's endpoints, at a URL.

Importing this module does not import httpx, which takes a tenth of a second; making a client does.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from dflash_local.bounded_body import bounded_body
from dflash_local.environment_proxy import EnvironmentProxy
from dflash_local.errors import RequestError, ServerError
from dflash_local.retry_after import retry_after
from dflash_local.server_address import server_address, shown_address, shown_wrong_address
from dflash_local.tls_context import TLS_HINT, tls_context, tls_error

if TYPE_CHECKING:
    import httpx

# Seconds to connect: a host that is there accepts within one or two, even far away.
CONNECT_TIMEOUT = 10.0
# Seconds without a byte of an answer. Reading a long prompt takes minutes, in which not every server sends something.
SILENCE_TIMEOUT = 600.0
# Bytes of a whole answer, or of an event. A prompt's tokens come back in some of them.
LONGEST_PART = 256 << 20

_IS_IT_THERE = "is 'dflash-local serve' running there?"
_IT_HANGS = "it hangs or is very busy: look at its log"
_ANOTHER_PROGRAM = "another program, or a proxy, may answer there: check the address and NO_PROXY"


@dataclass(frozen=True)
class Answer:
    """A whole answer, of any status."""

    status: int
    body: bytes

    @property
    def object(self) -> dict[str, Any] | None:
        """The JSON object of the body; None if it is none."""
        try:
            found = json.loads(self.body)
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None

    @property
    def error(self) -> str | None:
        """The message of an error in OpenAI's shape, or in one that is similar; None if the body has none."""
        return _message(self.object or {})


class ServerClient:
    """Requests to the server at `url`, where a final /v1 may be left out, with `api_key`. Each has a connection of its
    own, so a client holds nothing that must be closed, and no server closes one while it rests.

    Args:
        silence: seconds without a byte of an answer after which a request fails; None: SILENCE_TIMEOUT.

    Attributes:
        address: the URL as messages show it, without a user's name and password.

    Raises:
        RequestError: it is no URL of a server, or the key cannot be sent.
        ServerError: the environment names a proxy for it, or authorities of TLS, that cannot be used.
    """

    def __init__(self, url: str, api_key: str | None = None, silence: float | None = None) -> None:
        self._url = server_address(url)
        self.address = shown_address(self._url)
        self._silence = SILENCE_TIMEOUT if silence is None else silence
        self._proxy = EnvironmentProxy.of(self._url)
        self._http = _http_client(self._url, self._proxy)
        # Bytes, since a key may have any letters.
        self._headers = {b"Content-Type": b"application/json"}
        if api_key:
            _check_key(api_key, self._url)
            self._headers[b"Authorization"] = f"Bearer {api_key}".encode()

    def ask(self, path: str, body: Mapping[str, Any] | None = None) -> Answer:
        """GET `path`, or POST `body` to it.

        Raises:
            ServerError: there is no whole answer, or it is a redirect.
        """
        with self._response(path, body) as response:
            return self._whole(response)

    def events(self, path: str, body: Mapping[str, Any]) -> Generator[dict[str, Any], None, None]:
        """POST `body` to `path`; the JSON objects of the event stream that answers. Closing the generator ends the
        request.

        Raises:
            ServerError: the server refuses, breaks off, or sends something else; or its stream ends without [DONE],
                and no choice said why it finished.
        """
        is_finished = False
        with self._response(path, body) as response:
            if response.status_code != 200:
                raise self._refusal(response)
            kind = response.headers.get("Content-Type", "")
            if not kind.startswith("text/event-stream"):
                raise ServerError(
                    f"{self.address} does not stream events, it sent {kind or 'something without a type'}",
                    hint=_ANOTHER_PROGRAM,
                )
            for line in self._lines(response.iter_bytes()):
                if line.startswith(b"data:"):
                    data = line[5:].strip()
                    if data == b"[DONE]":
                        return
                    event = self._event(data)
                    is_finished = is_finished or _finishes(event)
                    yield event
        if not is_finished:  # some servers send no [DONE]
            raise ServerError(
                f"{self.address} ended its answer early", hint="it, or a proxy on the way, may say why in its log"
            )

    @contextmanager
    def _response(self, path: str, body: Mapping[str, Any] | None) -> Iterator[httpx.Response]:
        """A response of any status but a redirect's, whose body is still to be read."""
        import httpx

        has_begun = False
        method, data = ("GET", None) if body is None else ("POST", json.dumps(body).encode())
        timeout = httpx.Timeout(self._silence, connect=CONNECT_TIMEOUT)
        url = self._url + path
        try:
            with self._http.stream(method, url, content=data, headers=self._headers, timeout=timeout) as response:
                has_begun = True
                if response.is_redirect:
                    raise self._redirect(response, path)
                yield response
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
            raise self._failure(error, has_begun) from None

    def _whole(self, response: httpx.Response) -> Answer:
        """The response with its body. Raises ServerError if that has more than LONGEST_PART bytes."""
        body = bounded_body(response.iter_bytes(), LONGEST_PART)
        if body is None:
            raise self._too_long()
        return Answer(response.status_code, body)

    def _lines(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Lines that end with a line feed; a rest without one is cut off, and no line of an event stream. httpx's own
        lines end at U+2028 and others, too, which JSON strings may have. Raises ServerError if one is too long."""
        rest = bytearray()
        for chunk in chunks:
            first, *others = chunk.split(b"\n")
            rest += first
            if len(rest) > LONGEST_PART:
                raise self._too_long()
            for line in others:
                yield bytes(rest)
                rest[:] = line

    def _too_long(self) -> ServerError:
        return ServerError(f"{self.address} sent more than {LONGEST_PART >> 20} MiB at once", hint=_ANOTHER_PROGRAM)

    def _failure(self, error: Exception, has_begun: bool) -> ServerError:
        """What a fault of the network is to the user."""
        import httpx

        reason = str(error) or type(error).__name__
        if not has_begun and (tls := tls_error(error)):
            return ServerError(f"no TLS connection to {self.address}: {tls}", hint=TLS_HINT)
        is_unreached = isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError))
        if self._proxy and (is_unreached or isinstance(error, UnicodeError)):
            proxy = shown_wrong_address(self._proxy.url)
            message = f"cannot talk to {self.address} through the proxy {proxy}: {reason}"
            return ServerError(message, hint=self._proxy.hint)
        if isinstance(error, (httpx.InvalidURL, UnicodeError)):
            return ServerError(f"cannot talk to {self.address}: {reason}", hint="correct the name of the host")
        if is_unreached:
            return ServerError(f"cannot talk to {self.address}: {reason}", hint=_IS_IT_THERE, status=0)
        if isinstance(error, httpx.WriteTimeout):
            return ServerError(f"{self.address} read nothing of a request for {self._silence:g} s", hint=_IT_HANGS)
        if isinstance(error, httpx.ReadTimeout):
            return ServerError(f"{self.address} was silent for {self._silence:g} s", hint=_IT_HANGS)
        if has_begun:
            return ServerError(f"{self.address} broke off its answer: {reason}", hint="its log may say why")
        return ServerError(f"cannot talk to {self.address}: {reason}", hint=_ANOTHER_PROGRAM)

    def _redirect(self, response: httpx.Response, path: str) -> ServerError:
        """A redirect is not followed: what a request has, such as its key, is for the server that the user named."""
        status, request = response.status_code, response.next_request
        if request is None:
            message, hint = f"{self.address} redirects and names no address ({status})", _ANOTHER_PROGRAM
        else:
            message = f"{self.address} redirects to {shown_address(str(request.url)).removesuffix(path)}"
            hint = "give that address, if it is the server's"
        return ServerError(message, hint=hint, status=status)

    def _refusal(self, response: httpx.Response) -> ServerError:
        """An answer with an error's status, in the server's own words if it has some."""
        status, headers = response.status_code, response.headers
        said = self._whole(response).error
        message = said or f"{self.address} answered {status} {response.reason_phrase}".rstrip()
        wait = retry_after(headers)
        if status == 401:
            hint: str | None = "give the key that the server wants: --api-key KEY, or LLAMA_API_KEY"
        elif wait is not None:
            hint = f"try again in {wait:.0f} s"
        else:
            hint = None if said else _ANOTHER_PROGRAM
        return ServerError(message, hint=hint, status=status)

    def _event(self, data: bytes) -> dict[str, Any]:
        event = Answer(200, data).object
        if event is None:
            raise ServerError(
                f"{self.address} sent an event that is no JSON object: {data[:60].decode(errors='replace')}",
                hint=_ANOTHER_PROGRAM,
            )
        if event.get("error") is not None:
            raise ServerError(_message(event) or f"{self.address} broke off its answer", hint="its log may say more")
        return event


def _check_key(key: str, url: str) -> None:
    """Raises RequestError if the key cannot be sent to this URL."""
    # A line feed would end the header, and half of a surrogate is no letter.
    if not key.isprintable() or key != key.strip():
        raise RequestError("the API key has characters that no header can have", param="api_key", hint="copy it again")
    if urlsplit(url).username is not None:
        raise RequestError(
            "there is an API key, and the URL has a user: a request can have only one of them", param="api_key",
            hint="leave one of them out",
        )  # fmt: skip


def _http_client(url: str, proxy: EnvironmentProxy | None) -> httpx.Client:
    """A client with any number of connections: no request waits for another one's."""
    import ssl

    import httpx

    try:
        needs_tls = any(urlsplit(one).scheme == "https" for one in (url, proxy.url if proxy else ""))
        return httpx.Client(
            # Else a context that trusts nobody: authorities take time to load, and may be wrong.
            verify=tls_context() if needs_tls else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            limits=httpx.Limits(max_keepalive_connections=0),
            proxy=proxy.url if proxy else None,
            trust_env=False,
        )
    except (ImportError, ValueError, httpx.InvalidURL) as error:
        if proxy is None:
            raise
        # Not httpx's words about a URL, which may have parts of a password.
        is_package = isinstance(error, ImportError)
        reason = error if is_package else f"{shown_wrong_address(proxy.url)!r} is no URL of a proxy"
        raise ServerError(f"the proxy of {proxy.source} cannot be used: {reason}", hint=proxy.hint) from None


def _finishes(event: Mapping[str, Any]) -> bool:
    """Whether a choice of the event says why it has finished."""
    choices = event.get("choices")
    return isinstance(choices, list) and any(
        isinstance(choice, dict) and choice.get("finish_reason") for choice in choices
    )


def _message(body: Mapping[str, Any]) -> str | None:
    """The message of an error in OpenAI's shape, or in one that is similar."""
    error = body.get("error")
    found = error.get("message") if isinstance(error, dict) else error
    return found if isinstance(found, str) else None
