"""Structs and enums of libdflash (`ggml_ops/include/dflash.h`) as ctypes, and their contents as Python values.

tests/engine/test_native_header.py compares them with the header by means of a C compiler.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Mapping, Sequence
from ctypes import POINTER, c_bool, c_char_p, c_double, c_float, c_int, c_int32, c_uint64, c_void_p
from enum import IntEnum
from typing import Any, NamedTuple, TypeVar
from zlib import crc32

from dflash_local.draft_options import MAX_NODES
from dflash_local.engine_options import EngineOptions
from dflash_local.option import native_fields
from dflash_local.request_options import RequestOptions
from dflash_local.token_probs import TokenProb

Struct = TypeVar("Struct", bound=ctypes.Structure)

# Where quoted tokens come from, in the order of dflash_slot_counters.
QUOTE_SOURCES = ("text", "prediction", "corpus", "answers")

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
    ERROR_CANCELLED = -9


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
    """dflash_engine_params: the native part of EngineOptions."""

    _fields_ = native_fields(EngineOptions)


class RequestParams(ctypes.Structure):
    """dflash_request_params: the native part of RequestOptions."""

    _fields_ = native_fields(RequestOptions)


class MediaKind(IntEnum):
    """dflash_media_kind."""

    IMAGE = 0
    AUDIO = 1


class NativeMedia(ctypes.Structure):
    """dflash_media."""

    _fields_ = [
        ("kind", c_int32),
        ("data", c_char_p),
        ("n_data", c_uint64),
        ("width", c_int32),
        ("height", c_int32),
        ("hash", c_char_p),
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
        """All entries as Python values."""
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
        """As Python values; None if nothing was verified, or the request did not ask."""
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

    def read(self) -> StepUpdate:
        """As Python values, which stay when the next step overwrites the struct."""
        return StepUpdate(
            slot=self.slot,
            state=self.state,
            tokens=self.tokens[: self.n_tokens] if self.n_tokens else [],
            n_accepted=self.n_accepted,
            n_drafted=self.n_drafted,
            n_depth=self.n_depth,
            n_denoised=self.n_denoised,
            reason=(self.reason or b"").decode(),
            draft_ms=self.draft_ms,
            verify_ms=self.verify_ms,
            plain_ms=self.plain_ms,
            first=self.first,
            error=self.error.decode("utf-8", "replace") if self.error else None,
            n_past=self.n_past,
            probs=self.probs.read() if self.probs.n else [],
            n_prompt_probs=self.probs.n_prompt,
            tree=self.tree.read(),
        )


class SlotStats(ctypes.Structure):
    """dflash_slot_counters: of a slot's current or last request. Times in milliseconds."""

    _fields_ = [
        ("n_prompt", c_int32),
        ("n_cached", c_int32),
        ("n_generated", c_int32),
        ("n_passes", c_int32),
        ("n_plain", c_int32),
        ("n_drafted", c_int32),
        ("n_accepted", c_int32),
        ("n_lookup_drafted", c_int32),
        ("n_lookup_accepted", c_int32),
        ("quoted_drafted", c_int32 * len(QUOTE_SOURCES)),
        ("quoted_accepted", c_int32 * len(QUOTE_SOURCES)),
        ("n_mtp_drafted", c_int32),
        ("n_mtp_accepted", c_int32),
        ("n_prediction", c_int32),
        ("n_prediction_accepted", c_int32),
        ("depth_drafted", c_int32 * MAX_NODES),
        ("depth_accepted", c_int32 * MAX_NODES),
        ("t_queue_ms", c_double),
        ("t_prompt_ms", c_double),
        ("t_generate_ms", c_double),
    ]


class SlotFile(ctypes.Structure):
    """dflash_slot_file."""

    _fields_ = [("n_tokens", c_int32), ("n_bytes", c_uint64)]


class ScoreParams(ctypes.Structure):
    """dflash_score_params."""

    _fields_ = [
        ("tokens", POINTER(c_int32)),
        ("n_tokens", c_int32),
        ("first", c_int32),
        ("width", c_int32),
        ("best_ids", POINTER(c_int32)),
        ("best_logits", POINTER(c_float)),
        ("logits", POINTER(c_float)),
    ]


class ProbeParams(ctypes.Structure):
    """dflash_probe_params."""

    _fields_ = [
        ("tokens", POINTER(c_int32)),
        ("n_tokens", c_int32),
        ("n_block", c_int32),
        ("hidden", POINTER(c_float)),
        ("logits", POINTER(c_float)),
        ("ids", POINTER(c_int32)),
        ("scores", POINTER(c_float)),
    ]


