"""OpenAI's chat completion."""

from __future__ import annotations

from dflash_local.conversation import ChatAnswer
from dflash_local.generation import Chunk, Completion, Progress
from dflash_local.server.formats.reply import Body, Reply


class ChatReply(Reply):
    """`/v1/chat/completions`; needs one parser per choice."""

    PREFIX, OBJECT, CHUNK = "chatcmpl-", "chat.completion", "chat.completion.chunk"

    def __init__(self, model: str, answers: list[ChatAnswer]) -> None:
        super().__init__(model)
        self._answers = answers

    def _delta(self, index: int, delta: Body, finish_reason: str | None = None) -> Body:
        return self._event(self.CHUNK, [{"index": index, "delta": delta, "finish_reason": finish_reason}])

    def progress(self, index: int, progress: Progress) -> list[Body]:
        return [event | {"prompt_progress": progress._asdict()} for event in self.begin(index)]

    def begin(self, index: int) -> list[Body]:
        return [self._delta(index, {"role": "assistant", "content": None})]

    def chunk(self, index: int, chunk: Chunk) -> list[Body]:
        return [self._delta(index, delta) for delta in self._answers[index].push(chunk.text)]

    def end(self, index: int, completion: Completion) -> list[Body]:
        deltas, chat = self._answers[index].finish(completion)
        return [*(self._delta(index, delta) for delta in deltas), self._delta(index, {}, chat.finish_reason)]

    def whole(self, completions: list[Completion], n_prompts: int) -> Body:
        answers = [answer.parse(completion) for answer, completion in zip(self._answers, completions, strict=True)]
        choices = [
            {"index": index, "message": answer.message, "finish_reason": answer.finish_reason}
            for index, answer in enumerate(answers)
        ]
        return self._answer(choices, completions, n_prompts)
