"""Random weights for a model of which only the metadata is there.

llama.cpp asks for every tensor that the architecture may have, optional ones too. Only for processes of their own
(probe.py), because llama_cpp puts a Python callback behind llama.cpp's log.
"""

from __future__ import annotations

import ctypes
import random
from pathlib import Path

import llama_cpp.llama_cpp as llama  # no public name has the low-level API and its library
import numpy as np

ggml = ctypes.CDLL(str(next(Path(llama._lib._name).parent.glob("*ggml-base.*"))))
ggml.gguf_init_from_file.restype = ctypes.c_void_p
ggml.ggml_get_name.restype = ctypes.c_char_p
ggml.ggml_get_name.argtypes = [ctypes.c_void_p]
ggml.ggml_nelements.restype = ctypes.c_int64
ggml.ggml_nelements.argtypes = [ctypes.c_void_p]
ggml.ggml_backend_tensor_set.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t]
ggml.gguf_find_tensor.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
ggml.gguf_find_tensor.restype = ctypes.c_int64
ggml.gguf_add_tensor.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
ggml.gguf_write_to_file.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_bool]


class InitParams(ctypes.Structure):
    """gguf_init_params."""

    _fields_ = (("no_alloc", ctypes.c_bool), ("context", ctypes.c_void_p))


def values(name: str, n: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Norms around 1, frequencies as they are, states that fade; everything else small."""
    noise = np.random.default_rng(random.Random(name).randrange(1 << 32)).normal(0, 0.1, n)
    if "rope" in name:
        noise = np.ones(n)
    elif "norm" in name and name.endswith("weight"):
        noise += 1
    elif "ssm_a" in name:
        noise = -np.abs(noise)
    return noise.astype(np.float32)


def fill(tensor: int, file: int) -> None:
    """Called for every tensor; the head may be the embeddings a second time."""
    name = ggml.ggml_get_name(tensor)
    data = values(name.decode(), ggml.ggml_nelements(tensor))
    ggml.ggml_backend_tensor_set(tensor, data.ctypes.data, 0, data.nbytes)
    if ggml.gguf_find_tensor(file, name) < 0:
        ggml.gguf_add_tensor(file, tensor)


def make(keys: Path, path: Path, mtp: bool = False) -> None:
    """Write the model at `path` whose metadata is in the file `keys`; with `mtp` its MTP layers, too."""
    params = llama.llama_model_default_params()
    params.use_extra_bufts, params.load_mtp = False, mtp
    file = ctypes.c_void_p(ggml.gguf_init_from_file(str(keys).encode(), InitParams(True, None)))
    callback = llama.llama_model_set_tensor_data_t(fill)
    model = llama.llama_model_init_from_user(file, callback, file, params)
    if not model or not ggml.gguf_write_to_file(file, str(path).encode(), False):
        raise SystemExit(f"llama.cpp refuses {keys.stem}")
    llama.llama_model_free(model)
