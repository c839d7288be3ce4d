"""Train the pocket-VL target: the pocket target learns to see drawn scenes and still answers text as before.

Usage: torchrun --nproc-per-node 2 -m benchmarks.pocket_vl.train_target POCKET_DIR OUT_DIR [--minutes 45] [--tower 6]

POCKET_DIR is the folder with the recipe of the pocket pairs: `corpus.py` and the text model `pocket-qwen3/`. The tower
learns alone first: its rows point to the embeddings of the words for what they show. Then the text model learns to read
them: what pictures of one shape show, of more, then answers to all questions; and it keeps its distribution on its own
corpus. Needs torch and transformers.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import random
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, distributed
from torch.nn.functional import cross_entropy, kl_div, log_softmax
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM, Qwen3VLForConditionalGeneration

from benchmarks.pocket_vl import pictures, scenes
from benchmarks.pocket_vl.chats import Batch, Chat, caption, chat, collate, drill, render
from benchmarks.pocket_vl.pocket_target import hidden_states, make_target, make_tokenizer

SCENES, CHATS, AT_ONCE, TEXTS, TEXT_LENGTH = 24, 8, 8, 1, 160
# What is asked about pictures of so many shapes at most; on to the next once answers have cost less than this for a
# while. First what they show: other questions tell a part of it, and need not look. At last what is hardest.
CURRICULUM: tuple[tuple[Callable[[int], Chat], int], ...] = (
    (caption, 1), (caption, 2), (caption, 4), (chat, 4), (drill, 2), (drill, 4),
)  # fmt: skip
LEARNED, WHILE = 0.1, 20
SHARP = 10.0


class Schedule:
    """A part of the training: how much of its time is over, and the rate that belongs to it."""

    def __init__(self, minutes: float) -> None:
        self.start, self.seconds, self.step = time.time(), minutes * 60, 0

    def next(self, optimizer: torch.optim.Optimizer) -> bool:
        """Set the next step's rates. Returns whether there is time for it, the same in all processes."""
        share = torch.tensor([(time.time() - self.start) / self.seconds])
        _average([share])
        done = share.item()
        factor = min(1, (self.step + 1) / 20) * (0.97 * 0.5 * (1 + math.cos(math.pi * min(1, done))) + 0.03)
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * factor
        self.step += 1
        return done < 1


def train_tower(target: Qwen3VLForConditionalGeneration, tokenizer: PreTrainedTokenizerFast, minutes: float) -> None:
    """Teach the tower alone what each of its rows shows: the row points to the embeddings of the words for it."""
    tower, table = target.model.visual, target.model.language_model.embed_tokens.weight.detach()
    vectors = [table[tokenizer.convert_tokens_to_ids(words)] for words in _groups(tokenizer)]
    optimizer = torch.optim.AdamW(
        [{"params": list(tower.parameters()), "peak": 1.5e-3}], betas=(0.9, 0.95), weight_decay=0.02, fused=True
    )
    schedule, seed = Schedule(minutes), scenes.HELD_OUT * (1 + rank())
    while schedule.next(optimizer):
        shown = [scenes.scene(seed + i) for i in range(SCENES)]
        seed += len(shown)
        batch = collate([([0], [0])], [scenes.draw(scene) for scene in shown])
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = tower(batch.pixels, grid_thw=batch.grids)
        want = torch.cat([_contents(scene) for scene in shown])
        weights = torch.where(want[:, 0] > 0, 1.0, 0.1)
        loss, right = torch.zeros(()), []
        for rows in (out.pooler_output, *out.deepstack_features):
            for i, words in enumerate(vectors):
                logits = _similarity(rows.float(), words)
                losses = cross_entropy(logits, want[:, i], reduction="none")
                loss = loss + (losses * weights).sum() / weights.sum()
                right.append((logits.argmax(1) == want[:, i])[want[:, 0] > 0].float().mean().item())
        _descend(optimizer, loss)
        if schedule.step % 25 == 0 and not rank():
            print("tower", schedule.step, f"loss {loss.item():.4f}", *(f"{x:.3f}" for x in right), flush=True)


