"""--draft-ctx: a ring of the newest positions, so that the drafter never needs memory for the target's whole
context."""

from __future__ import annotations

from pathlib import Path

import pytest

from dflash_local import Engine
from tests.fast import some_fast

PROMPT = "<|im_start|>user\nCount from {} in steps of 3, 14 numbers.<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize("drafter", some_fast(["dflash", "dflash2"], ["dflash2"]))
def test_a_bounded_drafter_drafts_the_same_text_with_less_memory(pocket: dict[str, Path], drafter: str) -> None:
    """Positions leave a ring of 64 cells many times over; prompts longer than it, and kept prefixes before its oldest
    cell, too."""
    answers, memory, lengths = {}, {}, {}
    for draft_ctx in (64, 2048):
        with Engine(
            pocket["target"],
            pocket[drafter],
            n_ctx=2048,
            n_threads=1,
            draft_ctx=draft_ctx,
            budget=8,
            warmup=False,
            flash_attn="off",
        ) as engine:
            assert engine.info["drafter"]["draft_ctx"] == draft_ctx
            memory[draft_ctx] = engine.info["memory"]["drafter_context"]
            chat = "".join(PROMPT.format(n) for n in range(11, 21))  # some 240 tokens
            texts, accepted = [], []
            # Fresh, extended, rewound to before the ring.
            for prompt in (
                chat,
                chat + PROMPT.format(90),
                chat[: len(chat) // 3],
            ):
                drafted = engine.generate(prompt, max_tokens=150, temperature=0, ignore_eos=True)
                texts.append(drafted.text)
                accepted += drafted.acceptance_lengths
                plain = engine.generate(prompt, max_tokens=150, temperature=0, ignore_eos=True, budget=1)
                assert drafted.tokens == plain.tokens
            answers[draft_ctx], lengths[draft_ctx] = texts, sum(accepted) / len(accepted)
    assert answers[64] == answers[2048]
    assert memory[64] < memory[2048] / 4
    assert lengths[64] > 2  # the newest positions are what a drafter needs most
