"""OpenAI's response."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any

from typing_extensions import Unpack

from dflash_local.conversation import AnswerParser, ChatCompletion
from dflash_local.generation import Chunk, Completion, Progress
from dflash_local.server.fields.request import RequestFields
from dflash_local.server.fields.responses import ResponsesRequest, ToolName
from dflash_local.server.formats.events import named_event
from dflash_local.server.formats.reply import Reply
from dflash_local.server.formats.timings import prompt_progress, timings
from dflash_local.server.http_errors import RESPONSES
from dflash_local.server.shapes import responses as shapes
from dflash_local.server.thoughts import seal

Count = Callable[[str, Completion], int]


class ResponsesReply(Reply):
    """`/v1/responses`, one answer.

    Args:
        echo: what a response repeats of its request.
        names: what the client calls the functions.
        count: tokens of an answer up to the end of a part of its text.
    """

    PREFIX = "resp_"
    TAIL = ""

    def __init__(
        self,
        model: str,
        parser: AnswerParser | None,
        *,
        echo: shapes.ResponseEcho,
        names: Mapping[str, ToolName],
        count: Count,
    ) -> None:
        super().__init__(model)
        self._parser_or_none, self._echo, self._count = parser, echo, count
        self._events = _Events()
        self._output = _Output(names, self._events)

    def frame(self, body: shapes.ResponseEvent) -> str:
        return named_event(body)

    def begin(self, index: int) -> list[shapes.ResponseEvent]:
        if self._events.n:
            return []
        response = self._response("in_progress", _NOTHING_YET)
        return [self._events.next(f"response.{kind}", response=response) for kind in ("created", "in_progress")]

    def ping(self) -> str:
        """An event, not a comment: Codex gives up on streams without events for five minutes."""
        return "".join(self.frame(event) for event in self.begin(0) or [self._still_in_progress()])

    def progress(self, index: int, progress: Progress) -> list[shapes.ResponseEvent]:
        begun, event = self.begin(index), self._still_in_progress()
        event["prompt_progress"] = prompt_progress(progress)
        return [*begun, event]

    def _still_in_progress(self) -> shapes.ResponseEvent:
        return self._events.next("response.in_progress", response=self._response("in_progress", _NOTHING_YET))

    def chunk(self, index: int, chunk: Chunk) -> list[shapes.ResponseEvent]:
        return self._output.grow(self._parser.push(chunk.text))

    def end(self, index: int, completion: Completion) -> list[shapes.ResponseEvent]:
        deltas, chat = self._parser.finish(completion)
        events = self._output.grow(deltas) + self._output.finish(cut=chat.is_cut)
        response = self._finished(chat)
        return [*events, self._events.next(f"response.{response['status']}", response=response)]

    def whole(self, completions: list[Completion], n_prompts: int) -> shapes.ResponseAnswer:
        deltas, chat = self._parser.whole(completions[0])
        self._output.grow(deltas)
        self._output.finish(cut=chat.is_cut)
        return {**self._finished(chat), **timings([done.timings for done in completions])}

    def failure(self, error: Exception) -> list[shapes.ResponseEvent]:
        """As OpenAI does, also for a prompt that is too long: by this, clients learn to shorten it."""
        detail = RESPONSES.error(error)[1]["error"]
        code = detail["code"] if detail["code"] == "context_length_exceeded" else "server_error"
        response = self._response("failed", {**_NOTHING_YET, "error": {"code": code, "message": detail["message"]}})
        return [*self.begin(0), self._events.next("response.failed", response=response)]

    @property
    def _parser(self) -> AnswerParser:
        assert self._parser_or_none is not None, "a response that failed at once generates nothing"
        return self._parser_or_none

    def _finished(self, chat: ChatCompletion) -> shapes.ResponseAnswer:
        completion = chat.completion
        cut = chat.is_cut
        outcome: shapes.ResponseOutcome = {
            "completed_at": None if cut else int(time.time()),
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if chat.finish_reason == "length" else None,
            "output": self._output.items,
            "usage": {
                "input_tokens": completion.prompt_tokens,
                "input_tokens_details": {"cached_tokens": completion.cached_tokens, "cache_write_tokens": 0},
                "output_tokens": len(completion.tokens),
                "output_tokens_details": {"reasoning_tokens": self._count(self._output.thoughts, completion)},
                "total_tokens": completion.prompt_tokens + len(completion.tokens),
            },
        }
        return self._response("incomplete" if cut else "completed", outcome)

    def _response(self, status: shapes.ResponseStatus, outcome: shapes.ResponseOutcome) -> shapes.ResponseAnswer:
        return {
            "id": self._head["id"],
            "object": "response",
            "created_at": self._head["created"],
            "status": status,
            "background": False,
            "model": self._head["model"],
            "previous_response_id": None,
            "service_tier": "default",
            "store": False,
            "truncation": "disabled",
            **self._echo,
            **outcome,
        }


_NOTHING_YET: shapes.ResponseOutcome = {
    "completed_at": None,
    "error": None,
    "incomplete_details": None,
    "output": [],
    "usage": None,
}


def echo(body: ResponsesRequest, fields: RequestFields) -> shapes.ResponseEcho:
    """What a response repeats of its request, with the defaults of what the request left out."""
    limit = fields.options["max_tokens"]
    text: dict[str, Any] = {"format": {"type": "text"}}
    if body.text is not None:
        text = text | body.text.given()
        if body.text.format is not None:
            text["format"] = {"name": "answer", **body.text.format.given()}
    return {
        "instructions": body.instructions,
        "max_output_tokens": limit if limit >= 0 else None,
        "max_tool_calls": body.max_tool_calls,
        "metadata": body.metadata or {},
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "prompt_cache_key": body.prompt_cache_key,
        "reasoning": {"effort": body.reasoning and body.reasoning.effort, "summary": None},
        "safety_identifier": body.safety_identifier,
        "temperature": fields.sampling.temperature,
        "text": text,
        "tool_choice": "auto" if body.tool_choice is None else body.tool_choice,
        "tools": body.used_tools,
        "top_logprobs": 0,
        "top_p": fields.sampling.top_p,
        "user": body.user,
    }


class _Events:
    """Numbers the events of a response."""

    def __init__(self) -> None:
        self.n = 0

    def next(self, kind: str, **fields: Unpack[shapes.EventFields]) -> shapes.ResponseEvent:
        self.n += 1
        return {"type": kind, **fields, "sequence_number": self.n - 1}


class _Output:
    """The items of a response, and the events of their growth."""

    def __init__(self, names: Mapping[str, ToolName], events: _Events) -> None:
        self.items: list[shapes.OutputItem] = []
        self.thoughts = ""
        self._names, self._events = names, events
        self._text: list[str] = []  # of the last item, while it may grow
        self._open = False
        self._calls: dict[int, int] = {}  # the parser's calls: their items

    def grow(self, deltas: list[dict[str, Any]]) -> list[shapes.ResponseEvent]:
        """Take more of the answer."""
        events: list[shapes.ResponseEvent] = []
        for delta in deltas:
            if thoughts := delta.get("reasoning_content"):
                self.thoughts += thoughts
                if not self._grows("reasoning"):
                    new: shapes.OutputItem = {"type": "reasoning", **_begun("rs_"), "summary": [], "content": []}
                    events += self._add({**new, "encrypted_content": None})
                events += self._append("response.reasoning_text.delta", thoughts, {"content_index": 0})
            if text := delta.get("content"):
                if not self._grows("message"):
                    events += self._add({"type": "message", **_begun("msg_"), "role": "assistant", "content": []})
                events += self._append("response.output_text.delta", text, {"content_index": 0, "logprobs": []})
            for call in delta.get("tool_calls", ()):
                events += self._grow_call(call)
        return events

    def finish(self, *, cut: bool) -> list[shapes.ResponseEvent]:
        """Close the last item; `cut`: in the middle of it."""
        return self._close("incomplete" if cut else "completed")

    def _grows(self, kind: str) -> bool:
        return self._open and self.items[-1]["type"] == kind

    def _grow_call(self, call: dict[str, Any]) -> list[shapes.ResponseEvent]:
        function, events = call["function"], list[shapes.ResponseEvent]()
        if call["index"] not in self._calls:
            name = self._names.get(function["name"]) or ToolName(function["name"])
            item: shapes.OutputItem = {
                "type": "function_call",
                **_begun("fc_"),
                "call_id": call.get("id", ""),
                "name": name.name,
                "arguments": "",
            }
            if name.namespace:
                item["namespace"] = name.namespace
            events = self._add(item)
            self._calls[call["index"]] = len(self.items) - 1
        if arguments := function.get("arguments"):
            place = self._calls[call["index"]]
            events += self._append("response.function_call_arguments.delta", arguments, {}, place)
        return events

    def _add(self, item: shapes.OutputItem) -> list[shapes.ResponseEvent]:
        """Open a new item."""
        events = self._close("completed")
        self.items.append(item)
        self._open, self._text = True, []
        events.append(self._event("response.output_item.added", item={**item}))
        if item["type"] in _PARTS:
            events.append(self._event("response.content_part.added", content_index=0, part=self._part()))
        return events

    def _append(
        self, kind: str, delta: str, fields: shapes.EventFields, place: int | None = None
    ) -> list[shapes.ResponseEvent]:
        """One of these events comes with every chunk. `place`: the item, if that may be another than the last one."""
        index = len(self.items) - 1 if place is None else place
        item = self.items[index]
        if index == len(self.items) - 1:
            self._text.append(delta)
        else:  # a call that was closed when the next item began
            item["arguments"] = item.get("arguments", "") + delta
        number, self._events.n = self._events.n, self._events.n + 1
        return [
            {
                "type": kind,
                "item_id": item["id"],
                "output_index": index,
                **fields,
                "delta": delta,
                "sequence_number": number,
            }
        ]

    def _part(self) -> shapes.OutputPart:
        text = "".join(self._text)
        if self.items[-1]["type"] == "reasoning":
            return {"type": "reasoning_text", "text": text}
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}

    def _close(self, status: shapes.ItemStatus) -> list[shapes.ResponseEvent]:
        """Close the open item, if there is one."""
        if not self._open:
            return []
        item, text = self.items[-1], "".join(self._text)
        item["status"] = status
        self._open = False
        if item["type"] == "function_call":
            item["arguments"] = text
            events = [self._event("response.function_call_arguments.done", arguments=text, name=item["name"])]
        else:
            part = self._part()
            item["content"] = [part]
            if item["type"] == "reasoning":
                item["encrypted_content"] = seal(text)
                events = [self._event("response.reasoning_text.done", content_index=0, text=text)]
            else:
                events = [self._event("response.output_text.done", content_index=0, text=text, logprobs=[])]
            events.append(self._event("response.content_part.done", content_index=0, part=part))
        return [*events, self._event("response.output_item.done", item=item)]

    def _event(self, kind: str, **fields: Unpack[shapes.EventFields]) -> shapes.ResponseEvent:
        if "item" not in fields:
            fields["item_id"] = self.items[-1]["id"]
        fields["output_index"] = len(self.items) - 1
        return self._events.next(kind, **fields)


def _begun(prefix: str) -> shapes.ItemHead:
    return {"id": prefix + secrets.token_hex(12), "status": "in_progress"}


_PARTS = ("reasoning", "message")  # kinds of items that have their text in a part
