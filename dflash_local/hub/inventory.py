"""The cached models, by the names that llama-server's router gives them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dflash_local.convert.gguf_parts import Parts
from dflash_local.errors import HubError
from dflash_local.hub import selection
from dflash_local.hub.cache import Cache, is_repository
from dflash_local.hub.selection import Name


@dataclass(frozen=True)
class Entry:
    """A cached model: USER/NAME:QUANT, its file or first part, and the projector that is cached beside it."""

    name: str
    path: Path
    projector: Path | None = None


def entries(cache: Cache, on_unreadable: Callable[[Path, OSError], None]) -> Iterator[Entry]:
    """All models with a quantization in their name, without drafters. `on_unreadable` gets each folder that cannot be
    read, and why: a repository's, or the cache's."""
    try:
        repositories = [*_repositories(cache)]
    except OSError as error:
        on_unreadable(cache.root, error)
        return
    for repo in repositories:
        try:
            files = cache.files(repo)
        except OSError as error:
            on_unreadable(cache.repository(repo), error)
            continue
        seen = set()
        for file in selection.models(files):
            tag = Parts.of(file.path).tag
            if tag and tag not in seen:
                seen.add(tag)
                projector = selection.projector(files, file.path)
                yield Entry(f"{repo}:{tag}", cache.snapshot(file), cache.snapshot(projector) if projector else None)


def path_of(cache: Cache, name: str, file: str | None = None) -> Path | None:
    """The cached file of USER/NAME[:QUANT], or `file` of that repository; None if it is not cached."""
    try:
        wanted = Name.parse(name)
    except HubError:
        return None
    files = cache.files(wanted.repo, wanted.revision)
    found = next((one for one in files if one.path == file), None) if file else selection.model(files, wanted.tag)
    return None if found is None else cache.snapshot(found)


def _repositories(cache: Cache) -> Iterator[str]:
    prefix = "models--"
    names = sorted(path.name for path in cache.root.glob(prefix + "*")) if cache.root.is_dir() else []
    for name in names:
        repo = name.removeprefix(prefix).replace("--", "/")
        if is_repository(repo):
            yield repo
