"""OpenAI's text completion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dflash_local.generation import Chunk, Completion, Progress
from dflash_local.server.formats.probs import ChoiceProbs, Placed
from dflash_local.server.formats.reply import Body, Reply


class Echoed(NamedTuple):
    """What `echo` repeats."""

    tokens: Sequence[int]
    text: str


class TextReply(Reply):
    """`/v1/completions`. `prompts`: of each choice, if its text begins with the prompt's."""

    PREFIX, OBJECT, CHUNK = "cmpl-", "text_completion", "text_completion"

    def __init__(self, model: str, probs: Sequence[ChoiceProbs] = (), prompts: Sequence[Echoed] = ()) -> None:
        super().__init__(model, probs)
        self._prompts = prompts

    def progress(self, index: int, progress: Progress) -> list[Body]:
        return [self._event(self.CHUNK, [_text_choice(index, "", None)], prompt_progress=progress._asdict())]

    def begin(self, index: int) -> list[Body]:
        if not self._prompts:
            return []
        logprobs = self._of_prompt(index) if self._probs else None
        return [self._event(self.CHUNK, [_text_choice(index, self._prompts[index].text, None, logprobs)])]

    def blank(self, index: int) -> Body:
        return self._event(self.CHUNK, [_text_choice(index, "", None)])

    def chunk(self, index: int, chunk: Chunk) -> list[Body]:
        logprobs = self._logprobs(index, self._probs[index].push(chunk)) if self._probs else None
        return [self._event(self.CHUNK, [_text_choice(index, chunk.text, None, logprobs)])] if chunk.text else []

    def end(self, index: int, completion: Completion) -> list[Body]:
        logprobs = self._logprobs(index, self._probs[index].finish(completion, with_end=True)) if self._probs else None
        return [self._event(self.CHUNK, [_text_choice(index, "", completion.finish_reason, logprobs)])]

    def whole(self, completions: list[Completion], n_prompts: int) -> Body:
        choices = [self._choice(index, completion) for index, completion in enumerate(completions)]
        return self._answer(choices, completions, n_prompts)

    def _choice(self, index: int, done: Completion) -> Body:
        logprobs = self._logprobs(index, self._probs[index].whole(done, with_end=True)) if self._probs else None
        if not self._prompts:
            return _text_choice(index, done.text, done.finish_reason, logprobs)
        if logprobs is not None:
            before = self._of_prompt(index)
            logprobs = {name: before[name] + logprobs[name] for name in logprobs}
        return _text_choice(index, self._prompts[index].text + done.text, done.finish_reason, logprobs)

    def _logprobs(self, index: int, placed: list[Placed]) -> Body:
        return self._probs[index].legacy(placed, len(self._prompts[index].text) if self._prompts else 0)

    def _of_prompt(self, index: int) -> Body:
        return self._probs[index].legacy(self._probs[index].prompt(*self._prompts[index]))


def _text_choice(index: int, text: str, finish_reason: str | None, logprobs: Body | None = None) -> Body:
    return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish_reason}
