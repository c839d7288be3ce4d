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
from dflash_local.errors import HubError, RequestError
from dflash_local.file_lock import locked
from dflash_local.hub import cache_space
from dflash_local.hub.client import GO_ONLINE, Hub
from dflash_local.hub.retries import Retries, TemporaryFault, open_session, temporary_refusal
from dflash_local.hub.transport import TIMEOUT

_ELSEWHERE = "free some, or point DFLASH_CACHE at a larger disk"
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
        raise HubError(f"{url} is not in {path.parent}, and offline mode is on", hint=GO_ONLINE)
    try:
        with locked(path.with_suffix(".lock"), lambda: hub.note(f"another process downloads {url}: waiting for it")):
            _UrlFile(url, path, hub).update()
    except HubError as error:
        if error.status is None or not path.is_file():
            raise
        hub.note(f"{error.message}; using the one that was downloaded before")
    except OSError as error:
        raise HubError(f"cannot write {path}: {error.strerror or error}", hint=_ELSEWHERE) from None
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
    try:
        parts = urlsplit(url)
        name = PurePosixPath(unquote(parts.path)).name
        is_server = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port, or the brackets of an IPv6 address
        name, is_server = "", False
    if not is_server or not name or "\\" in name:
        raise RequestError(
            f"{url!r} is no http(s) address of a file", param="--mmproj-url", hint="a file here goes to --mmproj"
        )
    return cache_dir() / "projectors" / hashlib.sha256(url.encode()).hexdigest()[:16] / name


def _etag_file(path: Path) -> Path:
    return path.with_name(path.name + ".etag")


def _etag(path: Path) -> str:
    with suppress(OSError, UnicodeDecodeError):
        return _etag_file(path).read_text(encoding="ascii")
    return ""


@dataclass
class _UrlFile:
    """A download to `path`. `done` and `total` are bytes of the part, and of the file that `etag` names."""

    url: str
    path: Path
    hub: Hub
    etag: str = ""
    done: int = 0
    total: int = 0

    def update(self) -> None:
        """Download the file, unless it is there and has the server's ETag. Raises HubError or OSError."""
        session = open_session()
        part = self.path.with_name(self.path.name + ".incomplete")
        retries = Retries(self.url, session, self.hub.note)
        with part.open("wb") as out:
            is_new = retries.result(self.path.name, lambda: self._read(session, out), progress=lambda: self.done)
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
            if response.status_code != 206:  # from the beginning
                out.seek(0)
                out.truncate()
                self.done, self.etag = 0, response.headers.get("ETag", "")
                self.total = int(response.headers.get("Content-Length") or 0)
                cache_space.check_space(self.path.parent, self.total, _ELSEWHERE)
            for chunk in response.iter_raw():
                out.write(chunk)
                self.done += len(chunk)
                self.hub.progress(self.path.name, self.done, max(self.total, self.done))
        if self.done < self.total:
            raise TemporaryFault(f"the answer ended after {self.done} of {self.total} bytes")
        return True

    @contextmanager
    def _answer(self, session: Any) -> Iterator[Any]:
        """A good answer to a request for what is missing. No token goes to other hosts than the Hub."""
        headers = {"Accept-Encoding": "identity"}
        if self.done and self.etag:
            headers |= {"Range": f"bytes={self.done}-", "If-Range": self.etag}
        elif kept := _etag(self.path):
            headers["If-None-Match"] = kept
        with session.stream("GET", self.url, headers=headers, timeout=TIMEOUT, follow_redirects=True) as response:
            status = response.status_code
            if temporary := temporary_refusal(response, "the server"):
                raise temporary
            if status not in (200, 206, 304):
                raise HubError(f"{self.url}: the server answered {status}", hint="check the address", status=status)
            yield response
