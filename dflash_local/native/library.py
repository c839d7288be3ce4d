"""The library libdflash: its path, typed functions, log and errors."""

from __future__ import annotations

import atexit
import ctypes
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Mapping
from ctypes import POINTER, byref, c_bool, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dflash_local.errors import (
    ComputeError,
    DFlashError,
    ModelError,
    NativeLibraryError,
    PairError,
    QueueFullError,
    RequestError,
    RPCError,
)
from dflash_local.native.structs import (
    ABI_VERSION,
    EngineParams,
    LogCallback,
    NativeMedia,
    NativeTreeRows,
    ProbeParams,
    ProgressCallback,
    RequestParams,
    RPCServerParams,
    ScoreParams,
    SlotFile,
    SlotStats,
    Status,
    TapParams,
    TuneParams,
    Update,
)

BUILD_HINT = "run: dflash-local build"

log = logging.getLogger("dflash_local.native")

INTS, STRING, HANDLE = POINTER(c_int32), POINTER(c_void_p), POINTER(c_void_p)
# The functions that return a status, by their arguments; where it is not 0, the call raises its error.
STATUS_FUNCTIONS: dict[str, list[Any]] = {
    "dflash_library_info": [STRING],
    "dflash_check_gguf": [c_char_p],
    "dflash_check_embedding_gguf": [c_char_p],
    "dflash_check_mmproj": [c_char_p],
    "dflash_quantize": [c_char_p, c_char_p, c_char_p, c_int32],
    "dflash_engine_init": [POINTER(EngineParams), ProgressCallback, c_void_p, HANDLE],
    "dflash_plan": [POINTER(EngineParams), c_char_p, STRING],
    "dflash_engine_info": [c_void_p, STRING],
    "dflash_engine_stats": [c_void_p, STRING],
    "dflash_corpus_set": [c_void_p, INTS, c_int32, POINTER(c_uint64)],
    "dflash_drafter_replace": [c_void_p, c_char_p],
    "dflash_sampling_fields": [STRING],
    "dflash_schema_ignored": [c_char_p, STRING],
    "dflash_request_init": [c_void_p, POINTER(RequestParams), HANDLE],
    "dflash_has_room": [c_void_p, c_void_p, POINTER(c_bool)],
    "dflash_slot_choose": [c_void_p, c_void_p, INTS, c_int32, INTS],
    "dflash_submit": [c_void_p, c_int32, c_void_p],
    "dflash_cancel": [c_void_p, c_int32],
    "dflash_step": [c_void_p, POINTER(Update), c_int32, INTS],
    "dflash_slot_stats": [c_void_p, c_int32, POINTER(SlotStats)],
    "dflash_slot_end_reasoning": [c_void_p, c_int32, POINTER(c_bool)],
    "dflash_slot_clear": [c_void_p, c_int32, INTS],
    "dflash_slot_save": [c_void_p, c_int32, c_char_p, POINTER(SlotFile)],
    "dflash_slot_restore": [c_void_p, c_int32, c_char_p, POINTER(SlotFile)],
    "dflash_vocab_init": [c_char_p, HANDLE],
    "dflash_tokenize": [c_void_p, c_char_p, c_int32, c_bool, c_bool, INTS, c_int32, INTS],
    "dflash_token_piece": [c_void_p, c_int32, c_bool, c_char_p, c_int32, INTS],
    "dflash_prompt_init": [c_void_p, c_char_p, c_int32, c_bool, POINTER(NativeMedia), c_int32, HANDLE],
    "dflash_prompt_tokens": [c_void_p, INTS, c_int32, INTS],
    "dflash_prompt_rows": [c_void_p, c_int32, INTS],
    "dflash_check_chat_template": [c_char_p],
    "dflash_chat_apply": [c_void_p, c_char_p, c_char_p, STRING],
    "dflash_chat_init": [c_char_p, HANDLE],
    "dflash_chat_push": [c_void_p, c_char_p, c_bool, STRING],
    "dflash_chat_message": [c_void_p, STRING],
    "dflash_matrix_rows": [c_char_p, c_char_p, c_int32, INTS],
    "dflash_few_rows": [c_char_p, c_char_p, c_int32, INTS],
    "dflash_tune": [POINTER(TuneParams), ProgressCallback, c_void_p, STRING],
    "dflash_rpc_devices": [c_char_p, STRING],
    "dflash_rpc_hang_up": [c_char_p],
    "dflash_engine_rpc_check": [c_void_p],
    "dflash_rpc_serve": [POINTER(RPCServerParams)],
    "dflash_score": [c_void_p, c_int32, POINTER(ScoreParams)],
    "dflash_draft_probe": [c_void_p, c_int32, POINTER(ProbeParams)],
    "dflash_tap": [c_void_p, c_int32, POINTER(TapParams)],
    "dflash_tree_pass": [c_void_p, POINTER(NativeTreeRows), c_int32],
    "dflash_cells": [c_void_p, STRING],
}
# Name -> (result, arguments) of its other functions, and of those of ggml, on which it depends.
VALUE_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "dflash_abi_version": (c_uint32, []),
    "dflash_last_error": (c_char_p, []),
    "dflash_string_free": (None, [c_void_p]),
    "dflash_log_set": (None, [LogCallback, c_int, c_void_p]),
    "dflash_engine_params_default": (None, [POINTER(EngineParams)]),
    "dflash_engine_free": (None, [c_void_p]),
    "dflash_engine_vocab": (c_void_p, [c_void_p]),
    "dflash_engine_interrupt": (None, [c_void_p]),
    "dflash_request_params_default": (None, [POINTER(RequestParams)]),
    "dflash_request_free": (None, [c_void_p]),
    "dflash_vocab_get": (c_void_p, [c_void_p]),
    "dflash_vocab_free": (None, [c_void_p]),
    "dflash_token_is_eog": (c_bool, [c_void_p, c_int32]),
    "dflash_prompt_free": (None, [c_void_p]),
    "dflash_chat_free": (None, [c_void_p]),
    "dflash_tune_params_default": (None, [POINTER(TuneParams)]),
    "dflash_rpc_server_params_default": (None, [POINTER(RPCServerParams)]),
}
GGML_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "ggml_row_size": (c_size_t, [c_int, c_int64]),
    "ggml_quantize_requires_imatrix": (c_bool, [c_int]),
    "ggml_quantize_chunk": (c_size_t, [c_int, c_void_p, c_void_p, c_int64, c_int64, c_int64, c_void_p]),
}


