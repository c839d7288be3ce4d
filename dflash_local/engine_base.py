"""EngineBase: a native engine on a thread of its own: its life, its facts, and checks of what it is asked."""

from __future__ import annotations

import weakref
from array import array
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import cached_property
from typing import Any

from dflash_local.arguments import check_vocabulary
from dflash_local.counters import Counters
from dflash_local.errors import EngineDeadError, RequestError
from dflash_local.generation import Completion
from dflash_local.media.abilities import Abilities
from dflash_local.native import NativeEngine
from dflash_local.request_options import RequestOptions
from dflash_local.running_request import SlotUse
from dflash_local.scheduler import Scheduler
from dflash_local.throughput import Throughput


class EngineBase:
    """What `Engine` and `Inspection` have in common."""

    def _attach(
        self,
        create: Callable[[], NativeEngine],
        n_slots: int,
        *,
        max_queue: int,
        facts: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        """Start a thread that creates the engine; `facts` are then added to its own."""
        self._scheduler = Scheduler(create, n_slots=n_slots, max_queue=max_queue)
        self._native = self._scheduler.native
        self._info: Mapping[str, Any] = {**self._native.info(), **facts()}
        # Also runs on garbage collection and at the interpreter's exit, while native threads can still end cleanly.
        self._finalizer = weakref.finalize(self, self._scheduler.close)

    # ---- life ----

    def close(self) -> None:
        """Stop and free everything; requests in flight get an EngineDeadError. Idempotent."""
        self._finalizer()

    @property
    def ended(self) -> Future[EngineDeadError]:
        """Resolves when the engine thread ends, with the reason."""
        return self._scheduler.ended

    def check_rpc(self) -> None:
        """Check soon that the target's RPC servers still answer; if one does not, the engine ends."""
        self._scheduler.check_rpc()

    # ---- facts ----

    @property
    def info(self) -> Mapping[str, Any]:
        """Target, drafter, context and memory (dflash_engine_info), the `tuned_rows` and `few_rows` that were set
        (tuning.Counts), and `fenced_calls`: the chat template asks for calls in blocks of code (fenced_calls.py).
        Read only."""
        return self._info

    @property
    def n_slots(self) -> int:
        return int(self._info["n_slots"])

    @property
    def n_ctx_slot(self) -> int:
        """Context of one slot in tokens."""
        return int(self._info["n_ctx_slot"])

    @cached_property
    def n_vocab(self) -> int:
        return int(self._info["target"]["n_vocab"])

    @cached_property
    def abilities(self) -> Abilities:
        """Which media the model reads, and their marker."""
        return Abilities.of(self._info)

    @property
    def counters(self) -> Counters:
        """Totals over finished requests; reading them does not disturb the engine."""
        return self._scheduler.counters

    @property
    def max_requests(self) -> int:
        """The most requests that may run or wait at once."""
        return self._scheduler.max_requests

    @property
    def n_running(self) -> int:
        """Requests on slots."""
        return self._scheduler.n_running

    @property
    def n_waiting(self) -> int:
        """Requests that wait for a slot."""
        return self._scheduler.n_waiting

    @property
    def throughput(self) -> Throughput:
        """Tokens and requests of each of the last seconds."""
        return self._scheduler.throughput

    def slot_uses(self) -> list[SlotUse | None]:
        """What each slot is doing, or did last; None if it was never used."""
        return self._scheduler.slots()

    def slots(self) -> list[dict[str, Any]]:
        """State of each slot, with llama-server's names, and its current or last request, if any."""
        facts = {"n_ctx": self.n_ctx_slot, "speculative": self._info.get("drafter") is not None}
        return [
            {"id": slot, **facts, "is_processing": use is not None and use.runs, **(use.to_dict() if use else {})}
            for slot, use in enumerate(self.slot_uses())
        ]

    def stats_soon(self) -> Future[dict[str, Any]]:
        """Native counters, phase times and cost curves (dflash_engine_stats), after the running step."""
        return self._scheduler.call(self._native.stats)

    def stats(self) -> dict[str, Any]:
        """`stats_soon`, once it is there."""
        return self.stats_soon().result()

    def watch_answers(self, on_answer: Callable[[RequestOptions, Completion], None] | None) -> None:
        """Call `on_answer` with each answer that finishes from now on; None ends that. It runs on the engine's thread,
        so it must not block."""
        self._scheduler.on_answer = on_answer

    # ---- checks ----

    def _raise_if_closed(self) -> None:
        if not self._finalizer.alive:
            raise EngineDeadError("the engine was closed")

    def _check_slot(self, slot: int, param: str = "slot") -> None:
        check_between(param, slot, 0, self.n_slots - 1)

    def _token_array(self, tokens: Sequence[int], param: str, *, media: bool = False) -> array[int]:
        """`tokens` as int32, all of them in the vocabulary or, if `media` may be among them, below -1."""
        self._raise_if_closed()
        try:
            ids = array("i", tokens)
        except (TypeError, OverflowError):
            raise RequestError(f"{param} must be token ids", param=param) from None
        if bool in set(map(type, tokens)):
            raise RequestError(f"{param} must be token ids, not True or False", param=param)
        check_vocabulary(param, [token for token in ids if token >= -1] if media else ids, self.n_vocab)
        return ids


def check_between(param: str, value: int, low: int, high: int) -> None:
    """Raise a RequestError unless low <= value <= high."""
    if not low <= value <= high:
        raise RequestError(f"{param} must be between {low} and {high}, got {value}", param=param)
