"""Cross-entropy over the rows of a head that is not trained, without the logits of all positions at once.

The logits of a step are its largest numbers by far: 10,000 for each position. Taken in parts that a cache holds, with
the gradient of each part made along with its value, they are written once and never kept (Liger's fused linear
cross-entropy, arXiv 2410.10989).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

_PART = {"cpu": 1 << 19}  # logits at once
_PART_OF_GPU = 1 << 26
_LEAST = 64  # positions at once: a part reads the whole head


@dataclass(frozen=True)
class Projection:
    """`rows` [classes, n_embd]; `corrections` [classes] are added to logits, which are scaled and capped before."""

    rows: Tensor
    corrections: Tensor
    scale: float | None = None
    softcap: float | None = None

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., classes] of rows [..., n_embd], float32, without corrections."""
        logits = (hidden.to(self.rows.dtype) @ self.rows.T).float()
        if self.scale is not None:
            logits = logits * self.scale
        if self.softcap is not None:
            logits = torch.tanh(logits / self.softcap) * self.softcap
        return logits


def cross_entropy(
    hidden: Tensor, head: Projection, own: Tensor, wanted: Tensor, shares: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Of rows `hidden` [n, n_embd]: the cross-entropy, of which gradients are taken, against classes `wanted` [n, k]
    with `shares` [n, k] that sum to 1 or are 0; the log-probability of the class `own` [n]; and the likeliest class,
    uncorrected."""
    entropy, own_log_probs, guess = _CrossEntropy.apply(hidden, head, own, wanted, shares)
    return entropy, own_log_probs, guess


class _CrossEntropy(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, head: Projection, own: Tensor, wanted: Tensor, shares: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        n_part = max(_LEAST, _PART.get(hidden.device.type, _PART_OF_GPU) // len(head.rows))
        parts = zip(*(x.split(n_part) for x in (hidden, own, wanted, shares)), strict=True)
        entropy, own_log_probs, guess, gradient = map(torch.cat, zip(*(_part(head, *x) for x in parts), strict=True))
        ctx.save_for_backward(gradient)
        ctx.mark_non_differentiable(own_log_probs, guess)
        return entropy, own_log_probs, guess

    @staticmethod
    def backward(ctx: Any, of_entropy: Tensor, *_: Any) -> tuple[Tensor, None, None, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * of_entropy[:, None], None, None, None, None


def _part(
    head: Projection, hidden: Tensor, own: Tensor, wanted: Tensor, shares: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Entropy, log-probability of `own`, likeliest class, and the entropy's gradient [n, n_embd]."""
    logits = head.logits(hidden)
    capped = None if head.softcap is None else 1 - (logits / head.softcap) ** 2
    guess = logits.argmax(-1)
    log_probs = logits.add_(head.corrections).log_softmax(-1)
    own_log_probs = log_probs.gather(-1, own[:, None])[:, 0]
    entropy = -(shares * log_probs.gather(-1, wanted)).sum(-1)
    slope = log_probs.exp_().scatter_add_(-1, wanted, -shares)
    if capped is not None:
        slope *= capped
    gradient = (slope.to(head.rows.dtype) @ head.rows).float() * (head.scale or 1.0)
    return entropy, own_log_probs, guess, gradient * shares.sum(-1, keepdim=True)
