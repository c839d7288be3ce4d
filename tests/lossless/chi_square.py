"""Pearson's chi-square test for tokens that were drawn from known, different distributions.

Each sampled token has its own exact distribution, that of the target after the tokens before it. Tokens are grouped (by
what the caller thinks may matter: position, token before). In a group with n tokens, observed counts O and expected
counts E = sum of the distributions, O - E has covariance S = sum of (diag(p) - p p^T): every token's deviation has mean
zero given all tokens before it, so deviations are uncorrelated. (O - E)^T S^+ (O - E) is then chi-square with (cells -
1) degrees of freedom; for equal distributions it is Pearson's statistic. Groups add up.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

SMALLEST_EXPECTED = 5.0  # cells below it are merged into one (the usual rule)
SMALLEST_GROUP = 200  # groups below it are merged into one


@dataclass(frozen=True)
class ChiSquare:
    """Statistic, degrees of freedom, number of tokens."""

    statistic: float
    freedom: int
    n: int

    @property
    def p_value(self) -> float:
        """Upper tail probability (Wilson and Hilferty 1931: the cube root is normal; error below 1e-3 for 10 degrees
        and more)."""
        spread = 2 / (9 * self.freedom)
        z = ((self.statistic / self.freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread)
        return 0.5 * math.erfc(z / math.sqrt(2))


def chi_square(
    groups: Sequence[object], tokens: npt.NDArray[np.int64], probabilities: npt.NDArray[np.floating]
) -> ChiSquare:
    """Test tokens [n] against probabilities [n, n_vocab], with a group label for each token."""
    sizes: dict[object, int] = {}
    for group in groups:
        sizes[group] = sizes.get(group, 0) + 1
    labels = np.array([str(g) if sizes[g] >= SMALLEST_GROUP else "" for g in groups])
    statistic, freedom = 0.0, 0
    for label in np.unique(labels):
        rows = labels == label
        part, cells = _group(tokens[rows], probabilities[rows].astype(np.float64))
        statistic, freedom = statistic + part, freedom + cells - 1
    return ChiSquare(statistic, freedom, len(tokens))


def _group(tokens: npt.NDArray[np.int64], p: npt.NDArray[np.float64]) -> tuple[float, int]:
    common = p.sum(0) >= SMALLEST_EXPECTED
    cell = np.where(common, np.cumsum(common) - 1, common.sum())  # the rare ones share the last cell
    merged = np.zeros((len(p), int(cell.max()) + 1))
    np.add.at(merged.T, cell, p.T)
    deviation = np.bincount(cell[tokens], minlength=merged.shape[1]) - merged.sum(0)
    covariance = np.diag(merged.sum(0)) - merged.T @ merged
    return float(deviation @ np.linalg.pinv(covariance, hermitian=True) @ deviation), merged.shape[1]
