"""Write a GGUF file tensor by tensor, in chunks, to a temporary file that takes its name only when it is complete."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFWriter

from .gguf_metadata import Value

Chunks = Iterable[npt.NDArray[Any]]


@dataclass(frozen=True)
class OutputTensor:
    """`shape` is row-major; `chunks()` yields the data in order, already of the tensor's type."""

    name: str
    shape: tuple[int, ...]
    type: GGMLQuantizationType
    chunks: Callable[[], Chunks]

    @property
    def n_bytes(self) -> int:
        block, block_bytes = GGML_QUANT_SIZES[self.type]
        return math.prod(self.shape) // block * block_bytes


def write_gguf(path: Path, metadata: Mapping[str, Value], tensors: list[OutputTensor], progress: Callable[[str, int], None]) -> None:
    """Write `path` in full or not at all; `progress(tensor name, bytes)` is called after each chunk.

    `metadata` starts with `general.architecture`. A file that was there before stays until the new one is complete.
    """
    with _complete_or_absent(path) as temporary:
        writer = GGUFWriter(None, str(metadata["general.architecture"].data))
        for key, value in metadata.items():
            if key != "general.architecture":  # GGUFWriter has written it
                writer.add_key_value(key, value.data, value.type, value.item)
        for tensor in tensors:
            # float32 stands for "the shape is in elements"; the type that counts is the last argument
            writer.add_tensor_info(tensor.name, tensor.shape, np.dtype(np.float32), tensor.n_bytes, tensor.type)
        try:
            writer.write_header_to_file(temporary)
            writer.write_kv_data_to_file()
            writer.write_ti_data_to_file()
            assert writer.fout is not None
            file = writer.fout[0]
            writer.write_padding(file, file.tell())
            for tensor in tensors:
                # GGUFWriter.write_tensor_data wants a whole tensor in memory
                written = 0
                for chunk in tensor.chunks():
                    file.write(np.ascontiguousarray(chunk).data)
                    written += chunk.nbytes
                    progress(tensor.name, chunk.nbytes)
                assert written == tensor.n_bytes, tensor.name
                writer.write_padding(file, written)
            file.flush()
            os.fsync(file.fileno())
        finally:
            writer.close()


@contextmanager
def _complete_or_absent(path: Path) -> Iterator[Path]:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
