"""Generation: one request in flight, and its results."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeVar

from dflash_local.arguments import checked
from dflash_local.errors import DFlashError, ResultTimeoutError, again
from dflash_local.media.media_prompt import MediaPrompt
from dflash_local.native import QUOTE_SOURCES, PreparedRequest, SlotStats, StepUpdate, VerifiedTree
from dflash_local.request_options import RequestOptions
from dflash_local.token_probs import TokenProb

# What `Timings.drafting` has under the same names.
_SHOWN = (
    "nodes_mean", "depth_mean", "denoised_mean", "mtp_n", "mtp_n_accepted", "lookup_n", "lookup_n_accepted",
    "corpus_n", "corpus_n_accepted", "answers_n", "answers_n_accepted", "reason",
)  # fmt: skip
# Fields of Timings that SlotStats counts, by their names there.
_COUNTED = {
    "cache_n": "n_cached",
    "prompt_ms": "t_prompt_ms",
    "predicted_ms": "t_generate_ms",
    "draft_n": "n_drafted",
    "draft_n_accepted": "n_accepted",
    "n_passes": "n_passes",
    "n_plain": "n_plain",
    "mtp_n": "n_mtp_drafted",
    "mtp_n_accepted": "n_mtp_accepted",
    "lookup_n": "n_lookup_drafted",
    "lookup_n_accepted": "n_lookup_accepted",
    "prediction_n": "n_prediction",
}
# Fields of Timings for one source of quotations, with its place in those of SlotStats.
_QUOTED = {source: QUOTE_SOURCES.index(source) for source in ("corpus", "answers")}
Item = TypeVar("Item")
FinishReason = Literal["stop", "length", "cancelled"]
Waiter = threading.Event | asyncio.Future[None]


class Progress(NamedTuple):
    """How much of a prompt has been read: `processed` of `total` tokens, `cache` of them from the cache, in `time_ms`
    milliseconds."""

    total: int
    cache: int
    processed: int
    time_ms: int


@dataclass(slots=True)
class Chunk:
    """What one target pass added. `text` may lag behind `tokens`: unfinished characters and possible stop strings are
    held back.

    `accepted` counts the draft tokens accepted in this pass; None for the prompt's pass, where nothing could be
    drafted. A chunk with `progress` has no text; `timings` are those so far. `probs` has one entry for each of
    `tokens`, `end_prob` is for the token that ended the answer, which is not among them. `step` is the pass, with the
    tree that it verified. All of these are there only for requests that ask for them.
    """

    text: str
    tokens: list[int]
    accepted: int | None
    progress: Progress | None = None
    timings: Timings | None = None
    probs: list[TokenProb] | None = None
    end_prob: TokenProb | None = None
    step: Step | None = None


class Step(NamedTuple):
    """One target pass after the prompt's, for one answer: what the controller chose, and the result.

    A pass without a draft has one node, the anchor. `n_denoised` is the block length of the drafter pass that the tree
    grew from (0: none), `reason` why the controller chose so (docs/budget.md). Times are in milliseconds; the passes
    served all slots. `plain_ms` is the time of the pass without drafts, by the costs known so far (0: unknown). `tree`
    is the verified tree, if the request asked for drafts. In a chunk, the prompt's last pass is also a step, without
    nodes.
    """

    n_tokens: int
    n_nodes: int
    n_depth: int
    n_denoised: int
    n_accepted: int
    reason: str
    draft_ms: float
    verify_ms: float
    plain_ms: float = 0.0
    tree: VerifiedTree | None = None


@dataclass(slots=True)
class Timings:
    """llama-server's `timings`, with AL and what the controller chose.

    Milliseconds; `predicted_ms` runs from the first token to the last.
    """

    cache_n: int = 0
    prompt_n: int = 0
    prompt_ms: float = 0.0
    predicted_n: int = 0
    predicted_ms: float = 0.0
    draft_n: int = 0
    draft_n_accepted: int = 0
    n_passes: int = 0  # target passes after the prompt's
    n_steps: int = 0  # tokens after the first
    n_plain: int = 0  # passes without a draft
    mtp_n: int = 0  # draft tokens that MTP layers proposed
    mtp_n_accepted: int = 0
    lookup_n: int = 0  # draft tokens that were only quoted, from whatever source
    lookup_n_accepted: int = 0
    corpus_n: int = 0  # those of them from the user's files
    corpus_n_accepted: int = 0
    answers_n: int = 0  # those from earlier answers
    answers_n_accepted: int = 0
    prediction_n: int = 0  # tokens that the client predicted
    prediction_n_accepted: int = 0  # those of them in the answer
    depth_sum: int = 0  # of the verified trees
    n_drafter_passes: int = 0
    denoised_sum: int = 0  # tokens in their blocks
    reason: str = ""  # of the last pass

    def count_pass(self, update: StepUpdate) -> None:
        """Count what the controller chose for a pass after the prompt's."""
        self.depth_sum += update.n_depth
        self.n_drafter_passes += update.n_denoised > 0
        self.denoised_sum += update.n_denoised
        self.reason = update.reason

    def with_counts(self, stats: SlotStats, n_tokens: int) -> Timings:
        """With the native counters, too; `n_tokens` excludes what a stop string cut off."""
        counts = {name: getattr(stats, counter) for name, counter in _COUNTED.items()}
        for source, place in _QUOTED.items():
            counts[f"{source}_n"] = stats.quoted_drafted[place]
            counts[f"{source}_n_accepted"] = stats.quoted_accepted[place]
        return replace(
            self,
            prompt_n=stats.n_prompt - stats.n_cached,
            predicted_n=n_tokens,
            n_steps=max(n_tokens - 1, 0),
            prediction_n_accepted=min(stats.n_prediction_accepted, n_tokens),
            **counts,
        )

    @classmethod
    def total(cls, parts: Iterable[Timings]) -> Timings:
        """The sum over several answers, for requests with many choices; `reason` is the last one's."""
        total = cls()
        for part in parts:
            for name in cls.__slots__:
                if name != "reason":
                    setattr(total, name, getattr(total, name) + getattr(part, name))
            total.reason = part.reason or total.reason
        return total

    @property
    def prompt_per_second(self) -> float:
        return 1e3 * self.prompt_n / self.prompt_ms if self.prompt_ms > 0 else 0.0

    @property
    def predicted_per_second(self) -> float:
        """Tokens after the first (it comes with the prompt) per second."""
        return 1e3 * self.n_steps / self.predicted_ms if self.predicted_ms > 0 else 0.0

    @property
    def acceptance_length(self) -> float | None:
        """AL: tokens after the first over target passes after the prompt's; None if there was no such pass."""
        return self.n_steps / self.n_passes if self.n_passes else None

    @property
    def nodes_mean(self) -> float | None:
        """Nodes per target pass after the prompt's, with the anchor: 1 is plain decoding. None without such a pass."""
        return 1 + self.draft_n / self.n_passes if self.n_passes else None

    @property
    def depth_mean(self) -> float | None:
        """Mean depth of the trees in passes with a draft; None if there was none."""
        drafted = self.n_passes - self.n_plain
        return self.depth_sum / drafted if drafted else None

    @property
    def denoised_mean(self) -> float | None:
        """Block length per drafter pass; None if there was none."""
        return self.denoised_sum / self.n_drafter_passes if self.n_drafter_passes else None

    def to_dict(self) -> dict[str, Any]:
        """llama-server's `timings`: finite numbers, none below zero."""
        return {
            "cache_n": self.cache_n,
            "prompt_n": self.prompt_n,
            "prompt_ms": self.prompt_ms,
            "prompt_per_token_ms": self.prompt_ms / self.prompt_n if self.prompt_n else 0.0,
            "prompt_per_second": self.prompt_per_second,
            "predicted_n": self.predicted_n,
            "predicted_ms": self.predicted_ms,
            "predicted_per_token_ms": self.predicted_ms / self.n_steps if self.n_steps else 0.0,
            "predicted_per_second": self.predicted_per_second,
            "draft_n": self.draft_n,
            "draft_n_accepted": self.draft_n_accepted,
        }

    def drafting(self) -> dict[str, Any]:
        """What drafting did: counts, means and the last reason."""
        return {
            "acceptance_length": self.acceptance_length,
            "passes_n": self.n_passes,
            "plain_n": self.n_plain,
            **{name: getattr(self, name) for name in _SHOWN},
        }


