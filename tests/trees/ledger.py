"""What the cells of a target must look like when each slot holds a chain: the comparison of `dflash_cells` with
that."""

from __future__ import annotations

from typing import Any

Cells = dict[str, Any]


def positions(cells: Cells) -> list[dict[int, list[int]]]:
    """Per cache the sorted positions of each slot, over all streams.

    Checks on the way what holds for any cells: counts are right, and each cell is in use once, by one sequence.
    """
    out = []
    for cache in cells["caches"]:
        held: dict[int, list[int]] = {}
        for stream in cache["streams"]:
            indices = [cell for cell, _, _ in stream["cells"]]
            assert stream["used"] == len(indices) == len(set(indices))
            assert all(0 <= cell < cache["size"] for cell in indices)
            for _, pos, slots in stream["cells"]:
                (slot,) = slots
                held.setdefault(slot, []).append(pos)
        out.append({slot: sorted(found) for slot, found in held.items()})
    return out


def check(cells: Cells, lengths: list[int], window: int | None) -> None:
    """Every slot `s` holds a chain of lengths[s] tokens, and nothing else is in use.

    A cache without a window has each position once. One with a window, the smaller of iSWA's two, may have lost the
    positions that no later token can see: it has each position from some p on once, p at most the first that the next
    token sees.
    """
    caches = positions(cells)
    windows = [None] if window is None else [None, window]
    assert len(caches) == len(windows)
    for held, width in zip(caches, windows, strict=True):
        assert set(held) == {slot for slot, length in enumerate(lengths) if length}
        for slot, found in held.items():
            length = lengths[slot]
            first = found[0] if width else 0
            assert found == list(range(first, length)), f"slot {slot} of {length} tokens"
            assert width is None or first <= max(length - width + 1, 0)


def seen(cells: Cells, lengths: list[int], window: int | None) -> list[dict[int, list[int]]]:
    """`positions` without what no later token can see: equal for trees and chains."""
    caches = positions(cells)
    if window is not None:
        caches[1] = {slot: [p for p in found if p > lengths[slot] - window] for slot, found in caches[1].items()}
    return caches


def in_order(cells: Cells) -> bool:
    """Whether each stream of the cache without a window holds position p in cell p, as after plain decoding: sums over
    cells then run in the same order. True only of contexts in which each slot has a stream of its own."""
    return all(cell == pos for stream in cells["caches"][0]["streams"] for cell, pos, _ in stream["cells"])
