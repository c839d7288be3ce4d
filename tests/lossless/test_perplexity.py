"""Our kernels have stock's quality: the same perplexity to four digits, and per token nearer to stock than four bits
are to F16."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks import kernels, perplexity, targets

LETTERS = 2500  # of the text: some 650 tokens, more than one window
WIDTH = 16
NEAR = 1e-3  # mean absolute difference of -log p per token


@pytest.fixture(scope="module")
def both() -> Iterator[kernels.Processes]:
    with kernels.processes() as both:
        yield both


@pytest.mark.parametrize("ftype", [kind for kind in perplexity.TYPES if kind != "f16"])
def test_same_as_stock(both: kernels.Processes, ftype: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    text = perplexity.TEXT.read_text(encoding="utf-8")[:LETTERS]
    work = tmp_path_factory.mktemp("targets")
    exact, typed = (
        perplexity.surprises(both, targets.make(work, "pocket", kind), text, [WIDTH], 1)[WIDTH]
        for kind in ("f16", ftype)
    )
    found = perplexity.row(ftype, WIDTH, typed, exact[kernels.STOCK])
    assert found["same"] and perplexity.row("f16", WIDTH, exact, exact[kernels.STOCK])["same"]
    assert len(exact[kernels.STOCK]) > perplexity.WINDOW
    assert found["ours_from_stock"] < NEAR
    if ftype in ("q4_0", "iq4_nl", "mxfp4"):
        assert found["stock_from_f16"] > NEAR  # weights that are wrong in their fifth bit would be noticed


def test_a_difference_in_the_fourth_digit_is_noticed() -> None:
    assert perplexity.same(1.1840, 1.1843) and not perplexity.same(1.1840, 1.1846) and not perplexity.same(123.4, 123.5)
