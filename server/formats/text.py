"""OpenAI's text completion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dflash_local.generation import Chunk, Completion, FinishReason, Progress
from dflash_local.server.formats.probs import Placed
from dflash_local.server.formats.reply import Reply
from dflash_local.server.formats.reply_extras import ReplyExtras
from dflash_local.server.formats.timings import prompt_progress, usage
from dflash_local.server.shapes.probs import TextLogprobs
from dflash_local.server.shapes.text import TextChoice, TextCompletion, TextCompletionChunk


class Echoed(NamedTuple):
    """What `echo` repeats."""

    tokens: Sequence[int]
    text: str


class TextReply(Reply):
    """`/v1/completions`. `prompts`: of each choice, if its text begins with the prompt's."""

    PREFIX = "cmpl-"

    def __init__(self, model: str, extras: ReplyExtras, prompts: Sequence[Echoed] = ()) -> None:
        super().__init__(model, extras)
        self._prompts = prompts

    def _event(self, choices: list[TextChoice]) -> TextCompletionChunk:
        return {**self._head, "object": "text_completion", "choices": choices}

    def progress(self, index: int, progress: Progress) -> list[TextCompletionChunk]:
        return [{**event, "prompt_progress": prompt_progress(progress)} for event in self.blank(index)]

    def begin(self, index: int) -> list[TextCompletionChunk]:
        if not self._prompts:
            return []
        logprobs = self._of_prompt(index) if self._probs else None
        return [self._event([_text_choice(index, self._prompts[index].text, None, logprobs)])]

    def blank(self, index: int) -> list[TextCompletionChunk]:
        return [self._event([_text_choice(index, "", None)])]

    def chunk(self, index: int, chunk: Chunk) -> list[TextCompletionChunk]:
        logprobs = self._logprobs(index, self._probs[index].push(chunk)) if self._probs else None
        return [self._event([_text_choice(index, chunk.text, None, logprobs)])] if chunk.text else []

    def end(self, index: int, completion: Completion) -> list[TextCompletionChunk]:
        logprobs = self._logprobs(index, self._probs[index].finish(completion, with_end=True)) if self._probs else None
        return [self._event([_text_choice(index, "", completion.finish_reason, logprobs)])]

    def whole(self, completions: list[Completion], n_prompts: int) -> TextCompletion:
        return {
            **self._head,
            "object": "text_completion",
            "choices": [self._choice(index, completion) for index, completion in enumerate(completions)],
            "usage": usage(completions, n_prompts),
            **self._measured(completions),
            **self._verbose(completions),
        }

    def usage(self, completions: list[Completion], n_prompts: int) -> list[TextCompletionChunk]:
        return [{**self._event([]), "usage": usage(completions, n_prompts)}]

    def _choice(self, index: int, done: Completion) -> TextChoice:
        logprobs = self._logprobs(index, self._probs[index].whole(done, with_end=True)) if self._probs else None
        if not self._prompts:
            return _text_choice(index, done.text, done.finish_reason, logprobs)
        if logprobs is not None:
            logprobs = _joined(self._of_prompt(index), logprobs)
        return _text_choice(index, self._prompts[index].text + done.text, done.finish_reason, logprobs)

    def _logprobs(self, index: int, placed: list[Placed]) -> TextLogprobs:
        return self._probs[index].legacy(placed, len(self._prompts[index].text) if self._prompts else 0)

    def _of_prompt(self, index: int) -> TextLogprobs:
        return self._probs[index].legacy(self._probs[index].prompt(*self._prompts[index]))


def _joined(first: TextLogprobs, then: TextLogprobs) -> TextLogprobs:
    return {
        "tokens": first["tokens"] + then["tokens"],
        "token_logprobs": first["token_logprobs"] + then["token_logprobs"],
        "top_logprobs": first["top_logprobs"] + then["top_logprobs"],
        "text_offset": first["text_offset"] + then["text_offset"],
    }


def _text_choice(
    index: int, text: str, finish_reason: FinishReason | None, logprobs: TextLogprobs | None = None
) -> TextChoice:
    return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish_reason}
