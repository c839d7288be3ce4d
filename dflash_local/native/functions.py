"""Functions of libdflash that need no engine: files, vocabularies, plans, tuning, RPC servers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from ctypes import byref, c_int32, c_void_p
from typing import TYPE_CHECKING, Any, NamedTuple

from dflash_local.errors import RequestError
from dflash_local.native.library import json_of, load, path_bytes, result_of, utf8
from dflash_local.native.structs import EngineParams, ProgressCallback, RPCServerParams, Struct, TuneParams, fill

if TYPE_CHECKING:
    import numpy as np


def library_info() -> dict[str, Any]:
    """dflash_library_info(): ABI, versions, loaded backends, devices, CPU features."""
    return dict(json_of(load().dflash_library_info))


class Device(NamedTuple):
    """A device that can hold weights, by ggml's name, with its memory in bytes."""

    name: str
    description: str
    memory_total: int
    memory_free: int


def list_devices(rpc: str | None = None) -> list[Device]:
    """The devices that `device` and `device_draft` may name: all but the CPU.

    Args:
        rpc: RPC servers ("host:port,...") whose devices are included.

    Raises:
        RPCError: a server cannot be reached.
    """
    remote = rpc_devices(rpc) if rpc else []
    local = [device for device in library_info()["devices"] if device["type"] != "cpu"]
    return [Device(**{name: device[name] for name in Device._fields}) for device in (*remote, *local)]


def quantize(source: str | os.PathLike[str], target: str | os.PathLike[str], ftype: str, *, n_threads: int = 0) -> None:
    """Quantize the GGUF `source` into `target`; `ftype` is one of llama-quantize's names ("q4_0", "q4_k_m", ...)."""
    load().dflash_quantize(path_bytes(source), path_bytes(target), ftype.encode(), n_threads)


def quantize_rows(kind: int, rows: np.ndarray) -> np.ndarray:
    """Float32 rows [n, columns] as blocks [n, row bytes] of a quantized type (a GGMLQuantizationType), by ggml's own
    functions. Columns must be whole blocks. Types that need an importance of each column get the same one for all."""
    import numpy as np

    lib = load()
    rows = np.ascontiguousarray(rows, np.float32)
    n_rows, n_columns = rows.shape
    out = np.empty((n_rows, lib.ggml_row_size(kind, n_columns)), np.uint8)
    alike = np.ones(n_columns, np.float32) if lib.ggml_quantize_requires_imatrix(kind) else None
    importance = None if alike is None else alike.ctypes.data
    n_bytes = lib.ggml_quantize_chunk(kind, rows.ctypes.data, out.ctypes.data, 0, n_rows, n_columns, importance)
    assert n_bytes == out.size, kind
    return out


def check_gguf(path: str | os.PathLike[str]) -> None:
    """Raise ModelError unless `path` is a sound GGUF file that its architecture can load."""
    load().dflash_check_gguf(path_bytes(path))


def check_embedding_gguf(path: str | os.PathLike[str]) -> None:
    """`check_gguf` for embedding and reranking models, which may be encoders."""
    load().dflash_check_embedding_gguf(path_bytes(path))


def check_mmproj(path: str | os.PathLike[str]) -> None:
    """Raise ModelError unless `path` is a sound projector that mtmd can load."""
    load().dflash_check_mmproj(path_bytes(path))


@contextmanager
def vocabulary_of(path: str | os.PathLike[str]) -> Iterator[Any]:
    """The vocabulary of a model's file (of a split one: the first part), for `vocab_tokenize`. Raises ModelError if the
    file is damaged or has no vocabulary."""
    lib = load()
    handle = result_of(c_void_p, lib.dflash_vocab_init, path_bytes(path))
    try:
        yield lib.dflash_vocab_get(handle)
    finally:
        lib.dflash_vocab_free(handle)


def vocab_tokenize(vocab: Any, text: str, *, add_special: bool, parse_special: bool, param: str = "text") -> list[int]:
    """Token ids of `text` by a vocabulary from `vocabulary_of`, by an engine's, or by the `llama_vocab_p` of a model
    that llama-cpp-python has loaded, whose own function overflows the stack on some texts. Raises RequestError about
    `param` for a text that the tokenizer cannot take."""
    lib, data = load(), utf8(text, param)
    capacity = len(data) + 8
    while True:
        tokens = (c_int32 * capacity)()
        special = add_special, parse_special
        count: int = result_of(c_int32, lib.dflash_tokenize, vocab, data, len(data), *special, tokens, capacity)
        if count <= capacity:
            return tokens[:count]
        capacity = count


