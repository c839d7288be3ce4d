"""Requests to the Hub, repeated after a broken connection, by a busy server or under a rate limit (retries.py).

The session, headers and tokens are huggingface_hub's. Its retries are not used: after a 429 it waits for as long as the
server says, and some of its calls have no timeout. Importing this module imports neither it nor an HTTP client.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any
from urllib.parse import quote

from dflash_local.bounded_body import bounded_body
from dflash_local.errors import HubError
from dflash_local.hub.cache import HubFile
from dflash_local.hub.http_response import Response, TemporaryFault, body_start, temporary_refusal
from dflash_local.hub.http_session import Session, get, open_session
from dflash_local.hub.retries import Retries
from dflash_local.server_address import http_url, shown_address

# Of a listing; fewer than of a download, because without a network the cache can be used. If it has this repository,
# nobody should wait long for a connection.
MOST_REFUSALS, MOST_TIMEOUTS_IF_CACHED = 3, 1
LONGEST_ANSWER = 256 << 20  # bytes of JSON
_PUBLIC = "https://huggingface.co"
_TOKEN = re.compile(r"[!-~]+")  # what every HTTP client takes in a header
_ONE_OF_THEM = "leave out the user in HF_ENDPOINT or MODEL_ENDPOINT, or the token: --hf-token, HF_TOKEN, hf auth logout"


@dataclass
class Transport:
    """Requests to `endpoint` (no trailing slash), with `token` or else huggingface_hub's: $HF_TOKEN, or the file that
    `hf auth login` wrote."""

    endpoint: str = field(repr=False)  # may have a user's name and password
    token: str | None = field(default=None, repr=False)
    note: Callable[[str], None] = lambda text: None

    @property
    def address(self) -> str:
        """The endpoint as messages show it, without a user's name and password."""
        return shown_address(self.endpoint)

    def json(self, repo: str, path: str, most_timeouts: int = MOST_REFUSALS) -> Iterator[Any]:
        """The response to GET api/models/REPO/PATH, page by page if it has several. Each is asked for at most
        MOST_REFUSALS times more, `most_timeouts` times if no connection comes about in time. Raises HubError."""
        url: str | None = f"{self.endpoint}/api/models/{repo}/{path}"
        asked: set[str] = set()
        while url:
            if url in asked:
                raise _no_hub(f"{repo}: the Hub's answer has no end: it goes on at {shown_address(url)} again")
            asked.add(url)
            page, url = self._retries.result(repo, partial(self._page, repo, url), MOST_REFUSALS, most_timeouts)
            yield page

    def _page(self, repo: str, url: str) -> tuple[Any, str | None]:
        with self._get(repo, url, {"Accept": "application/json"}, 200) as response:
            body = bounded_body(response.iter_bytes(), LONGEST_ANSWER)
            following = response.links.get("next", {}).get("url")
        if body is None:
            raise _no_hub(f"{repo}: the Hub's answer is longer than {LONGEST_ANSWER >> 20} MiB")
        import json

        try:
            page = json.loads(body)
        except (ValueError, RecursionError):
            raise _no_hub(f"{shown_address(url)} did not answer with JSON") from None
        return page, self._at_endpoint(repo, following) if following else None

    def _at_endpoint(self, repo: str, link: str) -> str:
        """A link of an answer, at the endpoint with its user. Raises HubError if it leads to another host."""
        for origin in (self.endpoint, self.address, _PUBLIC):  # a mirror may repeat the Hub's own links
            if link.startswith(origin + "/"):
                return self.endpoint + link.removeprefix(origin)
        raise _no_hub(f"{repo}: the Hub's answer goes on at another host, {shown_address(link)}")

    def read(self, file: HubFile, start: int, stop: int, take: Callable[[bytes], None]) -> None:
        """Pass the file's bytes from `start` to `stop` to `take`, in order, each once.

        Raises:
            HubError: they cannot be fetched.
        """
        url = f"{self.endpoint}/{file.repo}/resolve/{file.commit}/{quote(file.path)}"
        wanted = _Range(file.path, start, stop, take)

        def fetch() -> None:
            with self._get(file.repo, url, wanted.headers, 200, 206) as response:
                wanted.read(response)

        if start < stop:
            self._retries.result(file.path, fetch, progress=lambda: wanted.done)

    @contextmanager
    def _get(self, repo: str, url: str, headers: dict[str, str], *statuses: int) -> Iterator[Response]:
        """A streamed response with one of `statuses`. The token goes to the endpoint only: the session drops it at a
        redirect to another host or port."""
        with get(self._session, url, {**self._headers, **headers}) as response:
            if response.status_code not in statuses:
                raise self._refusal(repo, response)
            yield response

    @cached_property
    def _session(self) -> Session:
        return open_session()

    @cached_property
    def _retries(self) -> Retries:
        return Retries(self.address, self._session, self.note)

    @cached_property
    def _headers(self) -> dict[str, str]:
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

        return dict(build_hf_headers(token=self._token or False, library_name="dflash-local"))

    @cached_property
    def _token(self) -> str | None:
        """Raises HubError if no request can have it."""
        from huggingface_hub import get_token

        try:
            token = self.token or get_token()
        except (OSError, UnicodeDecodeError) as error:
            message = f"the file of the Hub's token cannot be read: {error}"
            raise HubError(message, hint="write it anew by hf auth login, or give --hf-token or HF_TOKEN") from None
        if token and not _TOKEN.fullmatch(token):
            message = "the Hub's token has characters that no header can have"
            raise HubError(message, hint="copy it again: --hf-token or HF_TOKEN")
        parts = http_url(self.endpoint)
        if token and parts and parts.username is not None:  # sent in the header that the token needs
            message = f"there is a token, and the address of the Hub, {self.address}, has a user"
            raise HubError(f"{message}: a request can have only one of them", hint=_ONE_OF_THEM)
        return token

    def _refusal(self, repo: str, response: Response) -> Exception:
        status, code = response.status_code, response.headers.get("X-Error-Code", "")
        more = "" if self._token else "; with a token (HF_TOKEN) it allows more"
        if temporary := temporary_refusal(response, "the Hub", f"try again then{more}"):
            return temporary
        page = f"{self.address}/{repo}"
        if status in (401, 403):
            return self._closed(repo, page, status, code)
        if status == 404:
            what = {"RevisionNotFound": "has no such revision", "EntryNotFound": "has no such file"}.get(code)
            message, hint = f"{repo} {what or 'is not on the Hub'}", f"check the name: {page}"
        else:
            text = response.headers.get("X-Error-Message") or response.reason_phrase
            message, hint = f"{repo}: the Hub answered {status} {text}", f"see {page}"
        return HubError(message, hint=hint, status=status, cache_may_serve=True)

    def _closed(self, repo: str, page: str, status: int, code: str) -> HubError:
        """The Hub answers 401 also for repositories that do not exist; 403 means a valid token without access."""
        accept = f"accept its terms at {page}"
        token = "give a token: HF_TOKEN or --hf-token (https://huggingface.co/settings/tokens)"
        if code == "GatedRepo" or status == 403:
            message = f"{repo} is gated"
            hint = f"{accept} with the account of your token" if self._token else f"{accept}, then {token}"
        elif self._token:
            message = f"{repo} does not exist, or your token may not read it"
            hint = f"check the name and the token: {page}"
        else:
            message = f"{repo} does not exist, or is private or gated"
            hint = f"check the name; if it is gated, {accept}; {token}"
        return HubError(message, hint=hint, status=status, cache_may_serve=True)


