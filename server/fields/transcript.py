"""Transcript: a chat completion's messages, gathered from the items of another format."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_JOINT = "\n"  # between the texts of one turn, as llama.cpp joins text parts


class Transcript:
    """Turns in order. Successive items of one side are one turn: many templates want user and assistant to alternate,
    and an assistant's thoughts, text and calls were one answer."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.places: dict[str, str] = {}  # of images and audio: the place in `messages`, and that in the body

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

    def answer(self, text: str) -> None:
        """What the assistant said."""
        self._say("assistant", text)

    def think(self, thoughts: str) -> None:
        """What the assistant thought."""
        turn = self._turn("assistant")
        turn["reasoning_content"] = turn.get("reasoning_content", "") + thoughts

    def call(self, call_id: str, name: str, arguments: str | dict[str, Any]) -> None:
        """A tool that the assistant called. Arguments as an object are written as templates and models write them."""
        if isinstance(arguments, dict):
            arguments = json.dumps(arguments, ensure_ascii=False)
        call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        self._turn("assistant").setdefault("tool_calls", []).append(call)

    def show(self, part: Mapping[str, Any], place: str) -> None:
        """An image or audio that the user shows: a content part, and its place in the body."""
        turn = self._turn("user")
        if isinstance(turn["content"], str):
            turn["content"] = _text_parts(turn["content"])
        self._note(len(turn["content"]), place)
        turn["content"].append(part)

    def result(self, call_id: str, content: str | list[tuple[Mapping[str, Any], str]]) -> None:
        """What a tool returned: text, or content parts with their places in the body."""
        turn: dict[str, Any] = {"role": "tool", "tool_call_id": call_id, "content": content}
        self.messages.append(turn)
        if not isinstance(content, str):
            for index, (_, place) in enumerate(content):
                self._note(index, place)
            turn["content"] = [part for part, _ in content]

    def _note(self, index: int, place: str) -> None:
        self.places[f"messages[{len(self.messages) - 1}].content[{index}]"] = place

    def _say(self, role: str, text: str) -> None:
        turn = self._turn(role)
        if isinstance(turn["content"], list):
            turn["content"] += _text_parts(text)
        else:
            turn["content"] = turn["content"] + _JOINT + text if turn["content"] else text

    def _turn(self, role: str) -> dict[str, Any]:
        """The last message if it is this side's, else a new one."""
        if not self.messages or self.messages[-1]["role"] != role:
            self.messages.append({"role": role, "content": ""})
        return self.messages[-1]


def _text_parts(text: str) -> list[dict[str, Any]]:
    """A text as content parts; none if it is empty."""
    return [{"type": "text", "text": text}] if text else []
