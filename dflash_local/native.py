"""ctypes binding of libdflash (`ggml_ops/include/dflash.h`): the only module that knows about C.

`load()` finds and checks the library; `NativeEngine`, `PreparedRequest` and `NativeChat` wrap its opaque handles.
Everything raises `dflash_local.errors`; nothing here decides policy. numpy is imported only where arrays are.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import logging
import os
import re
import sys
import threading
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from ctypes import (
    POINTER,
    byref,
    c_bool,
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from enum import IntEnum
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dflash_local.drafting import MAX_NODES as MAX_NODES
from dflash_local.drafting import AcceptRule as AcceptRule
from dflash_local.drafting import Drafting as Drafting
from dflash_local.drafting import DraftMode as DraftMode
from dflash_local.errors import (
    ComputeError,
    DFlashError,
    EngineDeadError,
    ModelError,
    NativeLibraryError,
    PairError,
    QueueFullError,
    RequestError,
    RPCError,
)
from dflash_local.options import NATIVE_FIELDS
from dflash_local.token_probs import NOTHING, ProbsRequest, TokenProb

if TYPE_CHECKING:
    import numpy as np

ABI_VERSION = 11
BUILD_HINT = "run: dflash-local build"

log = logging.getLogger("dflash_local.native")

LogCallback = ctypes.CFUNCTYPE(None, c_int, c_char_p, c_void_p)
ProgressCallback = ctypes.CFUNCTYPE(c_bool, c_float, c_void_p)


class Status(IntEnum):
    """dflash_status."""

    OK = 0
    ERROR_ARG = -1
    ERROR_MODEL = -2
    ERROR_PAIR = -3
    ERROR_MEMORY = -4
    ERROR_BUSY = -5
    ERROR_COMPUTE = -6
    ERROR_INTERNAL = -7
    ERROR_RPC = -8


class SlotState(IntEnum):
    """dflash_slot_state; from STOP on the slot is idle again."""

    IDLE = 0
    READING = 1
    WRITING = 2
    STOP = 3
    LENGTH = 4
    CONTEXT = 5
    FAILED = 6
    REFUSED = 7


class EngineParams(ctypes.Structure):
    """dflash_engine_params: the fields of EngineOptions that libdflash reads."""

    _fields_ = NATIVE_FIELDS


class Request(ctypes.Structure):
    """dflash_request."""

    _fields_ = [
        ("tokens", POINTER(c_int32)),
        ("n_tokens", c_int32),
        ("n_predict", c_int32),
        ("sampling", c_char_p),
        ("budget", c_int32),
        ("draft", c_int32),
        ("accept", c_int32),
        ("draft_n_max", c_int32),
        ("lookup", c_int32),
        ("cache_prompt", c_bool),
        ("n_probs", c_int32),
        ("post_sampling_probs", c_bool),
        ("probs_from", c_int32),
        ("prediction", POINTER(c_int32)),
        ("n_prediction", c_int32),
        ("return_drafts", c_bool),
    ]


class NativeTokenProbs(ctypes.Structure):
    """dflash_token_probs."""

    _fields_ = [
        ("n", c_int32),
        ("n_prompt", c_int32),
        ("tokens", POINTER(c_int32)),
        ("values", POINTER(c_float)),
        ("n_top", POINTER(c_int32)),
        ("top_tokens", POINTER(c_int32)),
        ("top_values", POINTER(c_float)),
    ]

    def read(self) -> list[TokenProb]:
        """As Python values, of all tokens."""
        found, at = [], 0
        for token, value, n_top in zip(self.tokens[: self.n], self.values[: self.n], self.n_top[: self.n], strict=True):
            tokens, values = array("i"), array("f")
            if n_top:
                tokens.frombytes(ctypes.string_at(ctypes.byref(self.top_tokens.contents, 4 * at), 4 * n_top))
                values.frombytes(ctypes.string_at(ctypes.byref(self.top_values.contents, 4 * at), 4 * n_top))
            found.append(TokenProb(token, value, tokens, values))
            at += n_top
        return found


class NativeVerifiedTree(ctypes.Structure):
    """dflash_verified_tree."""

    _fields_ = [
        ("n_nodes", c_int32),
        ("tokens", POINTER(c_int32)),
        ("parents", POINTER(c_int32)),
        ("probs", POINTER(c_float)),
        ("values", POINTER(c_float)),
        ("origins", POINTER(c_int32)),
        ("n_path", c_int32),
        ("path", POINTER(c_int32)),
    ]

    def read(self) -> VerifiedTree | None:
        """As Python values; None if nothing was verified, or nobody wants to know."""
        n = self.n_nodes
        if not n:
            return None
        return VerifiedTree(
            self.tokens[:n],
            self.parents[:n],
            self.probs[:n],
            self.values[:n],
            self.origins[:n],
            self.path[: self.n_path],
        )


class Update(ctypes.Structure):
    """dflash_update."""

    _fields_ = [
        ("slot", c_int32),
        ("state", c_int32),
        ("n_tokens", c_int32),
        ("tokens", POINTER(c_int32)),
        ("n_accepted", c_int32),
        ("n_drafted", c_int32),
        ("n_depth", c_int32),
        ("n_denoised", c_int32),
        ("reason", c_char_p),
        ("draft_ms", c_double),
        ("verify_ms", c_double),
        ("plain_ms", c_double),
        ("first", c_bool),
        ("error", c_char_p),
        ("n_past", c_int32),
        ("probs", NativeTokenProbs),
        ("tree", NativeVerifiedTree),
    ]


class SlotStats(ctypes.Structure):
    """dflash_slot_stats: of a slot's current or last request. Times in milliseconds."""

    _fields_ = [
        ("n_prompt", c_int32),
        ("n_cached", c_int32),
        ("n_generated", c_int32),
        ("n_passes", c_int32),
        ("n_drafted", c_int32),
        ("n_accepted", c_int32),
        ("n_plain", c_int32),
        ("n_lookup_drafted", c_int32),
        ("n_lookup_accepted", c_int32),
        ("depth_drafted", c_int32 * MAX_NODES),
        ("depth_accepted", c_int32 * MAX_NODES),
        ("t_prompt_ms", c_double),
        ("t_generate_ms", c_double),
        ("t_queue_ms", c_double),
        ("n_prediction", c_int32),
        ("n_prediction_accepted", c_int32),
    ]


