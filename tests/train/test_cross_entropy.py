"""Cross-entropy in parts against torch's, values and gradients."""

from __future__ import annotations

import pytest
import torch

from dflash_local.train.cross_entropy import Projection, cross_entropy


@pytest.mark.parametrize(("scale", "softcap"), [(None, None), (0.25, None), (None, 3.0), (0.5, 2.0)])
def test_values_and_gradients(scale: float | None, softcap: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of unlike length, classes that stand for several, one position of which nothing is wanted."""
    monkeypatch.setattr("dflash_local.train.cross_entropy._PART", {"cpu": 7 * 50})
    monkeypatch.setattr("dflash_local.train.cross_entropy._LEAST", 1)
    torch.manual_seed(1)
    n, n_classes, n_embd, k = 33, 50, 16, 4
    rows, corrections = torch.randn(n_classes, n_embd), torch.rand(n_classes) * 3
    hidden = torch.randn(n, n_embd)
    own = torch.randint(n_classes, (n,))
    wanted = torch.stack([torch.randperm(n_classes)[:k] for _ in range(n)])
    shares = torch.rand(n, k).softmax(-1)
    shares[5] = 0
    weights = torch.rand(n)

    def plain(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = x @ rows.T * (scale or 1.0)
        if softcap is not None:
            logits = softcap * torch.tanh(logits / softcap)
        return logits, (logits + corrections).log_softmax(-1)

    ours, theirs = hidden.clone().requires_grad_(), hidden.clone().requires_grad_()
    head = Projection(rows, corrections, scale, softcap)
    entropy, own_log_probs, guess = cross_entropy(ours, head, own, wanted, shares)
    logits, log_probs = plain(theirs)
    expected = -(shares * log_probs.gather(-1, wanted)).sum(-1)
    torch.testing.assert_close(entropy, expected)
    torch.testing.assert_close(own_log_probs, log_probs.gather(-1, own[:, None])[:, 0])
    assert torch.equal(guess, logits.argmax(-1)) and not own_log_probs.requires_grad
    (entropy * weights).sum().backward()
    (expected * weights).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)
    assert ours.grad is not None and not ours.grad[5].any()
