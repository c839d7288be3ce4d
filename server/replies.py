"""The shapes of answers: OpenAI's chat and completion objects, and llama-server's own `/completion`."""

from __future__ import annotations

import secrets
import time
from abc import ABC, abstractmethod
from typing import Any

from dflash_local import __version__
from dflash_local.conversation import ChatAnswer
from dflash_local.generation import Chunk, Completion, Timings

Body = dict[str, Any]


class Reply(ABC):
    """Builds the bodies of one response, whole or as the events of a stream. `index` is the choice."""

    PREFIX: str
    OBJECT: str
    CHUNK: str

    def __init__(self, model: str) -> None:
        self._head = {
            "id": self.PREFIX + secrets.token_hex(12),
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": f"dflash-local-{__version__}",
        }

    def begin(self, index: int) -> list[Body]:
        """Events before a choice's first text."""
        return []

    @abstractmethod
    def chunk(self, index: int, chunk: Chunk) -> list[Body]:
        """Events of one chunk; none while its text is held back."""

    @abstractmethod
    def end(self, index: int, completion: Completion) -> list[Body]:
        """Events that close a choice."""

    @abstractmethod
    def whole(self, completions: list[Completion], n_prompts: int) -> Body:
        """The body of a response that is not streamed."""

    def usage_event(self, completions: list[Completion], n_prompts: int) -> Body:
        """The stream's last event, if the client asked for it."""
        return self._event(self.CHUNK, [], usage=usage(completions, n_prompts))

    def _event(self, kind: str, choices: list[Body], **more: Any) -> Body:
        return {**self._head, "object": kind, "choices": choices, **more}

    def _answer(self, choices: list[Body], completions: list[Completion], n_prompts: int) -> Body:
        return self._event(self.OBJECT, choices, usage=usage(completions, n_prompts), timings=timings(completions))


class ChatReply(Reply):
    """`/v1/chat/completions`; needs one parser per choice."""

    PREFIX, OBJECT, CHUNK = "chatcmpl-", "chat.completion", "chat.completion.chunk"

    def __init__(self, model: str, answers: list[ChatAnswer]) -> None:
        super().__init__(model)
        self._answers = answers

    def _delta(self, index: int, delta: Body, finish_reason: str | None = None) -> Body:
        return self._event(self.CHUNK, [{"index": index, "delta": delta, "finish_reason": finish_reason}])

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


class TextReply(Reply):
    """`/v1/completions`."""

    PREFIX, OBJECT, CHUNK = "cmpl-", "text_completion", "text_completion"

    def chunk(self, index: int, chunk: Chunk) -> list[Body]:
        return [self._event(self.CHUNK, [_text_choice(index, chunk.text, None)])] if chunk.text else []

    def end(self, index: int, completion: Completion) -> list[Body]:
        return [self._event(self.CHUNK, [_text_choice(index, "", completion.finish_reason)])]

    def whole(self, completions: list[Completion], n_prompts: int) -> Body:
        choices = [_text_choice(index, done.text, done.finish_reason) for index, done in enumerate(completions)]
        return self._answer(choices, completions, n_prompts)


class NativeReply(Reply):
    """llama-server's `/completion`."""

    PREFIX, OBJECT, CHUNK = "", "", ""

    def chunk(self, index: int, chunk: Chunk) -> list[Body]:
        return [{"index": index, "content": chunk.text, "tokens": chunk.tokens, "stop": False}] if chunk.text else []

    def end(self, index: int, completion: Completion) -> list[Body]:
        return [{**self._whole(index, completion), "content": "", "tokens": []}]

    def whole(self, completions: list[Completion], n_prompts: int) -> Body:
        bodies = [self._whole(index, completion) for index, completion in enumerate(completions)]
        return bodies[0] if len(bodies) == 1 else {"results": bodies, "timings": timings(completions)}

    def usage_event(self, completions: list[Completion], n_prompts: int) -> Body:
        return {"stop": True, "usage": usage(completions, n_prompts)}

    def _whole(self, index: int, done: Completion) -> Body:
        stop_type = "word" if done.stopped_by is not None else "eos" if done.finish_reason == "stop" else "limit"
        return {
            "index": index,
            "content": done.text,
            "tokens": done.tokens,
            "stop": True,
            "model": self._head["model"],
            "tokens_predicted": len(done.tokens),
            "tokens_evaluated": done.prompt_tokens,
            "tokens_cached": done.cached_tokens,
            "stop_type": stop_type,
            "stopping_word": done.stopped_by or "",
            "timings": done.timings.to_dict(),
        }


def _text_choice(index: int, text: str, finish_reason: str | None) -> Body:
    return {"index": index, "text": text, "logprobs": None, "finish_reason": finish_reason}


def usage(completions: list[Completion], n_prompts: int) -> Body:
    """OpenAI's `usage`: each prompt counts once, however many choices it has."""
    step = len(completions) // n_prompts
    prompt = sum(done.prompt_tokens for done in completions[::step])
    completion = sum(len(done.tokens) for done in completions)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(done.cached_tokens for done in completions[::step])},
    }


def timings(completions: list[Completion]) -> Body:
    """llama-server's `timings`, summed over the choices."""
    return Timings.total(done.timings for done in completions).to_dict()
