"""PageFile: a built file of the chat page, plain and compressed, and what a request for it means."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files

# The system's own list differs between machines, and browsers run no script of a wrong type.
MEDIA_TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "json": "application/json",
    "png": "image/png",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
    "webmanifest": "application/manifest+json",
    "woff2": "font/woff2",
}
COMPRESSED_ALREADY = frozenset({"png", "woff2"})
_HASHED = re.compile(r"-[0-9A-Z]{8}\.\w+$")  # esbuild's [hash]
_NO_WEIGHT = re.compile(r"q=0(\.0*)?")


@dataclass(frozen=True)
class PageFile:
    """One of the built files; `digest` is the SHA-256 of its `body`, in hexadecimal."""

    name: str
    body: bytes
    digest: str

    @property
    def _suffix(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def media_type(self) -> str:
        return MEDIA_TYPES[self._suffix]

    @property
    def is_lasting(self) -> bool:
        """Whether its name stands for its content, so that it never changes."""
        return bool(_HASHED.search(self.name))

    @cached_property
    def gzipped(self) -> bytes | None:
        """The body, compressed once and kept; None where that saves nothing."""
        if self._suffix in COMPRESSED_ALREADY:
            return None
        body = gzip.compress(self.body, mtime=0)
        return body if len(body) < len(self.body) else None

    def tag(self, is_gzipped: bool) -> str:
        """Its ETag, another one for each form."""
        return f'"{self.digest[:32]}{"-gzip" * is_gzipped}"'


@cache
def page_files() -> dict[str, PageFile]:
    """All of them, by name."""
    folder = files("dflash_local.server") / "page" / "dist"
    hashes: dict[str, str] = json.loads((folder / "build.json").read_text(encoding="utf-8"))["files"]
    return {name: PageFile(name, (folder / name).read_bytes(), digest) for name, digest in hashes.items()}


def accepts_gzip(lines: Iterable[str]) -> bool:
    """Whether `lines` of Accept-Encoding allow gzip (RFC 9110, 12.5.3)."""
    weights: dict[str, str] = {}
    for part in ",".join(lines).lower().split(","):
        coding, _, weight = part.partition(";")
        weights[coding.strip()] = weight.replace(" ", "")
    weight = weights.get("gzip", weights.get("*", "q=0"))
    return not _NO_WEIGHT.fullmatch(weight)


def has_tag(lines: Iterable[str], tag: str) -> bool:
    """Whether `lines` of If-None-Match name `tag` (RFC 9110, 13.1.2); proxies that change a body make it weak."""
    known = {part.strip().removeprefix("W/") for part in ",".join(lines).split(",")}
    return tag in known or "*" in known
