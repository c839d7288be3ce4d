"""OpenAI's response."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any

from dflash_local.conversation import ChatAnswer, ChatCompletion
from dflash_local.generation import Chunk, Completion, Progress
from dflash_local.server.errors import RESPONSES, describe_openai_error
from dflash_local.server.fields.request import RequestFields
from dflash_local.server.fields.responses import ResponsesRequest, ToolName
from dflash_local.server.formats.events import named_event
from dflash_local.server.formats.reply import Body, Reply, timings
from dflash_local.server.thoughts import seal

Count = Callable[[str, Completion], int]
OUTPUT_LIMIT = {"reason": "max_output_tokens"}


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
        answer: ChatAnswer | None,
        *,
        echo: Mapping[str, Any],
        names: Mapping[str, ToolName],
        count: Count,
    ) -> None:
        super().__init__(model)
        self._parser, self._echo, self._count = answer, echo, count
        self._output = _Output(names)
        self._n_events = 0

    def frame(self, body: Body) -> str:
        return named_event(body)

    def begin(self, index: int) -> list[Body]:
        """Once, whoever is first to need it."""
        if self._n_events:
            return []
        response = self._response("in_progress")
        return self._numbered([
            {"type": "response.created", "response": response},
            {"type": "response.in_progress", "response": response},
        ])  # fmt: skip

    def ping(self) -> str:
        """An event, not a comment: Codex gives up on streams that bring none for five minutes."""
        return "".join(self.frame(event) for event in self.begin(0) or self._still_in_progress())

    def progress(self, index: int, progress: Progress) -> list[Body]:
        return [*self.begin(index), *self._still_in_progress(prompt_progress=progress._asdict())]

    def _still_in_progress(self, **more: Any) -> list[Body]:
        event = {"type": "response.in_progress", "response": self._response("in_progress"), **more}
        return self._numbered([event])

    def chunk(self, index: int, chunk: Chunk) -> list[Body]:
        return self._numbered(self._output.grow(self._answer_parser.push(chunk.text)))

    def end(self, index: int, completion: Completion) -> list[Body]:
        deltas, chat = self._answer_parser.finish(completion)
        events = self._output.grow(deltas) + self._output.finish(cut=chat.finish_reason == "length")
        response = self._finished(chat)
        return self._numbered([*events, {"type": f"response.{response['status']}", "response": response}])

    def whole(self, completions: list[Completion], n_prompts: int) -> Body:
        deltas = self._answer_parser.push(completions[0].text)
        more, chat = self._answer_parser.finish(completions[0])
        self._output.grow(deltas + more)
        self._output.finish(cut=chat.finish_reason == "length")
        return self._finished(chat) | timings([done.timings for done in completions])

    def failure(self, error: Exception) -> list[Body]:
        """As OpenAI has it: also of a prompt that is too long, which is how clients learn that they must shorten it."""
        told = describe_openai_error(error, RESPONSES)[1]["error"]
        code = told["code"] if told["code"] == "context_length_exceeded" else "server_error"
        response = self._response("failed", error={"code": code, "message": told["message"]})
        return self.begin(0) + self._numbered([{"type": "response.failed", "response": response}])

    def _numbered(self, events: list[Body]) -> list[Body]:
        for event in events:
            event["sequence_number"] = self._n_events
            self._n_events += 1
        return events

    @property
    def _answer_parser(self) -> ChatAnswer:
        assert self._parser is not None, "a response that failed at once generates nothing"
        return self._parser

    def _finished(self, chat: ChatCompletion) -> Body:
        completion = chat.completion
        cut = chat.finish_reason == "length"
        return self._response(
            "incomplete" if cut else "completed",
            output=self._output.items,
            incomplete_details=OUTPUT_LIMIT if cut else None,
            completed_at=None if cut else int(time.time()),
            usage={
                "input_tokens": completion.prompt_tokens,
                "input_tokens_details": {"cached_tokens": completion.cached_tokens, "cache_write_tokens": 0},
                "output_tokens": len(completion.tokens),
                "output_tokens_details": {"reasoning_tokens": self._count(self._output.thoughts, completion)},
                "total_tokens": completion.prompt_tokens + len(completion.tokens),
            },
        )

    def _response(self, status: str, **more: Any) -> Body:
        return {
            "id": self._head["id"],
            "object": "response",
            "created_at": self._head["created"],
            "completed_at": None,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "model": self._head["model"],
            "output": [],
            "previous_response_id": None,
            "service_tier": "default",
            "store": False,
            "truncation": "disabled",
            "usage": None,
            **self._echo,
            **more,
        }


def echo(body: ResponsesRequest, fields: RequestFields) -> Body:
    """What a response repeats of its request, with what holds where that was silent."""
    limit = fields.options["max_tokens"]
    text: Body = {"format": {"type": "text"}}
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


class _Output:
    """The items of a response, and the events that tell of their growth."""

    def __init__(self, names: Mapping[str, ToolName]) -> None:
        self.items: list[Body] = []
        self.thoughts = ""
        self._names = names
        self._text: list[str] = []  # of the last item, while it may grow
        self._open = False
        self._calls: dict[int, int] = {}  # the parser's calls: their items

    def grow(self, deltas: list[dict[str, Any]]) -> list[Body]:
        """Take more of the answer."""
        events: list[Body] = []
        for delta in deltas:
            if thoughts := delta.get("reasoning_content"):
                self.thoughts += thoughts
                if not self._grows("reasoning"):
                    events += self._add({"type": "reasoning", "summary": [], "content": [], "encrypted_content": None})
                events += self._append("response.reasoning_text.delta", thoughts, content_index=0)
            if text := delta.get("content"):
                if not self._grows("message"):
                    events += self._add({"type": "message", "role": "assistant", "content": []})
                events += self._append("response.output_text.delta", text, content_index=0, logprobs=[])
            for call in delta.get("tool_calls", ()):
                events += self._grow_call(call)
        return events

    def finish(self, *, cut: bool) -> list[Body]:
        """Close the last item; `cut`: in the middle of it."""
        return self._close("incomplete" if cut else "completed")

    def _grows(self, kind: str) -> bool:
        return self._open and self.items[-1]["type"] == kind

    def _grow_call(self, call: dict[str, Any]) -> list[Body]:
        function, events = call["function"], []
        if call["index"] not in self._calls:
            name = self._names.get(function["name"]) or ToolName(function["name"])
            item = {"type": "function_call", "call_id": call.get("id", ""), "name": name.name, "arguments": ""}
            events = self._add(item | ({"namespace": name.namespace} if name.namespace else {}))
            self._calls[call["index"]] = len(self.items) - 1
        if arguments := function.get("arguments"):
            events += self._append("response.function_call_arguments.delta", arguments)
        return events

    def _add(self, item: Body) -> list[Body]:
        """Open a new item."""
        events = self._close("completed")
        item = {"id": _PREFIXES[item["type"]] + secrets.token_hex(12), **item, "status": "in_progress"}
        self.items.append(item)
        self._open, self._text = True, []
        events.append(self._event("response.output_item.added", item={**item}))
        if item["type"] in _PARTS:
            events.append(self._event("response.content_part.added", content_index=0, part=self._part()))
        return events

    def _append(self, kind: str, text: str, **more: Any) -> list[Body]:
        self._text.append(text)
        return [self._event(kind, delta=text, **more)]

    def _part(self) -> Body:
        return {
            "type": _PARTS[self.items[-1]["type"]],
            "text": "".join(self._text),
            **_PART_EXTRAS[self.items[-1]["type"]],
        }

    def _close(self, status: str) -> list[Body]:
        """Close the open item, if there is one."""
        if not self._open:
            return []
        item, text = self.items[-1], "".join(self._text)
        item["status"] = status
        self._open = False
        if item["type"] == "function_call":
            item["arguments"] = text
            done = {"arguments": text, "name": item["name"]}
            events = [self._event("response.function_call_arguments.done", **done)]
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

    def _event(self, kind: str, **more: Any) -> Body:
        which = {} if "item" in more else {"item_id": self.items[-1]["id"]}
        return {"type": kind, **which, "output_index": len(self.items) - 1, **more}


_PREFIXES = {"reasoning": "rs_", "message": "msg_", "function_call": "fc_"}
_PARTS = {"reasoning": "reasoning_text", "message": "output_text"}
_PART_EXTRAS: dict[str, Body] = {"reasoning": {}, "message": {"annotations": [], "logprobs": []}}
