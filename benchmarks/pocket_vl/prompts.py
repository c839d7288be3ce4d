"""Prompts about drawn scenes as JSON lines of messages, with their pictures in them.

Usage: python -m benchmarks.pocket_vl.prompts OUT.jsonl [--chats 1500] [--held-out]

Each line is a conversation up to its last question: `{"messages": [...], "answer": ..., "kind": ...}`, where the answer
is the true one and pictures are content parts of type `image_url` with data URLs. With --held-out, of scenes that no
training has drawn.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.pocket_vl import scenes
from benchmarks.pocket_vl.chats import Chat, Turn, chat
from benchmarks.pocket_vl.pictures import data_url

DRAFTER_SEED = 9 * scenes.HELD_OUT  # scenes that the target was not trained with either


def messages(chat: Chat) -> list[dict[str, Any]]:
    """The conversation up to its last question."""
    listed: list[dict[str, Any]] = []
    for turn in chat.turns:
        listed.append({"role": "user", "content": content(turn)})
        listed.append({"role": "assistant", "content": turn.question.answer})
    return listed[:-1]


def content(turn: Turn) -> str | list[dict[str, Any]]:
    """What the user says in a turn: words, or parts where there are pictures."""
    words = {"type": "text", "text": turn.question.text}
    shown = [{"type": "image_url", "image_url": {"url": data_url(picture)}} for picture in turn.pictures]
    if not shown:
        return turn.question.text
    return [*shown, words] if turn.before else [words, *shown]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--chats", type=int, default=1500)
    parser.add_argument("--held-out", action="store_true")
    given = parser.parse_args()
    first = 0 if given.held_out else DRAFTER_SEED
    with given.out.open("w") as file:
        for seed in range(first, first + given.chats):
            one = chat(seed)
            last = one.turns[-1].question
            file.write(json.dumps({"messages": messages(one), "answer": last.answer, "kind": last.kind}) + "\n")


if __name__ == "__main__":
    main()
