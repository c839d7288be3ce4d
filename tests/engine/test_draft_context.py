"""--draft-ctx: a ring of the newest positions, so that the drafter never needs memory for the target's whole
context."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.draft_window import al_of, talk
from benchmarks.drafter_choice import DFLASH, pass_times
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


def al_of_a_long_talk(pocket: dict[str, Path], costs: Path, draft_ctx: int) -> tuple[float, dict[str, int]]:
    """AL over the second half of a conversation that gets three times as long as the texts that the drafter was
    trained with, and how far back its blocks looked."""
    asked = [
        {"messages": [{"role": "user", "content": f"Count from {n} in steps of {n % 5 + 2}, {n % 7 + 12} numbers."}]}
        for n in range(3, 27)
    ]
    with Engine(
        pocket["target"], pocket["dflash"], n_ctx=4096, n_threads=1, draft_ctx=draft_ctx, cost_cache=costs, lookup=False
    ) as engine:
        turns = talk(engine, asked, len(asked), 80, 1)
        assert turns[-1].n_text > 1500
        return al_of(turns[len(asked) // 2 :]), engine.stats()["choices"]["windows"]


def test_how_far_back_to_look_is_learned(
    pocket: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pocket drafter was trained with 512 tokens: a ring of 256 cannot look further, one of 4096 need not."""
    pass_times([DFLASH]).write(tmp_path / "costs.json")
    monkeypatch.setenv("DFLASH_FIXED_COSTS", "1")
    short, windows = al_of_a_long_talk(pocket, tmp_path / "costs.json", 256)
    assert set(windows) == {"0"}
    learned, windows = al_of_a_long_talk(pocket, tmp_path / "costs.json", 4096)
    print(f"AL: {short:.2f} with a ring of 256, {learned:.2f} as learned, {windows}")
    assert windows["256"] > windows["1024"]
    assert learned > 0.8 * short > 2
