"""OpenAI's chat completion."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from dflash_local.conversation import AnswerParser, ChatCompletion
from dflash_local.generation import Chunk, Completion, Progress
from dflash_local.server.formats.probs import Placed
from dflash_local.server.formats.reply import Reply
from dflash_local.server.formats.reply_extras import ReplyExtras
from dflash_local.server.formats.timings import prompt_progress, usage
from dflash_local.server.shapes import chat as shapes
from dflash_local.server.shapes.probs import ChatLogprobs
from dflash_local.server.shapes.timings import CompletionTokens, Usage

Count = Callable[[str, Completion], int]


class ChatReply(Reply):
    """`/v1/chat/completions`; needs one parser per choice, and what counts an answer's tokens through a part of it."""

    PREFIX = "chatcmpl-"

    def __init__(self, model: str, extras: ReplyExtras, parsers: list[AnswerParser], counts: Sequence[Count]) -> None:
        super().__init__(model, extras)
        self._parsers, self._counts = parsers, counts
        self._n_thoughts = 0
        self._unsent: list[list[Placed]] = [[] for _ in parsers]  # tokens of text that the parsers hold back

    def _event(self, choices: list[shapes.ChatDeltaChoice]) -> shapes.ChatCompletionChunk:
        return {**self._head, "object": "chat.completion.chunk", "choices": choices}

    def _delta(
        self, index: int, delta: shapes.Delta, finish_reason: shapes.FinishReason | None = None
    ) -> shapes.ChatCompletionChunk:
        return self._event([{"index": index, "delta": delta, "finish_reason": finish_reason}])

    def progress(self, index: int, progress: Progress) -> list[shapes.ChatCompletionChunk]:
        return [{**event, "prompt_progress": prompt_progress(progress)} for event in self.begin(index)]

    def begin(self, index: int) -> list[shapes.ChatCompletionChunk]:
        return [self._delta(index, {"role": "assistant", "content": None})]

    def blank(self, index: int) -> list[shapes.ChatCompletionChunk]:
        return [self._delta(index, {})]

    def chunk(self, index: int, chunk: Chunk) -> list[shapes.ChatCompletionChunk]:
        deltas: list[Any] = self._parsers[index].push(chunk.text)  # shaped by llama.cpp
        events = [self._delta(index, delta) for delta in deltas]
        if self._probs:
            self._unsent[index] += self._probs[index].push(chunk)
            self._add_logprobs(index, events)
        return events

    def end(self, index: int, completion: Completion) -> list[shapes.ChatCompletionChunk]:
        deltas, chat = self._parsers[index].finish(completion)
        self._count_thoughts(index, chat)
        events = [self._delta(index, cast(shapes.Delta, delta)) for delta in deltas]
        if self._probs:
            self._unsent[index] += self._probs[index].finish(completion)
            if self._unsent[index] and not events:
                events.append(self._delta(index, {}))
            self._add_logprobs(index, events)
        return [*events, self._delta(index, {}, chat.finish_reason)]

    def _add_logprobs(self, index: int, events: list[shapes.ChatCompletionChunk]) -> None:
        """The first event takes all tokens that are due."""
        for event in events:
            event["choices"][0]["logprobs"] = self._logprobs(index, self._unsent[index])
            self._unsent[index] = []

    def _logprobs(self, index: int, placed: list[Placed]) -> ChatLogprobs:
        return {"content": self._probs[index].detailed(placed), "refusal": None}

    def whole(self, completions: list[Completion], n_prompts: int) -> shapes.ChatCompletion:
        chats = [parser.parse(completion) for parser, completion in zip(self._parsers, completions, strict=True)]
        for index, chat in enumerate(chats):
            self._count_thoughts(index, chat)
        choices: list[shapes.ChatChoice] = [
            {
                "index": index,
                "message": cast(shapes.AssistantMessage, chat.message),
                "finish_reason": chat.finish_reason,
            }
            for index, chat in enumerate(chats)
        ]
        for index, probs in enumerate(self._probs):
            choices[index]["logprobs"] = self._logprobs(index, probs.whole(completions[index]))
        return {
            **self._head,
            "object": "chat.completion",
            "choices": choices,
            "usage": self._usage(completions, n_prompts),
            **self._measured(completions),
            **self._verbose(completions),
        }

    def usage(self, completions: list[Completion], n_prompts: int) -> list[shapes.ChatCompletionChunk]:
        return [{**self._event([]), "usage": self._usage(completions, n_prompts)}]

    def _usage(self, completions: list[Completion], n_prompts: int) -> Usage:
        found = usage(completions, n_prompts)
        details: CompletionTokens = {"reasoning_tokens": self._n_thoughts}
        return {**found, "completion_tokens_details": {**details, **found.get("completion_tokens_details", {})}}

    def _count_thoughts(self, index: int, chat: ChatCompletion) -> None:
        thoughts = chat.message.get("reasoning_content") or ""
        self._n_thoughts += self._counts[index](thoughts, chat.completion)
