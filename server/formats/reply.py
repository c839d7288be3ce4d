"""Reply: builds one answer in the format of its endpoint; here is what all formats share."""

from __future__ import annotations

import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache
from typing import Any

from dflash_local.build.installed_build import installed_stamp
from dflash_local.generation import Chunk, Completion, Progress, Step, Timings
from dflash_local.server.encoding import encode_line
from dflash_local.server.formats.reply_extras import NO_EXTRAS, ReplyExtras
from dflash_local.server.formats.timings import timings
from dflash_local.server.http_errors import openai_error
from dflash_local.server.shapes.completion import Head, Verbose
from dflash_local.server.shapes.timings import Measured

# Each format has its own shapes, TypedDicts of server/shapes/.
Body = Any


class Reply(ABC):
    """Builds the bodies of one response, whole or as the events of a stream. `index` is the choice. What a format has
    no place for is no event: only `chunk`, `end` and `whole` must be there.

    Args:
        extras: what the request wants beyond the text, as far as the format has a place for it.
    """

    PREFIX: str  # of the answer's id
    TAIL = "data: [DONE]\n\n"  # what ends a stream
    MEDIA_TYPE = "text/event-stream"  # of a stream

    def __init__(self, model: str, extras: ReplyExtras = NO_EXTRAS) -> None:
        self._probs, self.passes, self._verbose_of = extras.probs, extras.passes, extras.verbose
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
        return f"data: {encode_line(body).decode()}\n\n"

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

    def blank(self, index: int) -> list[Body]:
        """An event without text, for a pass whose text is held back; none in formats without passes."""
        return []

    @abstractmethod
    def end(self, index: int, completion: Completion) -> list[Body]:
        """Events that close a choice."""

    @abstractmethod
    def whole(self, completions: list[Completion], n_prompts: int) -> Body:
        """The body of a response that is not streamed."""

    def usage(self, completions: list[Completion], n_prompts: int) -> list[Body]:
        """The stream's last event, if the client asked for it; none in formats that always tell their usage."""
        return []

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


@cache
def fingerprint() -> str:
    """Our build and its llama.cpp commit, in the form of llama-server's build info."""
    stamp = installed_stamp() or {}
    return f"b{stamp.get('key', '0')[:8]}-{stamp.get('llama_cpp_commit', 'unknown')[:9]}"
