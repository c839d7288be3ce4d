"""Scheduler: the one thread that owns the native engine. It assigns slots and delivers the results of steps."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import count
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

from dflash_local.errors import (
    ComputeError,
    DFlashError,
    EngineDeadError,
    EngineLostError,
    QueueFullError,
    RequestError,
    RPCError,
)
from dflash_local.generation import Chunk, FinishReason, Generation, Progress, Step, Timings, Waiter, wake
from dflash_local.native import MAX_NODES, NativeEngine, PreparedRequest, SlotState, SlotStats, StepUpdate
from dflash_local.request_options import RequestOptions
from dflash_local.sampling import SamplingParams
from dflash_local.stats import Histogram
from dflash_local.text_stream import Pieces, TextStream
from dflash_local.throughput import StepCounts, Throughput

log = logging.getLogger(__name__)
T = TypeVar("T")


# The bounds of vLLM's histograms, with shorter ones added for the time of one token.
FIRST_TOKEN_SECONDS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
)  # fmt: skip
TOKEN_SECONDS = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
)  # fmt: skip
QUEUE_SECONDS = (
    0.001, 0.01, 0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip


@dataclass
class Counters:
    """Totals since load, over finished requests and all steps. Times in milliseconds, in histograms in seconds: from
    the request to its slot, from the request to its first token, and a request's mean between two tokens."""

    steps: int = 0
    busy_slot_steps: int = 0
    requests: int = 0
    timings: Timings = field(default_factory=Timings)
    tokens_max: int = 0
    depth_drafted: list[int] = field(default_factory=lambda: [0] * MAX_NODES)
    depth_accepted: list[int] = field(default_factory=lambda: [0] * MAX_NODES)
    queue_seconds: Histogram = field(default_factory=lambda: Histogram(QUEUE_SECONDS))
    first_token_seconds: Histogram = field(default_factory=lambda: Histogram(FIRST_TOKEN_SECONDS))
    token_seconds: Histogram = field(default_factory=lambda: Histogram(TOKEN_SECONDS))

    def add(self, stats: SlotStats, timings: Timings, waited: float) -> None:
        """Count one finished request that `waited` seconds for its slot."""
        self.requests += 1
        self.queue_seconds.add(waited)
        if timings.predicted_n:
            self.first_token_seconds.add(waited + timings.prompt_ms / 1e3)
        if timings.n_steps:
            self.token_seconds.add(timings.predicted_ms / 1e3 / timings.n_steps)
        self.timings = Timings.total((self.timings, timings))
        self.tokens_max = max(self.tokens_max, stats.n_prompt + timings.predicted_n)
        if stats.n_drafted:
            self.depth_drafted = [a + b for a, b in zip(self.depth_drafted, stats.depth_drafted, strict=True)]
            self.depth_accepted = [a + b for a, b in zip(self.depth_accepted, stats.depth_accepted, strict=True)]


@dataclass(frozen=True, slots=True)
class SlotUse:
    """A slot's current or last request: its number, its options and its progress. `n_remain`: tokens that it may still
    generate; -1: no limit, or it has ended. `n_tokens` came in `n_passes`, the prompt's included, with `seconds` from
    the first to the last."""

    task: int
    sampling: SamplingParams
    max_tokens: int
    n_cached: int
    n_read: int
    n_held: int
    n_generated: int
    n_remain: int
    runs: bool
    n_prompt: int
    n_tokens: int
    n_passes: int
    seconds: float


