"""The library libdflash: its path, typed functions, log and errors."""

from __future__ import annotations

import atexit
import ctypes
import json
import logging
import os
import re
import sys
from collections.abc import Mapping
from ctypes import POINTER, c_bool, c_char_p, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
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
    NativeTreeRows,
    ProgressCallback,
    Request,
    RPCServerParams,
    SlotStats,
    Status,
    TuneParams,
    Update,
)

BUILD_HINT = "run: dflash-local build"

log = logging.getLogger("dflash_local.native")

INTS, FLOATS = POINTER(c_int32), POINTER(c_float)
# Name -> (result, arguments). Strings that the caller must free are c_void_p, see take_text().
SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "dflash_abi_version": (c_uint32, []),
    "dflash_library_info": (c_void_p, []),
    "dflash_last_error": (c_char_p, []),
    "dflash_free": (None, [c_void_p]),
    "dflash_log_set": (None, [LogCallback, c_int, c_void_p]),
    "dflash_quantize": (c_int, [c_char_p, c_char_p, c_char_p, c_int32]),
    "dflash_check_gguf": (c_int, [c_char_p]),
    "dflash_check_embedding_gguf": (c_int, [c_char_p]),
    "dflash_engine_params_default": (None, [POINTER(EngineParams)]),
    "dflash_engine_create": (c_void_p, [POINTER(EngineParams), ProgressCallback, c_void_p, POINTER(c_int)]),
    "dflash_engine_destroy": (None, [c_void_p]),
    "dflash_engine_info": (c_void_p, [c_void_p]),
    "dflash_engine_rpc_check": (c_int, [c_void_p]),
    "dflash_rpc_devices": (c_void_p, [c_char_p, POINTER(c_int)]),
    "dflash_rpc_server_params_default": (None, [POINTER(RPCServerParams)]),
    "dflash_rpc_serve": (c_int, [POINTER(RPCServerParams)]),
    "dflash_matrix_rows": (c_int32, [c_char_p, c_char_p, c_int32]),
    "dflash_few_rows": (c_int32, [c_char_p, c_char_p, c_int32]),
    "dflash_tune_params_default": (None, [POINTER(TuneParams)]),
    "dflash_plan": (c_void_p, [POINTER(EngineParams), c_char_p, POINTER(c_int)]),
    "dflash_tune": (c_void_p, [POINTER(TuneParams), ProgressCallback, c_void_p, POINTER(c_int)]),
    "dflash_request_default": (None, [POINTER(Request)]),
    "dflash_sampling_fields": (c_void_p, []),
    "dflash_schema_ignored": (c_void_p, [c_char_p]),
    "dflash_request_prepare": (c_int, [c_void_p, POINTER(Request), POINTER(c_void_p)]),
    "dflash_prepared_free": (None, [c_void_p]),
    "dflash_has_room": (c_int32, [c_void_p, c_void_p]),
    "dflash_slot_choose": (c_int32, [c_void_p, c_void_p, INTS, c_int32]),
    "dflash_corpus_set": (c_int, [c_void_p, INTS, c_int32, POINTER(c_uint64)]),
    "dflash_submit": (c_int, [c_void_p, c_int32, c_void_p]),
    "dflash_cancel": (c_int, [c_void_p, c_int32]),
    "dflash_slot_end_reasoning": (c_int32, [c_void_p, c_int32]),
    "dflash_slot_clear": (c_int32, [c_void_p, c_int32]),
    "dflash_slot_save": (c_int, [c_void_p, c_int32, c_char_p, INTS, POINTER(c_uint64)]),
    "dflash_slot_restore": (c_int, [c_void_p, c_int32, c_char_p, INTS, POINTER(c_uint64)]),
    "dflash_step": (c_int32, [c_void_p, POINTER(Update), c_int32]),
    "dflash_engine_interrupt": (None, [c_void_p]),
    "dflash_slot_stats_get": (c_int, [c_void_p, c_int32, POINTER(SlotStats)]),
    "dflash_engine_stats": (c_void_p, [c_void_p]),
    "dflash_tokenize": (c_int32, [c_void_p, c_char_p, c_int32, c_bool, c_bool, INTS, c_int32]),
    "dflash_vocab_tokenize": (c_int32, [c_void_p, c_char_p, c_int32, c_bool, c_bool, INTS, c_int32]),
    "dflash_vocab_load": (c_void_p, [c_char_p, POINTER(c_int)]),
    "dflash_vocab_get": (c_void_p, [c_void_p]),
    "dflash_vocab_free": (None, [c_void_p]),
    "dflash_token_piece": (c_int32, [c_void_p, c_int32, c_bool, c_char_p, c_int32]),
    "dflash_token_is_eog": (c_bool, [c_void_p, c_int32]),
    "dflash_check_chat_template": (c_int, [c_char_p]),
    "dflash_chat_apply": (c_void_p, [c_void_p, c_char_p, c_char_p]),
    "dflash_chat_new": (c_void_p, [c_void_p, c_char_p]),
    "dflash_chat_delete": (None, [c_void_p]),
    "dflash_chat_push": (c_void_p, [c_void_p, c_char_p, c_bool]),
    "dflash_chat_message": (c_void_p, [c_void_p]),
    "dflash_score": (c_int, [c_void_p, c_int32, INTS, c_int32, c_int32, c_int32, INTS, FLOATS, FLOATS]),
    "dflash_draft_probe": (c_int, [c_void_p, c_int32, INTS, c_int32, c_int32, FLOATS, FLOATS, INTS, FLOATS]),
    "dflash_tap": (c_int, [c_void_p, c_int32, INTS, c_int32, INTS, c_int32, c_int32, c_int32, FLOATS, INTS, FLOATS]),
    "dflash_tree_pass": (c_int, [c_void_p, POINTER(NativeTreeRows), c_int32]),
    "dflash_cells": (c_void_p, [c_void_p]),
}
# Functions of ggml, on which libdflash depends.
GGML_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
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
    _bind(lib, lib, SIGNATURES)
    # Windows finds a function only in the library that defines it, not in its dependencies.
    base = _library_in(path.parent, "ggml-base") if sys.platform == "win32" else None
    _bind(lib, ctypes.CDLL(str(base)) if base else lib, GGML_SIGNATURES)
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


def error_of(lib: ctypes.CDLL, status: int) -> DFlashError:
    """The error of the last call on this thread."""
    message = (lib.dflash_last_error() or b"").decode("utf-8", "replace") or f"libdflash failed with status {status}"
    match status:
        case Status.ERROR_ARG:
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


def check(lib: ctypes.CDLL, status: int) -> None:
    """Raise the error of a negative result."""
    if status < 0:
        raise error_of(lib, status)


def take_text(lib: ctypes.CDLL, pointer: int | None) -> str:
    """Read and free a string that the library allocated. NULL raises the error of the last call."""
    if not pointer:
        raise error_of(lib, Status.ERROR_ARG)
    try:
        return ctypes.string_at(pointer).decode("utf-8", "replace")
    finally:
        lib.dflash_free(pointer)


def take_json(lib: ctypes.CDLL, pointer: int | None) -> Any:
    return json.loads(take_text(lib, pointer))
