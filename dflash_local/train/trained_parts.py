"""What --only trains of a drafter, by the checkpoint's names of its parameters."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

_PATTERNS = {
    "fc": r"(fc|hidden_norm|pre_fc_norm_\w+)\.",  # the fusion of the taps
    "heads": r"(norm|markov_head|confidence_head|candidate_selector)\.",  # what a kind adds, and the last norm
}
_TABLES = re.compile(r"candidate_selector\.\w+_codebook\.|markov_head\.")  # embeddings, which get no low-rank change


def is_trained(name: str, only: str | None) -> bool:
    """Does a parameter of this name itself change? `only` None: all do."""
    return only not in _PATTERNS or bool(re.match(_PATTERNS[only], name))


def n_trained(shapes: Mapping[str, Sequence[int]], only: str | None, rank: int) -> int:
    """Numbers that are trained of parameters with these shapes; `rank` is that of "lora"."""
    if only == "lora":
        return sum(
            min(rank, *shape) * sum(shape)
            for name, shape in shapes.items() if len(shape) == 2 and not _TABLES.match(name)
        )  # fmt: skip
    return sum(math.prod(shape) for name, shape in shapes.items() if is_trained(name, only))
