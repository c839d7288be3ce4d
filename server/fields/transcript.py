"""Transcript: a chat completion's messages, gathered from the items of another format."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_JOINT = "\n"  # between the texts of one turn, as llama.cpp joins text parts


class Transcript:
    """Turns in order. Successive items of one side are one turn: many templates want user and assistant to alternate,
    and an assistant's thoughts, text and calls were one answer.

    Attributes:
        at: the place in the body that is being read.
        places: of messages, calls, images and audio: the place in the chat completion, and that in the body. A turn
            of several items is where its first one is.
    """

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.at = ""
        self.places: dict[str, str] = {}

    def instruct(self, text: str) -> None:
        """Instructions. Those at the start are one system message; later ones are a user's turn, because many templates
        refuse or drop a system message that is not the first."""
        if all(message["role"] == "system" for message in self.messages):
            self._say("system", text)
        else:
            self._say("user", text)

    def ask(self, text: str) -> None:
        """What the user says."""
        self._say("user", text)

    def heard(self) -> None:
        """The user's turn is over. One in which nothing was said is a turn, too: the assistant begins anew."""
        if not self.messages or self.messages[-1]["role"] in ("system", "assistant"):
            self._turn("user")

    def answer(self, text: str) -> None:
        """What the assistant said."""
        self._say("assistant", text)

    def think(self, thoughts: str) -> None:
        """What the assistant thought."""
        turn = self._turn("assistant")
        turn["reasoning_content"] = turn.get("reasoning_content", "") + thoughts

    def call(self, call_id: str, name: str, arguments: str | dict[str, Any], place: str) -> None:
        """A tool that the assistant called, and its place in the body. Arguments as an object are written as templates
        and models write them."""
        if isinstance(arguments, dict):
            arguments = json.dumps(arguments, ensure_ascii=False)
        call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        calls = self._turn("assistant").setdefault("tool_calls", [])
        self._note(f".tool_calls[{len(calls)}]", place)
        calls.append(call)

    def show(self, part: Mapping[str, Any], place: str) -> None:
        """An image or audio that the user shows: a content part, and its place in the body."""
        turn = self._turn("user")
        if isinstance(turn["content"], str):
            turn["content"] = _text_parts(turn["content"])
        self._note(f".content[{len(turn['content'])}]", place)
        turn["content"].append(part)

    def result(self, call_id: str, content: str | list[tuple[Mapping[str, Any], str]]) -> None:
        """What a tool returned: text, or content parts with their places in the body."""
        turn: dict[str, Any] = {"role": "tool", "tool_call_id": call_id, "content": content}
        self._begin(turn)
        if not isinstance(content, str):
            for index, (_, place) in enumerate(content):
                self._note(f".content[{index}]", place)
            turn["content"] = [part for part, _ in content]

    def _begin(self, turn: dict[str, Any]) -> None:
        self.messages.append(turn)
        self._note("", self.at)

    def _note(self, part: str, place: str) -> None:
        """The place of the last message, or of a part of it."""
        self.places[f"messages[{len(self.messages) - 1}]{part}"] = place

    def _say(self, role: str, text: str) -> None:
        turn = self._turn(role)
        if isinstance(turn["content"], list):
            turn["content"] += _text_parts(text)
        else:
            turn["content"] = turn["content"] + _JOINT + text if turn["content"] else text

    def _turn(self, role: str) -> dict[str, Any]:
        """The last message if it is this side's, else a new one."""
        if not self.messages or self.messages[-1]["role"] != role:
            self._begin({"role": role, "content": ""})
        return self.messages[-1]


def _text_parts(text: str) -> list[dict[str, Any]]:
    """A text as content parts; none if it is empty."""
    return [{"type": "text", "text": text}] if text else []