def library_path() -> Path:
    """The path of libdflash: `DFLASH_LIBRARY`, or beside libllama in the installed (not imported) llama-cpp-python.

    Raises:
        NativeLibraryError: llama-cpp-python is missing, or is a stock build.
    """
    if override := os.environ.get("DFLASH_LIBRARY"):
        if not Path(override).is_file():
            raise NativeLibraryError(
                f"DFLASH_LIBRARY names no file: {override}", hint="unset it, or point it at libdflash"
            )
        return Path(override)
    spec = find_spec("llama_cpp")
    if spec is None or not spec.submodule_search_locations:
        raise NativeLibraryError("the patched llama-cpp-python is not installed", hint=BUILD_HINT)
    folder = Path(spec.submodule_search_locations[0]) / "lib"
    path = _library_in(folder, "dflash")
    if path is None:
        name = _library_names("dflash")[0]
        raise NativeLibraryError(f"the installed llama-cpp-python is a stock build: it has no {name}", hint=BUILD_HINT)
    return path


def _library_names(name: str) -> tuple[str, ...]:
    """The possible file names of a library; on Windows they depend on the compiler."""
    if sys.platform == "win32":
        return (f"{name}.dll", f"lib{name}.dll")
    return (f"lib{name}.dylib" if sys.platform == "darwin" else f"lib{name}.so",)


def _library_in(folder: Path, name: str) -> Path | None:
    return next((path for file in _library_names(name) if (path := folder / file).is_file()), None)


