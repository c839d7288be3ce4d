"""Batches: random anchors of the tapped texts, what the blocks there should propose, and what they are given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from dflash_local.train.network import Blocks
from dflash_local.train.shards import TappedText
from dflash_local.train.step_size import GROUP

# Contexts of a batch end at a multiple of this. torch keeps what it has prepared for products of every shape, which
# are gigabytes after a few hundred steps of as many lengths.
_CONTEXT_STEP = 128


@dataclass(frozen=True)
class Wanted:
    """What the proposing rows of a batch should say, [texts, n, n_proposed, ...].

    tokens: the text's own; before: the token before each; ids, log_probs: the target's likeliest there [..., top_k];
    counts: False beyond the answer's end.
    """

    tokens: Tensor
    before: Tensor
    ids: Tensor
    log_probs: Tensor
    counts: Tensor


@dataclass(frozen=True)
class Batch:
    blocks: Blocks
    wanted: Wanted


class Sampler:
    """Draws batches of `n_texts` texts with GROUP anchors each. In one epoch each token of an answer is an anchor about
    once; the order and the anchors are random, and follow from the seed and the number of batches so far.

    `embedding` maps tokens to rows [n, n_embd] of float32, with what the drafter's embeddings are scaled by. Without a
    mask, as for an MTP layer, a block holds the text's own tokens, and the context's are given, too.
    """

    def __init__(
        self,
        texts: Sequence[TappedText],
        *,
        block_size: int,
        anchor_first: bool,
        mask_token: int,
        embedding: EmbeddingTable,
        n_texts: int,
        seed: int,
        device: torch.device,
    ) -> None:
        self._texts, self._block, self._first = texts, block_size, 0 if anchor_first else 1
        self._mask, self._embedding, self._n_texts = mask_token, embedding, n_texts
        self._seed, self._device = seed, device
        visits = [max(1, round(_n_anchors(text) / GROUP)) for text in texts]
        self._order = np.repeat(np.arange(len(texts)), visits)
        self.n_anchors = sum(map(_n_anchors, texts))
        self._shuffled = (-1, self._order)  # an epoch, and the order in it: of many texts it takes long to draw

    @property
    def per_epoch(self) -> int:
        """Batches of an epoch."""
        return max(1, len(self._order) // self._n_texts)

    def batch(self, number: int) -> Batch:
        """Batch `number`, counted from 0 over all epochs."""
        epoch, place = divmod(number, self.per_epoch)
        if self._shuffled[0] != epoch:
            self._shuffled = epoch, np.random.default_rng((self._seed, epoch)).permutation(self._order)
        picked = [self._texts[i] for i in self._shuffled[1][place * self._n_texts : (place + 1) * self._n_texts]]
        return self.of(picked, np.random.default_rng((self._seed, epoch, place)))

    def of(self, texts: Sequence[TappedText], rng: np.random.Generator) -> Batch:
        """A batch of these texts with random anchors."""
        anchors = np.stack([_anchors(text, rng) for text in texts])
        return self.at(texts, np.abs(anchors), anchors >= 0)

    def at(
        self, texts: Sequence[TappedText], anchors: npt.NDArray[np.int64], used: npt.NDArray[np.bool_] | None = None
    ) -> Batch:
        """A batch of these texts with these anchors [texts, n]; unused ones do not count."""
        n_last = self._block + 1 - self._first  # tokens from the anchor to the last proposed one
        n_context = -(-int(anchors.max()) // _CONTEXT_STEP) * _CONTEXT_STEP
        taps = np.zeros((len(texts), n_context, texts[0].taps.shape[1]), np.uint16)
        context = np.full((len(texts), n_context), texts[0].tokens[0], np.int64)
        tokens, counts, ids, log_probs = [], [], [], []
        for row, text in enumerate(texts):
            at = anchors[row][:, None] + np.arange(n_last)
            inside = at < len(text.tokens)
            tokens.append(text.tokens[np.minimum(at, len(text.tokens) - 1)])
            counts.append(inside[:, 1:] if used is None else inside[:, 1:] & used[row][:, None])
            rows = np.minimum(at[:, :-1], len(text.ids) - 1)
            ids.append(text.ids[rows])
            log_probs.append(text.log_probs[rows])
            seen_by_last = int(anchors[row].max())
            taps[row, :seen_by_last] = text.taps[:seen_by_last]
            context[row, :seen_by_last] = text.tokens[:seen_by_last]
        seen = torch.from_numpy(np.stack(tokens)).long()
        blocks = Blocks(
            torch.from_numpy(taps.view(np.int16)).view(torch.bfloat16).to(self._device),
            torch.from_numpy(anchors).to(self._device),
            self._embedded(seen[..., : self._block]),
            self._embedding(torch.from_numpy(context)) if self._embedding.mask is None else None,
        )
        wanted = Wanted(
            seen[..., 1:].to(self._device),
            seen[..., :-1].to(self._device),
            torch.from_numpy(np.stack(ids)).long().to(self._device),
            torch.from_numpy(np.stack(log_probs)).to(self._device),
            torch.from_numpy(np.stack(counts)).to(self._device),
        )
        return Batch(blocks, wanted)

    def _embedded(self, tokens: Tensor) -> Tensor:
        """[texts, n, block] tokens of the texts -> [texts, n, block, n_embd]: the first of each block, and masks."""
        if self._embedding.mask is None:
            return self._embedding(tokens)
        first = self._embedding(tokens[..., :1])
        masks = self._embedding.mask.expand(*tokens.shape[:2], self._block - 1, -1)
        return torch.cat([first, masks], 2)


class EmbeddingTable:
    """The embeddings of the tokens that can be in blocks, and of the mask if there is one, on a device."""

    def __init__(
        self, tokens: npt.NDArray[np.int64], rows: npt.NDArray[np.float32], mask: npt.NDArray[np.float32] | None,
        n_vocab: int, device: torch.device,
    ) -> None:  # fmt: skip
        self._places = torch.full((n_vocab,), -1, dtype=torch.long)
        self._places[torch.from_numpy(tokens)] = torch.arange(len(tokens))
        self._rows = torch.from_numpy(rows).to(device)
        self.mask = None if mask is None else torch.from_numpy(mask).to(device)

    def __call__(self, tokens: Tensor) -> Tensor:
        return self._rows[self._places[tokens].to(self._rows.device)]


def _n_anchors(text: TappedText) -> int:
    """An anchor is a token of the answer that another one follows: the engine drafts from no other."""
    return max(len(text.tokens) - 1 - text.n_prompt, 0)


def _anchors(text: TappedText, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """GROUP different anchors, in order; where there are fewer, negative ones fill up, which do not count."""
    n = _n_anchors(text)
    chosen = text.n_prompt + rng.permutation(n)[:GROUP]
    filled = np.full(GROUP, -text.n_prompt, np.int64)
    filled[: len(chosen)] = np.sort(chosen)
    return filled


def token_counts(texts: Sequence[TappedText], top_k: int) -> Counter[int]:
    """How often each token is in answers; with `top_k`, also among the target's so many likeliest there."""
    counts: Counter[int] = Counter()
    for text in texts:
        counts.update(text.tokens[text.n_prompt :].tolist())
        if top_k:
            counts.update(np.asarray(text.ids[text.n_prompt - 1 :, :top_k]).reshape(-1).tolist())
    return counts


def all_tokens(texts: Sequence[TappedText], *, prompts: bool) -> npt.NDArray[np.int64]:
    """The different tokens of the answers, those that can be anchors; also of the `prompts`."""
    parts = [text.tokens if prompts else text.tokens[text.n_prompt :] for text in texts]
    return np.unique(np.concatenate(parts)).astype(np.int64)