@dataclass(slots=True)
class Completion:
    """A finished answer.

    Attributes:
        finish_reason: "stop" (end of generation or a stop string), "length" (`max_tokens` or the context), "cancelled".
        cached_tokens: prompt tokens taken from the slot's cache.
        acceptance_lengths: tokens per target pass after the prompt's.
        steps: those passes one by one, if the request asked for a trace.
        stopped_by: the stop string that ended the answer, if one did.
        probs: the probability of each of `tokens`, if the request asked for it.
        end_prob: the same for the token that ended the answer, if one did.
        prompt_probs: the same for the prompt's tokens from `probs_from` on.
        truncated: the context was full.
        slot: where it ran; -1: nowhere.
        slot_tokens: tokens of the prompt and of the answer that the slot holds now.
        image_tokens, audio_tokens: prompt tokens that are rows of media.
    """

    text: str
    tokens: list[int]
    finish_reason: FinishReason
    prompt_tokens: int
    cached_tokens: int
    timings: Timings
    acceptance_lengths: list[int]
    steps: list[Step] = field(default_factory=list)
    stopped_by: str | None = None
    probs: list[TokenProb] | None = None
    end_prob: TokenProb | None = None
    prompt_probs: list[TokenProb] = field(default_factory=list)
    truncated: bool = False
    slot: int = -1
    slot_tokens: int = 0
    image_tokens: int = 0
    audio_tokens: int = 0


