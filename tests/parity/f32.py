"""The pocket models with every tensor widened to f32: the same numbers for llama.cpp and for PyTorch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import LlamaFileType

from dflash_local import Engine
from dflash_local.convert.gguf_metadata import u32
from tests.gguf_files import numbers, rewritten

Tensors = dict[str, npt.NDArray[np.float32]]


def widen(
    source: Path, destination: Path, keys: Mapping[str, Any] | None = None, tensors: Tensors | None = None
) -> Path:
    """Copy `source` with all tensors as f32; returns `destination`. `keys` and `tensors` replace those of the file; new
    tensors are added."""
    changed = {"general.file_type": u32(LlamaFileType.ALL_F32), **(keys or {})}
    return rewritten(source, destination, changed, numbers(source) | (tensors or {}))


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
