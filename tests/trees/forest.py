"""Random trees of tokens: every shape that drafts may have, and some that no draft has."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from dflash_local.native import MAX_NODES

from .models import N_VOCAB


class Tree(NamedTuple):
    """Rows as they reach the target: row i is token `tokens[i]` after row `parents[i]` < i; row 0, the anchor, has
    parent -1."""

    tokens: list[int]
    parents: list[int]

    def path(self, row: int) -> list[int]:
        """Rows from the anchor to `row`."""
        rows = [row]
        while self.parents[rows[-1]] >= 0:
            rows.append(self.parents[rows[-1]])
        return rows[::-1]

    def leaves(self) -> list[int]:
        return sorted(set(range(len(self.tokens))) - set(self.parents))

    def text(self, path: list[int]) -> list[int]:
        """The tokens of a path."""
        return [self.tokens[row] for row in path]


def words(rng: random.Random, n: int) -> list[int]:
    """Any tokens but the end of text."""
    return [rng.randrange(N_VOCAB - 1) for _ in range(n)]


def grow(parents: list[int], rng: random.Random) -> Tree:
    """Tokens for a shape; children of one row differ, so that no two rows have the same path."""
    taken: dict[int, set[int]] = {}
    tokens = []
    for parent in parents:
        token = rng.choice([t for t in range(N_VOCAB - 1) if t not in taken.setdefault(parent, set())])
        taken[parent].add(token)
        tokens.append(token)
    return Tree(tokens, parents)


def chain(tokens: list[int]) -> Tree:
    return Tree(tokens, list(range(-1, len(tokens) - 1)))


# Parents of n rows.
def line(rng: random.Random, n: int) -> list[int]:
    return list(range(-1, n - 1))


def star(rng: random.Random, n: int) -> list[int]:
    return [-1] + [0] * (n - 1)


def bush(rng: random.Random, n: int) -> list[int]:
    return [-1] + [rng.randrange(i) for i in range(1, n)]


def vine(rng: random.Random, n: int) -> list[int]:
    """Long paths, branching near their ends, in an order that is neither breadth nor depth first."""
    return [-1] + [rng.randrange(max(i - 3, 0), i) for i in range(1, n)]


def levels(rng: random.Random, n: int) -> list[int]:
    """A bush breadth first."""
    return ordered(bush(rng, n), lambda depth, i: (depth, i))


def spine(rng: random.Random, n: int) -> list[int]:
    """A long chain first, as a drafter's likeliest path, then short branches off it: rows whose positions fall."""
    length = max(2 * n // 3, 1)
    return [*range(-1, length - 1), *(rng.randrange(length) for _ in range(n - length))]


SHAPES = (line, star, bush, vine, levels, spine)


def ordered(parents: list[int], key: Callable[[int, int], tuple[int, int]]) -> list[int]:
    """The same shape with its rows sorted by key(depth, row)."""
    depths: list[int] = []
    for parent in parents:
        depths.append(depths[parent] + 1 if parent >= 0 else 0)
    order = sorted(range(len(parents)), key=lambda i: key(depths[i], i))
    at = {row: i for i, row in enumerate(order)}
    return [at[parents[row]] if parents[row] >= 0 else -1 for row in order]


def random_tree(rng: random.Random, most: int = MAX_NODES) -> Tree:
    return grow(rng.choice(SHAPES)(rng, rng.randint(1, most)), rng)