def train(target: Qwen3VLForConditionalGeneration, tokenizer: PreTrainedTokenizerFast, teacher: Qwen3ForCausalLM,
          texts: Iterator[Batch], minutes: float, seed: int, first: int, out: Path) -> None:  # fmt: skip
    """Train the text model on chats about scenes, and on texts with the teacher's distribution. The tower stays as it
    is: until its rows are understood, the gradients that reach it are noise, and it forgets what it has learned."""
    target.model.visual.requires_grad_(False)
    trained = [*target.model.language_model.parameters(), *target.lm_head.parameters()]
    optimizer = torch.optim.AdamW([{"params": trained, "peak": 1e-3}], betas=(0.9, 0.95), weight_decay=0.02, fused=True)
    schedule, saved = Schedule(minutes), time.time()
    seed += scenes.HELD_OUT * rank()
    stages = [chat_batches(tokenizer, seed, make, most) for make, most in CURRICULUM[first:]]
    recent: deque[float] = deque(maxlen=WHILE)
    while schedule.next(optimizer):
        batch = next(stages[0])
        with torch.autocast("cpu", dtype=torch.bfloat16):
            answers = _answer_loss(target, batch)
            text = _text_loss(target, teacher, next(texts))
        _descend(optimizer, answers + text)
        cost = answers.detach().clone()
        _average([cost])
        recent.append(cost.item())
        if len(stages) > 1 and len(recent) == WHILE and sum(recent) < WHILE * LEARNED:
            del stages[0]
            recent.clear()
        if schedule.step % 25 == 0 and not rank():
            print(
                schedule.step,
                f"answers {sum(recent) / max(len(recent), 1):.4f} text {text.item():.4f}",
                len(stages),
                flush=True,
            )
        if time.time() - saved > 240:
            save(target, tokenizer, out)
            saved = time.time()


def save(target: Qwen3VLForConditionalGeneration, tokenizer: PreTrainedTokenizerFast, out: Path) -> None:
    """Write the target, in float32, and its tokenizer."""
    if rank():
        return
    target.save_pretrained(out)
    tokenizer.save_pretrained(out)


def chat_batches(
    tokenizer: PreTrainedTokenizerFast, seed: int, make: Callable[[int], Chat], most: int
) -> Iterator[Batch]:
    """Batches of chats about pictures of so many shapes at most. Those of about the same length are together, so that
    few rows are padding."""
    seeds = (at for at in itertools.count(seed) if _n_shapes(at) <= most)
    while True:
        drawn = [make(at) for at in itertools.islice(seeds, AT_ONCE * CHATS)]
        rendered = sorted(((render(tokenizer, one), one) for one in drawn), key=lambda both: len(both[0][0]))
        parts = [rendered[i * CHATS : (i + 1) * CHATS] for i in range(AT_ONCE)]
        random.shuffle(parts)
        for part in parts:
            yield collate([row for row, _ in part], [shown for _, one in part for shown in one.pictures])


def _n_shapes(seed: int) -> int:
    return max(len(scenes.scene(seed).shapes), len(scenes.pair(seed)[0].shapes))


def rank() -> int:
    """The number of this process among those that train together."""
    return distributed.get_rank() if distributed.is_initialized() else 0


def text_batches(corpus: object, tokenizer: PreTrainedTokenizerFast, seed: int) -> Iterator[Batch]:
    """Batches of the pocket corpus, as the text model was trained: chats one after another, cut to rows."""
    ids: list[int] = []
    while True:
        while len(ids) < TEXTS * TEXT_LENGTH:
            ids += tokenizer(corpus.text(seed, 50))["input_ids"]  # type: ignore[attr-defined]
            seed += 1
        rows = [ids[i * TEXT_LENGTH : (i + 1) * TEXT_LENGTH] for i in range(TEXTS)]
        del ids[: TEXTS * TEXT_LENGTH]
        yield collate([(row, row) for row in rows], [])


def _groups(tokenizer: PreTrainedTokenizerFast) -> list[list[str]]:
    """Words of which at most one stands for what a row shows, as tokens."""
    places = (scenes.COLUMNS[0], scenes.COLUMNS[2]), (scenes.ROWS[0], scenes.ROWS[2]), (scenes.COLUMNS[1],)
    groups = (scenes.COLOURS, scenes.KINDS, scenes.RADII, *places)
    return [[tokenizer.tokenize(f" {word}")[0] for word in group] for group in groups]


