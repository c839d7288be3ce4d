"""A file at any address (--mmproj-url), kept in $DFLASH_CACHE/projectors with its ETag, by which a later start knows
whether it has changed. Files of the Hub go through the Hub's cache instead (`client.py`)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

from dflash_local.cache_dir import cache_dir
from dflash_local.disk import is_full
from dflash_local.errors import HubError, RequestError
from dflash_local.file_lock import locked
from dflash_local.hub import cache_space
from dflash_local.hub.client import GO_ONLINE, Hub
from dflash_local.hub.retries import Retries, TemporaryFault, open_session, temporary_refusal
from dflash_local.hub.transport import TIMEOUT
from dflash_local.server_client import http_url, shown_address

_ELSEWHERE = "free some, or point DFLASH_CACHE at a larger disk"
_RIGHTS = "check its rights, or point DFLASH_CACHE elsewhere"
_HUB_PATH = re.compile(r"/([^/]+/[^/]+)/(?:resolve|blob|raw)/([^/]+)/(.+)")


def fetch_url(url: str, hub: Hub) -> Path:
    """The file at an address, downloaded unless it is kept and has not changed there. If the address cannot be reached,
    the kept one.

    Raises:
        RequestError: it is no http(s) address of a file.
        HubError: it cannot be had, or the disk is full.
    """
    path = _kept(url)
    if found := _of_hub(url, hub):
        return found
    if path.is_file() and (hub.offline or not _etag(path)):
        return path
    if hub.offline:
        raise HubError(f"{shown_address(url)} is not in {path.parent}, and offline mode is on", hint=GO_ONLINE)
    waiting = f"another process downloads {shown_address(url)}: waiting for it"
    try:
        with locked(path.with_suffix(".lock"), lambda: hub.note(waiting)):
            _UrlFile(url, path, hub).update()
    except HubError as error:
        if not error.is_out_of_reach or not path.is_file():
            raise
        hub.note(f"{error.message}; using the one that was downloaded before")
    except OSError as error:
        hint = _ELSEWHERE if is_full(error) else _RIGHTS
        raise HubError(f"cannot write {path}: {error.strerror or error}", hint=hint) from None
    return path


def _of_hub(url: str, hub: Hub) -> Path | None:
    """The file in the Hub's cache, if the address is the Hub's."""
    match = _HUB_PATH.fullmatch(unquote(urlsplit(url).path)) if url.startswith(hub.endpoint + "/") else None
    if match is None:
        return None
    repo, revision, name = match.groups()
    found = next((file for file in hub.files(repo, revision) if file.path == name), None)
    if found is None:
        raise HubError(f"{repo} holds no file {name}", hint=f"see {hub.endpoint}/{repo}/tree/{revision}", status=404)
    return hub.download([found])[0]


def _kept(url: str) -> Path:
    """Where the file of an address is kept. Raises RequestError."""
    parts = http_url(url)
    name = PurePosixPath(unquote(parts.path)).name if parts else ""
    if not name or "\\" in name:
        message = f"{shown_address(url)!r} is no http(s) address of a file"
        raise RequestError(message, param="--mmproj-url", hint="a file here goes to --mmproj")
    return cache_dir() / "projectors" / hashlib.sha256(url.encode()).hexdigest()[:16] / name


def _etag_file(path: Path) -> Path:
    return path.with_name(path.name + ".etag")


def _etag(path: Path) -> str:
    with suppress(OSError, UnicodeDecodeError):
        return _etag_file(path).read_text(encoding="ascii")
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
        part = self.path.with_name(self.path.name + ".incomplete")
        retries = Retries(shown_address(self.url), session, self.hub.note)
        with part.open("wb") as out:
            is_new = retries.result(self.path.name, lambda: self._read(session, out), progress=lambda: self.furthest)
        if is_new:
            part.replace(self.path)
            _etag_file(self.path).write_text(self.etag, encoding="ascii")
        else:
            part.unlink()

    def _read(self, session: Any, out: BinaryIO) -> bool:
        """Whether there is a new file, which is then in `out`."""
        with self._answer(session) as response:
            if response.status_code == 304:
                return False
            if response.status_code == 200:
                self._begin(response.headers, out)
            else:
                self._check_range(response.headers)
            for chunk in response.iter_raw():
                out.write(chunk)
                self.done += len(chunk)
                self.furthest = max(self.furthest, self.done)
                self.hub.progress(self.path.name, self.done, max(self.total, self.done))
        if self.done < self.total:
            raise TemporaryFault(f"the answer ended after {self.done} of {self.total} bytes")
        return True

    def _begin(self, headers: Any, out: BinaryIO) -> None:
        out.seek(0)
        out.truncate()
        etag = headers.get("ETag", "")
        self.done, self.etag = 0, etag if etag.isascii() else ""  # other letters fit in no request
        self.total = int(headers.get("Content-Length") or 0)
        cache_space.check_space(self.path.parent, self.total, _ELSEWHERE)

    def _check_range(self, headers: Any) -> None:
        """Raises TemporaryFault if an answer 206 does not begin where the part ends; the next try is for the whole."""
        if not headers.get("Content-Range", "").startswith(f"bytes {self.done}-"):
            self.done, self.etag = 0, ""
            raise TemporaryFault("the server sent another part than it was asked for")

    @contextmanager
    def _answer(self, session: Any) -> Iterator[Any]:
        """A good answer to a request for what is missing. No token goes to other hosts than the Hub."""
        headers = {"Accept-Encoding": "identity"}
        asked_for = [200]
        if self.done and self.etag:
            headers |= {"Range": f"bytes={self.done}-", "If-Range": self.etag}
            asked_for.append(206)
        elif self.path.is_file() and (kept := _etag(self.path)):
            headers["If-None-Match"] = kept
            asked_for.append(304)
        with session.stream("GET", self.url, headers=headers, timeout=TIMEOUT, follow_redirects=True) as response:
            if temporary := temporary_refusal(response, "the server"):
                raise temporary
            if refusal := self._refusal(response, asked_for):
                raise refusal
            yield response

    def _refusal(self, response: Any, asked_for: list[int]) -> HubError | None:
        shown, status = shown_address(self.url), response.status_code
        if status not in asked_for:
            return HubError(f"{shown}: the server answered {status}", hint="check the address", status=status)
        if response.headers.get("Content-Encoding", "") not in ("", "identity"):
            message = f"{shown}: the file came compressed, which was not asked for"
            return HubError(message, hint="give the address of the file itself", is_out_of_reach=True)
        return None
