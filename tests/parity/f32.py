"""The pocket models with every tensor widened to f32: the same numbers for llama.cpp and for PyTorch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from dflash_local import Engine

Tensors = dict[str, npt.NDArray[np.float32]]


def read_tensors(path: Path) -> Tensors:
    """Tensors of an f16 or f32 GGUF by name, widened to f32, numpy order (the reverse of ggml's `ne`)."""
    return {tensor.name: np.array(tensor.data, dtype=np.float32) for tensor in gguf.GGUFReader(path).tensors}


def widen(
    source: Path, destination: Path, keys: Mapping[str, Any] | None = None, tensors: Tensors | None = None
) -> Path:
    """Copy `source` with all tensors as f32 and all metadata but the file type; returns `destination`. `keys` and
    `tensors` replace those of the file; new tensors are added."""
    reader = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(destination, architecture)
    for key, field in reader.fields.items():
        if not key.startswith("GGUF.") and key not in ("general.architecture", "general.file_type"):
            value = (keys or {}).get(key, field.contents())
            writer.add_key_value(key, value, field.types[0], field.types[-1] if len(field.types) > 1 else None)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for name, data in (read_tensors(source) | (tensors or {})).items():
        writer.add_tensor(name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return destination


F32: dict[str, Any] = {
    "cache_type_k": "f32",
    "cache_type_v": "f32",
    "cache_type_k_draft": "f32",
    "cache_type_v_draft": "f32",
    "lookup": False,  # the reference has none
    "flash_attn": "off",  # it would round K and V to f16, even those of f32 caches
}


def engine_f32(target: Path, drafter: Path | None, **parameters: Any) -> Engine:
    """An engine that computes in f32 throughout; `parameters` come before F32."""
    return Engine(target, drafter, n_threads=1, warmup=False, **(F32 | parameters))