def _contents(scene: scenes.Scene) -> Tensor:
    """For each row of a scene's picture, which word of each group stands for the shape whose centre it shows, from 1;
    0: none [rows, groups]."""
    across = scene.width // pictures.UNIT
    want = torch.zeros(across * (scene.height // pictures.UNIT), 6, dtype=torch.long)
    for shape in scene.shapes:
        row = shape.centre[1] // pictures.UNIT * across + shape.centre[0] // pictures.UNIT
        colour, kind = list(scenes.COLOURS).index(shape.colour), scenes.KINDS.index(shape.kind)
        size = list(scenes.RADII).index(shape.size)
        x, y = (1, 0, 2)[shape.cell[0]], (1, 0, 2)[shape.cell[1]]
        want[row] = torch.tensor([colour + 1, kind + 1, size + 1, x, y, int(shape.cell == (1, 1))])
    return want


def _similarity(rows: Tensor, words: Tensor) -> Tensor:
    """Logits of no word, and of each word [rows, 1 + words]: half of `SHARP` if the row has the word's embedding in
    it, the opposite if it has not."""
    found = rows @ words.T / words.square().sum(1)
    return torch.cat([torch.zeros(len(rows), 1), SHARP * (found - 0.5)], 1)


def _answer_loss(target: Qwen3VLForConditionalGeneration, batch: Batch) -> Tensor:
    hidden = hidden_states(target, batch).last_hidden_state[:, :-1]
    want = batch.labels[:, 1:]
    learned = want >= 0
    return cross_entropy(target.lm_head(hidden[learned]).float(), want[learned])


def _text_loss(target: Qwen3VLForConditionalGeneration, teacher: Qwen3ForCausalLM, batch: Batch) -> Tensor:
    with torch.no_grad():
        want = log_softmax(teacher(input_ids=batch.ids).logits.float(), -1)
    logits = target.lm_head(hidden_states(target, batch).last_hidden_state).float()
    known = log_softmax(logits, -1)[..., : want.shape[-1]]
    return kl_div(known.flatten(0, 1), want.flatten(0, 1), reduction="batchmean", log_target=True)


def _descend(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    trained = [parameter for parameter in parameters if parameter.grad is not None]
    _average([parameter.grad for parameter in trained])
    torch.nn.utils.clip_grad_norm_(trained, 1.0)
    optimizer.step()


def _average(values: list[Tensor]) -> None:
    """Over all processes, in place."""
    if not distributed.is_initialized():
        return
    flat = torch.cat([value.flatten() for value in values])
    distributed.all_reduce(flat)
    flat /= distributed.get_world_size()
    for value, part in zip(values, flat.split([value.numel() for value in values]), strict=True):
        value.copy_(part.view_as(value))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("pocket", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=45)
    parser.add_argument("--tower", type=float, default=6, help="minutes of these for the tower alone")
    parser.add_argument("--init", type=Path, help="a target to go on from")
    parser.add_argument("--tower-of", type=Path, help="a target whose tower to go on from")
    parser.add_argument("--seed", type=int, default=2 * scenes.HELD_OUT, help="of the first scene")
    parser.add_argument("--stage", type=int, default=0, help="of the curriculum, with which --init goes on")
    parser.add_argument("--threads", type=int, default=1, help="of each process")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    if "RANK" in os.environ:
        distributed.init_process_group("gloo")
    sys.path.insert(0, str(given.pocket))
    import corpus  # type: ignore[import-not-found]

    text_model = given.pocket / "pocket-qwen3"
    tokenizer = make_tokenizer(text_model)
    teacher = Qwen3ForCausalLM.from_pretrained(text_model, dtype=torch.float32).eval().requires_grad_(False)
    target = make_target(text_model, tokenizer)
    if given.init:
        target = Qwen3VLForConditionalGeneration.from_pretrained(given.init, dtype=torch.float32)
    if given.tower_of:
        seeing = Qwen3VLForConditionalGeneration.from_pretrained(given.tower_of, dtype=torch.float32)
        target.model.visual.load_state_dict(seeing.model.visual.state_dict())
    if given.tower:
        train_tower(target, tokenizer, given.tower)
    texts = text_batches(corpus, tokenizer, seed=300_000 + given.seed % 100_000 + 10_000 * rank())
    train(target, tokenizer, teacher, texts, given.minutes - given.tower, given.seed, given.stage, given.out)
    save(target, tokenizer, given.out)


if __name__ == "__main__":
    main()
