"""llama-server's own completion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from dflash_local.engine import Engine
from dflash_local.generation import Chunk, Completion, Generation, Progress
from dflash_local.server.fields.completion import NativeFields
from dflash_local.server.fields.request import RequestFields
from dflash_local.server.formats.details import Details, details_of
from dflash_local.server.formats.reply import Body, Reply
from dflash_local.server.formats.reply_extras import ReplyExtras, extras_of
from dflash_local.server.formats.timings import prompt_progress, usage
from dflash_local.server.http_errors import native_error
from dflash_local.server.shapes import native as shapes


class NativeReply(Reply):
    """llama-server's `/completion`.

    Args:
        fields: the fields of an answer that the client wants, with `/` before names inside objects; empty: all.
    """

    PREFIX = ""
    TAIL = ""

    def __init__(self, model: str, extras: ReplyExtras, details: Details, fields: Sequence[str] = ()) -> None:
        super().__init__(model, extras)
        self._details, self._fields = details, fields
        self._n_tokens: Counter[int] = Counter()

    def progress(self, index: int, progress: Progress) -> list[shapes.NativeChunk]:
        return [{**event, "prompt_progress": prompt_progress(progress)} for event in self.blank(index)]

    def blank(self, index: int) -> list[shapes.NativeChunk]:
        return [self._part(index, "", [])]

    def chunk(self, index: int, chunk: Chunk) -> list[shapes.NativeChunk]:
        if not self._probs:
            self._n_tokens[index] += len(chunk.tokens)
            # Tokens without text, such as control tokens, are sent too.
            return [self._part(index, chunk.text, chunk.tokens)] if chunk.text or chunk.tokens else []
        probs, events = self._probs[index], list[shapes.NativeChunk]()
        for placed, text in probs.split(probs.push(chunk), chunk.text):
            self._n_tokens[index] += len(placed)
            event = self._part(index, text, [one.token for one in placed])
            events.append({**event, "completion_probabilities": probs.detailed(placed)})
        return events

    def end(self, index: int, completion: Completion) -> list[shapes.NativeCompletion | shapes.ChosenFields]:
        last: shapes.NativeCompletion = {**self._details.whole(index, completion), "content": "", "tokens": []}
        if self._probs and (placed := self._probs[index].finish(completion, with_end=True)):
            last["completion_probabilities"] = self._probs[index].detailed(placed)
        return [self._chosen(last)]

    def whole(self, completions: list[Completion], n_prompts: int) -> shapes.NativeAnswer:
        bodies = [self._details.whole(index, done) for index, done in enumerate(completions)]
        for index, probs in enumerate(self._probs):
            placed = probs.whole(completions[index], with_end=True)
            bodies[index]["completion_probabilities"] = probs.detailed(placed)
        for index, passes in enumerate(self.passes):
            bodies[index]["dflash"]["passes"] = passes.whole(completions[index])
        chosen = [self._chosen(body) for body in bodies]
        return chosen[0] if len(chosen) == 1 else chosen

    def failure(self, error: Exception) -> list[Body]:
        return [native_error(error)[1]]

    def usage(self, completions: list[Completion], n_prompts: int) -> list[shapes.NativeUsage]:
        return [{"stop": True, "usage": usage(completions, n_prompts)}]

    def close(self, events: list[Body], completions: list[Completion]) -> None:
        """The end of each choice has its timings."""

    def _part(self, index: int, text: str, tokens: list[int]) -> shapes.NativeChunk:
        return self._details.part(index, text, tokens, self._n_tokens[index])

    def _chosen(self, body: shapes.NativeCompletion) -> shapes.NativeCompletion | shapes.ChosenFields:
        if not self._fields:
            return body
        found = ((path, _inside(body, path)) for path in self._fields)
        return {path: value[0] for path, value in found if value}


def native_reply(
    engine: Engine, model: str, body: NativeFields, fields: RequestFields, generations: Sequence[Generation]
) -> NativeReply:
    """The reply of running generations; slow for long prompts."""
    details = details_of(engine, model, fields, generations, tokens=bool(body.return_tokens))
    return NativeReply(model, extras_of(engine, model, fields, generations), details, body.response_fields or ())


def _inside(body: Any, path: str) -> list[Any]:
    """The value at a path, in a list; an empty list if there is none."""
    for name in path.split("/"):
        if not isinstance(body, dict) or name not in body:
            return []
        body = body[name]
    return [body]
