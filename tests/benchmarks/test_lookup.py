"""The benchmark of prompt lookup: what its table says."""

from __future__ import annotations

from benchmarks import lookup
from benchmarks.systems import PLAIN


def test_ratios_are_of_medians_and_of_the_best() -> None:
    speeds = {
        PLAIN: [10.0, 12.0, 11.0],
        "upstream ngram-mod": [8.0, 8.0, 8.0],
        "upstream ngram-simple": [20.0, 22.0, 24.0],
        lookup.OURS_OFF: [11.0, 11.0, 11.0],
        lookup.OURS: [30.0, 33.0, 36.0],
    }
    row = lookup.row("Model", 0.8, "edit", speeds)
    assert row["best"] == "upstream ngram-simple"
    assert (row["over_plain"], row["over_best"], row["over_off"]) == (3.0, 1.5, 3.0)
    speeds["upstream ngram-simple"] = [9.0]  # plain decoding is upstream's best then
    assert lookup.row("Model", 0.8, "chat", speeds)["over_best"] == 3.0