@dataclass
class _Range:
    """The bytes of the file `path` from `done` to `stop`. They go to `take` in order, each once, from as many responses
    as that needs."""

    path: str
    done: int
    stop: int
    take: Callable[[bytes], None]

    @property
    def headers(self) -> dict[str, str]:
        """Of a request for the rest: without compression, since ranges count the file's own bytes."""
        return {"Accept-Encoding": "identity", "Range": f"bytes={self.done}-{self.stop - 1}"}

    def read(self, response: Response) -> None:
        """Raises as body_start() does, or TemporaryFault if bytes are missing."""
        skip = self.done - body_start(response, self.path, self.done)
        for chunk in response.iter_raw():  # raw, so that bytes before a broken connection count
            skipped = min(skip, len(chunk))
            skip -= skipped
            chunk = chunk[skipped : skipped + self.stop - self.done]
            if chunk:
                self.take(chunk)
                self.done += len(chunk)
            if self.done >= self.stop:
                return
        raise TemporaryFault(f"the answer ended after {self.done} of {self.stop} bytes")


def _no_hub(message: str) -> HubError:
    """What answers is no Hub: a wrong address, or a network that answers for it."""
    hint = "is HF_ENDPOINT or MODEL_ENDPOINT the address of a Hub?"
    return HubError(message, hint=hint, cache_may_serve=True)
