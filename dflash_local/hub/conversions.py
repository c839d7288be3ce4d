"""Converted drafters of downloaded checkpoints, kept in $DFLASH_CACHE/drafters."""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

from dflash_local import convert as converter
from dflash_local.convert.target import Target
from dflash_local.convert.writer import Progress
from dflash_local.hub import cache_space
from dflash_local.hub.cache import HubFile
from dflash_local.hub.drafter_folder import Note, drafter_folder, write_once
from dflash_local.native import quantize_rows

_REST = 30 * 86400.0  # seconds without use; a server of another version may load its drafter again
# Modules of the converter that no conversion of a checkpoint imports: they read GGUFs.
_FOR_GGUFS = ("dialects.py", "gguf_glance.py", "published_taps.py", "relabel.py", "requantize.py")


def kept(file: HubFile, target: Target, outtype: str | None = None) -> Path | None:
    """The kept conversion for `target` of the checkpoint that `file` is part of: of type `outtype`, else the newest."""
    return _newest(f"{_inputs(file, target)}-{_converter_hash()}-{outtype or '*'}.gguf")


def latest_type(file: HubFile, target: Target) -> str | None:
    """The type of the latest conversion, of any version of the converter, of the checkpoint that `file` is part of."""
    path = _newest(f"{_inputs(file, target)}-*.gguf")
    return path.stem.rpartition("-")[2] if path else None


def _newest(pattern: str) -> Path | None:
    return max(drafter_folder().glob(pattern), key=_last_use, default=None)


def _last_use(path: Path) -> float:
    with suppress(OSError):  # another process has just removed it
        return path.stat().st_mtime
    return 0.0


def choose(path: Path, file: HubFile, target: Target) -> None:
    """Make a kept conversion the one that `kept` finds without a type. Raises HubError."""
    try:
        os.utime(path)
    except OSError as error:
        if kept(file, target) != path:  # a cache that can only be read keeps its order
            raise cache_space.failed(path.parent, error, variable=cache_space.OWN_CACHE) from None


def convert(
    checkpoint: Path, file: HubFile, target: Target, outtype: str, note: Note, progress: Progress | None = None
) -> Path:
    """Convert the checkpoint in the folder `checkpoint` for `target`, unless another process has done so meanwhile.
    `note` is told of its oddities. What other versions of the converter made of it is removed a month after its last
    use. Raises ConvertError, or HubError if the folder of conversions cannot be used."""
    path = drafter_folder() / f"{_inputs(file, target)}-{_converter_hash()}-{outtype}.gguf"

    def write() -> None:
        conversion = converter.convert(
            checkpoint, target.path, path, outtype=outtype, ggml=quantize_rows, origin=(file.repo, file.commit),
            progress=progress,
        )  # fmt: skip
        for warning in conversion.config.warnings:
            note(f"{file.repo}: {warning}")
        _remove_outdated(path.parent, _inputs(file, target))

    write_once(path, write, note)
    return path


def _remove_outdated(folder: Path, inputs: str) -> None:
    """Remove conversions by other versions of the converter, which this one never finds."""
    current = f"{inputs}-{_converter_hash()}-"
    for path in folder.glob(f"{inputs}-*.gguf"):
        if not path.name.startswith(current) and time.time() - _last_use(path) > _REST:
            with suppress(OSError):  # Windows removes no file that is in use
                path.unlink()


def _inputs(file: HubFile, target: Target) -> str:
    """What is converted: the checkpoint, for the target's shape and tokenizer."""
    return f"{file.repo.replace('/', '--')}@{file.commit[:12]}-{_target_hash(target)}"


def _target_hash(target: Target) -> str:
    shape = (target.arch, target.n_embd, target.n_layer, target.mask_token, target.uses_mrope)
    digest = hashlib.sha256(repr(shape).encode())
    for key, value in sorted(target.tokenizer.items()):
        digest.update(repr((key, value.type, value.item, value.data)).encode())
    return digest.hexdigest()[:12]


@cache
def _converter_hash() -> str:
    """A hash of the converter's source, since another version may write other files."""
    digest, folder = hashlib.sha256(), Path(converter.__file__).parent
    for path in converter_files():
        digest.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:8]


def converter_files() -> list[Path]:
    """The source files that a conversion runs, in a fixed order."""
    return sorted(path for path in Path(converter.__file__).parent.rglob("*.py") if path.name not in _FOR_GGUFS)
