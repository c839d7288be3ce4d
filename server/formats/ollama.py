"""Ollama's chats and texts."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Literal, NamedTuple, Protocol

from dflash_local.call_arguments import partial_arguments
from dflash_local.conversation import ChatCompletion
from dflash_local.generation import Chunk, Completion, Progress
from dflash_local.server.encoding import encode_line
from dflash_local.server.formats.events import NDJSON
from dflash_local.server.formats.probs import Placed
from dflash_local.server.formats.reply import Body, Reply
from dflash_local.server.formats.reply_extras import ReplyExtras
from dflash_local.server.formats.timings import prompt_progress
from dflash_local.server.http_errors import ollama_error
from dflash_local.server.shapes import ollama as shapes

Part = shapes.OllamaChat | shapes.OllamaText

_NANO, _MILLI = 1e9, 1e6  # nanoseconds of a second and of a millisecond


def timestamp(seconds: float | None = None) -> str:
    """A time since 1970, or now, as Ollama writes it."""
    when = datetime.now(timezone.utc) if seconds is None else datetime.fromtimestamp(seconds, timezone.utc)
    return when.isoformat().replace("+00:00", "Z")


def tag(name: str) -> str:
    """A model's name as Ollama lists it: with `:latest` unless it has a tag."""
    return name if ":" in name else f"{name}:latest"


@dataclass(frozen=True)
class Clock:
    """When a request came, and when its model was ready for it (`time.monotonic()`)."""

    began: float
    ready: float = field(default_factory=time.monotonic)

    def durations(self) -> shapes.OllamaFacts:
        """Nanoseconds until now, and until the model was ready."""
        now = time.monotonic()
        return {
            "total_duration": round((now - self.began) * _NANO),
            "load_duration": round((self.ready - self.began) * _NANO),
        }


class Parser(Protocol):
    """What finds thoughts and calls in an answer: AnswerParser."""

    def push(self, text: str) -> list[dict[str, Any]]: ...

    def finish(self, completion: Completion) -> tuple[list[dict[str, Any]], ChatCompletion]: ...

    def parse(self, completion: Completion) -> ChatCompletion: ...


class PlainText:
    """The parser of a text in which nothing is to be found."""

    def push(self, text: str) -> list[dict[str, Any]]:
        return [{"content": text}] if text else []

    def finish(self, completion: Completion) -> tuple[list[dict[str, Any]], ChatCompletion]:
        return [], self.parse(completion)

    def parse(self, completion: Completion) -> ChatCompletion:
        return ChatCompletion({"content": completion.text}, completion.finish_reason, completion)


class Said(NamedTuple):
    """What the model says."""

    text: str = ""
    thoughts: str = ""
    calls: Sequence[shapes.OllamaCallAnswer] = ()


_NOTHING = Said()


