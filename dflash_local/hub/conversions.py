"""Converted drafters of downloaded checkpoints, kept in $DFLASH_CACHE/drafters."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

from dflash_local import convert as converter
from dflash_local.cache_dir import cache_dir
from dflash_local.convert.target import Target
from dflash_local.convert.writer import Progress
from dflash_local.file_lock import locked
from dflash_local.hub import cache_space
from dflash_local.hub.cache import HubFile
from dflash_local.native import quantize_rows

Note = Callable[[str], None]


def kept(file: HubFile, target: Target, outtype: str | None = None) -> Path | None:
    """The kept conversion for `target` of the checkpoint that `file` is part of: of type `outtype`, else the newest."""
    found = list(_folder().glob(f"{_name(file, target)}-{outtype or '*'}.gguf"))
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def choose(path: Path, file: HubFile, target: Target) -> None:
    """Make a kept conversion the one that `kept` finds without a type. Raises HubError."""
    try:
        if kept(file, target) != path:
            os.utime(path)
    except OSError as error:
        raise cache_space.failed(path.parent, error, variable=cache_space.OWN_CACHE) from None


def convert(
    checkpoint: Path, file: HubFile, target: Target, outtype: str, note: Note, progress: Progress | None = None
) -> Path:
    """Convert the checkpoint in the folder `checkpoint` for `target`, unless another process has done so meanwhile.
    `note` is told of its oddities. Raises ConvertError, or HubError if the folder of conversions cannot be used."""
    path = _folder() / f"{_name(file, target)}-{outtype}.gguf"
    try:
        with locked(path.parent / ".lock", lambda: note(f"another process converts {file.repo}: waiting for it")):
            if not path.exists():
                _remove_leftovers(path.parent)
                conversion = converter.convert(
                    checkpoint, target.path, path, outtype=outtype, ggml=quantize_rows,
                    origin=(file.repo, file.commit), progress=progress,
                )  # fmt: skip
                for warning in conversion.config.warnings:
                    note(f"{file.repo}: {warning}")
    except OSError as error:
        raise cache_space.failed(path.parent, error, variable=cache_space.OWN_CACHE) from None
    return path


def _remove_leftovers(folder: Path) -> None:
    """Remove what killed processes were writing. To be called with the lock, which all that write here take."""
    for part in folder.glob(".*.part"):
        with suppress(OSError):
            part.unlink()


def _folder() -> Path:
    return cache_dir() / "drafters"


def _name(file: HubFile, target: Target) -> str:
    """All inputs of a conversion but its type: the checkpoint, the target's shape and tokenizer, the converter."""
    return f"{file.repo.replace('/', '--')}@{file.commit[:12]}-{_target_hash(target)}-{_converter_hash()}"


def _target_hash(target: Target) -> str:
    shape = (target.arch, target.n_embd, target.n_layer, target.mask_token, target.uses_mrope)
    digest = hashlib.sha256(repr(shape).encode())
    for key, value in sorted(target.tokenizer.items()):
        digest.update(repr((key, value.type, value.item, value.data)).encode())
    return digest.hexdigest()[:12]


@cache
def _converter_hash() -> str:
    """A hash of the converter's source, since another version may write other files."""
    digest = hashlib.sha256()
    folder = Path(converter.__file__).parent
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:8]
