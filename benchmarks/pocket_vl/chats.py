"""Conversations about drawn scenes, and the batches that the target reads of them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from benchmarks.pocket_vl import pictures, scenes

START, END, PAD = "<|vision_start|>", "<|vision_end|>", "<|image_pad|>"
# Words of scenes that the pocket vocabulary has in pieces, and the pocket corpus has not at all.
WORDS = (
    " red", " green", " blue", " yellow", " purple", " circle", " square", " triangle", " cross", " medium", " big",
    " top", " bottom", " left", " right", " centre", " below", " picture", " pictures", " shape", " shapes", " first",
    " second", " there", " colour", " missing", " new", " has", " have", " many", " differs", " shows",
)  # fmt: skip
Picture = NDArray[np.uint8]
HARD = ("count", "side")  # kinds of questions


class Turn(NamedTuple):
    """What the user shows and asks, and the answer. `before`: whether the pictures stand before the words."""

    pictures: tuple[Picture, ...]
    question: scenes.Question
    before: bool = True


@dataclass(frozen=True)
class Chat:
    turns: tuple[Turn, ...]

    @property
    def pictures(self) -> list[Picture]:
        return [picture for turn in self.turns for picture in turn.pictures]


class Batch(NamedTuple):
    """Rows of chats, padded on the right; labels are -100 where nothing is learned."""

    ids: Tensor
    mask: Tensor
    labels: Tensor
    pixels: Tensor | None
    grids: Tensor | None

    def inputs(self) -> dict[str, Tensor]:
        """The arguments of Qwen3VLForConditionalGeneration."""
        given = {"input_ids": self.ids, "attention_mask": self.mask}
        if self.pixels is not None:
            given |= {"pixel_values": self.pixels, "image_grid_thw": self.grids}
        return given


def chat(seed: int, most_turns: int = 3) -> Chat:
    """A conversation about one picture, or two that are compared, or two one after the other."""
    r = random.Random(f"chat {seed}")
    before = r.random() < 0.85
    if r.random() < 0.25:
        first, second = scenes.pair(seed)
        return Chat(_turns((first, second), scenes.comparisons(first, second, seed), before))
    scene, next_scene = scenes.scene(seed), scenes.scene(seed + 500_000_000)
    turns = _turns((scene,), scenes.questions(scene, seed), before, r.randint(1, most_turns))
    if r.random() < 0.1:
        turns += _turns((next_scene,), scenes.questions(next_scene, seed), before, r.randint(1, 2))
    return Chat(turns)


def drill(seed: int) -> Chat:
    """Mostly what is hardest: one picture, up to four questions that count and compare; else any conversation."""
    r = random.Random(f"drill {seed}")
    if r.random() < 0.3:
        return chat(seed)
    scene = scenes.scene(seed)
    several = [question for i in range(3) for question in scenes.questions(scene, seed + i) if question.kind in HARD]
    asked = list(dict.fromkeys(several))
    r.shuffle(asked)
    return Chat(_turns((scene,), asked, most=4))


def caption(seed: int) -> Chat:
    """A conversation that asks for all that a picture shows, so that no question tells a part of it."""
    scene = scenes.scene(seed)
    asked = [question for question in scenes.questions(scene, seed) if question.kind in ("describe", "list")]
    return Chat(_turns((scene,), asked, most=1))


def render(tokenizer: PreTrainedTokenizerFast, chat: Chat) -> tuple[list[int], list[int]]:
    """Tokens and labels of a chat as its template renders it; a picture's rows are `PAD`."""
    ids: list[int] = []
    labels: list[int] = []
    newline = tokenizer("\n")["input_ids"]
    for turn in chat.turns:
        shown = "".join(START + PAD * pictures.rows(picture) + END for picture in turn.pictures)
        words = shown + turn.question.text if turn.before else turn.question.text + shown
        asked = tokenizer(f"<|im_start|>user\n{words}<|im_end|>\n<|im_start|>assistant\n")["input_ids"]
        ids += asked
        labels += [-100] * len(asked)
        answer = tokenizer(f"{turn.question.answer}<|im_end|>")["input_ids"]
        ids += answer + newline
        labels += answer + [-100] * len(newline)
    return ids, labels


def collate(rows: Sequence[tuple[list[int], list[int]]], shown: Sequence[Picture]) -> Batch:
    """One batch of rendered chats and all their pictures, in order."""
    length = max(len(ids) for ids, _ in rows)
    ids = torch.zeros(len(rows), length, dtype=torch.long)
    labels = torch.full_like(ids, -100)
    mask = torch.zeros_like(ids)
    for i, (row, learned) in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row)
        labels[i, : len(row)] = torch.tensor(learned)
        mask[i, : len(row)] = 1
    if not shown:
        return Batch(ids, mask, labels, None, None)
    pixels = torch.from_numpy(np.concatenate([pictures.patches(picture) for picture in shown]))
    return Batch(ids, mask, labels, pixels, torch.tensor([pictures.grid(picture) for picture in shown]))


def _turns(
    shown: Sequence[scenes.Scene], asked: Iterable[scenes.Question], before: bool = True, most: int | None = None
) -> tuple[Turn, ...]:
    """The first questions, at `most` so many; the pictures come with the first."""
    drawn = tuple(map(scenes.draw, shown))
    return tuple(Turn(drawn if i == 0 else (), question, before) for i, question in enumerate(islice(asked, most)))