class OllamaReply(Reply):
    """A line of JSON for each part, or one answer."""

    PREFIX = ""
    TAIL = ""
    MEDIA_TYPE = NDJSON

    def __init__(self, model: str, extras: ReplyExtras, parser: Parser, clock: Clock) -> None:
        super().__init__(model, extras)
        self._parser, self._clock = parser, clock
        self._unsent: list[Placed] = []  # tokens of text that the parser holds back

    @abstractmethod
    def _part(self, said: Said = _NOTHING, chat: ChatCompletion | None = None) -> Part:
        """What is new; the last part, with `chat`, also says what is known at the end."""

    def _begun(self, *, done: bool) -> shapes.OllamaPart:
        return {"model": self._head["model"], "created_at": timestamp(), "done": done}

    # ---- a stream ----

    def frame(self, body: Body) -> str:
        return encode_line(body).decode() + "\n"

    def ping(self) -> str:
        """A part without text: clients take every line for JSON."""
        return self.frame(self._part())

    def failure(self, error: Exception) -> list[shapes.OllamaError]:
        return [ollama_error(error)[1]]

    def progress(self, index: int, progress: Progress) -> list[Part]:
        part = self._part()
        part["prompt_progress"] = prompt_progress(progress)
        return [part]

    def chunk(self, index: int, chunk: Chunk) -> list[Part]:
        parts = self._parts(self._parser.push(chunk.text))
        if self._probs:
            self._unsent += self._probs[0].push(chunk)
            self._add_logprobs(parts[:1])
        return parts

    def end(self, index: int, completion: Completion) -> list[Part]:
        deltas, chat = self._parser.finish(completion)
        parts = self._parts(deltas)
        if calls := _calls(chat.message):
            parts.append(self._part(Said(calls=calls)))
        parts.append(self._part(chat=chat))
        if self._probs:
            self._unsent += self._probs[0].finish(completion)
            self._add_logprobs(parts[:1] if self._unsent else [])
        return parts

    def close(self, events: list[Body], completions: list[Completion]) -> None:
        """Nothing: only events of timings_per_token have timings."""

    def _parts(self, deltas: list[dict[str, Any]]) -> list[Part]:
        """Parts with text; calls come whole, at the end."""
        parts = [Said(delta.get("content") or "", delta.get("reasoning_content") or "") for delta in deltas]
        return [self._part(said) for said in parts if said.text or said.thoughts]

    def _add_logprobs(self, parts: list[Part]) -> None:
        """The first part takes all tokens that are due."""
        for part in parts:
            part["logprobs"] = self._probs[0].detailed(self._unsent)
            self._unsent = []

    # ---- a whole answer ----

    def whole(self, completions: list[Completion], n_prompts: int) -> Part:
        chat = self._parser.parse(completions[0])
        message = chat.message
        said = Said(message.get("content") or "", message.get("reasoning_content") or "", _calls(message))
        answer = self._part(said, chat)
        if self._probs:
            answer["logprobs"] = self._probs[0].detailed(self._probs[0].whole(completions[0]))
        return answer

    def _facts(self, chat: ChatCompletion | None) -> shapes.OllamaFacts:
        """What the last part tells; for calls of tools Ollama has no `done_reason` but "stop"."""
        if chat is None:
            return {}
        done = chat.completion
        return {
            "done_reason": _done_reason(chat),
            **self._clock.durations(),
            "prompt_eval_count": done.prompt_tokens,
            "prompt_eval_duration": round(done.timings.prompt_ms * _MILLI),
            "eval_count": len(done.tokens),
            "eval_duration": round(done.timings.predicted_ms * _MILLI),
        }


class OllamaChatReply(OllamaReply):
    """`/api/chat`."""

    def _part(self, said: Said = _NOTHING, chat: ChatCompletion | None = None) -> shapes.OllamaChat:
        message: shapes.OllamaAssistant = {"role": "assistant", "content": said.text}
        if said.thoughts:
            message["thinking"] = said.thoughts
        if said.calls:
            message["tool_calls"] = list(said.calls)
        return {**self._begun(done=chat is not None), "message": message, **self._facts(chat)}


class OllamaTextReply(OllamaReply):
    """`/api/generate`; `context` is the prompt's tokens, None if the end has no place for them."""

    def __init__(
        self, model: str, extras: ReplyExtras, parser: Parser, clock: Clock, context: Sequence[int] | None = None
    ) -> None:
        super().__init__(model, extras, parser, clock)
        self._context = context

    def _part(self, said: Said = _NOTHING, chat: ChatCompletion | None = None) -> shapes.OllamaText:
        part: shapes.OllamaText = {**self._begun(done=chat is not None), "response": said.text}
        if said.thoughts:
            part["thinking"] = said.thoughts
        part.update(self._facts(chat))
        if chat is not None and self._context is not None:
            part["context"] = [*self._context, *chat.completion.tokens]
        return part


def _calls(message: dict[str, Any]) -> list[shapes.OllamaCallAnswer]:
    return [
        {
            "id": call["id"],
            "function": {
                "index": index,
                "name": call["function"]["name"],
                "arguments": partial_arguments(call["function"]["arguments"]),
            },
        }
        for index, call in enumerate(message.get("tool_calls", ()))
    ]


def empty_part(path: str, model: str, **more: Any) -> dict[str, Any]:
    """A part of the answer of the endpoint at `path` without text."""
    said = {"message": {"role": "assistant", "content": ""}} if path.endswith("/chat") else {"response": ""}
    return {"model": model, "created_at": timestamp(), "done": False} | said | more


def _done_reason(chat: ChatCompletion) -> Literal["stop", "length", "cancelled"]:
    """A call that a stop string cut, or that broke its format, is as unfinished as one that a limit cut."""
    if chat.finish_reason == "tool_calls":
        return "stop"
    return "length" if chat.is_cut else chat.finish_reason
