"""On a device that rounds otherwise than the CPU, texts may part where two tokens are about as likely."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

# In logits, of models in f32 throughout. Measured on Mesa's driver: 0.004, where passes of 16 rows use other shaders
# than those of one; an error of position, mask or layer is of the order of 1.
TOLERANCE = 0.02

Answers = Sequence[Sequence[Sequence[int]]]  # tokens of prompt and answer, by prompt


def off(logits: Sequence[Any], reference: Sequence[Any]) -> float:
    """The largest difference of a logit of the same tokens, whatever the width of the pass."""
    pairs = zip(logits, reference, strict=True)
    return max(float(np.abs(np.subtract(wide, np.array(of_one)[:1])).max()) for wide, of_one in pairs)


def parted(reference: Answers, other: Answers) -> list[tuple[Sequence[int], ...]]:
    """Prompt, answer and other answer where they differ: for Worker.ask's `compare`."""
    both = zip(reference, other, strict=True)
    return [(prompt, answer, others) for (prompt, answer), (_, others) in both if answer != others]