class _Running:
    """A generation on a slot, with the text state that only the engine thread touches."""

    def __init__(self, generation: Generation, pieces: Pieces, n_cached: int) -> None:
        self.generation = generation
        self.n_cached = n_cached  # of the prompt
        self.n_held = n_cached  # tokens that the slot holds
        self._pieces = pieces
        self._text = TextStream(generation.request.stop)
        self.started = time.monotonic()
        self.n_tokens = self.n_passes = 0  # passes: those with a chunk
        self.depth_sum = self.n_drafter_passes = self.denoised_sum = 0
        self.reason = ""
        self.timed_out = False
        self._first = self._latest = 0.0  # when the first and the last tokens came

    @property
    def n_read(self) -> int:
        """Tokens of the prompt that the slot holds."""
        return min(self.n_held, self.generation.request.n_prompt)

    def progress(self) -> Chunk:
        """A chunk with the progress of the prompt."""
        request, elapsed_ms = self.generation.request, 1e3 * (time.monotonic() - self.started)
        progress = Progress(request.n_prompt, self.n_cached, self.n_read, round(elapsed_ms))
        return Chunk("", [], None, progress, self._reading(elapsed_ms) if request.timings else None)

    def _reading(self, elapsed_ms: float) -> Timings:
        """Timings of the prompt so far."""
        n_read = self.n_read - self.n_cached
        return Timings(cache_n=self.n_cached, prompt_n=n_read, prompt_ms=elapsed_ms if n_read else 0.0)

    def use(self, *, runs: bool = True) -> SlotUse:
        """The slot's use for it, now or (not `runs`) after its end."""
        request = self.generation.request
        n_remain = request.max_tokens - self.n_tokens if runs and request.max_tokens >= 0 else -1
        return SlotUse(
            self.generation.task,
            request.sampling or SamplingParams(),
            request.max_tokens,
            self.n_cached,
            self.n_read,
            self.n_held,
            self.n_tokens if runs else 0,
            n_remain,
            runs,
            request.n_prompt,
            self.n_tokens,
            self.n_passes,
            self._latest - self._first,
        )

    def take(self, update: StepUpdate, *, last: bool) -> Chunk:
        """The step's chunk; tokens after a stop string are dropped."""
        self.n_passes += 1
        tokens, text = update.tokens, ""
        if self._is_late():
            tokens = self._through_line(tokens)
        if self.generation.request.stop:
            for count, token in enumerate(tokens, 1):
                text += self._text.push(self._pieces[token])
                if self.stopped_by is not None:
                    tokens = tokens[:count]
        else:
            text = self._text.push(b"".join([self._pieces[token] for token in tokens]))
        if last or self.timed_out:
            text += self._text.finish()
        self.n_tokens += len(tokens)
        chunk = Chunk(text, tokens, None if update.first else update.n_accepted)
        self._trace(update, chunk)
        if self.generation.request.n_probs:
            probs = update.probs[update.n_prompt_probs :]
            chunk.probs = probs[: len(tokens)]
            if not self.is_cut and len(probs) > len(tokens):
                chunk.end_prob = probs[-1]
        return chunk

    def _is_late(self) -> bool:
        limit_ms, now = self.generation.request.time_limit_ms, time.monotonic()
        self._first, self._latest = self._first or now, now
        return 0 < limit_ms < 1e3 * (now - self._first)

    def _through_line(self, tokens: list[int]) -> list[int]:
        """The tokens up to the first line end, where a late answer stops."""
        for length, token in enumerate(tokens, 1):
            if b"\n" in self._pieces[token]:
                self.timed_out = True
                return tokens[:length]
        return tokens

    def _trace(self, update: StepUpdate, chunk: Chunk) -> None:
        """Count the pass, and keep it if the request wants a trace."""
        request = self.generation.request
        if not update.first:
            self.depth_sum += update.n_depth
            self.n_drafter_passes += update.n_denoised > 0
            self.denoised_sum += update.n_denoised
            self.reason = update.reason
        if not request.trace and not request.return_drafts:
            return
        step = _step_of(update, len(chunk.tokens))
        if request.trace and not update.first:
            self.generation.steps.append(step)
        if request.return_drafts:
            chunk.step = step

    def timings(self, stats: SlotStats) -> Timings:
        """Timings of the answer so far, from the slot's `stats`."""
        # Like llama-server, this counts the token that ends an answer, although it has no text.
        return Timings.of(
            stats,
            self.n_tokens if self.is_cut else stats.n_generated,
            depth_sum=self.depth_sum,
            n_drafter_passes=self.n_drafter_passes,
            denoised_sum=self.denoised_sum,
            reason=self.reason,
        )

    @property
    def is_cut(self) -> bool:
        """True if the answer was ended here, not by the engine."""
        return self.timed_out or self.stopped_by is not None

    @property
    def stopped_by(self) -> str | None:
        return self._text.stopped_by


def _step_of(update: StepUpdate, n_tokens: int) -> Step:
    return Step(
        n_tokens=n_tokens,
        n_nodes=0 if update.first else 1 + update.n_drafted,
        n_depth=update.n_depth,
        n_denoised=update.n_denoised,
        n_accepted=update.n_accepted,
        reason=update.reason,
        draft_ms=update.draft_ms,
        verify_ms=update.verify_ms,
        plain_ms=update.plain_ms,
        tree=update.tree,
    )


