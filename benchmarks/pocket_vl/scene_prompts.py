"""Prompts about drawn scenes as JSON lines of messages, with their pictures in them.

Usage: python -m benchmarks.pocket_vl.scene_prompts OUT.jsonl [--chats 1500] [--held-out] [--pocket POCKET_DIR]

Each line is a conversation up to its last question: `{"messages": [...], "answer": ..., "kind": ...}`, where the answer
is the true one and pictures are content parts of type `image_url` with data URLs. With --held-out, of scenes that no
training has drawn. With --pocket, as many prompts of the pocket corpus instead, which show nothing.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterable, Iterator
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
    parser.add_argument("--pocket", type=Path, help="folder with the recipe of the pocket pairs")
    given = parser.parse_args()
    first = 0 if given.held_out else DRAFTER_SEED
    seeds = range(first, first + given.chats)
    lines = words(given.pocket, seeds) if given.pocket else map(about_scenes, seeds)
    given.out.write_text("".join(json.dumps(line) + "\n" for line in lines))


def about_scenes(seed: int) -> dict[str, Any]:
    """A line of the file."""
    one = chat(seed)
    last = one.turns[-1].question
    return {"messages": messages(one), "answer": last.answer, "kind": last.kind}


def words(pocket: Path, seeds: Iterable[int]) -> Iterator[dict[str, Any]]:
    """Conversations of the pocket corpus up to the last question, without those that call tools."""
    sys.path.insert(0, str(pocket))
    import corpus  # type: ignore[import-not-found]

    for seed in seeds:
        listed, tools = corpus.chat(random.Random(f"words {seed}"))
        if not tools:
            yield {"messages": listed[:-1]}


if __name__ == "__main__":
    main()
