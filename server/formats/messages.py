"""Anthropic's message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dflash_local.call_arguments import partial_arguments
from dflash_local.conversation import AnswerParser, ChatCompletion
from dflash_local.generation import Chunk, Completion, Progress
from dflash_local.server.formats.events import named_event
from dflash_local.server.formats.reply import Body, Reply
from dflash_local.server.formats.timings import prompt_progress
from dflash_local.server.http_errors import message_error
from dflash_local.server.shapes import messages as shapes
from dflash_local.server.thoughts import seal


class MessagesReply(Reply):
    """`/v1/messages`, one answer.

    Args:
        n_prompt: tokens of the prompt, for the stream's first event.
        stops: the client's stop sequences, without those of the template and of the server.
        count: tokens of an answer up to the end of a part of its text.
        hide_thoughts: a block of thoughts is empty except for its signature, which brings them back.
    """

    PREFIX = "msg_"
    TAIL = ""

    def __init__(
        self,
        model: str,
        parser: AnswerParser,
        *,
        n_prompt: int,
        stops: Sequence[str],
        count: Callable[[str, Completion], int],
        hide_thoughts: bool,
    ) -> None:
        super().__init__(model)
        self._parser = parser
        self._n_prompt, self._stops, self._hide = n_prompt, stops, hide_thoughts
        self._count = count
        self._n_blocks = 0
        self._open = ""  # the kind of the last block, while it may grow
        self._thoughts = ""  # of the open block
        self._calls: dict[int, int] = {}  # the parser's calls: their blocks

    def frame(self, body: Body) -> str:
        return named_event(body)

    def ping(self) -> str:
        return named_event({"type": "ping"})

    def progress(self, index: int, progress: Progress) -> list[shapes.MessageEvent]:
        """In a ping, which clients skip, because the format has no event for it."""
        return [{"type": "ping", "prompt_progress": prompt_progress(progress)}]

    def failure(self, error: Exception) -> list[shapes.MessageError]:
        return [message_error(error)[1]]

    # ---- a stream ----

    def begin(self, index: int) -> list[shapes.MessageEvent]:
        usage: shapes.MessageUsage = {**_NOTHING_YET, "input_tokens": self._n_prompt}
        return [{"type": "message_start", "message": self._message([], None, None, usage)}]

    def chunk(self, index: int, chunk: Chunk) -> list[shapes.MessageEvent]:
        return self._grow(self._parser.push(chunk.text))

    def end(self, index: int, completion: Completion) -> list[shapes.MessageEvent]:
        deltas, chat = self._parser.finish(completion)
        reason, sequence = self._stop(chat)
        return [
            *self._grow(deltas),
            *self._close_block(),
            {
                "type": "message_delta",
                "delta": {"stop_reason": reason, "stop_sequence": sequence},
                "usage": self._usage(chat),
            },
            {"type": "message_stop"},
        ]

    def close(self, events: list[Body], completions: list[Completion]) -> None:
        """Nothing: only events of timings_per_token have timings."""

    def _grow(self, deltas: list[dict[str, Any]]) -> list[shapes.MessageEvent]:
        events: list[shapes.MessageEvent] = []
        for delta in deltas:
            if thoughts := delta.get("reasoning_content"):
                events += self._open_block({"type": "thinking", "thinking": "", "signature": ""})
                self._thoughts += thoughts
                if not self._hide:
                    events.append(self._delta({"type": "thinking_delta", "thinking": thoughts}))
            if text := delta.get("content"):
                events += self._open_block({"type": "text", "text": ""})
                events.append(self._delta({"type": "text_delta", "text": text}))
            for call in delta.get("tool_calls", ()):
                events += self._grow_call(call)
        return events

    def _grow_call(self, call: dict[str, Any]) -> list[shapes.MessageEvent]:
        function, events = call["function"], list[shapes.MessageEvent]()
        if call["index"] not in self._calls:
            block: shapes.Block = {"type": "tool_use", "id": call.get("id", ""), "name": function["name"], "input": {}}
            events = self._open_block(block, new=True)
            self._calls[call["index"]] = self._n_blocks - 1
        if arguments := function.get("arguments"):
            delta: shapes.BlockDelta = {"type": "input_json_delta", "partial_json": arguments}
            events.append(self._delta(delta, block=self._calls[call["index"]]))
        return events

    def _open_block(self, block: shapes.Block, *, new: bool = False) -> list[shapes.MessageEvent]:
        """Events that make the open block one of this kind."""
        if self._open == block["type"] and not new:
            return []
        events = self._close_block()
        self._open = block["type"]
        self._n_blocks += 1
        return [*events, {"type": "content_block_start", "index": self._n_blocks - 1, "content_block": block}]

    def _close_block(self) -> list[shapes.MessageEvent]:
        events: list[shapes.MessageEvent] = []
        if self._open == "thinking":
            events.append(self._delta({"type": "signature_delta", "signature": self._signature(self._thoughts)}))
            self._thoughts = ""
        if self._open:
            events.append({"type": "content_block_stop", "index": self._n_blocks - 1})
        self._open = ""
        return events

    def _delta(self, delta: shapes.BlockDelta, *, block: int | None = None) -> shapes.MessageEvent:
        index = self._n_blocks - 1 if block is None else block
        return {"type": "content_block_delta", "index": index, "delta": delta}

    # ---- a whole message ----

    def whole(self, completions: list[Completion], n_prompts: int) -> shapes.Message:
        chat = self._parser.parse(completions[0])
        return self._message(self._blocks(chat.message), *self._stop(chat), self._usage(chat))

    def _blocks(self, message: dict[str, Any]) -> list[shapes.Block]:
        blocks: list[shapes.Block] = []
        if thoughts := message.get("reasoning_content"):
            shown = "" if self._hide else thoughts
            blocks.append({"type": "thinking", "thinking": shown, "signature": self._signature(thoughts)})
        if text := message.get("content"):
            blocks.append({"type": "text", "text": text})
        for call in message.get("tool_calls", ()):
            function = call["function"]
            inputs = partial_arguments(function["arguments"])
            blocks.append({"type": "tool_use", "id": call["id"], "name": function["name"], "input": inputs})
        return blocks

    def _message(
        self,
        blocks: list[shapes.Block],
        reason: shapes.StopReason | None,
        sequence: str | None,
        usage: shapes.MessageUsage,
    ) -> shapes.Message:
        return {
            "id": self._head["id"],
            "type": "message",
            "role": "assistant",
            "model": self._head["model"],
            "content": blocks,
            "stop_reason": reason,
            "stop_sequence": sequence,
            "usage": usage,
        }

    # ---- parts of both ----

    def _signature(self, thoughts: str) -> str:
        """Never empty: some clients drop thoughts without a signature."""
        return seal(thoughts if self._hide else "")

    def _usage(self, chat: ChatCompletion) -> shapes.MessageUsage:
        """Anthropic counts cached tokens apart from the rest of the prompt."""
        done, thoughts = chat.completion, chat.message.get("reasoning_content", "")
        return {
            "input_tokens": done.prompt_tokens - done.cached_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": done.cached_tokens,
            "output_tokens": len(done.tokens),
            "output_tokens_details": {"thinking_tokens": self._count(thoughts, done)},
        }

    def _stop(self, chat: ChatCompletion) -> tuple[shapes.StopReason, str | None]:
        """`stop_reason` and `stop_sequence`."""
        completion = chat.completion
        if chat.finish_reason == "tool_calls":
            return "tool_use", None
        if chat.finish_reason == "length":
            return ("model_context_window_exceeded" if completion.truncated else "max_tokens"), None
        if completion.stopped_by in self._stops:
            return "stop_sequence", completion.stopped_by
        return "end_turn", None


# How much of the prompt is in the cache is not known before it is read.
_NOTHING_YET: shapes.MessageUsage = {
    "input_tokens": 0,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "output_tokens": 0,
    "output_tokens_details": {"thinking_tokens": 0},
}
