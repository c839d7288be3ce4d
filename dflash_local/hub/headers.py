"""The headers of remote models and checkpoints, to check them before gigabytes are downloaded.

A header becomes a local sparse file with the length of the real one, so that readers of local files can be used.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dflash_local.convert.gguf_metadata import read_header
from dflash_local.convert.gguf_parts import MAGIC
from dflash_local.convert.sparse_file import extend
from dflash_local.disk import full_disk_hint
from dflash_local.errors import HubError, ModelError
from dflash_local.hub.cache import HubFile
from dflash_local.hub.client import Hub
from dflash_local.hub.links import link_or_copy
from dflash_local.words import file_size_text

# Bytes that are there after each request. A vocabulary of 150,000 to 250,000 tokens with its merges takes 6 to 10 MB.
_GGUF_STEPS = tuple(n << 20 for n in (1, 4, 8, 16, 32, 64, 128))
_LONGEST_SAFETENSORS = 100 << 20
_LARGEST_SMALL = 64 << 20  # of a checkpoint's other files; an index of 100,000 tensors takes 10 MB


@contextmanager
def gguf_header(hub: Hub, *parts: HubFile) -> Iterator[Path]:
    """The path of the first of a model's `parts` if all are cached, else of a file with its header, beside such files
    of the others. Raises HubError, or ModelError if it is not a GGUF."""
    cached = [hub.find(part) for part in parts]
    if cached[0] and all(cached):
        yield cached[0]
        return
    with temporary_folder() as folder:
        for part, found in zip(parts, cached, strict=True):
            path = folder / part.name
            if found:
                _link(found, path)
            else:
                _write_gguf_header(hub, part, path)
        yield folder / parts[0].name


def _write_gguf_header(hub: Hub, file: HubFile, path: Path) -> None:
    done = 0
    for stop in _GGUF_STEPS:
        data = hub.read(file, done, stop)
        _write(path, data, file, done)
        is_gguf, done = done > 0 or data.startswith(MAGIC), done + len(data)
        try:
            read_header(path)
            return
        except ModelError:
            if not is_gguf or done < stop or stop == _GGUF_STEPS[-1]:
                raise


@contextmanager
def checkpoint_headers(hub: Hub, files: Sequence[HubFile]) -> Iterator[Path]:
    """A folder with the checkpoint's small files and the headers of its safetensors. Raises HubError."""
    with temporary_folder() as folder:
        for file in files:
            path = folder / file.name
            if cached := hub.find(file):
                _link(cached, path)
            elif file.name.endswith(".safetensors"):
                _write(path, _safetensors_header(hub, file), file)
            else:
                _check_small(file)
                _link(hub.download([file], keeps_refs=False)[0], path)
        yield folder


def _check_small(file: HubFile) -> None:
    """Raise HubError if a file that is no weights is as large as if it were: a bad repository could fill the disk."""
    if (file.size or 0) > _LARGEST_SMALL:
        large = f"{file_size_text(file.size or 0)}, more than any file of settings"
        raise HubError(f"{file.path} of {file.repo} has {large}", hint="name a drafter's repository")


def _safetensors_header(hub: Hub, file: HubFile) -> bytes:
    data = hub.read(file, 0, 64 << 10)
    if len(data) < 8:
        raise HubError(f"{file.path} of {file.repo} is not a safetensors file")
    length = int(struct.unpack_from("<Q", data)[0])
    if length > _LONGEST_SAFETENSORS:
        raise HubError(f"{file.path} of {file.repo} is not a safetensors file: it claims a header of {length} bytes")
    return data + hub.read(file, len(data), 8 + length) if len(data) < 8 + length else data


# ---- the folder of temporary files ----


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Raises HubError if it cannot be made."""
    with _faults():
        folder = tempfile.TemporaryDirectory(prefix="dflash-local-")
    with folder as path:
        yield Path(path)


def _link(source: Path, path: Path) -> None:
    with _faults():
        link_or_copy(source, path)


def _write(path: Path, data: bytes, file: HubFile, start: int = 0) -> None:
    """Write what `file` has from `start` on; before that it is there."""
    with _faults(), path.open("r+b" if start else "wb") as out:
        out.seek(start)
        out.write(data)
        extend(out, max(file.size or 0, start + len(data)))


@contextmanager
def _faults() -> Iterator[None]:
    """Faults of writing there as HubError; a file may also be announced with a size that none can have."""
    try:
        yield
    except (OSError, OverflowError) as error:
        why = error.strerror if isinstance(error, OSError) else "the file's size is none that a file can have"
        raise HubError(f"cannot write a temporary file: {why}", hint=full_disk_hint("TMPDIR")) from None
