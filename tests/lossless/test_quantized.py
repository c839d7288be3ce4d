"""Quantized pocket pairs: where a drafted answer leaves the plain one, a teacher-forced pass shows a tie.

A pass of one row and a pass of a whole block use different kernels, which round differently (and quantize activations in different
groups), so two tokens whose logits nearly agree may change places. How much that moves a logit is measured on the same weights and
texts: the largest difference between scoring a plain answer in passes of 1 row and of 16 rows. Two candidates may move by that much
towards each other, so a tie is a gap of at most twice the tolerance.
"""

from collections.abc import Iterator

import numpy as np
import pytest

from dflash_local import Engine
from dflash_local.native import quantize
from tests.parity.f32 import DEMO

from .test_tokens import BLOCK, PROMPTS, chat

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


@pytest.fixture(scope="module", params=["q4_0", "q4_k_m", "q8_0"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    target = tmp_path_factory.mktemp("quantized") / f"target-{request.param}.gguf"
    quantize(DEMO / "pocket-target.gguf", target, request.param)
    with Engine(target, DEMO / "pocket-dflash.gguf", n_ctx=1024, n_threads=1, warmup=False) as engine:
        yield engine


def logit(engine: Engine, context: list[int], token: int, width: int) -> float:
    return float(engine.score([*context, token], len(context), width).logit[0])


def test_first_difference_is_a_tie(engine: Engine) -> None:
    tolerance, differences = 0.0, []
    for text in PROMPTS + MORE_PROMPTS:
        prompt = chat(engine, text)
        plain = engine.generate(prompt, temperature=0, max_tokens=96, budget=1).tokens
        drafted = engine.generate(prompt, temperature=0, max_tokens=96, budget=BLOCK).tokens
        narrow, wide = (engine.score(prompt + plain, len(prompt), width).logit for width in (1, BLOCK))
        tolerance = max(tolerance, float(np.abs(narrow - wide).max()))
        if drafted != plain:
            differences.append((prompt, plain, drafted))
    for prompt, plain, drafted in differences:
        same = next(i for i, (a, b) in enumerate(zip(plain, drafted, strict=False)) if a != b)
        context = prompt + plain[:same]
        for width in (1, BLOCK):
            gap = abs(logit(engine, context, plain[same], width) - logit(engine, context, drafted[same], width))
            assert gap <= 2 * tolerance, (engine.detokenize(context), plain[same], drafted[same])
    assert tolerance < 1.0, "passes of different widths disagree by more than rounding"
