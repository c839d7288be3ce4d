"""How many questions about held-out scenes a target answers right, and whether it answers text as the pocket target.

Usage: python -m benchmarks.pocket_vl.accuracy TARGET.gguf MMPROJ.gguf POCKET_DIR [--scenes 200]

POCKET_DIR is the folder with the recipe of the pocket pairs. An answer is right if greedy decoding writes exactly the
true one: each of its tokens is then the likeliest after those before it, so one pass tells.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM, Qwen3VLForConditionalGeneration

from benchmarks.pocket_vl import scenes
from benchmarks.pocket_vl.chats import Chat, Turn, collate, render
from benchmarks.pocket_vl.pocket_target import logits, make_tokenizer
from benchmarks.pocket_vl.target_files import read_target

BATCH, ANSWER = 16, 256


def held_out(n: int) -> Iterator[Chat]:
    """Each question about the first n held-out scenes and n/4 pairs, as a conversation of its own."""
    for seed in range(n):
        picture = scenes.draw(scenes.scene(seed))
        for question in scenes.questions(scenes.scene(seed), seed):
            yield Chat((Turn((picture,), question),))
    for seed in range(n // 4):
        first, second = scenes.pair(seed)
        shown = scenes.draw(first), scenes.draw(second)
        for question in scenes.comparisons(first, second, seed):
            yield Chat((Turn(shown, question),))


def count_right(
    target: Qwen3VLForConditionalGeneration, tokenizer: PreTrainedTokenizerFast, chats: Iterable[Chat]
) -> tuple[Counter[str], Counter[str]]:
    """Right answers and questions, by the question's kind."""
    right: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    waiting = list(chats)
    for first in range(0, len(waiting), BATCH):
        part = waiting[first : first + BATCH]
        batch = collate([render(tokenizer, chat) for chat in part], [shown for chat in part for shown in chat.pictures])
        with torch.no_grad():
            guess = logits(target, batch)[:, :-1].argmax(-1)
        want = batch.labels[:, 1:]
        fits = ((guess == want) | (want < 0)).all(1)
        for chat, fit in zip(part, fits.tolist(), strict=True):
            kind = chat.turns[-1].question.kind
            asked[kind] += 1
            right[kind] += fit
    return right, asked


def same_answers(target: Qwen3VLForConditionalGeneration, text_model: Path, prompts: Path) -> tuple[int, int]:
    """Prompts that the target answers with the same tokens as the text model, and all of them."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(text_model)
    old = Qwen3ForCausalLM.from_pretrained(text_model, dtype=torch.float32).eval()
    same, lines = 0, prompts.read_text().splitlines()
    for line in lines:
        asked = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in json.loads(line)["messages"])
        ids = tokenizer(asked + "<|im_start|>assistant\n", return_tensors="pt")["input_ids"]
        text = old.generate(ids, max_new_tokens=ANSWER, do_sample=False)
        batch = collate([(text[0].tolist(), text[0].tolist())], [])
        with torch.no_grad():
            guess = logits(target, batch)[0].argmax(-1)
        n = ids.shape[1]
        same += bool((guess[n - 1 : -1] == text[0, n:]).all())
    return same, len(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("target", "mmproj", "pocket"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--scenes", type=int, default=200)
    given = parser.parse_args()
    target = read_target(given.target, given.mmproj)
    tokenizer = make_tokenizer(given.pocket / "pocket-qwen3")
    right, asked = count_right(target, tokenizer, held_out(given.scenes))
    for kind in sorted(asked):
        print(f"{kind:12} {right[kind]:4} of {asked[kind]:4}  {right[kind] / asked[kind]:.1%}")
    print(f"{'all':12} {right.total():4} of {asked.total():4}  {right.total() / asked.total():.1%}")
    same, prompts = same_answers(target, given.pocket / "pocket-qwen3", given.pocket / "prompts.jsonl")
    print(f"text prompts answered as before: {same} of {prompts}")


if __name__ == "__main__":
    main()