class NativeTreeRows(ctypes.Structure):
    """dflash_tree_rows."""

    _fields_ = [
        ("slot", c_int32),
        ("n_nodes", c_int32),
        ("tokens", POINTER(c_int32)),
        ("parents", POINTER(c_int32)),
        ("n_path", c_int32),
        ("path", POINTER(c_int32)),
        ("logits", POINTER(c_float)),
    ]


class TuneParams(ctypes.Structure):
    """dflash_tune_params."""

    _fields_ = [
        ("device", c_char_p),
        ("type", c_char_p),
        ("m", c_int32),
        ("k", c_int32),
        ("n_max", c_int32),
        ("n_threads", c_int32),
        ("megabytes", c_int32),
        ("ms", c_int32),
    ]


class RPCServerParams(ctypes.Structure):
    """dflash_rpc_server_params."""

    _fields_ = [
        ("host", c_char_p),
        ("port", c_int32),
        ("devices", c_char_p),
        ("n_threads", c_int32),
        ("cache", c_char_p),
    ]


class Origin(IntEnum):
    """dflash_origin: who proposed a token. The drafter, if it is among its candidates, whoever else proposed it."""

    TARGET = 0  # sampled
    DRAFTER = 1
    LOOKUP = 2
    PREDICTION = 3


class VerifiedTree(NamedTuple):
    """A tree that the target verified, and what of it was accepted; an entry for each node, the anchor first.

    `parents`: smaller indices than the node's own, -1 for the anchor. `probs`: the drafter's, given the parent; 0: it
    did not propose the token. `values`: the chance that the walk gets there, as it was estimated. `origins`: Origin.
    `path`: the accepted nodes, the anchor first.
    """

    tokens: list[int]
    parents: list[int]
    probs: list[float]
    values: list[float]
    origins: list[int]
    path: list[int]


class StepUpdate(NamedTuple):
    """One slot's share of a step, as Python values. `tokens` are new; `first` says they came from the prompt's last
    pass.

    The tree that was verified had 1 + `n_drafted` nodes and depth `n_depth`; it grew from a block of `n_denoised`
    tokens (0: no drafter pass). `reason` is the controller's, one of a few fixed strings. `n_past`: tokens that the
    slot holds by now. `probs`, if the request wants them: of `n_prompt_probs` tokens of the prompt, of `tokens`, and of
    the token that ended the answer. `plain_ms`: what the pass would have taken without drafts, by the costs known so
    far; 0: unknown. `tree`: what was verified, if the request wants to know.
    """

    slot: int
    state: int
    tokens: list[int]
    n_accepted: int = 0
    n_drafted: int = 0
    n_depth: int = 0
    n_denoised: int = 0
    reason: str = ""
    draft_ms: float = 0.0
    verify_ms: float = 0.0
    first: bool = False
    error: str | None = None
    n_past: int = 0
    probs: list[TokenProb] = []  # noqa: RUF012 - never changed
    n_prompt_probs: int = 0
    plain_ms: float = 0.0
    tree: VerifiedTree | None = None


