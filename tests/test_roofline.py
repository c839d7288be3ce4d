"""The roofline that is fitted to costs of passes."""

from __future__ import annotations

import random

import pytest

from dflash_local.roofline import fit

WIDTHS = (*range(1, 17), *range(20, 65, 4))


def costs(floor: float, row: float, noise: float = 0.0) -> dict[int, float]:
    random_ = random.Random(1)
    return {n: max(floor, n * row) * (1 + noise * random_.random()) for n in WIDTHS}


@pytest.mark.parametrize(("floor", "row"), [(8.0, 1.0), (6.0, 0.2), (2.0, 0.5), (100.0, 5.0)])
def test_exact_costs(floor: float, row: float) -> None:
    line = fit(costs(floor, row))
    assert line is not None
    assert line.floor_ms == pytest.approx(floor)
    assert line.row_ms == pytest.approx(row)
    assert line.knee == pytest.approx(floor / row)
    assert line.at(1) == pytest.approx(floor)
    assert line.at(64) == pytest.approx(64 * row)


def test_noise_and_disturbed_passes() -> None:
    measured = costs(8.0, 1.0, noise=0.2) | {5: 40.0, 12: 1e-4, 48: 300.0}
    line = fit(measured)
    assert line is not None
    assert line.floor_ms == pytest.approx(8.8, rel=0.15)
    assert line.row_ms == pytest.approx(1.1, rel=0.15)


def test_reading_bounds_all_passes() -> None:
    """As on a GPU: 64 rows cost little more than one."""
    line = fit({n: 10 * n**0.08 for n in WIDTHS})
    assert line is not None
    assert line.row_ms is None
    assert line.knee is None
    assert line.at(64) == line.floor_ms


def test_computing_bounds_all_passes() -> None:
    line = fit({n: 3.0 * n for n in WIDTHS})
    assert line is not None
    assert line.floor_ms is None
    assert line.row_ms == pytest.approx(3.0)


def test_too_few_points() -> None:
    assert fit({}) is None
    assert fit({1: 1.0, 2: 1.0, 4: 1.0, 8: 0.0}) is None
