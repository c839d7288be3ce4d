"""Taps beside what an eval callback sees of the same pass: `python -m tests.taps.probe FOLDER ARCH...` writes a tiny
random model of each architecture into the folder, and prints how far its taps are from what they should be: a line of
JSON for each.

The input of layer i + 1 is what layer i gave out, by llama.cpp's own name for it. That of layer 0 are the token
embeddings of the file, which may be scaled. Run in a process of its own, because llama_cpp puts a Python callback
behind llama.cpp's log.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import sys
from pathlib import Path

import llama_cpp.llama_cpp as llama  # no public name has the low-level API and its library
import numpy as np
import numpy.typing as npt

from tests.fuzz import gguf_image
from tests.fuzz.architectures import EMBD
from tests.trees.models import find

from .make import ggml, make
from .models import header

Array = npt.NDArray[np.float32]

TOKENS = [3, 14, 15, 92, 65, 35, 89, 79, 32, 38, 46]

library = llama._lib
set_tap = library._Z30llama_set_embeddings_layer_inpP13llama_contextjb
set_tap.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_bool]
get_tap = library._Z30llama_get_embeddings_layer_inpP13llama_contextj
get_tap.argtypes = [ctypes.c_void_p, ctypes.c_uint32]
get_tap.restype = ctypes.POINTER(ctypes.c_float)
ggml.ggml_backend_tensor_get.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t]

seen: dict[str, Array] = {}


def see(tensor: int, ask: bool, _: object) -> bool:
    """step35 names what layer i gave out a second time."""
    name, _, layer = ggml.ggml_get_name(tensor).decode().partition("-")
    if name == "attn_norm_in":
        name, layer = "l_out", str(int(layer) - 1)
    if not ask:
        data = np.empty((ggml.ggml_nelements(tensor) // EMBD, EMBD), np.float32)
        ggml.ggml_backend_tensor_get(tensor, data.ctypes.data, 0, data.nbytes)
        seen[f"{name}-{layer}"] = data
    return name == "l_out"


def run(path: Path) -> list[Array]:
    """The taps of all layers; fills `seen`. Only the last row asks for logits, as in a prompt."""
    model = llama.llama_model_load_from_file(str(path).encode(), llama.llama_model_default_params())
    params = llama.llama_context_default_params()
    callback = llama.ggml_backend_sched_eval_callback(see)
    params.n_ctx, params.n_threads, params.n_threads_batch, params.cb_eval = 256, 1, 1, callback
    context = llama.llama_init_from_model(model, params)
    layers = int(llama.llama_model_n_layer(model))
    for layer in range(layers):
        set_tap(context, layer, True)
    batch = llama.llama_batch_ext_init(context)
    for position, token in enumerate(TOKENS):
        row = llama.llama_batch_ext_add_token(batch, 0, token)
        llama.llama_batch_ext_set_pos(batch, row, ctypes.c_int32(position))
        llama.llama_batch_ext_set_output_logits(batch, row, position == len(TOKENS) - 1)
    assert llama.llama_process(context, 1, batch) == 0
    taps = [np.ctypeslib.as_array(get_tap(context, layer), (len(TOKENS), EMBD)).copy() for layer in range(layers)]
    llama.llama_batch_ext_free(batch)
    llama.llama_free(context)
    llama.llama_model_free(model)
    return taps


def apart(a: Array, b: Array) -> float:
    """The largest difference as a share of the largest value. A layer may give out several streams: then their mean."""
    b = b.reshape(len(a), -1, EMBD).mean(1)
    return float(np.abs(a - b).max() / np.abs(b).max())


def probe(path: Path) -> dict[str, list[float]]:
    seen.clear()
    taps = run(path)
    words = np.frombuffer(find(gguf_image.read(path), "token_embd.weight").data, np.float32).reshape(-1, EMBD)[TOKENS]
    scale = float((taps[0] * words).sum() / (words * words).sum())
    return {
        "error": [apart(taps[0], scale * words)]
        + [apart(tap, seen[f"l_out-{layer}"]) for layer, tap in enumerate(taps[1:])],
        "moved": [apart(tap, before) for before, tap in itertools.pairwise(taps)],
    }


def main() -> None:
    folder = Path(sys.argv[1])
    for arch in sys.argv[2:]:
        path, keys = folder / f"{arch}.gguf", folder / f"{arch}.keys"
        keys.write_bytes(header(arch).encode()[0])
        make(keys, path)
        print(json.dumps({"arch": arch, **probe(path)}), flush=True)


if __name__ == "__main__":
    main()
