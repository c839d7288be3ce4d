"""Our kernels have stock's quality: the same perplexity to four digits, and per token nearer to stock than four bits
are to F16."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks import kernels, perplexity, targets
from tests.fast import some_fast

LETTERS = 10_000  # of the text: some 2,600 tokens; of a quarter of them rounding moves the fourth digit
WIDTH = 16
NEAR = 1e-3  # mean absolute difference of -log p per token


@pytest.fixture(scope="module")
def both() -> Iterator[kernels.Processes]:
    with kernels.processes() as both:
        yield both


def surprises(both: kernels.Processes, ftype: str, work: Path) -> dict[str, np.ndarray]:
    text = perplexity.TEXT.read_text(encoding="utf-8")[:LETTERS]
    return perplexity.surprises(both, targets.make(work, "pocket", ftype), text, [WIDTH], 1)[WIDTH]


@pytest.fixture(scope="module")
def exact(both: kernels.Processes, tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    return surprises(both, "f16", tmp_path_factory.mktemp("exact"))


@pytest.mark.parametrize(
    "ftype", some_fast([kind for kind in perplexity.TYPES if kind != "f16"], ("q4_0", "q4_1", "q4_k_m"))
)
def test_same_as_stock(both: kernels.Processes, exact: dict[str, np.ndarray], ftype: str, tmp_path: Path) -> None:
    typed = surprises(both, ftype, tmp_path)
    found = perplexity.row(ftype, WIDTH, typed, exact[kernels.STOCK])
    assert found["same"] and perplexity.row("f16", WIDTH, exact, exact[kernels.STOCK])["same"]
    assert len(exact[kernels.STOCK]) > perplexity.WINDOW
    assert found["ours_from_stock"] < NEAR
    if ftype in ("q4_0", "q4_1", "iq4_nl", "mxfp4"):
        assert found["stock_from_f16"] > NEAR  # weights that are wrong in their fifth bit would be noticed


def test_a_difference_in_the_fourth_digit_is_noticed() -> None:
    assert perplexity.same(1.1840, 1.1843) and not perplexity.same(1.1840, 1.1846) and not perplexity.same(123.4, 123.5)
