"""OpenAI's text completion."""

from __future__ import annotations

from dflash_local.generation import Chunk, Completion, Progress
from dflash_local.server.formats.reply import Body, Reply


class TextReply(Reply):
    """`/v1/completions`."""

    PREFIX, OBJECT, CHUNK = "cmpl-", "text_completion", "text_completion"

    def progress(self, index: int, progress: Progress) -> list[Body]:
        return [self._event(self.CHUNK, [_text_choice(index, "", None)], prompt_progress=progress._asdict())]

    def chunk(self, index: int, chunk: Chunk) -> list[Body]:
        return [self._event(self.CHUNK, [_text_choice(index, chunk.text, None)])] if chunk.text else []

    def end(self, index: int, completion: Completion) -> list[Body]:
        return [self._event(self.CHUNK, [_text_choice(index, "", completion.finish_reason)])]

    def whole(self, completions: list[Completion], n_prompts: int) -> Body:
        choices = [_text_choice(index, done.text, done.finish_reason) for index, done in enumerate(completions)]
        return self._answer(choices, completions, n_prompts)


def _text_choice(index: int, text: str, finish_reason: str | None) -> Body:
    return {"index": index, "text": text, "logprobs": None, "finish_reason": finish_reason}
