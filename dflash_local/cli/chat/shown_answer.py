"""ShownAnswer: an answer of a chat as far as it has come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dflash_local.cli.chat.backends import Change, Message
from dflash_local.cli.terminal.answer_view import AnswerView


@dataclass
class ShownAnswer:
    """An answer that `view` shows while it grows."""

    view: AnswerView
    content: str = ""
    thoughts: str = ""
    timings: Mapping[str, Any] = field(default_factory=dict)

    def add(self, change: Change) -> None:
        self.timings = change.timings or self.timings
        if change.drafted:
            self.view.on_pass(change.drafted)
        if change.thought:
            self.thoughts += change.thought
            self.view.thought(change.thought)
        if change.content:
            self.content += change.content
            self.view.content(change.content)

    def message(self) -> Message | None:
        """The message for the conversation; None if nothing has come. One that was stopped in its thoughts keeps them,
        so that the question stays."""
        if self.content:
            return {"role": "assistant", "content": self.content}
        if self.thoughts:
            return {"role": "assistant", "content": "", "reasoning_content": self.thoughts}
        return None
