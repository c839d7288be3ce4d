"""NativeEngine, PreparedRequest, NativePrompt and NativeChat: libdflash's opaque handles."""

from __future__ import annotations

import ctypes
import os
import threading
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from ctypes import POINTER, byref, c_bool, c_float, c_int32, c_uint64, c_void_p
from typing import TYPE_CHECKING, Any

from dflash_local.errors import EngineDeadError, RequestError
from dflash_local.media.media_prompt import MediaPrompt
from dflash_local.media.medium import Kind, Medium
from dflash_local.native.functions import filled, progress_callback, vocab_tokenize
from dflash_local.native.library import json_of, load, path_bytes, result_of, utf8
from dflash_local.native.structs import (
    EngineParams,
    MediaKind,
    NativeMedia,
    NativeTreeRows,
    ProbeParams,
    RequestParams,
    ScoreParams,
    SlotFile,
    SlotStats,
    StepUpdate,
    TapParams,
    TreeRows,
    Update,
    fill,
)

if TYPE_CHECKING:
    import numpy as np


class NativeEngine:
    """dflash_engine. Belongs to one thread at a time, except for `prepare`, `interrupt` and the text and chat methods.

    Args:
        params: fields of `EngineParams` as str, bytes, numbers or None; what is absent keeps the library's default.
        progress: called with 0..1 while the models load; returning False cancels.
    """

    def __init__(self, params: Mapping[str, Any], progress: Callable[[float], bool] | None = None) -> None:
        self._lib = load()
        self._handle: int | None = None
        self._calls, self._n_calls = threading.Condition(), 0  # running on other threads; destroy() waits for them
        native = filled(EngineParams(), self._lib.dflash_engine_params_default, params)
        callback = progress_callback(progress)
        self._handle = result_of(c_void_p, self._lib.dflash_engine_init, byref(native), callback, None)
        self._vocab = self._lib.dflash_engine_vocab(self._handle)  # valid as long as the handle
        self._n_slots = int(native.n_slots)
        self._updates = (Update * self._n_slots)()
        self.rpc_servers: str = params.get("rpc") or ""

    def hang_up(self) -> None:
        """dflash_rpc_hang_up(): nothing waits for its RPC servers any more. Thread-safe, also once it is destroyed."""
        self._lib.dflash_rpc_hang_up(self.rpc_servers.encode())

    def destroy(self) -> None:
        """Free everything, after running calls on other threads (`prepare`, `tokenize`, `chat_apply`) have ended."""
        with self._calls:
            handle, self._handle = self._handle, None
            self._calls.wait_for(lambda: not self._n_calls)
        if handle:
            self._lib.dflash_engine_free(handle)

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
        return dict(json_of(self._lib.dflash_engine_info, self._handle))

    def rpc_check(self) -> None:
        """Raise RPCError unless all RPC servers still answer."""
        self._lib.dflash_engine_rpc_check(self._handle)

    def stats(self) -> dict[str, Any]:
        """dflash_engine_stats()."""
        return dict(json_of(self._lib.dflash_engine_stats, self._handle))

    # -- requests --

    def prepare(self, params: Mapping[str, Any]) -> PreparedRequest:
        """Check a request and build its sampler and grammar, with the GIL released. Thread-safe.

        Args:
            params: fields of `RequestParams` as str, numbers or sequences of tokens (RequestOptions.native_params);
                what is absent keeps the library's default. An `array` of int32 crosses without a conversion per token.

        Raises:
            RequestError: something in it is out of range or malformed.
        """
        native = filled(RequestParams(), self._lib.dflash_request_params_default, params)
        with self._alive() as handle:
            return PreparedRequest(self._lib, result_of(c_void_p, self._lib.dflash_request_init, handle, byref(native)))

    def set_corpus(self, tokens: array[int]) -> int:
        """Index texts that lookup quotes in all requests, -1 after each of them; returns the bytes that they take."""
        texts = (c_int32 * len(tokens)).from_buffer(tokens) if tokens else None
        return int(result_of(c_uint64, self._lib.dflash_corpus_set, self._handle, texts, len(tokens)))

    def replace_drafter(self, path: str | os.PathLike[str]) -> None:
        """Draft with another file from now on, while every slot is idle; slots keep what they hold.

        Raises:
            ModelError, PairError: the file is damaged, or its drafter has another form than the one in use; nothing has
                changed. RequestError: no drafter of a file is in use.
        """
        self._lib.dflash_drafter_replace(self._handle, path_bytes(path))

    def has_room(self, request: PreparedRequest) -> bool:
        """Whether the slots' shared cache has room for the request now; always true if nothing runs."""
        return bool(result_of(c_bool, self._lib.dflash_has_room, self._handle, request.handle))

    def slot_choose(self, request: PreparedRequest, slots: Sequence[int]) -> int:
        """The best of these idle slots (longest idle first) for the request."""
        choose = self._lib.dflash_slot_choose
        return int(result_of(c_int32, choose, self._handle, request.handle, _ints(slots), len(slots)))

    def submit(self, slot: int, request: PreparedRequest) -> None:
        self._lib.dflash_submit(self._handle, slot, request.handle)
        request.handle = None  # the engine's now

    def cancel(self, slot: int) -> None:
        """Stop a slot; its tokens stay cached."""
        self._lib.dflash_cancel(self._handle, slot)

    def end_reasoning(self, slot: int) -> bool:
        """End the reasoning of a running slot's answer; False if it is not reasoning."""
        return bool(result_of(c_bool, self._lib.dflash_slot_end_reasoning, self._handle, slot))

    def slot_clear(self, slot: int) -> int:
        """Clear an idle slot's cached tokens; returns their number."""
        return int(result_of(c_int32, self._lib.dflash_slot_clear, self._handle, slot))

    def slot_save(self, slot: int, path: str | os.PathLike[str]) -> tuple[int, int]:
        """Write an idle slot to a file; returns tokens and bytes."""
        return self._move_slot(self._lib.dflash_slot_save, slot, path)

    def slot_restore(self, slot: int, path: str | os.PathLike[str]) -> tuple[int, int]:
        """Load a file into an idle slot; returns tokens and bytes.

        Raises:
            RequestError: the file is damaged, or belongs to another pair; QueueFullError: there is no room for it now.
        """
        return self._move_slot(self._lib.dflash_slot_restore, slot, path)

    def _move_slot(self, move: Callable[..., None], slot: int, path: str | os.PathLike[str]) -> tuple[int, int]:
        moved = SlotFile()
        move(self._handle, slot, path_bytes(path), byref(moved))
        return moved.n_tokens, moved.n_bytes

    def step(self) -> list[StepUpdate]:
        """One step over all slots, with the GIL released; empty if every slot is idle."""
        updates = self._updates
        count = result_of(c_int32, self._lib.dflash_step, self._handle, updates, self._n_slots)
        return [update.read() for update in updates[:count]]

    def interrupt(self) -> None:
        """Make a running `step` return early. Thread-safe."""
        self._lib.dflash_engine_interrupt(self._handle)

    def slot_stats(self, slot: int) -> SlotStats:
        """Counters of a slot's current or last request."""
        stats = SlotStats()
        self._lib.dflash_slot_stats(self._handle, slot, byref(stats))
        return stats

    # -- text (thread-safe) --

    def tokenize(self, text: str, add_special: bool, parse_special: bool) -> list[int]:
        with self._alive():
            return vocab_tokenize(
                self._vocab, text, add_special=add_special, parse_special=parse_special, param="prompt"
            )

    def prompt(self, text: str, add_special: bool, media: Sequence[Medium]) -> MediaPrompt:
        """Tokens of a text in which the i-th marker (`info`) stands for `media[i]`. What they mean is kept until the
        result is garbage, or until a request is made of it.

        Raises:
            RequestError: the text has another number of markers, or a medium cannot be read.
        """
        data = utf8(text, "prompt")
        given = (NativeMedia * len(media))(*map(_native_medium, media))
        with self._alive() as handle:
            arguments = (handle, data, len(data), add_special, given, len(media))
            native = NativePrompt(self._lib, result_of(c_void_p, self._lib.dflash_prompt_init, *arguments))
        return MediaPrompt(native.tokens(), native.rows(), native)

    def token_piece(self, token: int, special: bool) -> bytes:
        """Bytes of one token, perhaps a part of a UTF-8 character; control tokens are empty unless `special`."""
        capacity = 64
        while True:
            buffer = ctypes.create_string_buffer(capacity)
            with self._alive():
                size = result_of(c_int32, self._lib.dflash_token_piece, self._vocab, token, special, buffer, capacity)
            if size <= capacity:
                return buffer.raw[:size]
            capacity = size

    def token_is_eog(self, token: int) -> bool:
        with self._alive():
            return bool(self._lib.dflash_token_is_eog(self._vocab, token))

    # -- chat (thread-safe) --

    def chat_apply(self, template: str | None, body: str) -> dict[str, Any]:
        """Render a conversation: {"prompt", "stops", "sampling", "parser", "ignored"}; `body` is JSON with OpenAI's
        fields, `template` Jinja source in place of the engine's template."""
        source = None if template is None else utf8(template, "chat_template")
        data = utf8(body, "messages")
        with self._alive() as handle:
            return dict(json_of(self._lib.dflash_chat_apply, handle, source, data))

    def chat_new(self, parser: str) -> NativeChat:
        """An incremental parser of one answer; `parser` is the "parser" of `chat_apply` as JSON."""
        return NativeChat(self._lib, parser)

    # -- proof --

    def score(
        self, slot: int, tokens: Sequence[int], start: int, width: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Teacher-forced scores of tokens[start:]: best id, best logit and the token's own logit, each of length
        len(tokens) - start."""
        import numpy as np

        count = max(len(tokens) - start, 0)
        best_id, best_logit, logit = np.empty(count, np.int32), np.empty(count, np.float32), np.empty(count, np.float32)
        outputs = {"best_ids": _int32(best_id), "best_logits": _float(best_logit), "logits": _float(logit)}
        params = fill(ScoreParams(), {"tokens": tokens, "first": start, "width": width, **outputs})
        self._lib.dflash_score(self._handle, slot, byref(params))
        return best_id, best_logit, logit

    def draft_probe(
        self, slot: int, tokens: Sequence[int], n_block: int, shapes: Mapping[str, tuple[int, ...]]
    ) -> dict[str, np.ndarray]:
        """The inner values of one drafter pass; `shapes` has the wanted outputs ("hidden", "logits", "ids", "scores")
        and their shapes."""
        import numpy as np

        outputs = {name: np.empty(shape, np.int32 if name == "ids" else np.float32) for name, shape in shapes.items()}
        pointers = {name: (_int32 if name == "ids" else _float)(output) for name, output in outputs.items()}
        params = fill(ProbeParams(), {"tokens": tokens, "n_block": n_block, **pointers})
        self._lib.dflash_draft_probe(self._handle, slot, byref(params))
        return outputs

    def tap(
        self, slot: int, tokens: Sequence[int], layers: Sequence[int], n_embd: int, top_k: int, first: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """dflash_tap(): taps [n, n_layers, n_embd], and ids and log-probabilities [n - first, top_k]."""
        import numpy as np

        n = len(tokens)
        taps = np.empty((n, len(layers), n_embd), np.float32)
        ids, log_probs = np.empty((n - first, top_k), np.int32), np.empty((n - first, top_k), np.float32)
        outputs = {"taps": _float(taps), "ids": _int32(ids), "log_probs": _float(log_probs)}
        params = fill(TapParams(), {"tokens": tokens, "layers": layers, "k": top_k, "first": first, **outputs})
        self._lib.dflash_tap(self._handle, slot, byref(params))
        return taps, ids, log_probs

    def tree_pass(self, trees: Sequence[TreeRows], n_vocab: int) -> list[np.ndarray | None]:
        """One target pass over trees of idle slots, then the commit of their paths. Returns each tree's logits
        [n_nodes, n_vocab], or None.

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
            row.tokens, row.parents, row.path = map(_ints, (tree.tokens, tree.parents, tree.path))
            if out is not None:
                row.logits = _float(out)
        self._lib.dflash_tree_pass(self._handle, rows, len(trees))
        return logits

    def cells(self) -> dict[str, Any]:
        """dflash_cells(): the target's KV cells."""
        return dict(json_of(self._lib.dflash_cells, self._handle))


class PreparedRequest:
    """dflash_request: a request that is ready to run. `NativeEngine.submit` takes ownership of the handle. If the
    request never runs, its owner calls `free`, since the library's memory must not wait for the garbage collector.
    """

    def __init__(self, lib: ctypes.CDLL, handle: int) -> None:
        self._lib = lib
        self.handle: int | None = handle

    def free(self) -> None:
        """Free the handle; no effect after `NativeEngine.submit`. From any thread, but one at a time, even after the
        engine's end."""
        handle, self.handle = self.handle, None
        if handle is not None:
            self._lib.dflash_request_free(handle)

    def __del__(self) -> None:
        self.free()


class NativePrompt:
    """dflash_prompt: what the rows of media in a prompt's tokens stand for."""

    def __init__(self, lib: ctypes.CDLL, handle: int) -> None:
        self._lib, self._handle = lib, handle

    def tokens(self) -> array[int]:
        """All tokens."""
        count = result_of(c_int32, self._lib.dflash_prompt_tokens, self._handle, None, 0)
        tokens = array("i", bytes(4 * count))
        if count:
            buffer = (c_int32 * count).from_buffer(tokens)
            result_of(c_int32, self._lib.dflash_prompt_tokens, self._handle, buffer, count)
        return tokens

    def rows(self) -> dict[Kind, int]:
        """How many tokens are rows of images, and of audio."""
        count = self._lib.dflash_prompt_rows
        kinds: dict[Kind, MediaKind] = {"image": MediaKind.IMAGE, "audio": MediaKind.AUDIO}
        return {name: int(result_of(c_int32, count, self._handle, kind)) for name, kind in kinds.items()}

    def __del__(self) -> None:
        self._lib.dflash_prompt_free(self._handle)


class NativeChat:
    """dflash_chat: turns the text of one answer into OpenAI-shaped deltas."""

    def __init__(self, lib: ctypes.CDLL, parser: str) -> None:
        self._lib, self._handle = lib, result_of(c_void_p, lib.dflash_chat_init, parser.encode())

    def push(self, text: str, is_final: bool) -> list[dict[str, Any]]:
        """Add text; the deltas since the last call. A NUL, with which C's text would end, becomes U+FFFD."""
        text = text.replace("\0", "\ufffd")
        return list(json_of(self._lib.dflash_chat_push, self._handle, text.encode(), is_final))

    def message(self) -> dict[str, Any]:
        """The whole message so far."""
        return dict(json_of(self._lib.dflash_chat_message, self._handle))

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._lib.dflash_chat_free(self._handle)


def _native_medium(medium: Medium) -> NativeMedia:
    kind = MediaKind.IMAGE if medium.kind == "image" else MediaKind.AUDIO
    return NativeMedia(kind, medium.data, len(medium.data), medium.width, medium.height, medium.hash)


def _ints(values: Sequence[int]) -> Any:
    """As an array in C."""
    return (c_int32 * len(values))(*values)


def _int32(array: np.ndarray) -> Any:
    return array.ctypes.data_as(POINTER(c_int32))


def _float(array: np.ndarray) -> Any:
    return array.ctypes.data_as(POINTER(c_float))
