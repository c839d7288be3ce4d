"""A file at any address (--mmproj-url), kept in $DFLASH_CACHE/projectors with its ETag, by which a later start knows
whether it has changed. Files of the Hub go through the Hub's cache instead (`client.py`)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO
from urllib.parse import quote, unquote

from dflash_local.cache_dir import cache_dir
from dflash_local.convert.gguf_metadata import read_header
from dflash_local.errors import HubError, ModelError, RequestError
from dflash_local.file_lock import locked
from dflash_local.hub import cache_space
from dflash_local.hub.cache import is_inside, is_repository
from dflash_local.hub.client import GO_ONLINE, Hub
from dflash_local.hub.http_response import Response, TemporaryFault, body_start, temporary_refusal
from dflash_local.hub.http_session import Session, get, open_session
from dflash_local.hub.retries import Retries
from dflash_local.scratch import remove_leftovers
from dflash_local.server_address import http_url, shown_address, shown_wrong_address

_HUB_PATH = re.compile(r"/([^/?#]+/[^/?#]+)/(?:resolve|blob|raw)/([^/?#]+)/([^?#]+)")  # of a file at a revision
_PART, _ETAG = ".incomplete", ".etag"
_LONGEST_NAME = 255 - len(_PART)  # bytes, by what file systems take


def fetch_url(url: str, hub: Hub) -> Path:
    """The file at an address, downloaded unless it is kept and has not changed there. If the address cannot be reached,
    or the cache only be read, the kept one.

    Raises:
        RequestError: it is no http(s) address of a file.
        HubError: it cannot be had, or the cache cannot be used or is full.
    """
    path = _kept(url)
    if found := _of_hub(url, hub):
        return found
    if cache_space.has_file(path) and (hub.offline or not _etag(path)):
        return path
    if hub.offline:
        raise HubError(f"{shown_address(url)} is not in {path.parent}, and offline mode is on", hint=GO_ONLINE)
    try:
        _update(url, path, hub)
    except HubError as error:
        if not error.cache_may_serve or not cache_space.has_file(path):
            raise
        hub.note(f"{error.message}; using the one that was downloaded before")
    return path


def _update(url: str, path: Path, hub: Hub) -> None:
    try:
        with locked(path.with_suffix(".lock"), lambda: hub.note_waiting(shown_address(url))):
            _UrlFile(url, path, hub).update()
    except OSError as error:
        fault = cache_space.failed(path.parent, error, variable=cache_space.OWN_CACHE)
        fault.cache_may_serve = True  # one that can only be read serves what it has
        raise fault from None


def _of_hub(url: str, hub: Hub) -> Path | None:
    """The file in the Hub's cache, if the address is the Hub's."""
    match = _HUB_PATH.match(url.removeprefix(hub.endpoint))  # another server's stays whole, so it does not match
    if match is None:
        return None
    repo, revision, name = map(unquote, match.groups())  # after the split: a branch's name may have a %2F
    if not is_repository(repo):
        return None
    found = next((file for file in hub.files(repo, revision) if file.path == name), None)
    if found is None:
        page = f"{hub.address}/{repo}/tree/{quote(revision, safe='')}"
        raise HubError(f"{repo} holds no file {name}", hint=f"see {page}", status=404)
    return hub.download([found])[0]


def _kept(url: str) -> Path:
    """Where the file of an address is kept. Raises RequestError."""
    parts = http_url(url)
    name = PurePosixPath(unquote(parts.path)).name if parts else ""
    fault = ""
    if not name:
        fault = "is no http(s) address of a file"
    elif not is_inside(name) or not (url + name).isprintable() or len(name.encode()) > _LONGEST_NAME:
        fault = "ends with a name that no file here can have"
    if fault:
        message = f"{shown_wrong_address(url)!r} {fault}"
        raise RequestError(message, param="--mmproj-url", hint="a file here goes to --mmproj")
    return cache_dir() / "projectors" / hashlib.sha256(url.encode()).hexdigest()[:16] / name


def _etag_file(path: Path) -> Path:
    return path.with_name(path.name + _ETAG)


def _etag(path: Path) -> str:
    with suppress(OSError, UnicodeDecodeError):
        text = _etag_file(path).read_text(encoding="ascii")
        return text if text.isprintable() else ""  # no request can have a damaged one
    return ""


@dataclass
class _UrlFile:
    """A download to `path`. `done` and `total` are bytes of the part, and of the file that `etag` names.
    `furthest`: the most bytes that any try had; a server without ranges begins anew each time."""

    url: str
    path: Path
    hub: Hub
    etag: str = ""
    done: int = 0
    total: int = 0
    furthest: int = 0

    def update(self) -> None:
        """Download the file, unless it is there and has the server's ETag. Raises HubError or OSError."""
        session = open_session()
        remove_leftovers(self.path.parent.parent, f"*/*{_PART}")
        name = self.path.name
        part = self.path.with_name(name + _PART)
        retries = Retries(shown_address(self.url), session, self.hub.note)
        try:
            with part.open("wb") as out:
                is_new = retries.result(name, lambda: self._read(session, out), progress=lambda: self.furthest)
            if is_new:
                self._check(part)
                part.replace(self.path)
                _etag_file(self.path).write_text(self.etag, encoding="ascii")
        finally:
            with suppress(OSError):
                part.unlink()

    def _check(self, part: Path) -> None:
        """Raise HubError if the part is no whole GGUF: a network's log-in page is no error by its status, and an answer
        without a length may end anywhere."""
        try:
            read_header(part)
        except ModelError as error:
            message = f"{shown_address(self.url)}: {error.message.replace(part.name, self.path.name)}"
            raise HubError(message, hint="is it the address of the file itself?", cache_may_serve=True) from None

    def _read(self, session: Session, out: BinaryIO) -> bool:
        """Whether there is a new file, which is then in `out`."""
        with self._answer(session) as response:
            if response.status_code == 304:
                return False
            self._begin(response, out)
            for chunk in response.iter_raw():
                out.write(chunk)
                self.done += len(chunk)
                self.furthest = max(self.furthest, self.done)
                self.hub.progress(self.path.name, self.done, max(self.total, self.done))
        if self.done < self.total:
            raise TemporaryFault(f"the answer ended after {self.done} of {self.total} bytes")
        return True

    def _begin(self, response: Response, out: BinaryIO) -> None:
        """Go on where the part ends, or begin anew. Raises as body_start() does, or HubError if the disk is full."""
        done, self.done = self.done, 0  # if the server sent a wrong part, the next try begins at 0
        self.done = body_start(response, shown_address(self.url), done)
        if self.done:
            return
        out.seek(0)
        out.truncate()
        etag = response.headers.get("ETag", "")
        self.etag = etag if etag.isascii() else ""  # other letters fit in no request
        self.total = int(response.headers.get("Content-Length") or 0)
        cache_space.check_space(self.path.parent, self.total, cache_space.OWN_CACHE)

    @contextmanager
    def _answer(self, session: Session) -> Iterator[Response]:
        """A good answer to a request for what is missing. No token goes to other hosts than the Hub."""
        headers = {"Accept-Encoding": "identity"}
        statuses = [200]
        if self.done and self.etag:
            headers |= {"Range": f"bytes={self.done}-", "If-Range": self.etag}
            statuses.append(206)
        elif self.path.is_file() and (kept := _etag(self.path)):
            headers["If-None-Match"] = kept
            statuses.append(304)
        with get(session, self.url, headers) as response:
            if temporary := temporary_refusal(response, "the server"):
                raise temporary
            if (status := response.status_code) == 416 and 206 in statuses:
                self.done = 0
                raise TemporaryFault("the server has no part from there on")
            if status not in statuses:
                message = f"{shown_address(self.url)}: the server answered {status}"
                raise HubError(message, hint="check the address", status=status, cache_may_serve=True)
            yield response
