"""The hybrid pocket pair as it ships: it answers, drafts are accepted, and drafted text is plain text."""

from __future__ import annotations

from pathlib import Path

from benchmarks.answers import acceptance_length, answers
from benchmarks.record import read_prompts
from dflash_local import Engine
from dflash_local.convert.gguf_metadata import read_metadata
from dflash_local.demo.pocket import HYBRID, bundled_pair


def test_files_are_the_trained_pair(repo: Path) -> None:
    target, drafter = map(read_metadata, bundled_pair(HYBRID))
    assert target["general.architecture"].data == b"qwen35" and target["general.name"].data == b"pocket-hybrid"
    assert drafter["general.name"].data == b"pocket-qwen35-DFlash"
    small = read_metadata(repo / "dflash_local" / "demo" / "pocket-target.gguf")
    # Both were trained on one vocabulary; its tags are text, not control tokens.
    for key in (
        "tokens",
        "token_type",
        "merges",
        "pre",
    ):
        assert (
            target[f"tokenizer.ggml.{key}"].data
            == drafter[f"tokenizer.ggml.{key}"].data
            == small[f"tokenizer.ggml.{key}"].data
        )


def test_drafts_are_accepted_and_change_nothing(repo: Path) -> None:
    """AL over all 28 prompts, chains of 16: 6.4 at temperature 0 and 5.7 at 1. A drafter that guesses at random would
    have 1."""
    pair, prompts = bundled_pair(HYBRID), read_prompts(repo / "benchmarks" / "prompts.jsonl", 6)
    with Engine(
        pair.target, pair.drafter, n_ctx=1024, n_threads=1, draft="chain", lookup=False, warmup=False
    ) as engine:
        for temperature, least in ((0.0, 5.0), (1.0, 4.5)):
            plain, drafted = (list(answers(engine, prompts, 100, temperature, budget=budget)) for budget in (1, 16))
            assert [answer.tokens for answer in drafted] == [answer.tokens for answer in plain]
            assert acceptance_length(drafted) > least
        (thought,) = answers(engine, [{"messages": [{"role": "user", "content": "What is 344 + 124?"}]}], 100, 0.0)
        assert "<think>" in thought.text and "468" in thought.text
