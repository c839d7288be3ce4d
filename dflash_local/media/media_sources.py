"""MediaSources: where the media of a conversation may come from, besides the request itself."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from dflash_local.errors import MediaError
from dflash_local.media.data_url import read_base64, read_data_url
from dflash_local.media.local_file import read_file_url
from dflash_local.media.media_hosts import MediaHosts
from dflash_local.media.medium import Kind

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,31}):")
_NO_HOSTS = "no image or audio is fetched from other hosts: send it as a data URL, or start with --media-hosts"
_NO_FOLDER = "no image or audio is read from files: send it as a data URL, or start with --media-path"


@dataclass(frozen=True)
class MediaSources:
    """By default only the request itself, with data URLs and base64.

    Attributes:
        hosts: those of http and https URLs.
        folder: what `file://` URLs may name is below it; None: nothing.
    """

    hosts: MediaHosts = field(default_factory=MediaHosts)
    folder: Path | None = None

    def read(self, url: str, kind: Kind, param: str) -> bytes:
        """The file that a URL means: data, http, https, file, or bare base64. May block for as long as a fetch may.

        Raises:
            MediaError: it is not allowed, malformed, or cannot be had; `param` is to blame.
        """
        scheme = _SCHEME.match(url)
        try:
            if scheme is None:
                return read_base64(url)
            if (read := self._readers.get(scheme[1].lower())) is None:
                raise ValueError(f"has the scheme {scheme[1]!r}, which is not known")
            return read(url, kind)
        except ValueError as error:
            raise MediaError.of(param, kind, str(error)) from None

    @property
    def _readers(self) -> dict[str, Callable[[str, Kind], bytes]]:
        return {"data": read_data_url, "http": self._fetched, "https": self._fetched, "file": self._local}

    def _fetched(self, url: str, kind: Kind) -> bytes:
        if not self.hosts.names:
            raise ValueError(f"is a URL, but {_NO_HOSTS}")
        from dflash_local.media.remote_file import RemoteFiles  # an HTTP client, for which no start waits

        return RemoteFiles(self.hosts).read(url)

    def _local(self, url: str, kind: Kind) -> bytes:
        if self.folder is None:
            raise ValueError(f"is a URL of a file, but {_NO_FOLDER}")
        if not url.lower().startswith("file://"):
            raise ValueError("must begin with file://")
        return read_file_url(url, self.folder)