@cache
def load() -> ctypes.CDLL:
    """The checked library with typed functions; loaded once per process.

    Raises:
        NativeLibraryError: the library is missing, cannot be loaded, or has another ABI.
    """
    path = library_path()
    try:
        lib = ctypes.CDLL(str(path))
        lib.dflash_abi_version.restype = c_uint32  # of any library with this function
        abi = int(lib.dflash_abi_version())
    except (OSError, AttributeError) as error:
        raise NativeLibraryError(f"cannot load {path}: {error}", hint=BUILD_HINT) from error
    if abi != ABI_VERSION:
        raise NativeLibraryError(f"{path} has ABI {abi}, this dflash-local needs {ABI_VERSION}", hint=BUILD_HINT)
    _bind(lib, lib, VALUE_FUNCTIONS | {name: (c_int, arguments) for name, arguments in STATUS_FUNCTIONS.items()})
    for name in STATUS_FUNCTIONS:
        getattr(lib, name).errcheck = _raise_error
    # Windows finds a function only in the library that defines it, not in its dependencies.
    base = _library_in(path.parent, "ggml-base") if sys.platform == "win32" else None
    _bind(lib, ctypes.CDLL(str(base)) if base else lib, GGML_FUNCTIONS)
    _bind_log(lib)
    return lib


def _bind(lib: ctypes.CDLL, owner: ctypes.CDLL, signatures: Mapping[str, tuple[Any, list[Any]]]) -> None:
    """Set typed functions of `owner` on `lib`."""
    for name, (result, arguments) in signatures.items():
        function = getattr(owner, name)
        function.restype, function.argtypes = result, arguments
        setattr(lib, name, function)


def set_log_level(level: int) -> None:
    """Forward native messages from `level` (of `logging`) on to the logger `dflash_local.native`."""
    log.setLevel(level)
    if load.cache_info().currsize:
        _bind_log(load())


def _log_line(level: int, text: bytes, _user: int | None) -> None:
    line = text.decode("utf-8", "replace").rstrip()
    if line and not sys.is_finalizing():
        log.log((logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)[min(max(level, 0), 3)], "%s", line)


_on_log = LogCallback(_log_line)  # global, because the library keeps a bare pointer


def _bind_log(lib: ctypes.CDLL) -> None:
    threshold = log.getEffectiveLevel()
    lib.dflash_log_set(_on_log, min(max(threshold // 10 - 1, 0), 3), None)
    # Native threads may outlive the interpreter, and a callback would crash then.
    atexit.unregister(_unbind_log)
    atexit.register(_unbind_log, lib)


def _unbind_log(lib: ctypes.CDLL) -> None:
    lib.dflash_log_set(LogCallback(), 0, None)


def path_bytes(path: str | os.PathLike[str]) -> bytes:
    return os.fspath(path).encode("utf-8", "surrogateescape")


def utf8(text: str, param: str) -> bytes:
    """A text as bytes for the library. Raises RequestError about `param` if it is not valid Unicode."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise RequestError(
            f"{param} is not valid Unicode: lone surrogate at character {error.start}", param=param
        ) from None


def _raise_error(status: int, _function: Any, _arguments: Any) -> None:
    """Raise the error of a call on this thread that has just ended with this status."""
    if status != Status.OK:
        raise _error_of(load(), status)


def _error_of(lib: ctypes.CDLL, status: int) -> DFlashError:
    message = (lib.dflash_last_error() or b"").decode("utf-8", "replace") or f"libdflash failed with status {status}"
    match status:
        case Status.ERROR_ARG | Status.ERROR_CANCELLED:
            field = re.match(r"field '([^']*)'", message)  # json_fields.h
            return RequestError(message, param=field[1] if field else None)
        case Status.ERROR_MODEL:
            is_drafter = "(general.architecture dflash" in message
            return ModelError(message, hint="a drafter goes to -md, its target to -m" if is_drafter else None)
        case Status.ERROR_PAIR:
            return PairError(message)
        case Status.ERROR_MEMORY:
            return ComputeError(
                message, hint="a smaller context (-c), fewer slots (-np) or fewer GPU layers (-ngl) need less"
            )
        case Status.ERROR_COMPUTE:
            return ComputeError(message)
        case Status.ERROR_BUSY:
            return QueueFullError(message, retry_after=1.0)
        case Status.ERROR_RPC:
            return RPCError(message)
    return DFlashError(message)


def result_of(kind: type[Any], function: Callable[..., None], *args: Any) -> Any:
    """What a function of the library puts into its last argument, a simple ctypes type."""
    out = kind()
    function(*args, byref(out))
    return out.value


def json_of(function: Callable[..., None], *args: Any) -> Any:
    """The same for a string, which is JSON and is freed."""
    text = result_of(c_void_p, function, *args)
    try:
        return json.loads(ctypes.string_at(text).decode("utf-8", "replace"))
    finally:
        load().dflash_string_free(text)