class Generation:
    """The handle of one request: iterate over its chunks (`for` or `async for`), or wait for `result()`.

    One consumer at a time. `result()` is woken once, at the end. Iteration always starts with the first chunk, and
    raises the error of a failed request.
    """

    def __init__(
        self, request: RequestOptions, prepared: PreparedRequest, cancel: Callable[[Generation], None], task: int = 0
    ) -> None:
        self.request, self.prepared, self.task = request, prepared, task
        self.created = time.monotonic()
        self.steps: list[Step] = []  # so far, if the request asked for a trace
        self.prompt_probs: list[TokenProb] = []  # so far; all of them when the first chunk is there
        self.slot = -1  # where it runs
        self._cancel = cancel
        self._chunks: list[Chunk] = []
        self.outcome: Completion | DFlashError | None = None  # the result or the error; None while the request runs
        # No wake-up is lost: the engine appends and then takes the waiter; the consumer checks and registers its waiter
        # in one. Waiter and kind are one tuple, so a chunk can never take a waiter that waits for the result.
        self._waiting: tuple[Waiter, bool] | None = None
        self._lock = threading.Lock()  # guards it

    @property
    def done(self) -> bool:
        return self.outcome is not None

    def cancel(self) -> None:
        """Stop after the running step; the result is what was generated until then."""
        if not self.done:
            self._cancel(self)

    @checked
    def result(self, timeout: float | None = None) -> Completion:
        """Wait for the answer.

        Raises:
            ResultTimeoutError: `timeout` seconds have passed; the request goes on.
            ComputeError, EngineDeadError: the request failed.
        """
        event = threading.Event()
        if self._must_wait(event, len(self._chunks), per_chunk=False) and not event.wait(timeout):
            raise ResultTimeoutError(f"no result after {timeout} s", hint="wait again, or cancel() the request")
        return self._completion()

    async def completed(self) -> Completion:
        """`result()` for asyncio."""
        future = asyncio.get_running_loop().create_future()
        if self._must_wait(future, len(self._chunks), per_chunk=False):
            await future
        return self._completion()

    def __iter__(self) -> Iterator[Chunk]:
        seen = 0
        while True:
            for chunk in self._chunks[seen:]:
                seen += 1
                yield chunk
            event = threading.Event()
            if self._must_wait(event, seen, per_chunk=True):
                event.wait()
            elif seen == len(self._chunks):
                self._completion()
                return

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        loop = asyncio.get_running_loop()
        seen = 0
        while True:
            for chunk in self._chunks[seen:]:
                seen += 1
                yield chunk
            future = loop.create_future()
            if self._must_wait(future, seen, per_chunk=True):
                await future
            elif seen == len(self._chunks):
                self._completion()
                return

    def _must_wait(self, waiter: Waiter, seen: int, *, per_chunk: bool) -> bool:
        """Register `waiter`; False if there is already something to read."""
        with self._lock:
            if self.done or (per_chunk and len(self._chunks) > seen):
                return False
            self._waiting = (waiter, per_chunk)
            return True

    def _completion(self) -> Completion:
        assert self.outcome is not None
        if isinstance(self.outcome, DFlashError):
            raise again(self.outcome)
        return self.outcome

    # The engine thread's side. Both return the waiter to wake, if any.

    def add(self, chunk: Chunk) -> Waiter | None:
        self._chunks.append(chunk)
        return self._take_waiter(by_chunk=True)

    def finish(
        self,
        reason: FinishReason,
        timings: Timings,
        *,
        stopped_by: str | None = None,
        truncated: bool = False,
        slot_tokens: int = 0,
    ) -> Waiter | None:
        """Set the result, made of the chunks so far."""
        prompt = self.request.prompt_tokens
        rows = prompt.rows if isinstance(prompt, MediaPrompt) else {}
        self.outcome = Completion(
            text="".join(chunk.text for chunk in self._chunks),
            tokens=[token for chunk in self._chunks for token in chunk.tokens],
            finish_reason=reason,
            prompt_tokens=self.request.n_prompt,
            cached_tokens=timings.cache_n,
            timings=timings,
            acceptance_lengths=[len(chunk.tokens) for chunk in self._chunks if chunk.accepted is not None],
            steps=self.steps,
            stopped_by=stopped_by,
            probs=[prob for chunk in self._chunks for prob in chunk.probs or ()] if self.request.n_probs else None,
            end_prob=self._chunks[-1].end_prob if self._chunks else None,
            prompt_probs=self.prompt_probs,
            truncated=truncated,
            slot=self.slot,
            slot_tokens=slot_tokens,
            image_tokens=rows.get("image", 0),
            audio_tokens=rows.get("audio", 0),
        )
        return self._take_waiter()

    def fail(self, error: DFlashError) -> Waiter | None:
        self.outcome = error
        return self._take_waiter()

    @property
    def n_tokens(self) -> int:
        return sum(len(chunk.tokens) for chunk in self._chunks)

    def _take_waiter(self, *, by_chunk: bool = False) -> Waiter | None:
        with self._lock:
            waiting = self._waiting
            if waiting is None or (by_chunk and not waiting[1]):
                return None
            self._waiting = None
            return waiting[0]