class _SlotJob(NamedTuple):
    """A short job for an idle slot."""

    run: Callable[[int], None]
    id_slot: int | None  # None: any


class Scheduler:
    """Runs requests on the slots of a native engine, first come first served, each on the idle slot that fits its
    prompt best, once the slots' cache has room for it.

    All public methods are thread-safe. The engine thread blocks while nothing runs, and takes commands between steps.
    If it dies, everyone who waits gets an EngineDeadError.

    `create` runs on the engine thread too, so that all calls of the native engine come from one thread. Its errors are
    raised by the constructor.
    """

    def __init__(self, create: Callable[[], NativeEngine], *, n_slots: int, max_queue: int) -> None:
        self.counters = Counters()
        self.throughput = Throughput()
        self.ended: Future[EngineDeadError] = Future()
        self._n_slots, self._max_queue = n_slots, max_queue
        self._commands: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._waiting: deque[Generation | _SlotJob] = deque()
        self._idle: dict[int, None] = dict.fromkeys(range(n_slots))  # in the order in which they became idle
        self._running: dict[int, _Running] = {}
        self._last: dict[int, SlotUse] = {}  # of each slot that has ended a request
        self._tasks = count()
        self._closing = False
        self._mean_seconds = 1.0  # that a request holds its slot, a moving average

        self._lock = threading.Lock()  # guards the next two
        self._pending: set[Generation | Future[Any]] = set()  # to be failed when the thread ends
        self._n_pending = 0  # generations among them

        created: Future[NativeEngine] = Future()
        self._thread = threading.Thread(target=self._run, args=(create, created), name="dflash-engine", daemon=True)
        self._thread.start()
        self._native = native = created.result()
        self._pieces: dict[bool | frozenset[int], Pieces] = {
            special: Pieces(native, special) for special in (False, True)
        }

    # ---- any thread ----

    def submit(self, request: RequestOptions, prepared: PreparedRequest) -> Generation:
        """Queue a request. The scheduler takes ownership of `prepared`, and frees it if it never runs.

        Raises:
            QueueFullError: the queue is full.
            EngineDeadError: the engine has ended.
        """
        generation = Generation(request, prepared, self.cancel, next(self._tasks))
        try:
            with self._lock:
                self._raise_if_ended()
                if self._n_pending >= self.n_most:
                    raise QueueFullError(
                        "too many requests are waiting", retry_after=self._retry_after(), hint="try again later"
                    )
                self._pending.add(generation)
                self._n_pending += 1
                self._commands.put(lambda: self._waiting.append(generation))
        except DFlashError:
            prepared.free()
            raise
        return generation

    def cancel(self, generation: Generation) -> None:
        """Stop a generation wherever it is."""
        self._commands.put(lambda: self._cancel(generation))

    def end_reasoning(self, generation: Generation) -> Future[bool]:
        """End the reasoning of a generation between two steps; False if it is not reasoning."""

        def end() -> bool:
            slot = self._slot_of(generation)
            return slot is not None and self._native.end_reasoning(slot)

        return self.call(end)

    def call(self, function: Callable[[], T]) -> Future[T]:
        """Run `function` on the engine thread between two steps."""
        future, run = self._promise(lambda _slot: function())
        self._commands.put(lambda: run(-1))
        return future

    def call_on_slot(self, function: Callable[[int], T], id_slot: int | None = None) -> Future[T]:
        """Run `function` on the engine thread with an idle slot (`id_slot`, if given), queued like a request."""
        future, run = self._promise(function)
        self._commands.put(lambda: self._waiting.append(_SlotJob(run, id_slot)))
        return future

    def check_rpc(self) -> None:
        """End if an RPC server of the engine no longer answers."""
        self._commands.put(self._native.rpc_check)

    def slots(self) -> list[SlotUse | None]:
        """What each slot is doing, or did last; None if it was never used."""
        busy = {slot: running.use() for slot, running in self._running.copy().items()}
        return [busy.get(slot) or self._last.get(slot) for slot in range(self._n_slots)]

    @property
    def native(self) -> NativeEngine:
        """What `create` made."""
        return self._native

    @property
    def n_most(self) -> int:
        """The most requests that may run or wait at once."""
        return self._n_slots + self._max_queue

    @property
    def n_running(self) -> int:
        """Requests on slots."""
        return len(self._running)

    @property
    def n_waiting(self) -> int:
        """Requests without a slot yet."""
        return max(self._n_pending - len(self._running), 0)

    def close(self) -> None:
        """End the thread within a step and free the native engine; idempotent."""
        self._closing = True
        self._commands.put(lambda: None)
        if not self.ended.done():
            self._native.interrupt()
        # A finalizer may run on the engine thread itself; then the memory is freed when the process ends.
        if threading.current_thread() is not self._thread:
            self._thread.join()
            self._native.destroy()

    def pieces(self, special: bool | frozenset[int]) -> Pieces:
        """Token bytes; the two common kinds are shared by all requests."""
        shared = self._pieces.get(special)
        return Pieces(self._native, special) if shared is None else shared

    def _promise(self, function: Callable[[int], T]) -> tuple[Future[T], Callable[[int], None]]:
        future: Future[T] = Future()

        def run(slot: int) -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function(slot))
                except Exception as error:  # the caller's, not the engine's
                    future.set_exception(error)
            with self._lock:
                self._pending.discard(future)

        with self._lock:
            self._raise_if_ended()
            self._pending.add(future)
        return future, run

    def _raise_if_ended(self) -> None:
        if self.ended.done():
            raise _fresh(self.ended.result())

    def _retry_after(self) -> float:
        """Seconds until a slot is likely to become free."""
        return min(max(self._mean_seconds / self._n_slots, 1.0), 60.0)

    # ---- engine thread ----

    def _run(self, create: Callable[[], NativeEngine], created: Future[NativeEngine]) -> None:
        try:
            created.set_result(create())
        except BaseException as error:  # raised by the constructor
            created.set_exception(error)
            return
        cause = EngineDeadError("the engine was closed")
        try:
            while True:
                self._take_commands()
                if self._closing:
                    break
                self._admit()
                if self._running:
                    self._step()
        except RPCError as error:
            log.error("the engine ends: %s", error)
            cause = EngineLostError(error.message)
        except Exception as error:
            if not self._closing:  # an interrupted step may fail
                log.exception("the engine thread died")
                cause = EngineDeadError(f"the engine died: {error}", hint="see the log, then restart")
        self._end(cause)

    def _take_commands(self) -> None:
        must_wait = not self._running and not self._waiting
        while must_wait or not self._commands.empty():
            self._commands.get()()
            must_wait = False

    def _admit(self) -> None:
        """Start waiting requests in order. Only a request that wants a certain, busy slot may be overtaken."""
        for job in list(self._waiting):
            if not self._idle:
                return
            id_slot = job.id_slot if isinstance(job, _SlotJob) else job.request.id_slot
            if id_slot is not None and id_slot not in self._idle:
                continue
            if isinstance(job, _SlotJob):
                self._waiting.remove(job)
                job.run(next(iter(self._idle)) if id_slot is None else id_slot)
            elif self._has_room(job):
                self._waiting.remove(job)
                self._start(job)
            else:
                return

    def _has_room(self, generation: Generation) -> bool:
        """True if the slots' cache has room for a request, or if that fails: then its start reports the error."""
        try:
            return self._native.has_room(generation.prepared)
        except DFlashError:
            return True

    def _start(self, generation: Generation) -> None:
        request = generation.request
        try:
            idle = list(self._idle) if request.id_slot is None else [request.id_slot]
            slot = self._native.slot_choose(generation.prepared, idle)
            self._native.submit(slot, generation.prepared)
        except DFlashError as error:
            self._release(generation)
            wake([generation.fail(error)])
            return
        del self._idle[slot]
        generation.slot = slot
        n_cached = self._native.slot_stats(slot).n_cached
        self._running[slot] = running = _Running(generation, self.pieces(request.special), n_cached)
        if request.progress:
            wake([generation.add(running.progress())])

    def _step(self) -> None:
        start = time.monotonic()
        updates = self._native.step()
        if not updates and not self._closing:
            raise ComputeError(f"libdflash ran no slot although {len(self._running)} are busy")
        self.counters.steps += 1
        self.counters.busy_slot_steps += len(updates)
        self.throughput.add(start, self._counts(updates), self.n_running, self.n_waiting)
        wake([self._deliver(update) for update in updates])

    def _counts(self, updates: Sequence[StepUpdate]) -> StepCounts:
        """The counts of a step, taken before its updates are delivered."""
        n_read = n_passes = 0
        for update in updates:
            if update.first or update.state == SlotState.READING:
                n_read += max(update.n_past - self._running[update.slot].n_held, 0)
            else:
                n_passes += 1
        return StepCounts(
            sum(len(update.tokens) for update in updates),
            n_read,
            n_passes,
            sum(update.n_drafted for update in updates),
            sum(update.n_accepted for update in updates),
        )

    def _deliver(self, update: StepUpdate) -> Waiter | None:
        running = self._running[update.slot]
        running.n_held = update.n_past
        if update.n_prompt_probs:
            running.generation.prompt_probs += update.probs[: update.n_prompt_probs]
        if update.state == SlotState.READING:
            return self._tell_progress(running)
        if update.state == SlotState.REFUSED:
            self._vacate(update.slot)
            return running.generation.fail(RequestError(update.error or "no token may follow"))
        if update.state == SlotState.FAILED:
            if self._closing:
                return None  # close() interrupted the pass; _end() tells the consumers
            self._vacate(update.slot)
            return running.generation.fail(ComputeError(update.error or "the forward pass failed"))
        ended = update.state >= SlotState.STOP
        waiter = self._tell_progress(running) if running.n_passes == 0 else None
        chunk = running.take(update, last=ended)
        if running.generation.request.timings:
            chunk.timings = running.timings(self._native.slot_stats(update.slot))
        waiter = running.generation.add(chunk) or waiter
        if running.is_cut and not ended:
            self._native.cancel(update.slot)
        if ended or running.is_cut:
            by_word = running.stopped_by is not None if running.is_cut else update.state == SlotState.STOP
            truncated = update.state == SlotState.CONTEXT and not running.is_cut
            waiter = self._finish(update.slot, "stop" if by_word else "length", truncated) or waiter
        return waiter

    def _tell_progress(self, running: _Running) -> Waiter | None:
        return running.generation.add(running.progress()) if running.generation.request.progress else None

    def _finish(self, slot: int, reason: FinishReason, truncated: bool = False) -> Waiter | None:
        stats = self._native.slot_stats(slot)
        running = self._vacate(slot)
        timings = running.timings(stats)
        self.counters.add(stats, timings, running.started - running.generation.created)
        return running.generation.finish(
            reason, timings, stopped_by=running.stopped_by, truncated=truncated, slot_tokens=running.n_held
        )

    def _cancel(self, generation: Generation) -> None:
        if generation.done:
            return
        slot = self._slot_of(generation)
        if slot is not None:
            self._native.cancel(slot)
            wake([self._finish(slot, "cancelled")])
        else:
            self._waiting.remove(generation)
            self._release(generation)
            wake([generation.finish("cancelled", Timings())])

    def _slot_of(self, generation: Generation) -> int | None:
        return next((slot for slot, running in self._running.items() if running.generation is generation), None)

    def _vacate(self, slot: int) -> _Running:
        running = self._running.pop(slot)
        self._last[slot] = running.use(runs=False)
        self._idle[slot] = None
        self._mean_seconds += 0.2 * (time.monotonic() - running.started - self._mean_seconds)
        self._release(running.generation)
        return running

    def _release(self, generation: Generation) -> None:
        generation.prepared.free()
        with self._lock:
            self._pending.discard(generation)
            self._n_pending -= 1

    def _end(self, cause: EngineDeadError) -> None:
        with self._lock:
            self.ended.set_result(cause)
            pending, self._pending = self._pending, set()
            self._running.clear()
            self._n_pending = 0
        waiters: list[Waiter | None] = []
        for waiting in pending:
            if isinstance(waiting, Generation):
                waiting.prepared.free()
                waiters.append(waiting.fail(_fresh(cause)))
            elif waiting.set_running_or_notify_cancel():
                waiting.set_exception(_fresh(cause))
        wake(waiters)


def _fresh(error: EngineDeadError) -> EngineDeadError:
    """A copy for each consumer, since raising an exception changes its traceback."""
    return type(error)(error.message, hint=error.hint)
