"""Reply: what every shape of an answer has, and the parts that several share."""

from __future__ import annotations

import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, cast

from dflash_local.build.installation import installed_stamp
from dflash_local.generation import Chunk, Completion, Progress, Step, Timings
from dflash_local.server.encoding import encode
from dflash_local.server.formats.passes import ChoicePasses
from dflash_local.server.formats.probs import ChoiceProbs
from dflash_local.server.http_errors import openai_error
from dflash_local.server.shapes.answer import pick
from dflash_local.server.shapes.completion import Head, Verbose
from dflash_local.server.shapes.native import NativeCompletion
from dflash_local.server.shapes.timings import (
    DraftingAnswer,
    Measured,
    ProgressAnswer,
    PromptTokens,
    TimingsAnswer,
    Usage,
)

# Each format has its own shapes, TypedDicts of server/shapes/.
Body = Any
# A choice as llama-server's own completion has it.
VerboseOf = Callable[[int, Completion], NativeCompletion]


class Reply(ABC):
    """Builds the bodies of one response, whole or as the events of a stream. `index` is the choice.

    Args:
        probs: of each choice; none if nobody asked.
        passes: of each choice, with return_drafts.
        verbose: gives `__verbose`, if a request asks for it.
    """

    PREFIX: str  # of the answer's id
    TAIL = "data: [DONE]\n\n"  # what ends a stream
    MEDIA_TYPE = "text/event-stream"  # of a stream

    def __init__(
        self,
        model: str,
        probs: Sequence[ChoiceProbs] = (),
        passes: Sequence[ChoicePasses] = (),
        verbose: VerboseOf | None = None,
    ) -> None:
        self._probs, self.passes, self._verbose_of = probs, passes, verbose
        self._head: Head = {
            "id": self.PREFIX + secrets.token_hex(12),
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": fingerprint(),
        }

    @property
    def id(self) -> str:
        """The answer's name."""
        return self._head["id"]

    def frame(self, body: Body) -> str:
        """One server-sent event."""
        return f"data: {encode(body).decode()}\n\n"

    def failure(self, error: Exception) -> list[Body]:
        """Events for an error in the middle of a stream."""
        return [openai_error(error)[1]]

    def ping(self) -> str:
        """Keeps a silent stream open: by default a comment, which clients skip."""
        return ":\n\n"

    def progress(self, index: int, progress: Progress) -> list[Body]:
        """Events about how much of a choice's prompt has been read, before those of `begin`."""
        return []

    def begin(self, index: int) -> list[Body]:
        """Events before a choice's first text."""
        return []

    @abstractmethod
    def chunk(self, index: int, chunk: Chunk) -> list[Body]:
        """Events of one chunk; none while its text is held back."""

    def blank(self, index: int) -> Body:
        """An event without text, for a pass whose text is held back."""
        raise NotImplementedError(f"{type(self).__name__} has no place for passes")

    @abstractmethod
    def end(self, index: int, completion: Completion) -> list[Body]:
        """Events that close a choice."""

    @abstractmethod
    def whole(self, completions: list[Completion], n_prompts: int) -> Body:
        """The body of a response that is not streamed."""

    def usage_event(self, completions: list[Completion], n_prompts: int) -> Body:
        """The stream's last event, if the client asked for it."""
        raise NotImplementedError(f"{type(self).__name__} has no event for it")

    def close(self, events: list[Body], completions: list[Completion]) -> None:
        """Add to a stream's last event what only that one carries."""
        self.add_timings(events[-1], [done.timings for done in completions])
        events[-1] |= self._verbose(completions)

    def add_timings(self, event: Body, parts: list[Timings]) -> None:
        event |= timings(parts)

    def add_pass(self, event: Body, index: int, step: Step, tokens: Sequence[int]) -> None:
        """Add what a pass verified and the tokens that came of it; after `add_timings`, if both are wanted."""
        event.setdefault("dflash", {})["pass"] = self.passes[index].push(step, tokens)

    def _measured(self, completions: list[Completion]) -> Measured:
        """The timings of a whole answer; with return_drafts, its passes too."""
        found = timings([done.timings for done in completions])
        if self.passes:
            of_choices = zip(self.passes, completions, strict=True)
            found["dflash"]["passes"] = [one for passes, done in of_choices for one in passes.whole(done)]
        return found

    def _verbose(self, completions: list[Completion]) -> Verbose:
        return {} if self._verbose_of is None else {"__verbose": self._verbose_of(0, completions[0])}


def prompt_progress(progress: Progress) -> ProgressAnswer:
    """llama-server's `prompt_progress`."""
    return pick(ProgressAnswer, progress._asdict())


def usage(completions: list[Completion], n_prompts: int) -> Usage:
    """OpenAI's `usage`: each prompt counts once, however many choices it has."""
    step = len(completions) // n_prompts
    prompt = sum(done.prompt_tokens for done in completions[::step])
    completion = sum(len(done.tokens) for done in completions)
    found: Usage = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": _prompt_details(completions[::step]),
    }
    total = Timings.total(done.timings for done in completions)
    if total.prediction_n:
        found["completion_tokens_details"] = {
            "accepted_prediction_tokens": total.prediction_n_accepted,
            "rejected_prediction_tokens": total.prediction_n - total.prediction_n_accepted,
        }
    return found


def _prompt_details(completions: list[Completion]) -> PromptTokens:
    """Of the first completion of each prompt."""
    details: PromptTokens = {"cached_tokens": sum(done.cached_tokens for done in completions)}
    if n_image := sum(done.image_tokens for done in completions):
        details["image_tokens"] = n_image
    if n_audio := sum(done.audio_tokens for done in completions):
        details["audio_tokens"] = n_audio
    return details


def timings(parts: list[Timings]) -> Measured:
    """llama-server's `timings`, summed over the choices, and our own `dflash` beside it."""
    total = Timings.total(parts)
    return {"timings": cast(TimingsAnswer, total.to_dict()), "dflash": cast(DraftingAnswer, total.drafting())}


@cache
def fingerprint() -> str:
    """Our build and its llama.cpp commit, in the form of llama-server's build info."""
    stamp = installed_stamp() or {}
    return f"b{stamp.get('key', '0')[:8]}-{stamp.get('llama_cpp_commit', 'unknown')[:9]}"