class TapParams(ctypes.Structure):
    """dflash_tap_params."""

    _fields_ = [
        ("tokens", POINTER(c_int32)),
        ("n_tokens", c_int32),
        ("layers", POINTER(c_int32)),
        ("n_layers", c_int32),
        ("k", c_int32),
        ("first", c_int32),
        ("taps", POINTER(c_float)),
        ("ids", POINTER(c_int32)),
        ("log_probs", POINTER(c_float)),
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
        ("coarse", c_bool),
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
    """dflash_origin: who proposed a token. The drafter takes precedence if the token is among its candidates."""

    TARGET = 0  # sampled
    DRAFTER = 1
    LOOKUP = 2
    PREDICTION = 3
    CORPUS = 4
    ANSWERS = 5
    MTP = 6


class VerifiedTree(NamedTuple):
    """A tree that the target verified, and its accepted path. Lists have an entry for each node, the anchor first.

    `parents`: smaller indices than the node's own, -1 for the anchor. `probs`: the drafter's, given the parent; 0: it
    did not propose the token. `values`: estimated probability that the walk gets there. `origins`: Origin.
    `path`: the accepted nodes, the anchor first.
    """

    tokens: list[int]
    parents: list[int]
    probs: list[float]
    values: list[float]
    origins: list[int]
    path: list[int]


class StepUpdate(NamedTuple):
    """One slot's part of a step, in the order of dflash_update. `tokens` are new; `first`: they came from the prompt's
    last pass.

    The tree that was verified had 1 + `n_drafted` nodes and depth `n_depth`; it grew from a block of `n_denoised`
    tokens (0: no drafter pass). `reason` is the controller's, one of a few fixed strings. `n_past`: tokens in the slot.
    `probs`, if the request wants them: of `n_prompt_probs` tokens of the prompt, of `tokens`, and of the token that
    ended the answer. `plain_ms`: estimated time of the pass without drafts; 0: unknown. `tree`: the verified tree, if
    the request wants it.
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
    plain_ms: float = 0.0
    first: bool = False
    error: str | None = None
    n_past: int = 0
    probs: list[TokenProb] = []  # noqa: RUF012  never changed
    n_prompt_probs: int = 0
    tree: VerifiedTree | None = None


class TreeRows(NamedTuple):
    """Rows of a tree for an idle slot, after its cached tokens, and the rows to keep.

    `parents[i]` is a smaller index than i, -1 for row 0. `path`: the rows to commit afterwards, row 0 first; empty
    forgets them all.
    """

    slot: int
    tokens: Sequence[int]
    parents: Sequence[int]
    path: Sequence[int] = ()
    want_logits: bool = True


def _type_text(kind: Any) -> str:
    """A field's type, the same on every platform: ctypes has its own names (c_int32 is c_long on Windows)."""
    inner = getattr(kind, "_type_", kind.__name__)
    if not isinstance(inner, str):
        return f"{_type_text(inner)}[{kind._length_}]" if issubclass(kind, ctypes.Array) else f"{_type_text(inner)}*"
    if inner.lower() in ("i", "l", "q"):
        return f"{'int' if inner.islower() else 'uint'}{8 * ctypes.sizeof(kind)}"
    return inner


# A hash of all fields, their names and types: dflash.h has the same number, which a test compares.
ABI_VERSION = crc32(
    "\n".join(
        f"{struct.__name__}.{name} {_type_text(kind)}"
        for struct in ctypes.Structure.__subclasses__()
        if struct.__module__ == __name__
        for name, kind, *_ in struct._fields_
    ).encode()
)


def fill(struct: Struct, params: Mapping[str, Any]) -> Struct:
    """Set fields by name, to numbers, None, text, pointers, or integers with their count. `struct` keeps its pointees
    alive; an `array` of int32 is not copied."""
    for name, value in params.items():
        if isinstance(value, str):
            value = value.encode("utf-8", "surrogateescape")
        elif isinstance(value, Sequence) and not isinstance(value, bytes):
            integers = value if isinstance(value, array) else array("i", value)
            setattr(struct, f"n_{name}", len(integers))
            value = (c_int32 * len(integers)).from_buffer(integers) if integers else None
        setattr(struct, name, value)
    return struct
