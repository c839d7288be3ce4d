"""Requests to the Hub, repeated after a broken connection, by a busy server or under a rate limit (retries.py).

The session, headers and tokens are huggingface_hub's. Its retries are not used: after a 429 it waits for as long as the
server says, and some of its calls have no timeout. Importing this module imports neither it nor an HTTP client.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any
from urllib.parse import quote

from dflash_local.errors import HubError
from dflash_local.hub.cache import HubFile
from dflash_local.hub.http_response import Response, TemporaryFault, body_start, temporary_refusal
from dflash_local.hub.http_session import Session, get, open_session
from dflash_local.hub.retries import Retries

MOST_REFUSALS = 3  # of a listing; fewer, because without a network the cache can be used
LONGEST_ANSWER = 256 << 20  # bytes of JSON
_PUBLIC = "https://huggingface.co"
_TOKEN = re.compile(r"[!-~]+")  # what every HTTP client takes in a header


@dataclass
class Transport:
    """Requests to `endpoint` (no trailing slash), with `token` or else huggingface_hub's: $HF_TOKEN, or the file that
    `hf auth login` wrote."""

    endpoint: str
    token: str | None = None
    note: Callable[[str], None] = lambda text: None

    def json(self, repo: str, path: str) -> Iterator[Any]:
        """The response to GET api/models/REPO/PATH, page by page if it has several. Raises HubError."""
        url: str | None = f"{self.endpoint}/api/models/{repo}/{path}"
        asked: set[str] = set()
        while url:
            if url in asked:
                raise _no_hub(f"{repo}: the Hub's answer has no end: it goes on at {url} again")
            asked.add(url)
            page, url = self._retries.result(repo, partial(self._page, repo, url), MOST_REFUSALS)
            yield page

    def _page(self, repo: str, url: str) -> tuple[Any, str | None]:
        with self._get(repo, url, {"Accept": "application/json"}, 200) as response:
            body = bytearray()
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > LONGEST_ANSWER:
                    raise _no_hub(f"{repo}: the Hub's answer is longer than {LONGEST_ANSWER >> 20} MiB")
            following = response.links.get("next", {}).get("url")
        import json

        try:
            page = json.loads(body)
        except (ValueError, RecursionError):
            raise _no_hub(f"{url} did not answer with JSON") from None
        if following:
            following = following.replace(_PUBLIC, self.endpoint)  # a mirror may repeat the Hub's own links
            if not following.startswith(self.endpoint + "/"):
                raise _no_hub(f"{repo}: the Hub's answer goes on at another host, {following}")
        return page, following

    def read(self, file: HubFile, start: int, stop: int, take: Callable[[bytes], None]) -> None:
        """Pass the file's bytes from `start` to `stop` to `take`, in order, each once.

        Raises:
            HubError: they cannot be fetched.
        """
        done = start
        url = f"{self.endpoint}/{file.repo}/resolve/{file.commit}/{quote(file.path)}"

        def fetch() -> None:
            nonlocal done
            # No compression, since ranges count the file's own bytes.
            headers = {"Accept-Encoding": "identity", "Range": f"bytes={done}-{stop - 1}"}
            with self._get(file.repo, url, headers, 200, 206) as response:
                skip = done - body_start(response, file.path, done)
                for chunk in response.iter_raw():  # raw, so that bytes before a broken connection count
                    skipped = min(skip, len(chunk))
                    skip -= skipped
                    chunk = chunk[skipped : skipped + stop - done]
                    if chunk:
                        take(chunk)
                        done += len(chunk)
                    if done >= stop:
                        return
            raise TemporaryFault(f"the answer ended after {done} of {stop} bytes")

        if start < stop:
            self._retries.result(file.path, fetch, progress=lambda: done)

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
        return Retries(self.endpoint, self._session, self.note)

    @cached_property
    def _headers(self) -> dict[str, str]:
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

        return dict(build_hf_headers(token=self._token or False, library_name="dflash-local"))

    @cached_property
    def _token(self) -> str | None:
        """Raises HubError if no header can have it."""
        from huggingface_hub import get_token

        token = self.token or get_token()
        if token and not _TOKEN.fullmatch(token):
            message = "the Hub's token has characters that no header can have"
            raise HubError(message, hint="copy it again: --hf-token or HF_TOKEN")
        return token

    def _refusal(self, repo: str, response: Response) -> Exception:
        status, code = response.status_code, response.headers.get("X-Error-Code", "")
        more = "" if self._token else "; with a token (HF_TOKEN) it allows more"
        if temporary := temporary_refusal(response, "the Hub", f"try again then{more}"):
            return temporary
        page = f"{self.endpoint}/{repo}"
        if status in (401, 403):
            return self._closed(repo, page, status, code)
        if status == 404:
            what = {"RevisionNotFound": "has no such revision", "EntryNotFound": "has no such file"}.get(code)
            return HubError(f"{repo} {what or 'is not on the Hub'}", hint=f"check the name: {page}", status=404)
        text = response.headers.get("X-Error-Message") or response.reason_phrase
        return HubError(f"{repo}: the Hub answered {status} {text}", hint=f"see {page}", status=status)

    def _closed(self, repo: str, page: str, status: int, code: str) -> HubError:
        """The Hub answers 401 also for repositories that do not exist; 403 means a valid token without access."""
        accept = f"accept its terms at {page}"
        token = "give a token: HF_TOKEN or --hf-token (https://huggingface.co/settings/tokens)"
        if code == "GatedRepo" or status == 403:
            hint = f"{accept} with the account of your token" if self._token else f"{accept}, then {token}"
            return HubError(f"{repo} is gated", hint=hint, status=status)
        if self._token:
            return HubError(
                f"{repo} does not exist, or your token may not read it", hint=f"check the name and the token: {page}",
                status=status,
            )  # fmt: skip
        return HubError(
            f"{repo} does not exist, or is private or gated", hint=f"check the name; if it is gated, {accept}; {token}",
            status=status,
        )  # fmt: skip


def _no_hub(message: str) -> HubError:
    """What answers is no Hub: a wrong address, or a network that answers for it."""
    hint = "is HF_ENDPOINT or MODEL_ENDPOINT the address of a Hub?"
    return HubError(message, hint=hint, is_out_of_reach=True)