class TreeRows(NamedTuple):
    """Rows of a tree for an idle slot, on top of what its cache holds, and what to keep of them.

    `parents[i]` is a smaller index than i, -1 for row 0. `path`: the rows to commit afterwards, row 0 first; empty
    forgets them all.
    """

    slot: int
    tokens: Sequence[int]
    parents: Sequence[int]
    path: Sequence[int] = ()
    want_logits: bool = True


# Name -> (result, arguments). Strings that the caller must free are c_void_p, see _take().
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
    "dflash_tune_params_default": (None, [POINTER(TuneParams)]),
    "dflash_plan": (c_void_p, [POINTER(EngineParams), c_char_p, POINTER(c_int)]),
    "dflash_tune": (c_void_p, [POINTER(TuneParams), ProgressCallback, c_void_p, POINTER(c_int)]),
    "dflash_request_default": (None, [POINTER(Request)]),
    "dflash_sampling_fields": (c_void_p, []),
    "dflash_schema_ignored": (c_void_p, [c_char_p]),
    "dflash_request_prepare": (c_int, [c_void_p, POINTER(Request), POINTER(c_void_p)]),
    "dflash_prepared_free": (None, [c_void_p]),
    "dflash_has_room": (c_int32, [c_void_p, c_void_p]),
    "dflash_slot_choose": (c_int32, [c_void_p, c_void_p, POINTER(c_int32), c_int32]),
    "dflash_submit": (c_int, [c_void_p, c_int32, c_void_p]),
    "dflash_cancel": (c_int, [c_void_p, c_int32]),
    "dflash_slot_end_reasoning": (c_int32, [c_void_p, c_int32]),
    "dflash_slot_clear": (c_int32, [c_void_p, c_int32]),
    "dflash_slot_save": (c_int, [c_void_p, c_int32, c_char_p, POINTER(c_int32), POINTER(c_uint64)]),
    "dflash_slot_restore": (c_int, [c_void_p, c_int32, c_char_p, POINTER(c_int32), POINTER(c_uint64)]),
    "dflash_step": (c_int32, [c_void_p, POINTER(Update), c_int32]),
    "dflash_engine_interrupt": (None, [c_void_p]),
    "dflash_slot_stats_get": (c_int, [c_void_p, c_int32, POINTER(SlotStats)]),
    "dflash_engine_stats": (c_void_p, [c_void_p]),
    "dflash_tokenize": (c_int32, [c_void_p, c_char_p, c_int32, c_bool, c_bool, POINTER(c_int32), c_int32]),
    "dflash_vocab_tokenize": (c_int32, [c_void_p, c_char_p, c_int32, c_bool, c_bool, POINTER(c_int32), c_int32]),
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
    "dflash_score": (
        c_int,
        [
            c_void_p,
            c_int32,
            POINTER(c_int32),
            c_int32,
            c_int32,
            c_int32,
            POINTER(c_int32),
            POINTER(c_float),
            POINTER(c_float),
        ],
    ),
    "dflash_draft_probe": (
        c_int,
        [
            c_void_p,
            c_int32,
            POINTER(c_int32),
            c_int32,
            c_int32,
            POINTER(c_float),
            POINTER(c_float),
            POINTER(c_int32),
            POINTER(c_float),
        ],
    ),
    "dflash_tree_pass": (c_int, [c_void_p, POINTER(NativeTreeRows), c_int32]),
    "dflash_cells": (c_void_p, [c_void_p]),
}
# Of ggml, which libdflash brings along.
GGML_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "ggml_row_size": (c_size_t, [c_int, c_int64]),
    "ggml_quantize_chunk": (c_size_t, [c_int, c_void_p, c_void_p, c_int64, c_int64, c_int64, c_void_p]),
}


# ---- library ---------------------------------------------------------------------------------------------------------


def library_path() -> Path:
    """Where libdflash is: `DFLASH_LIBRARY`, or beside libllama in the installed llama-cpp-python, which is not
    imported.

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
    """The files that a library may be; on Windows its compiler decides."""
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
        abi = int(lib.dflash_abi_version())
    except (OSError, AttributeError) as error:
        raise NativeLibraryError(f"cannot load {path}: {error}", hint=BUILD_HINT) from error
    if abi != ABI_VERSION:
        raise NativeLibraryError(f"{path} has ABI {abi}, this dflash-local needs {ABI_VERSION}", hint=BUILD_HINT)
    _bind(lib, lib, SIGNATURES)
    # Windows finds a function only in the library that has it.
    base = _library_in(path.parent, "ggml-base") if sys.platform == "win32" else None
    _bind(lib, ctypes.CDLL(str(base)) if base else lib, GGML_SIGNATURES)
    _bind_log(lib)
    return lib


def _bind(lib: ctypes.CDLL, owner: ctypes.CDLL, signatures: Mapping[str, tuple[Any, list[Any]]]) -> None:
    """Give `lib` typed functions of `owner`."""
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


_on_log = LogCallback(_log_line)  # alive as long as the module: the library keeps a bare pointer


def _bind_log(lib: ctypes.CDLL) -> None:
    threshold = log.getEffectiveLevel()
    lib.dflash_log_set(_on_log, min(max(threshold // 10 - 1, 0), 3), None)
    # Native threads may outlive the interpreter; a callback into a finalized one crashes.
    atexit.unregister(_unbind_log)
    atexit.register(_unbind_log, lib)


def _unbind_log(lib: ctypes.CDLL) -> None:
    lib.dflash_log_set(LogCallback(), 0, None)


def library_info() -> dict[str, Any]:
    """dflash_library_info(): ABI, versions, loaded backends, devices, CPU features."""
    lib = load()
    return _take_json(lib, lib.dflash_library_info())


class Device(NamedTuple):
    """A device that weights can lie on, by ggml's name; bytes of its memory."""

    name: str
    description: str
    memory_total: int
    memory_free: int


