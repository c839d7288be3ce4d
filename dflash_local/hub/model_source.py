"""Where a model comes from, and what a repository offers as a drafter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dflash_local.errors import HubError
from dflash_local.hub import selection
from dflash_local.hub.cache import HubFile
from dflash_local.hub.selection import Name
from dflash_local.words import first_names

_MOST_LISTED = 12


@dataclass(frozen=True)
class Source:
    """The source of a model: a local file, or files of a repository, of which the first is to be loaded. A checkpoint
    is converted after its download."""

    path: Path | None = None
    files: tuple[HubFile, ...] = ()
    is_checkpoint: bool = False

    def __str__(self) -> str:
        if self.path:
            return str(self.path)
        first = self.files[0]
        return first.repo if self.is_checkpoint else f"{first.repo}/{first.path}"

    @property
    def early_files(self) -> list[HubFile]:
        """Those of a checkpoint's files whose beginning says what is in them: torch.save's index is at the end."""
        return [file for file in self.files if not file.name.endswith(".bin")]


def one_file(listing: Sequence[HubFile], path: str) -> HubFile | None:
    """The file of this path."""
    return next((file for file in listing if file.path == path), None)


def drafter_sources(name: Name, listing: Sequence[HubFile], file: str | None) -> Iterator[Source]:
    """Sidecars, then a model file, as upstream. Beyond upstream: a checkpoint, and MTP layers come last of the
    sidecars."""
    if file:
        if found := one_file(listing, file):
            yield Source(files=tuple(selection.all_parts(listing, found)))
        return
    seen = list(selection.drafters(listing, "", name.tag))
    if layers := selection.layers(listing, "", name.tag):
        seen.append(layers)
    if not seen and (found := selection.model(listing, name.tag)):
        seen = [found]
    yield from (Source(files=tuple(selection.all_parts(listing, found))) for found in seen)
    if not name.tag and selection.is_checkpoint(listing):
        yield Source(files=tuple(selection.checkpoint(listing)), is_checkpoint=True)


def absent(what: str, name: Name, listing: Sequence[HubFile], file: str | None) -> HubError:
    """The error of a repository that has no `what`, or not this `file`."""
    hint = _gguf_hint(listing)
    if what == "GGUF" and not file and selection.is_checkpoint(listing):
        hint = "it is a Hugging Face checkpoint: name a repository of GGUFs, or give a drafter's checkpoint to -hfd"
    missing = f"file {file}" if file else what + (f" of type {name.tag}" if name.tag else "")
    return HubError(f"{name.repo} holds no {missing}", hint=hint)


def _gguf_hint(listing: Sequence[HubFile]) -> str:
    found = [file.path for file in listing if file.path.endswith(".gguf")]
    if not found:
        return "name a repository of GGUF files"
    return f"its GGUFs are {first_names(found, _MOST_LISTED)}"
