"""Write a GGUF file tensor by tensor, in chunks, to a temporary file that is renamed when it is complete."""

from __future__ import annotations

import math
import os
import struct
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGML_QUANT_SIZES, GGUF_VERSION, GGMLQuantizationType

from dflash_local.errors import ConvertError, RequestError

from .complete_file import complete_or_absent
from .gguf_metadata import StoredGgufTensor, Value, alignment_of, pack_metadata, pack_string
from .gguf_parts import MAGIC
from .sparse_file import extend

Chunks = Iterable[npt.NDArray[Any]]
# tensor name, bytes written so far, total bytes
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class OutputTensor:
    """`shape` is row-major; `chunks()` yields the data in order, in the tensor's type."""

    name: str
    shape: tuple[int, ...]
    type: GGMLQuantizationType
    chunks: Callable[[], Chunks]

    @classmethod
    def of(cls, tensor: StoredGgufTensor, name: str | None = None) -> OutputTensor:
        """An unchanged tensor of another file, perhaps under another `name`."""
        return cls(name or tensor.name, tensor.shape, tensor.type, tensor.chunks)

    @property
    def n_bytes(self) -> int:
        block, block_bytes = GGML_QUANT_SIZES[self.type]
        return math.prod(self.shape) // block * block_bytes


def check_output(output: Path, inputs: Iterable[Path]) -> None:
    """Raise ConvertError if `output` cannot be a file, or is one of the inputs."""
    # pathlib fails where it may not look, and if a name is too long.
    is_other = os.path.exists(output) and not os.path.isfile(output)  # noqa: PTH110, PTH113  a directory or a device
    if is_other or not os.path.isdir(output.parent):  # noqa: PTH112
        raise ConvertError(f"cannot write {output}: not a file in an existing directory", hint="give a file name to -o")
    if os.path.realpath(output) in set(map(os.path.realpath, inputs)):
        raise ConvertError(f"{output} is an input of this conversion", hint="give another file name to -o")


@contextmanager
def scratch_folder(output: Path | None, prefix: str) -> Iterator[Path]:
    """A folder for the block's files: beside `output`, so that one can be moved there at once, or where the system has
    its own. Raises RequestError if it cannot be made."""
    folder = output.parent if output else None
    try:
        scratch = tempfile.TemporaryDirectory(prefix=prefix, dir=folder)
    except OSError as error:
        where, param = (folder, "--output") if folder else ("the folder of temporary files", None)
        hint = "check its rights and space, or " + ("give another -o" if folder else "point TMPDIR elsewhere")
        raise RequestError(f"cannot write into {where}: {error.strerror}", param=param, hint=hint) from None
    with scratch as path:
        yield Path(path)


def write_drafter(
    path: Path,
    metadata: Mapping[str, Value],
    tensors: Sequence[OutputTensor],
    progress: Progress | None,
    *,
    hollow: bool = False,
) -> int:
    """`write_gguf` for commands: with total progress; returns the tensor data in bytes. Raises ConvertError if the file
    cannot be written."""
    total, done = sum(tensor.n_bytes for tensor in tensors), 0

    def report(name: str, n_bytes: int) -> None:
        nonlocal done
        done += n_bytes
        if progress:
            progress(name, done, total)

    try:
        write_gguf(path, metadata, tensors, report, hollow=hollow)
    except OSError as error:
        raise ConvertError(
            f"cannot write {path}: {error.strerror}", hint="check the disk's space and rights, or give another -o"
        ) from error
    return total


def write_gguf(
    path: Path,
    metadata: Mapping[str, Value],
    tensors: Sequence[OutputTensor],
    progress: Callable[[str, int], None] = lambda name, n_bytes: None,
    *,
    hollow: bool = False,
) -> None:
    """Write `path` in full or not at all; `progress(tensor name, bytes)` is called after each chunk. A `hollow` file is
    sparse: it has the full size but no data. The data is aligned as `metadata` says.

    An existing file stays until the new one is complete. `gguf.GGUFWriter` would need each tensor whole in memory.
    """
    alignment = alignment_of(metadata)
    with complete_or_absent(path) as file:
        file.write(MAGIC + struct.pack("<IQQ", GGUF_VERSION, len(tensors), len(metadata)) + pack_metadata(metadata))
        offset = 0
        for tensor in tensors:
            n_dims = len(tensor.shape)
            file.write(pack_string(tensor.name))
            file.write(struct.pack(f"<I{n_dims}QIQ", n_dims, *reversed(tensor.shape), tensor.type, offset))
            offset += tensor.n_bytes + -tensor.n_bytes % alignment
        file.write(bytes(-file.tell() % alignment))
        if hollow:
            extend(file, file.tell() + offset)
        for tensor in () if hollow else tensors:
            written = 0
            for chunk in tensor.chunks():
                file.write(np.ascontiguousarray(chunk).data)
                written += chunk.nbytes
                progress(tensor.name, chunk.nbytes)
            assert written == tensor.n_bytes, tensor.name
            file.write(bytes(-written % alignment))
