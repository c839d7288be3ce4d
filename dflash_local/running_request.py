"""Running: a request on a slot. Its text, its progress and its timings, of which only the engine's thread knows."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

from dflash_local.generation import Chunk, Generation, Progress, Step, Timings
from dflash_local.indentation import Indentation
from dflash_local.native import SlotStats, StepUpdate
from dflash_local.sampling import SamplingParams
from dflash_local.text_stream import Pieces, TextStream


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

    def to_dict(self) -> dict[str, Any]:
        """As llama-server's `/slots` shows it."""
        return {
            "id_task": self.task,
            "n_prompt_tokens": self.n_held,
            "n_prompt_tokens_processed": self.n_read - self.n_cached,
            "n_prompt_tokens_cache": self.n_cached,
            "params": {**self.sampling.settings(), "max_tokens": self.max_tokens, "n_predict": self.max_tokens},
            "next_token": [{"has_next_token": self.runs, "n_remain": self.n_remain, "n_decoded": self.n_generated}],
        }


class Running:
    """A generation on a slot, with the text state that only the engine thread touches."""

    def __init__(self, generation: Generation, pieces: Pieces, n_cached: int) -> None:
        self.generation = generation
        self.count_cached(n_cached)
        self._pieces = pieces
        self._text = TextStream(generation.request.stop)
        self._indentation = Indentation(generation.request.n_indent) if generation.request.n_indent else None
        self.started = time.monotonic()
        self.n_tokens = self.n_passes = 0  # passes: those with a chunk
        self._chosen = Timings()  # as far as passes count
        self._is_limited = False  # ended by the time limit, or by a line that is indented too little
        self._first = self._latest = 0.0  # when the first and the last tokens came

    def count_cached(self, n_cached: int) -> None:
        """That the slot holds `n_cached` tokens of the prompt, and has read none yet."""
        self.n_cached = n_cached
        self.n_held = n_cached  # tokens that the slot holds

    @property
    def has_read(self) -> bool:
        return self.n_held > self.n_cached

    @property
    def n_read(self) -> int:
        """Tokens of the prompt that the slot holds."""
        return min(self.n_held, self.generation.request.n_prompt)

    def progress(self) -> Chunk:
        """A chunk with the progress of the prompt."""
        request, elapsed_ms = self.generation.request, self._elapsed_ms
        progress = Progress(request.n_prompt, self.n_cached, self.n_read, round(elapsed_ms))
        return Chunk("", [], None, progress, self._reading(elapsed_ms) if request.timings else None)

    def _reading(self, elapsed_ms: float) -> Timings:
        """Timings of the prompt so far."""
        n_read = self.n_read - self.n_cached
        return Timings(cache_n=self.n_cached, prompt_n=n_read, prompt_ms=elapsed_ms if n_read else 0.0)

    @property
    def _elapsed_ms(self) -> float:
        """Time since it got the slot."""
        return 1e3 * (time.monotonic() - self.started)

    def use(self, *, runs: bool = True) -> SlotUse:
        """The slot's use for it, now or (not `runs`) after its end."""
        request = self.generation.request
        n_remain = request.max_tokens - self.n_tokens if runs and request.max_tokens >= 0 else -1
        return SlotUse(
            task=self.generation.task,
            sampling=request.sampling or SamplingParams(),
            max_tokens=request.max_tokens,
            n_cached=self.n_cached,
            n_read=self.n_read,
            n_held=self.n_held,
            n_generated=self.n_tokens if runs else 0,
            n_remain=n_remain,
            runs=runs,
            n_prompt=request.n_prompt,
            n_tokens=self.n_tokens,
            n_passes=self.n_passes,
            seconds=self._latest - self._first,
        )

    def take(self, update: StepUpdate, *, last: bool) -> Chunk:
        """The step's chunk; tokens after a stop string are dropped."""
        if self.n_passes == 0:
            update = update._replace(first=True)  # also of a prompt that was only to be read
        self._note_time()
        self._count_pass(update)
        tokens = self._through_line(update.tokens) if self._is_late else update.tokens
        text, n_taken = self._push(self._indented([self._pieces[token] for token in tokens]))
        if last or self._is_limited:
            text += self._text.finish()
        self.n_tokens += n_taken
        chunk = Chunk(text, tokens[:n_taken], None if update.first else update.n_accepted)
        self._keep_step(update, chunk)
        self._keep_probs(update, chunk)
        return chunk

    def held_text(self) -> Chunk:
        """A chunk with the text that waits for the rest of a stop string, which does not come any more."""
        return Chunk(self._text.finish(), [], None)

    def _note_time(self) -> None:
        """That tokens came now."""
        self._latest = time.monotonic()
        self._first = self._first or self._latest

    def _count_pass(self, update: StepUpdate) -> None:
        self.n_passes += 1
        if not update.first:
            self._chosen.count_pass(update)

    @property
    def _is_late(self) -> bool:
        """Whether the latest tokens came after the time that the request allows from the first ones on."""
        return 0 < self.generation.request.time_limit_ms < 1e3 * (self._latest - self._first)

    def _through_line(self, tokens: list[int]) -> list[int]:
        """The tokens up to the first line end, where a late answer stops."""
        for length, token in enumerate(tokens, 1):
            if b"\n" in self._pieces[token]:
                self._is_limited = True
                return tokens[:length]
        return tokens

    def _indented(self, pieces: list[bytes]) -> list[bytes]:
        """The pieces up to the text of a line that is indented less than the request wants, which ends the answer."""
        if self._indentation is None:
            return pieces
        for index, piece in enumerate(pieces):
            if (end := self._indentation.end(piece)) is not None:
                self._is_limited = True
                return [*pieces[:index], piece[:end]]
        return pieces

    def _push(self, pieces: list[bytes]) -> tuple[str, int]:
        """The text that became final, and how many pieces were taken: all, or those up to the end of a stop string."""
        if not self.generation.request.stop:
            return self._text.push(b"".join(pieces)), len(pieces)
        text = ""
        for count, piece in enumerate(pieces, 1):
            text += self._text.push(piece)
            if self.stopped_by is not None:
                return text, count
        return text, len(pieces)

    def _keep_step(self, update: StepUpdate, chunk: Chunk) -> None:
        """What the pass verified and kept, if the request wants a trace or its drafts."""
        request = self.generation.request
        if not request.trace and not request.return_drafts:
            return
        step = _step_of(update, len(chunk.tokens))
        if request.trace and not update.first:
            self.generation.steps.append(step)
        if request.return_drafts:
            chunk.step = step

    def _keep_probs(self, update: StepUpdate, chunk: Chunk) -> None:
        """Probabilities of the chunk's tokens, and of the token that ended the answer, if the request wants them."""
        if not self.generation.request.n_probs:
            return
        probs, n_tokens = update.probs[update.n_prompt_probs :], len(chunk.tokens)
        chunk.probs = probs[:n_tokens]
        if not self.is_cut and len(probs) > n_tokens:
            chunk.end_prob = probs[-1]

    def timings(self, stats: SlotStats) -> Timings:
        """Timings of the answer so far, from the slot's `stats`."""
        # Like llama-server, this counts the token that ends an answer, although it has no text.
        timings = self._chosen.with_counts(stats, self.n_tokens if self.is_cut else stats.n_generated)
        if stats.n_generated:
            return timings
        # libdflash counts the prompt when the first token comes, and here none did.
        n_read = max(self.n_read - stats.n_cached, 0)
        prompt_ms = max(self._elapsed_ms - stats.t_queue_ms, 0.0) if n_read else 0.0
        return replace(timings, prompt_n=n_read, prompt_ms=prompt_ms)

    @property
    def is_cut(self) -> bool:
        """True if the answer was ended here, not by the engine."""
        return self._is_limited or self.stopped_by is not None

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
