"""Chat: from OpenAI's messages to a prompt, and from the answer's text to OpenAI's deltas and message.

Templates, tool calls, reasoning and schemas are llama.cpp's `common/chat`; nothing here knows a model's format.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dflash_local.arguments import to_json
from dflash_local.call_arguments import is_closed, with_usable_arguments
from dflash_local.generation import Chunk, Completion, FinishReason, Generation, Stream, Timings
from dflash_local.media.content_parts import MarkedConversation
from dflash_local.media.medium import Medium
from dflash_local.native import NativeEngine

# The fields of a request body that `Engine.apply_chat` reads; all others are about sampling or transport.
CHAT_FIELDS = frozenset({
    "messages", "tools", "tool_choice", "parallel_tool_calls", "response_format", "json_schema", "grammar",
    "chat_template_kwargs", "reasoning_format", "enable_thinking", "add_generation_prompt", "continue_final_message",
    "force_pure_content",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A rendered conversation: the prompt, stop strings and sampling fields its format needs, the answer's parser
    (JSON), the names of fields that neither llama.cpp nor the template uses ("messages[].mood"), and the media for
    which markers stand in the prompt, in order, with their places ("messages[0].content[1].image_url")."""

    prompt: str
    stops: tuple[str, ...]
    sampling: dict[str, Any]
    parser: str
    ignored: tuple[str, ...] = ()
    media: tuple[Medium, ...] = ()
    places: tuple[str, ...] = ()

    @classmethod
    def of(cls, applied: dict[str, Any], conversation: MarkedConversation | None = None) -> ChatPrompt:
        """From dflash_chat_apply(), which was given `conversation`, if that may have media. Raises RequestError if one
        of them was lost."""
        prompt, unused = applied["prompt"], list[str]()
        media, places = tuple[Medium, ...](), tuple[str, ...]()
        if conversation is not None:
            prompt, media, places = conversation.placed(prompt)
            unused = conversation.ignored
        return cls(
            prompt,
            tuple(applied["stops"]),
            applied["sampling"],
            json.dumps(applied["parser"]),
            (*applied.get("ignored", ()), *dict.fromkeys(unused)),
            media,
            places,
        )


@dataclass(slots=True)
class ChatCompletion:
    """A finished chat answer: `message` in OpenAI's shape ("role", "content", "reasoning_content"?, "tool_calls"?)."""

    message: dict[str, Any]
    finish_reason: FinishReason | Literal["tool_calls"]
    completion: Completion

    @property
    def text(self) -> str:
        """The visible answer."""
        return self.message.get("content") or ""

    @property
    def timings(self) -> Timings:
        return self.completion.timings

    @property
    def is_cut(self) -> bool:
        """Whether it ended in the middle: at a limit, or inside a call, at a stop string or by breaking its format."""
        return self.finish_reason == "length" or (self.finish_reason == "stop" and "tool_calls" in self.message)


@dataclass(slots=True)
class ChatDelta:
    """One change of the message in OpenAI's shape. The last one is empty and has `finish_reason` and `completion`.

    With `return_drafts`, an empty one with the pass as its `chunk` comes before the changes that the pass made.
    """

    delta: dict[str, Any]
    finish_reason: str | None = None
    completion: Completion | None = None
    chunk: Chunk | None = None

    @property
    def content(self) -> str | None:
        """The visible text of this change, if it has any."""
        return self.delta.get("content")


class AnswerParser:
    """Parses one answer as it grows."""

    def __init__(self, native: NativeEngine, prompt: ChatPrompt) -> None:
        self._chat = native.chat_new(prompt.parser)
        self._begun = -1  # the last call of which an argument was written

    def push(self, text: str) -> list[dict[str, Any]]:
        """The deltas for more text."""
        return self._noted(self._chat.push(text, False)) if text else []

    def _noted(self, deltas: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The same deltas, of which the last call with arguments is kept in mind."""
        for call in (call for delta in deltas for call in delta.get("tool_calls", ())):
            if call["function"].get("arguments"):
                self._begun = call["index"]
        return deltas

    def finish(self, completion: Completion, text: str = "") -> tuple[list[dict[str, Any]], ChatCompletion]:
        """The deltas that the end of the text completes, and the finished answer. `text` is all of it, if nothing was
        pushed; it is parsed twice only where `_is_whole` needs what was written before the end."""
        deltas = []
        if completion.stopped_by is not None:
            deltas, text = self._noted(self._chat.push(text, False)), ""  # an empty piece does not wait for more
        deltas += self._chat.push(text, True)
        message = self._chat.message()
        # At a stop string or a fault inside a call it is as unfinished as at a limit: nobody should run it.
        whole = self._is_whole(message.get("tool_calls") or [], stopped=completion.stopped_by is not None)
        called = completion.finish_reason == "stop" and whole
        return deltas, ChatCompletion(message, "tool_calls" if called else completion.finish_reason, completion)

    def _is_whole(self, calls: Sequence[Mapping[str, Any]], *, stopped: bool) -> bool:
        """Whether there are calls, and the last has all of its arguments. One that wrote none has {} at the end, which
        at a stop string may stand for arguments that were to come."""
        if not calls or (stopped and self._begun != len(calls) - 1):
            return False
        return is_closed(calls[-1]["function"]["arguments"])

    def parse(self, completion: Completion) -> ChatCompletion:
        """The finished answer from its whole text."""
        return self.whole(completion)[1]

    def whole(self, completion: Completion) -> tuple[list[dict[str, Any]], ChatCompletion]:
        """All deltas and the finished answer from its whole text."""
        return self.finish(completion, completion.text)


def stream_deltas(parser: AnswerParser, generation: Generation) -> Stream[ChatDelta]:
    """The deltas of a running generation, which is cancelled when the iterator is closed early."""
    return Stream(generation, _deltas(parser, generation))


def _deltas(parser: AnswerParser, generation: Generation) -> Iterator[ChatDelta]:
    for chunk in generation:
        if generation.request.return_drafts:
            yield ChatDelta({}, chunk=chunk)
        for delta in parser.push(chunk.text):
            yield ChatDelta(delta)
    last_deltas, chat = parser.finish(generation.result())
    for delta in last_deltas:
        yield ChatDelta(delta)
    yield ChatDelta({}, chat.finish_reason, chat.completion)


def chat_body(body: Mapping[str, Any]) -> str:
    """The JSON that dflash_chat_apply() reads: the CHAT_FIELDS of `body` that are not null."""
    fields = {name: value for name, value in body.items() if name in CHAT_FIELDS and value is not None}
    if "messages" in fields:
        fields["messages"] = with_usable_arguments(fields["messages"])
    return to_json(fields)


def without_names(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]] | None:
    """A conversation without its authors' names; None if there are none. A tool's name stays: it repeats the call's."""
    named = [bool(message.get("name")) and message["role"] not in ("tool", "function") for message in messages]
    if not any(named):
        return None
    return [
        {key: value for key, value in message.items() if key != "name"} if has_name else message
        for message, has_name in zip(messages, named, strict=True)
    ]
