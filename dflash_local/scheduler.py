"""Scheduler: the one thread that owns the native engine. It assigns slots and delivers the results of steps."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from itertools import count
from queue import SimpleQueue
from typing import Any, NamedTuple, ParamSpec, TypeVar

from dflash_local.counters import Counters
from dflash_local.errors import (
    ComputeError,
    DFlashError,
    EngineDeadError,
    EngineLostError,
    QueueFullError,
    RequestError,
    RPCError,
    again,
)
from dflash_local.generation import Completion, FinishReason, Generation, Timings, Waiter, wake
from dflash_local.native import NativeEngine, PreparedRequest, SlotState, StepUpdate
from dflash_local.request_options import RequestOptions
from dflash_local.running_request import Running, SlotUse
from dflash_local.text_stream import Pieces
from dflash_local.throughput import StepCounts, Throughput

log = logging.getLogger(__name__)
T = TypeVar("T")
P = ParamSpec("P")

_LAST_WORDS = 10.0  # seconds in which an RPC server should answer while the engine is closed


class _Job(NamedTuple):
    """What waits for an idle slot: a request, or short work on a slot.

    Attributes:
        id_slot: the slot that it wants; None: any.
        start: starts it on one of these idle slots; False if it has to wait for room.
        generation: of a request.
    """

    id_slot: int | None
    start: Callable[[list[int]], bool]
    generation: Generation | None = None


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
        # Called with each finished answer on the engine's thread, so it must not block.
        self.on_answer: Callable[[RequestOptions, Completion], None] | None = None
        self.throughput = Throughput()
        self.ended: Future[EngineDeadError] = Future()
        self._n_slots, self._max_queue = n_slots, max_queue
        self._commands: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._waiting: list[_Job] = []  # in the order in which they came
        self._idle: dict[int, None] = dict.fromkeys(range(n_slots))  # in the order in which they became idle
        self._running: dict[int, Running] = {}
        self._last: dict[int, SlotUse] = {}  # of each slot that has ended a request
        self._tasks = count()
        self._closing = False
        self._mean_seconds = 1.0  # for which a request holds its slot: a moving average

        self._lock = threading.Lock()  # guards the next three; members of the sets fail when the thread ends
        self._cause: EngineDeadError | None = None  # why it ended
        self._generations: set[Generation] = set()  # that wait or run
        self._futures: set[Future[Any]] = set()  # of calls

        created: Future[NativeEngine] = Future()
        self._thread = threading.Thread(target=self._run, args=(create, created), name="dflash-engine", daemon=True)
        self._thread.start()
        self.native = native = created.result()
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
        job = _Job(request.id_slot, partial(self._start, generation), generation)
        try:
            with self._lock:
                self._raise_if_ended()
                if len(self._generations) >= self.max_requests:
                    raise QueueFullError(
                        "too many requests are waiting", retry_after=self._retry_after(), hint="try again later"
                    )
                self._generations.add(generation)
                self._commands.put(partial(self._waiting.append, job))
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
            return slot is not None and self.native.end_reasoning(slot)

        return self.call(end)

    def call(self, function: Callable[[], T]) -> Future[T]:
        """Run `function` on the engine thread between two steps."""
        future, run = self._promise(function)
        self._commands.put(run)
        return future

    def call_on_slot(
        self, function: Callable[[int], T], id_slot: int | None = None, *, is_use: bool = False
    ) -> Future[T]:
        """Run `function` on the engine thread with an idle slot (`id_slot`, if given), queued like a request. After a
        use that succeeds the slot has been idle for the shortest time."""

        def use(slot: int) -> T:
            result = function(slot)
            del self._idle[slot]
            self._idle[slot] = None
            return result

        future, run = self._promise(use if is_use else function)

        def start(idle: list[int]) -> bool:
            run(idle[0])
            return True

        self._commands.put(partial(self._waiting.append, _Job(id_slot, start)))
        return future

    def check_rpc(self) -> None:
        """End if an RPC server of the engine no longer answers."""
        self._commands.put(self.native.rpc_check)

    def slots(self) -> list[SlotUse | None]:
        """What each slot is doing, or did last; None if it was never used."""
        busy = {slot: running.use() for slot, running in self._running.copy().items()}
        return [busy.get(slot) or self._last.get(slot) for slot in range(self._n_slots)]

    @property
    def max_requests(self) -> int:
        """The most requests that may run or wait at once."""
        return self._n_slots + self._max_queue

    @property
    def n_running(self) -> int:
        """Requests on slots."""
        return len(self._running)

    @property
    def n_waiting(self) -> int:
        """Requests without a slot yet."""
        return max(len(self._generations) - len(self._running), 0)

    def close(self) -> None:
        """End the thread within a step and free the native engine; idempotent."""
        self._closing = True
        self._commands.put(lambda: None)
        if not self.ended.done():
            self.native.interrupt()
        # A finalizer may run on the engine thread itself; then the memory is freed when the process ends.
        if threading.current_thread() is not self._thread:
            with self._impatience():
                self._thread.join()
                self.native.destroy()

    @contextmanager
    def _impatience(self) -> Iterator[None]:
        """Hangs up if an RPC server hangs, which would be waited for without end."""
        if not self.native.rpc_servers:
            yield
            return
        timer = threading.Timer(_LAST_WORDS, self.native.hang_up)
        timer.daemon = True
        try:
            timer.start()
        except RuntimeError:  # no thread starts any more while the interpreter exits
            self._thread.join(_LAST_WORDS)
            self.native.hang_up()
        try:
            yield
        finally:
            timer.cancel()

    def pieces(self, special: bool | frozenset[int]) -> Pieces:
        """Token bytes; the two common kinds are shared by all requests."""
        shared = self._pieces.get(special)
        return Pieces(self.native, special) if shared is None else shared

    def _promise(self, function: Callable[P, T]) -> tuple[Future[T], Callable[P, None]]:
        future: Future[T] = Future()

        def run(*args: P.args, **kwargs: P.kwargs) -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function(*args, **kwargs))
                except Exception as error:  # the caller's, not the engine's
                    future.set_exception(error)
            with self._lock:
                self._futures.discard(future)

        with self._lock:
            self._raise_if_ended()
            self._futures.add(future)
        return future, run

    def _raise_if_ended(self) -> None:
        """With the lock."""
        if self._cause is not None:
            raise again(self._cause)

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
            if job.id_slot is not None and job.id_slot not in self._idle:
                continue
            if not job.start(list(self._idle) if job.id_slot is None else [job.id_slot]):
                return
            self._waiting.remove(job)

    def _has_room(self, generation: Generation) -> bool:
        """True if the slots' cache has room for a request, or if that fails: then its start reports the error."""
        try:
            return self.native.has_room(generation.prepared)
        except DFlashError:
            return True

    def _start(self, generation: Generation, idle: list[int]) -> bool:
        """Start a request on one of the slots `idle`, or fail it; False if it has to wait for room."""
        if not self._has_room(generation):
            return False
        request = generation.request
        try:
            slot = self.native.slot_choose(generation.prepared, idle)
            self.native.submit(slot, generation.prepared)
        except DFlashError as error:
            self._release(generation)
            wake([generation.fail(error)])
            return True
        del self._idle[slot]
        generation.slot = slot
        n_cached = self.native.slot_stats(slot).n_cached
        self._running[slot] = running = Running(generation, self.pieces(request.special), n_cached)
        if request.progress:
            wake([generation.add(running.progress())])
        return True

    def _step(self) -> None:
        start = time.monotonic()
        updates = self.native.step()
        if not updates and not self._closing:
            raise ComputeError(f"libdflash ran no slot although {len(self._running)} are busy")
        self._count_cached(updates)
        n_busy = sum(not self._waits(update) for update in updates)
        self.counters.steps += n_busy > 0
        self.counters.busy_slot_steps += n_busy
        self.throughput.add(start, self._counts(updates), self.n_running, self.n_waiting)
        wake(waiter for update in updates for waiter in self._deliver(update))

    def _waits(self, update: StepUpdate) -> bool:
        """Whether the step had no row of the slot, because a medium of its prompt is not encoded yet."""
        return update.state == SlotState.READING and update.n_past == self._running[update.slot].n_held

    def _count_cached(self, updates: Sequence[StepUpdate]) -> None:
        """Count what requests have from the cache, before they have read: also a prefix that another slot had yet to
        read when they came."""
        for update in updates:
            running = self._running[update.slot]
            if not running.has_read:
                running.count_cached(self.native.slot_stats(update.slot).n_cached)

    def _counts(self, updates: Sequence[StepUpdate]) -> StepCounts:
        """The counts of a step, taken before its updates are delivered."""
        n_read = n_passes = 0
        for update in updates:
            running = self._running[update.slot]
            if running.n_passes == 0:
                n_read += max(update.n_past - running.n_held, 0)
            else:
                n_passes += 1
        return StepCounts(
            tokens=sum(len(update.tokens) for update in updates),
            prompt_tokens=n_read,
            passes=n_passes,
            draft_tokens=sum(update.n_drafted for update in updates),
            accepted=sum(update.n_accepted for update in updates),
        )

    def _deliver(self, update: StepUpdate) -> Iterator[Waiter | None]:
        """Hand one slot's part of a step to its generation. Yields whom to wake once all slots have theirs."""
        running, waits = self._running[update.slot], self._waits(update)
        running.n_held = update.n_past
        running.generation.prompt_probs += update.probs[: update.n_prompt_probs]
        if update.state == SlotState.REFUSED:
            yield self._fail(update.slot, RequestError(update.error or "no token may follow"))
        elif update.state == SlotState.FAILED:
            if not self._closing:  # else close() interrupted the pass, and _end() tells the consumers
                yield self._fail(update.slot, ComputeError(update.error or "the forward pass failed"))
        else:
            if running.generation.request.progress and running.n_passes == 0 and not waits:
                yield running.generation.add(running.progress())
            if update.state != SlotState.READING:
                yield from self._deliver_chunk(running, update)

    def _deliver_chunk(self, running: Running, update: StepUpdate) -> Iterator[Waiter | None]:
        """Hand out the new text, and the answer's end: the slot's own, or a cut at a stop string or by a time limit."""
        ended = update.state >= SlotState.STOP
        chunk = running.take(update, last=ended)
        if running.generation.request.timings:
            chunk.timings = running.timings(self.native.slot_stats(update.slot))
        yield running.generation.add(chunk)
        if running.is_cut:
            if not ended:
                self.native.cancel(update.slot)
            yield self._finish(update.slot, "length" if running.stopped_by is None else "stop")
        elif ended:
            reason: FinishReason = "stop" if update.state == SlotState.STOP else "length"
            yield self._finish(update.slot, reason, truncated=update.state == SlotState.CONTEXT)

    def _fail(self, slot: int, error: DFlashError) -> Waiter | None:
        return self._vacate(slot).generation.fail(error)

    def _finish(self, slot: int, reason: FinishReason, *, truncated: bool = False) -> Waiter | None:
        running, stats = self._running[slot], self.native.slot_stats(slot)
        timings = running.timings(stats)
        self.counters.add(stats, timings, running.started - running.generation.created)
        self._vacate(slot)
        waiter = running.generation.finish(
            reason, timings, stopped_by=running.stopped_by, truncated=truncated, slot_tokens=running.n_held
        )
        self._pass_on_answer(running.generation)
        return waiter

    def _pass_on_answer(self, generation: Generation) -> None:
        """Call `on_answer`; if it raises, the engine's thread goes on without it."""
        if self.on_answer is None or not isinstance(generation.outcome, Completion):
            return
        try:
            self.on_answer(generation.request, generation.outcome)
        except Exception:
            log.exception("an answer could not be recorded")
            self.on_answer = None

    def _cancel(self, generation: Generation) -> None:
        if generation.done:
            return
        slot = self._slot_of(generation)
        if slot is not None:
            self.native.cancel(slot)
            wake(self._deliver_rest(slot))
        else:
            self._waiting.remove(next(job for job in self._waiting if job.generation is generation))
            self._release(generation)
            wake([generation.finish("cancelled", Timings())])

    def _deliver_rest(self, slot: int) -> Iterator[Waiter | None]:
        """Hand out what a cancelled generation held back, and its end."""
        running = self._running[slot]
        if (held := running.held_text()).text:
            yield running.generation.add(held)
        yield self._finish(slot, "cancelled")

    def _slot_of(self, generation: Generation) -> int | None:
        return next((slot for slot, running in self._running.items() if running.generation is generation), None)

    def _vacate(self, slot: int) -> Running:
        running = self._running.pop(slot)
        self._last[slot] = running.use(runs=False)
        self._idle[slot] = None
        self._mean_seconds += 0.2 * (time.monotonic() - running.started - self._mean_seconds)
        self._release(running.generation)
        return running

    def _release(self, generation: Generation) -> None:
        generation.prepared.free()
        with self._lock:
            self._generations.discard(generation)

    def _end(self, cause: EngineDeadError) -> None:
        with self._lock:
            self._cause = cause
            generations, self._generations = self._generations, set()
            futures, self._futures = self._futures, set()
            self._running.clear()
        self.ended.set_result(cause)  # without the lock: its callbacks may use this scheduler
        for future in futures:
            if future.set_running_or_notify_cancel():
                future.set_exception(again(cause))
        for generation in generations:
            generation.prepared.free()
        wake([generation.fail(again(cause)) for generation in generations])
