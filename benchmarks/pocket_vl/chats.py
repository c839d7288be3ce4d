"""Conversations about drawn scenes, and the batches that the target reads of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
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
        shown = scenes.draw(first), scenes.draw(second)
        asked = scenes.comparisons(first, second, seed)
        return Chat(tuple(Turn(shown if i == 0 else (), question, before) for i, question in enumerate(asked)))
    turns = _turns(scenes.scene(seed), seed, r.randint(1, most_turns), before)
    if r.random() < 0.1:
        turns += _turns(scenes.scene(seed + 500_000_000), seed, r.randint(1, 2), before)
    return Chat(tuple(turns))


def drill(seed: int) -> Chat:
    """Mostly what is hardest: one picture, up to four questions that count and compare; else any conversation."""
    r = random.Random(f"drill {seed}")
    if r.random() < 0.3:
        return chat(seed)
    scene = scenes.scene(seed)
    several = [question for i in range(3) for question in scenes.questions(scene, seed + i) if question.kind in HARD]
    asked = list(dict.fromkeys(several))
    r.shuffle(asked)
    shown = (scenes.draw(scene),)
    return Chat(tuple(Turn(shown if i == 0 else (), question) for i, question in enumerate(asked[:4])))


def caption(seed: int) -> Chat:
    """A conversation that asks for all that a picture shows, so that no question tells a part of it."""
    scene = scenes.scene(seed)
    asked = [question for question in scenes.questions(scene, seed) if question.kind in ("describe", "list")]
    return Chat((Turn((scenes.draw(scene),), asked[0]),))


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


def _turns(scene: scenes.Scene, seed: int, n: int, before: bool) -> list[Turn]:
    shown = (scenes.draw(scene),)
    asked = [question for question, _ in zip(scenes.questions(scene, seed), range(n), strict=False)]
    return [Turn(shown if i == 0 else (), question, before) for i, question in enumerate(asked)]