def list_devices(rpc: str | None = None) -> list[Device]:
    """The devices besides the CPU: those that `device` and `device_draft` may name.

    Args:
        rpc: RPC servers ("host:port,...") whose devices are among them.

    Raises:
        RPCError: one of the servers can't be had.
    """
    remote = rpc_devices(rpc) if rpc else []
    local = [device for device in library_info()["devices"] if device["type"] != "cpu"]
    return [Device(**{name: device[name] for name in Device._fields}) for device in (*remote, *local)]


def quantize(source: str | os.PathLike[str], target: str | os.PathLike[str], ftype: str, *, n_threads: int = 0) -> None:
    """Quantize the GGUF `source` into `target`; `ftype` is one of llama-quantize's names ("q4_0", "q4_k_m", ...)."""
    lib = load()
    _check(lib, lib.dflash_quantize(_path(source), _path(target), ftype.encode(), n_threads))


def quantize_rows(kind: int, rows: np.ndarray) -> np.ndarray:
    """Float32 rows [n, columns] as blocks [n, row bytes] of a quantized type (a GGMLQuantizationType), by ggml's own
    functions. Columns must be whole blocks."""
    import numpy as np

    lib = load()
    rows = np.ascontiguousarray(rows, np.float32)
    n_rows, n_columns = rows.shape
    out = np.empty((n_rows, lib.ggml_row_size(kind, n_columns)), np.uint8)
    n_bytes = lib.ggml_quantize_chunk(kind, rows.ctypes.data, out.ctypes.data, 0, n_rows, n_columns, None)
    assert n_bytes == out.size, kind
    return out


def check_gguf(path: str | os.PathLike[str]) -> None:
    """Raise ModelError unless `path` is a sound GGUF file that its architecture can load."""
    lib = load()
    _check(lib, lib.dflash_check_gguf(_path(path)))


def check_embedding_gguf(path: str | os.PathLike[str]) -> None:
    """`check_gguf` for a model whose embeddings or scores are wanted: encoders pass, too."""
    lib = load()
    _check(lib, lib.dflash_check_embedding_gguf(_path(path)))


@contextmanager
def vocabulary_of(path: str | os.PathLike[str]) -> Iterator[Any]:
    """The vocabulary of a model's file, or of the first part of a split one, for `vocab_tokenize`. Raises ModelError
    for a file that is damaged or has none."""
    lib, status = load(), c_int()
    handle = lib.dflash_vocab_load(_path(path), byref(status))
    _check(lib, status.value)
    try:
        yield lib.dflash_vocab_get(handle)
    finally:
        lib.dflash_vocab_free(handle)


