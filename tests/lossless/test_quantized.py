"""Quantized pocket pairs: where a drafted answer leaves the plain one, a teacher-forced pass shows a tie.

A pass of one row and a pass of many use different kernels, which round differently (and quantize activations in
different groups), and where a tree has left holes among the KV cells attention sums in another order, so two tokens
whose logits nearly agree may change places. How much is allowed is measured on the same weights and texts with chains
alone, as stock llama.cpp runs
them: the largest difference between scoring a plain answer in passes of 1 row, of a block and of a full tree's 64 rows.
Two candidates may move by that much towards each other, so a tie is a gap of at most twice the tolerance.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.gpu_proof.equality import gap
from dflash_local import Engine
from dflash_local.native import MAX_NODES, quantize

from .test_tokens import BLOCK, OPENINGS, PROMPTS, chat

MORE_PROMPTS = [
    "Write a Python class with the fields price and weight.",
    "Sort these numbers: 31, 4, 77, 12, 58.",
    "What is 573 + 496?",
    "Write a recursive Python function for the factorial of score.",
    "Nairobi is the capital of which country?",
    "Write an SQL query that selects every factor above 5 from the table prices.",
    "Count from 48 in steps of 5, 11 numbers.",
    "Write a Python generator that yields each height up to 74.",
]


GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 96, "ignore_eos": True}


@pytest.fixture(scope="module", params=["q4_0", "q4_k_m", pytest.param("q8_0", marks=pytest.mark.slow)])
def engine(
    request: pytest.FixtureRequest, pocket: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    target = tmp_path_factory.mktemp("quantized") / f"target-{request.param}.gguf"
    quantize(pocket["target"], target, request.param)
    with Engine(target, pocket["dflash"], n_ctx=1024, n_threads=1, warmup=False) as engine:
        yield engine


@pytest.fixture(scope="module")
def prompts(engine: Engine) -> list[list[int]]:
    return [chat(engine, text) for text in PROMPTS + MORE_PROMPTS] + [engine.tokenize(opening) for opening in OPENINGS]


@pytest.fixture(scope="module")
def plain_answers(engine: Engine, prompts: list[list[int]]) -> list[list[int]]:
    return [engine.generate(prompt, budget=1, **GREEDY).tokens for prompt in prompts]


@pytest.fixture(scope="module")
def tolerance(engine: Engine, prompts: list[list[int]], plain_answers: list[list[int]]) -> float:
    """Largest difference of a logit between passes of 1 row and of many, over all plain answers."""
    differences = []
    for prompt, answer in zip(prompts, plain_answers, strict=True):
        narrow, *wide = (engine.score(prompt + answer, len(prompt), width).logit for width in (1, BLOCK, MAX_NODES))
        differences += [float(np.abs(narrow - logit).max()) for logit in wide]
    return max(differences)


def test_first_difference_is_a_tie(
    engine: Engine, prompts: list[list[int]], plain_answers: list[list[int]], tolerance: float
) -> None:
    accepted = 0
    for prompt, plain in zip(prompts, plain_answers, strict=True):
        drafted = engine.generate(prompt, budget=BLOCK, **GREEDY)
        accepted += drafted.timings.draft_n_accepted
        assert gap(engine, prompt, plain, drafted.tokens) <= 2 * tolerance
    assert accepted > 0


def test_a_wrong_token_is_no_tie(
    engine: Engine, prompts: list[list[int]], plain_answers: list[list[int]], tolerance: float
) -> None:
    """The check above would notice a walk that takes one draft token too many."""
    for prompt, plain in zip(prompts[: len(PROMPTS)], plain_answers, strict=False):
        assert gap(engine, prompt, plain, [*plain[:4], plain[4] + 1, *plain[5:]]) > 2 * tolerance