class Stream(Iterator[Item]):
    """Iterates over the output of a running generation, and cancels it when closed or garbage-collected. A class,
    because a generator function that has not started runs nothing when it is closed."""

    def __init__(self, generation: Generation, items: Iterator[Item]) -> None:
        self._generation, self._items = generation, items

    def __iter__(self) -> Stream[Item]:
        return self

    def __next__(self) -> Item:
        try:
            return next(self._items)
        except BaseException:  # StopIteration, too
            self.close()
            raise

    def close(self) -> None:
        """Cancel the generation and end the iteration. Idempotent."""
        self._items = iter(())
        self._generation.cancel()

    def __enter__(self) -> Stream[Item]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self._generation.cancel()


def wake(waiters: Iterable[Waiter | None]) -> None:
    """Wake consumers when all are known, each asyncio loop once. If `waiters` raises, those before it are woken."""
    events: list[threading.Event] = []
    futures: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    try:
        for waiter in waiters:
            if isinstance(waiter, threading.Event):
                events.append(waiter)
            elif waiter is not None:
                futures.setdefault(waiter.get_loop(), []).append(waiter)
    finally:
        for event in events:
            event.set()
        for loop, waiting in futures.items():
            with suppress(RuntimeError):  # the loop is closed, so nobody waits there
                loop.call_soon_threadsafe(_resolve, waiting)


def _resolve(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