def check_chat_template(source: str) -> None:
    """Raise RequestError unless `source` is Jinja that llama.cpp can read, or the name of one of its templates."""
    load().dflash_check_chat_template(utf8(source, "chat_template"))


def matrix_rows(device: str, weights: str, rows: int = -1) -> int:
    """The smallest number of rows for which `device` uses its matrix kernel with `weights` (a quantized type); 0: it
    has only one kernel.

    `rows` > 0 sets that number first, for the whole process (at most one more than the vector kernel can compute); 0
    restores the device's default; -1 only reads.
    """
    return int(result_of(c_int32, load().dflash_matrix_rows, device.encode(), weights.encode(), rows))


def few_rows(device: str, weights: str, rows: int = -1) -> int:
    """The smallest number of rows, up to 64, for which `device` uses the kernels of ggml_ops/gemm with `weights`; 65:
    never, 0: it has none. `rows` as for matrix_rows(), whose kernels serve where these do not."""
    return int(result_of(c_int32, load().dflash_few_rows, device.encode(), weights.encode(), rows))


def tune(params: Mapping[str, Any], progress: Callable[[float], bool] | None = None) -> dict[str, Any]:
    """dflash_tune(): milliseconds of one product by each of a device's two kernels, for 1, 2, ... rows.

    Args:
        params: fields of `TuneParams` as str or int; what is absent keeps the library's default.
        progress: called with 0..1; returning False cancels, which is a RequestError.
    """
    lib = load()
    native = filled(TuneParams(), lib.dflash_tune_params_default, params)
    return dict(json_of(lib.dflash_tune, byref(native), progress_callback(progress), None))


def plan(params: Mapping[str, Any], devices: Mapping[str, int] | None = None) -> dict[str, Any]:
    """dflash_plan(): what an engine with these parameters would allocate. Nothing is allocated.

    Args:
        params: as for NativeEngine.
        devices: memory in bytes of another machine's devices, by name, used instead of this machine's.
    """
    lib = load()
    native = filled(EngineParams(), lib.dflash_engine_params_default, params)
    named = ",".join(f"{name}={size}" for name, size in devices.items()).encode() if devices else None
    return dict(json_of(lib.dflash_plan, byref(native), named))


def rpc_devices(servers: str) -> list[dict[str, Any]]:
    """The devices of RPC servers ("host:port,..."), as in `library_info`. Raises RPCError."""
    return list(json_of(load().dflash_rpc_devices, servers.encode()))


def rpc_serve(params: Mapping[str, Any]) -> None:
    """dflash_rpc_serve(): lend this machine's devices until the process ends. `params`: fields of `RPCServerParams`;
    what is absent keeps the library's default.

    Raises:
        RequestError: an address or a device is invalid; RPCError: cannot listen at the address.
    """
    native = filled(RPCServerParams(), load().dflash_rpc_server_params_default, params)
    load().dflash_rpc_serve(byref(native))


def sampling_fields() -> list[dict[str, Any]]:
    """dflash_sampling_fields(): name, type, default and bounds of every sampling field."""
    return list(json_of(load().dflash_sampling_fields))


def schema_ignored(schema: Mapping[str, Any]) -> list[str]:
    """The parts of a JSON schema that its grammar does not enforce, such as "json_schema.properties.a.multipleOf".

    Raises:
        RequestError: no grammar can be made of it; `param` is the part.
    """
    try:
        data = json.dumps(schema, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise RequestError(f"json_schema must be JSON: {error}", param="json_schema") from None
    return list(json_of(load().dflash_schema_ignored, data.encode()))


def filled(struct: Struct, set_defaults: Callable[[Any], None], params: Mapping[str, Any]) -> Struct:
    """`struct` with the library's defaults, but for `params`."""
    set_defaults(byref(struct))
    return fill(struct, params)


def progress_callback(progress: Callable[[float], bool] | None) -> Any:
    return ProgressCallback(lambda done, _user: progress(done)) if progress else ProgressCallback()
