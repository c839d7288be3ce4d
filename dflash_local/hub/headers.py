"""The headers of remote models and checkpoints, to check them before gigabytes are downloaded.

A header becomes a local sparse file with the length of the real one, so that readers of local files can be used.
"""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dflash_local.convert.gguf_metadata import read_header
from dflash_local.convert.gguf_parts import MAGIC
from dflash_local.errors import HubError, ModelError
from dflash_local.hub.cache import HubFile
from dflash_local.hub.client import Hub
from dflash_local.hub.links import link_or_copy

# A vocabulary of 250,000 tokens with its merges takes 10 MB.
_GGUF_STEPS = (1 << 20, 16 << 20, 128 << 20)
_LONGEST_SAFETENSORS = 100 << 20


@contextmanager
def gguf_header(hub: Hub, *parts: HubFile) -> Iterator[Path]:
    """The path of the first of a model's `parts` if all are cached, else of a file with its header, beside such files
    of the others. Raises HubError, or ModelError if it is not a GGUF."""
    cached = [hub.find(part) for part in parts]
    if cached[0] and all(cached):
        yield cached[0]
        return
    with tempfile.TemporaryDirectory(prefix="dflash-local-") as folder:
        for part, found in zip(parts, cached, strict=True):
            path = Path(folder) / part.name
            if found:
                link_or_copy(found, path)
            else:
                _write_gguf_header(hub, part, path)
        yield Path(folder) / parts[0].name


def _write_gguf_header(hub: Hub, file: HubFile, path: Path) -> None:
    for length in _GGUF_STEPS:
        data = hub.first_bytes(file, length)
        _write(path, data, file)
        try:
            read_header(path)
            return
        except ModelError:
            if not data.startswith(MAGIC) or len(data) < length or length == _GGUF_STEPS[-1]:
                raise


@contextmanager
def checkpoint_headers(hub: Hub, files: Sequence[HubFile]) -> Iterator[Path]:
    """A folder with the checkpoint's small files and the headers of its safetensors. Raises HubError."""
    with tempfile.TemporaryDirectory(prefix="dflash-local-") as folder:
        for file in files:
            path = Path(folder) / file.name
            if cached := hub.find(file):
                link_or_copy(cached, path)
            elif file.name.endswith(".safetensors"):
                _write(path, _safetensors_header(hub, file), file)
            else:
                link_or_copy(hub.download([file])[0], path)
        yield Path(folder)


def _safetensors_header(hub: Hub, file: HubFile) -> bytes:
    data = hub.first_bytes(file, 64 << 10)
    if len(data) < 8:
        raise HubError(f"{file.path} of {file.repo} is not a safetensors file")
    length = int(struct.unpack_from("<Q", data)[0])
    if length > _LONGEST_SAFETENSORS:
        raise HubError(f"{file.path} of {file.repo} is not a safetensors file: it claims a header of {length} bytes")
    return data if len(data) >= 8 + length else hub.first_bytes(file, 8 + length)


def _write(path: Path, data: bytes, file: HubFile) -> None:
    path.write_bytes(data)
    os.truncate(path, max(file.size or 0, len(data)))  # sparse
