"""The objective: what the proposed tokens should be, over a bounded part of the vocabulary.

Cross-entropy against the target's own text, or against the likeliest tokens of its distribution, weighed by position:
the paper's falling weights (arXiv 2602.06036, section 4), or D-PACE (arXiv 2605.18810), which follows the drafter's own
confidence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from dflash_local.convert.kinds import DFlash2, DSpark
from dflash_local.train.batches import Wanted
from dflash_local.train.cross_entropy import Projection, cross_entropy
from dflash_local.train.network import TrainedNetwork
from dflash_local.train.token_rows import TokenRows

_SMOOTHING = 0.5  # alpha of D-PACE's equation 7, its authors' value
_SAMPLED = 1024  # further rows of the head in a step
_REDRAWN = 16  # steps after which they are others


@dataclass(frozen=True)
class Classes:
    """The tokens among which a step chooses. `places[token]` is a token's row of `head` [n, n_embd], -1: it has none.
    `corrections` [n] are added to logits: a row that was drawn from many stands for all of them."""

    tokens: Tensor
    head: Tensor
    places: Tensor
    corrections: Tensor


class Head:
    """Rows of the output projection: the frequent tokens of the texts always, others by chance.

    A softmax over frequent rows and a sample of the others, each of which counts as often as it was likely to be
    missing, has the value of the whole one on average (importance sampling). If all tokens are frequent it is exact.
    """

    def __init__(
        self,
        rows: TokenRows,
        frequent: Sequence[int],
        n_vocab: int,
        seed: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self._rows, self._n_vocab, self._seed = rows, n_vocab, seed
        self._device, self._dtype = device, dtype
        proposed = rows.tokens(n_vocab)
        self._kept = np.intersect1d(np.array(frequent, np.int64), proposed)
        self._others = np.setdiff1d(proposed, self._kept)
        if len(self._others) <= _SAMPLED:
            self._kept, self._others = proposed, self._others[:0]
        self._kept_rows = self._on_device(self._kept)
        self._drawn: tuple[int, Classes] | None = None

    @property
    def n_rows(self) -> int:
        """Rows of a step."""
        return len(self._kept) + min(len(self._others), _SAMPLED)

    def classes(self, step: int) -> Classes:
        number = step // _REDRAWN
        if self._drawn is None or self._drawn[0] != number:
            self._drawn = (number, self._draw(number))
        return self._drawn[1]

    def _draw(self, number: int) -> Classes:
        tokens, head = self._kept, self._kept_rows
        corrections = torch.zeros(len(tokens), device=self._device)
        if len(self._others):
            rng = np.random.default_rng((self._seed, number))
            drawn = rng.choice(self._others, _SAMPLED, replace=False)
            tokens = np.concatenate([tokens, drawn])
            head = torch.cat([head, self._on_device(drawn)])
            corrections = F.pad(corrections, (0, _SAMPLED), value=math.log(len(self._others) / _SAMPLED))
        places = torch.full((self._n_vocab,), -1, dtype=torch.long)
        places[torch.from_numpy(tokens)] = torch.arange(len(tokens))
        return Classes(torch.from_numpy(tokens).to(self._device), head, places.to(self._device), corrections)

    def _on_device(self, tokens: npt.NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(self._rows.of(tokens)).to(self._device, self._dtype)


@dataclass(frozen=True)
class Score:
    """A step's loss, of which gradients are taken, and figures: the mean cross-entropy, and the mean of the tokens that
    a greedy chain would bring (of blocks that count whole)."""

    loss: Tensor
    entropy: float
    chain: float


class Objective:
    """`goal` "text" or "distill", `weights` "dpace" or "decay"; `gamma`: the paper's decay over positions."""

    def __init__(self, network: TrainedNetwork, goal: str, weights: str) -> None:
        self._network, self._goal, self._weights = network, goal, weights
        c = network.file.config
        self._config, self._first = c, 0 if c.samples_from_anchor else 1
        self._gamma = {16: 7.0, 10: 5.0, 8: 4.0}.get(c.block_size, c.block_size / 2)  # of section 4, by block size

    def score(self, hidden: Tensor, wanted: Wanted, classes: Classes) -> Score:
        """The loss of a batch: hidden [texts, n, block_size, n_embd]."""
        hidden = hidden[:, :, self._first :]
        own_places = classes.places[wanted.tokens]
        counts = wanted.counts & (own_places >= 0)
        own_places = own_places.clamp_min(0)
        places, shares = self._shares(wanted, classes, own_places)
        if self._has_heads:
            logits = self.logits(hidden, wanted.before, classes)
            log_probs = F.log_softmax(logits + classes.corrections, -1)
            own = log_probs.gather(-1, own_places[..., None])[..., 0]
            entropy = -(shares * log_probs.gather(-1, places)).sum(-1)
            guess = logits.detach().argmax(-1)
        else:
            head = self._projection(classes)
            rows = (hidden.flatten(0, -2), head, own_places.flatten(), places.flatten(0, -2), shares.flatten(0, -2))
            entropy, own, guess = (x.view(own_places.shape) for x in cross_entropy(*rows))
        weights = self.weights(own.detach(), wanted.counts) * counts
        total = weights.sum().clamp_min(1e-6)
        loss = (entropy * weights).sum() / total
        guess = classes.tokens[guess]
        if self._has_heads:
            loss, guess = self._heads(loss, guess, hidden, logits, wanted, classes, weights / total)
        return Score(loss, float((-own.detach() * counts).sum() / counts.sum().clamp_min(1)), chain(guess, wanted))

    @property
    def _has_heads(self) -> bool:
        """Does the kind have parts of its own that read logits, or add to them?"""
        return isinstance(self._config.kind, DFlash2 | DSpark)

    def logits(self, hidden: Tensor, before: Tensor, classes: Classes) -> Tensor:
        """[..., classes], float32, with the Markov head's part."""
        logits = self._projection(classes).logits(hidden)
        if isinstance(self._config.kind, DSpark):
            head = self._network.markov_head
            rows = self._draft_rows(classes.tokens)
            logits = logits + (head.markov_w1(before) @ head.markov_w2(rows).T).float()
        return logits

    def _projection(self, classes: Classes) -> Projection:
        c = self._config
        return Projection(classes.head, classes.corrections, c.logit_scale, c.logit_softcap)

    def _draft_rows(self, tokens: Tensor) -> Tensor:
        """Rows of tables that have one for each draft token."""
        places = self._network.file_places
        return tokens if places is None else places.to(tokens.device)[tokens]

    def weights(self, own: Tensor, counts: Tensor) -> Tensor:
        """Of each position [..., n_proposed], from the log-probabilities of the text's tokens."""
        n = own.shape[-1]
        if self._weights == "decay":
            return torch.exp(-torch.arange(n, device=own.device) / self._gamma).expand_as(own)
        confidence = (1 - _SMOOTHING) * own.exp() + _SMOOTHING  # equation 7
        reached = (confidence * counts).cumprod(-1)
        return reached.flip(-1).cumsum(-1).flip(-1)  # equation 8: what depends on this position

    def _shares(self, wanted: Wanted, classes: Classes, own: Tensor) -> tuple[Tensor, Tensor]:
        """Classes that a position should say and their shares [..., k]: the text's token, or the likeliest ones of the
        target, as far as they are among the classes."""
        if self._goal == "text":
            return own[..., None], torch.ones_like(own[..., None], dtype=torch.float32)
        places = classes.places[wanted.ids]
        shares = wanted.log_probs.masked_fill(places < 0, -math.inf).softmax(-1).nan_to_num()
        return places.clamp_min(0), shares

    def _heads(
        self, loss: Tensor, guess: Tensor, hidden: Tensor, logits: Tensor, wanted: Wanted, classes: Classes,
        shares: Tensor,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """With the losses of what a kind has besides."""
        kind, network = self._config.kind, self._network
        if isinstance(kind, DFlash2):
            unary, best = torch.topk(logits, min(kind.selector_top_k, logits.shape[-1]), -1)
            candidates = classes.tokens[best]
            scores = unary + network.candidate_selector(hidden, wanted.before, candidates).float()
            hit = candidates == wanted.tokens[..., None]
            missed = -(scores.log_softmax(-1) * hit).sum(-1)
            loss = loss + (missed * hit.any(-1) * shares).sum()
            guess = candidates.gather(-1, scores.detach().argmax(-1, keepdim=True))[..., 0]
        if isinstance(kind, DSpark) and kind.has_confidence:
            before = network.markov_head.markov_w1(wanted.before).detach()
            estimate = network.confidence_head(hidden.detach(), before)
            right = (guess == wanted.tokens).float()
            each = F.binary_cross_entropy_with_logits(estimate.float(), right, reduction="none")
            loss = loss + (each * shares).sum()
        return loss, guess


def chain(guess: Tensor, wanted: Wanted) -> float:
    """1 and the mean number of proposed tokens that a chain keeps, over blocks that do not reach the text's end."""
    kept = ((guess == wanted.tokens) & wanted.counts).int().cumprod(-1).sum(-1).float()
    whole = wanted.counts.all(-1)
    return float(1 + (kept * whole).sum() / whole.sum().clamp_min(1))