def vocab_tokenize(vocab: Any, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
    """Token ids of `text` by a vocabulary: from `vocabulary_of`, or (`llama_vocab_p`) of a model that llama-cpp-python
    has loaded, by whose own function some texts would overflow the stack. Raises RequestError for a text that the
    tokenizer cannot take."""
    lib = load()
    return _tokenize(lib, lib.dflash_vocab_tokenize, vocab, _utf8(text, "text"), add_special, parse_special)


def _tokenize(
    lib: ctypes.CDLL, function: Callable[..., int], owner: Any, text: bytes, add_special: bool, parse_special: bool
) -> list[int]:
    """Token ids by `function`, which takes an engine or a vocabulary first."""
    capacity = len(text) + 8
    while True:
        tokens = (c_int32 * capacity)()
        count = function(owner, text, len(text), add_special, parse_special, tokens, capacity)
        _check(lib, count)
        if count <= capacity:
            return tokens[:count]
        capacity = count


def check_chat_template(source: str) -> None:
    """Raise RequestError unless `source` is Jinja that llama.cpp can read, or the name of one of its templates."""
    lib = load()
    _check(lib, lib.dflash_check_chat_template(_utf8(source, "chat_template")))


def matrix_rows(device: str, weights: str, rows: int = -1) -> int:
    """The least number of rows for which `device` computes products with `weights` (a quantized type) by its matrix
    kernel; 0: it has one kernel only.

    `rows` > 0 sets that number first, for the whole process (at most one more than the vector kernel can compute); 0
    gives the choice back to the device; -1 only asks.
    """
    lib = load()
    count = int(lib.dflash_matrix_rows(device.encode(), weights.encode(), rows))
    _check(lib, count)
    return count


def tune(params: Mapping[str, Any], progress: Callable[[float], bool] | None = None) -> dict[str, Any]:
    """dflash_tune(): milliseconds of one product by each of a device's two kernels, for 1, 2, ... rows.

    Args:
        params: fields of `TuneParams` as str or int; what is absent keeps the library's default.
        progress: called with 0..1; returning False cancels, which is a RequestError.
    """
    lib = load()
    native = TuneParams()
    lib.dflash_tune_params_default(byref(native))
    for name, value in params.items():
        setattr(native, name, value.encode() if isinstance(value, str) else value)
    status = c_int(Status.OK)
    callback = ProgressCallback(lambda done, _user: progress(done)) if progress else ProgressCallback()
    result = lib.dflash_tune(byref(native), callback, None, byref(status))
    _check(lib, status.value)
    return dict(_take_json(lib, result))


def plan(params: Mapping[str, Any], devices: Mapping[str, int] | None = None) -> dict[str, Any]:
    """dflash_plan(): what an engine with these parameters would allocate. Nothing is allocated.

    Args:
        params: as of NativeEngine.
        devices: bytes of devices of another machine, by name, which take the place of this one's.
    """
    lib = load()
    status = c_int(Status.OK)
    named = ",".join(f"{name}={size}" for name, size in devices.items()).encode() if devices else None
    result = lib.dflash_plan(byref(_engine_params(lib, params)), named, byref(status))
    _check(lib, status.value)
    return dict(_take_json(lib, result))


def _engine_params(lib: ctypes.CDLL, params: Mapping[str, Any]) -> EngineParams:
    native = EngineParams()
    lib.dflash_engine_params_default(byref(native))
    for name, value in params.items():
        setattr(native, name, value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value)
    return native


def rpc_devices(servers: str) -> list[dict[str, Any]]:
    """The devices of RPC servers ("host:port,..."), as in `library_info`. RPCError: one of the servers can't be had."""
    lib = load()
    status = c_int(Status.OK)
    result = lib.dflash_rpc_devices(servers.encode(), byref(status))
    _check(lib, status.value)
    return list(_take_json(lib, result))


def rpc_serve(params: Mapping[str, Any]) -> None:
    """dflash_rpc_serve(): lend this machine's devices until the process ends. `params`: fields of `RPCServerParams`;
    what is absent keeps the library's default.

    Raises:
        RequestError: an address or device is none; RPCError: nobody can listen there.
    """
    lib = load()
    native = RPCServerParams()
    lib.dflash_rpc_server_params_default(byref(native))
    for name, value in params.items():
        setattr(native, name, value.encode() if isinstance(value, str) else value)
    _check(lib, lib.dflash_rpc_serve(byref(native)))


def sampling_fields() -> list[dict[str, Any]]:
    """dflash_sampling_fields(): name, type, default and bounds of every sampling field."""
    lib = load()
    return list(_take_json(lib, lib.dflash_sampling_fields()))


def schema_ignored(schema: Mapping[str, Any]) -> list[str]:
    """The parts of a JSON schema that its grammar will not hold, such as "json_schema.properties.a.multipleOf".

    Raises:
        RequestError: no grammar can be made of it; `param` is the part.
    """
    lib = load()
    try:
        data = json.dumps(schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise RequestError(f"json_schema must be JSON: {error}", param="json_schema") from None
    return list(_take_json(lib, lib.dflash_schema_ignored(data.encode())))


def _path(path: str | os.PathLike[str]) -> bytes:
    return os.fspath(path).encode("utf-8", "surrogateescape")


def _utf8(text: str, param: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise RequestError(
            f"{param} is not valid Unicode: lone surrogate at character {error.start}", param=param
        ) from None


def _error(lib: ctypes.CDLL, status: int) -> DFlashError:
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


def _check(lib: ctypes.CDLL, status: int) -> None:
    if status < 0:
        raise _error(lib, status)


def _take(lib: ctypes.CDLL, pointer: int | None) -> str:
    """The text behind a string that the library allocated; NULL is an error of the arguments."""
    if not pointer:
        raise _error(lib, Status.ERROR_ARG)
    try:
        return ctypes.string_at(pointer).decode("utf-8", "replace")
    finally:
        lib.dflash_free(pointer)


def _take_json(lib: ctypes.CDLL, pointer: int | None) -> Any:
    return json.loads(_take(lib, pointer))


# ---- engine ----------------------------------------------------------------------------------------------------------


class NativeEngine:
    """dflash_engine. Belongs to one thread at a time, except for `prepare`, `interrupt` and the text and chat methods.

    Args:
        params: fields of `EngineParams` as str, bytes, numbers or None; what is absent keeps the library's default.
        progress: called with 0..1 while the models load; returning False cancels.
    """

    def __init__(self, params: Mapping[str, Any], progress: Callable[[float], bool] | None = None) -> None:
        self._lib = load()
        self._handle: int | None = None
        self._calls, self._n_calls = threading.Condition(), 0  # of other threads, which the engine's end waits for
        native = _engine_params(self._lib, params)
        status = c_int(Status.OK)
        callback = ProgressCallback(lambda done, _user: progress(done)) if progress else ProgressCallback()
        self._handle = self._lib.dflash_engine_create(byref(native), callback, None, byref(status))
        if not self._handle:
            raise _error(self._lib, status.value)
        self._n_slots = int(native.n_slots)
        self._updates = (Update * self._n_slots)()

    def destroy(self) -> None:
        """Free everything. What runs on other threads (`prepare`, `tokenize`, `chat_apply`) comes to its end first."""
        with self._calls:
            handle, self._handle = self._handle, None
            self._calls.wait_for(lambda: not self._n_calls)
        if handle:
            self._lib.dflash_engine_destroy(handle)

    @contextmanager
    def _alive(self) -> Iterator[int]:
        """The engine's handle for a call on any thread; it stays valid until the call is over."""
        with self._calls:
            if self._handle is None:
                raise EngineDeadError("the engine was closed")
            handle = self._handle
            self._n_calls += 1
        try:
            yield handle
        finally:
            with self._calls:
                self._n_calls -= 1
                self._calls.notify_all()

    def info(self) -> dict[str, Any]:
        """dflash_engine_info()."""
        return _take_json(self._lib, self._lib.dflash_engine_info(self._handle))

    def rpc_check(self) -> None:
        """Raise RPCError unless all RPC servers still answer."""
        _check(self._lib, self._lib.dflash_engine_rpc_check(self._handle))

    def stats(self) -> dict[str, Any]:
        """dflash_engine_stats()."""
        return _take_json(self._lib, self._lib.dflash_engine_stats(self._handle))

    # -- requests --

    def prepare(
        self,
        tokens: Sequence[int],
        n_predict: int,
        sampling: str,
        drafting: Drafting,
        cache_prompt: bool,
        probs: ProbsRequest = NOTHING,
        prediction: Sequence[int] = (),
        return_drafts: bool = False,
    ) -> PreparedRequest:
        """Check a request and build its sampler and grammar, with the GIL released. Thread-safe.

        Args:
            tokens: the prompt; an `array` of int32 crosses without a conversion per token.
            n_predict: most new tokens, -1: until the slot's context is full.
            sampling: JSON object of sampling fields (SamplingParams.to_json).
            prediction: tokens that the answer is expected to have.
            return_drafts: tell of each verified tree (StepUpdate.tree).

        Raises:
            RequestError: something in it is out of range or malformed.
        """
        ids = tokens if isinstance(tokens, array) else array("i", tokens)
        request = Request()
        self._lib.dflash_request_default(byref(request))
        request.tokens = ctypes.cast(ids.buffer_info()[0], POINTER(c_int32))
        request.n_tokens, request.n_predict = len(ids), n_predict
        request.sampling = _utf8(sampling, "sampling")
        request.budget, request.draft, request.accept, request.draft_n_max, request.lookup = drafting
        request.cache_prompt = cache_prompt
        request.n_probs, request.post_sampling_probs, request.probs_from = probs
        predicted = prediction if isinstance(prediction, array) else array("i", prediction)
        request.prediction = ctypes.cast(predicted.buffer_info()[0], POINTER(c_int32))
        request.n_prediction = len(predicted)
        request.return_drafts = return_drafts
        prepared = c_void_p()
        with self._alive() as handle:
            _check(self._lib, self._lib.dflash_request_prepare(handle, byref(request), byref(prepared)))
        return PreparedRequest(self._lib, prepared)

    def has_room(self, request: PreparedRequest) -> bool:
        """Whether the slots' shared cache has room for the request now; always, if nothing runs."""
        has_room = self._lib.dflash_has_room(self._handle, request.handle)
        _check(self._lib, has_room)
        return bool(has_room)

    def slot_choose(self, request: PreparedRequest, slots: Sequence[int]) -> int:
        """Which of these idle slots (the one that is idle longest first) the request should have."""
        slot = self._lib.dflash_slot_choose(self._handle, request.handle, (c_int32 * len(slots))(*slots), len(slots))
        _check(self._lib, slot)
        return int(slot)

    def submit(self, slot: int, request: PreparedRequest) -> None:
        """Start a prepared request on an idle slot."""
        _check(self._lib, self._lib.dflash_submit(self._handle, slot, request.handle))
        request.handle = None  # the engine's now

    def cancel(self, slot: int) -> None:
        """Stop a slot now; its tokens stay cached."""
        _check(self._lib, self._lib.dflash_cancel(self._handle, slot))

    def end_reasoning(self, slot: int) -> bool:
        """End the thoughts of a running slot's answer now; False if it does not think (any more)."""
        ended = self._lib.dflash_slot_end_reasoning(self._handle, slot)
        _check(self._lib, ended)
        return bool(ended)

    def slot_clear(self, slot: int) -> int:
        """Forget an idle slot's cached tokens; how many there were."""
        count = self._lib.dflash_slot_clear(self._handle, slot)
        _check(self._lib, count)
        return int(count)

    def slot_save(self, slot: int, path: str | os.PathLike[str]) -> tuple[int, int]:
        """Write what an idle slot holds to a file; tokens and bytes."""
        return self._move_slot(self._lib.dflash_slot_save, slot, path)

    def slot_restore(self, slot: int, path: str | os.PathLike[str]) -> tuple[int, int]:
        """Let an idle slot hold what a file has; tokens and bytes.

        Raises:
            RequestError: the file is damaged, or belongs to another pair; QueueFullError: there is no room for it now.
        """
        return self._move_slot(self._lib.dflash_slot_restore, slot, path)

    def _move_slot(self, move: Callable[..., int], slot: int, path: str | os.PathLike[str]) -> tuple[int, int]:
        n_tokens, n_bytes = c_int32(), c_uint64()
        _check(self._lib, move(self._handle, slot, _path(path), byref(n_tokens), byref(n_bytes)))
        return n_tokens.value, n_bytes.value

    def step(self) -> list[StepUpdate]:
        """One step over all slots, with the GIL released; empty if every slot is idle."""
        updates = self._updates
        count = self._lib.dflash_step(self._handle, updates, self._n_slots)
        if count < 0:
            raise _error(self._lib, count)
        return [
            StepUpdate(
                update.slot,
                update.state,
                update.tokens[: update.n_tokens] if update.n_tokens else [],
                update.n_accepted,
                update.n_drafted,
                update.n_depth,
                update.n_denoised,
                (update.reason or b"").decode(),
                update.draft_ms,
                update.verify_ms,
                update.first,
                update.error.decode("utf-8", "replace") if update.error else None,
                update.n_past,
                update.probs.read() if update.probs.n else [],
                update.probs.n_prompt,
                update.plain_ms,
                update.tree.read(),
            )
            for update in updates[:count]
        ]

    def interrupt(self) -> None:
        """Make a running `step` return early. Thread-safe."""
        self._lib.dflash_engine_interrupt(self._handle)

    def slot_stats(self, slot: int) -> SlotStats:
        """Counters of a slot's current or last request."""
        stats = SlotStats()
        _check(self._lib, self._lib.dflash_slot_stats_get(self._handle, slot, byref(stats)))
        return stats

    # -- text (thread-safe) --

    def tokenize(self, text: str, add_special: bool, parse_special: bool) -> list[int]:
        """Token ids of `text`."""
        data = _utf8(text, "prompt")
        with self._alive() as handle:
            return _tokenize(self._lib, self._lib.dflash_tokenize, handle, data, add_special, parse_special)

    def token_piece(self, token: int, special: bool) -> bytes:
        """Bytes of one token, perhaps a part of a UTF-8 character; control tokens are empty unless `special`."""
        capacity = 64
        while True:
            buffer = ctypes.create_string_buffer(capacity)
            with self._alive() as handle:
                size = self._lib.dflash_token_piece(handle, token, special, buffer, capacity)
                _check(self._lib, size)
            if size <= capacity:
                return buffer.raw[:size]
            capacity = size

    def token_is_eog(self, token: int) -> bool:
        """Whether a token ends an answer."""
        return bool(self._lib.dflash_token_is_eog(self._handle, token))

    # -- chat (thread-safe) --

    def chat_apply(self, template: str | None, body: str) -> dict[str, Any]:
        """Render a conversation: {"prompt", "stops", "sampling", "parser", "ignored"}; `body` is JSON with OpenAI's
        fields, `template` Jinja source in place of the engine's template."""
        source = None if template is None else _utf8(template, "chat_template")
        data = _utf8(body, "messages")
        with self._alive() as handle:
            return _take_json(self._lib, self._lib.dflash_chat_apply(handle, source, data))

    def chat_new(self, parser: str) -> NativeChat:
        """An incremental parser of one answer; `parser` is the "parser" of `chat_apply` as JSON."""
        return NativeChat(self._lib, self._lib.dflash_chat_new(self._handle, parser.encode()), owner=self)

    # -- proof --

    def score(
        self, slot: int, tokens: Sequence[int], start: int, width: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Teacher-forced ranks of tokens[start:]: (best id, best logit, the token's own logit), each [len(tokens) -
        start]."""
        import numpy as np

        count = max(len(tokens) - start, 0)
        best_id, best_logit, logit = np.empty(count, np.int32), np.empty(count, np.float32), np.empty(count, np.float32)
        _check(
            self._lib,
            self._lib.dflash_score(
                self._handle, slot, (c_int32 * len(tokens))(*tokens), len(tokens), start, width,
                _int32(best_id), _float(best_logit), _float(logit),
            ),
        )  # fmt: skip
        return best_id, best_logit, logit

    def draft_probe(
        self, slot: int, tokens: Sequence[int], n_block: int, shapes: Mapping[str, tuple[int, ...]]
    ) -> dict[str, np.ndarray]:
        """One drafter pass in the open; `shapes` names the outputs ("hidden", "logits", "ids", "scores") and their
        shapes."""
        import numpy as np

        outputs = {name: np.empty(shape, np.int32 if name == "ids" else np.float32) for name, shape in shapes.items()}
        ids = outputs.get("ids")
        hidden, logits, scores = (
            None if name not in outputs else _float(outputs[name]) for name in ("hidden", "logits", "scores")
        )
        _check(
            self._lib,
            self._lib.dflash_draft_probe(
                self._handle, slot, (c_int32 * len(tokens))(*tokens), len(tokens), n_block,
                hidden, logits, None if ids is None else _int32(ids), scores,
            ),
        )  # fmt: skip
        return outputs

    def tree_pass(self, trees: Sequence[TreeRows], n_vocab: int) -> list[np.ndarray | None]:
        """One target pass over trees of idle slots, then the commit of their paths: each tree's logits [n_nodes,
        n_vocab] or None.

        Raises RequestError where the target refuses trees; the message says why.
        """
        import numpy as np

        logits = [np.empty((len(tree.tokens), n_vocab), np.float32) if tree.want_logits else None for tree in trees]
        rows = (NativeTreeRows * len(trees))()
        for row, tree, out in zip(rows, trees, logits, strict=True):
            if len(tree.parents) != len(tree.tokens):
                raise RequestError(
                    f"a tree of {len(tree.tokens)} tokens has {len(tree.parents)} parents", param="parents"
                )
            row.slot, row.n_nodes, row.n_path = tree.slot, len(tree.tokens), len(tree.path)
            row.tokens, row.parents, row.path = (
                (c_int32 * len(values))(*values) for values in (tree.tokens, tree.parents, tree.path)
            )
            if out is not None:
                row.logits = _float(out)
        _check(self._lib, self._lib.dflash_tree_pass(self._handle, rows, len(trees)))
        return logits

    def cells(self) -> dict[str, Any]:
        """dflash_cells(): the target's KV cells."""
        return _take_json(self._lib, self._lib.dflash_cells(self._handle))


class PreparedRequest:
    """dflash_prepared: a request that is ready to run. `NativeEngine.submit` takes the handle over.

    Its owner calls `free` when the request will not run: memory of the library must not wait for the garbage collector.
    """

    def __init__(self, lib: ctypes.CDLL, handle: c_void_p) -> None:
        self._lib = lib
        self.handle: c_void_p | None = handle

    def free(self) -> None:
        """Release it; no effect after `NativeEngine.submit`. Any thread but not two at once, also after the engine's
        end."""
        handle, self.handle = self.handle, None
        if handle is not None:
            self._lib.dflash_prepared_free(handle)

    def __del__(self) -> None:
        self.free()


class NativeChat:
    """dflash_chat: turns the text of one answer into OpenAI-shaped deltas."""

    def __init__(self, lib: ctypes.CDLL, handle: int | None, owner: NativeEngine) -> None:
        if not handle:
            raise _error(lib, Status.ERROR_ARG)
        self._lib, self._handle = lib, handle
        self._owner = owner  # the parser reads the engine's vocabulary

    def push(self, text: str, is_final: bool) -> list[dict[str, Any]]:
        """Add text; the deltas since the last call."""
        return _take_json(self._lib, self._lib.dflash_chat_push(self._handle, text.encode(), is_final))

    def message(self) -> dict[str, Any]:
        """The whole message so far."""
        return _take_json(self._lib, self._lib.dflash_chat_message(self._handle))

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._lib.dflash_chat_delete(self._handle)


def _int32(array: np.ndarray) -> Any:
    return array.ctypes.data_as(POINTER(c_int32))


def _float(array: np.ndarray) -> Any:
    return array.ctypes.data_as(POINTER(c_float))
