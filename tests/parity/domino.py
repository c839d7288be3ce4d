"""Domino in PyTorch: the authors' DFlash backbone with a recurrent cell that corrects its logits, in both layouts.

Written from the published class (SpecForge 0.2.0, modeling/draft/domino.py), which needs another torch; that both draft
the same was checked once by hand.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .dspark import DSpark
from .reference import SHAPE


class DominoHead(nn.Module):  # type: ignore[misc]
    """The published names, so that its state dict is the checkpoint's."""

    def __init__(self, state_size: int, width: int) -> None:
        super().__init__()
        n_embd, n_vocab = SHAPE["hidden_size"], SHAPE["vocab_size"]
        self.prefix_gru = nn.GRU(n_embd, state_size, batch_first=True, bias=False)
        self.embed_proj = nn.Sequential(
            nn.Linear(n_embd + state_size, width, bias=False), nn.SiLU(), nn.Linear(width, n_vocab, bias=False)
        )

    def forward(self, hidden: Tensor, embeddings: Tensor) -> Tensor:
        """What is added to the logits of rows [n, length, n_embd]; embeddings [n, length, n_embd]: row i may read those
        up to i."""
        correction: Tensor = self.embed_proj(torch.cat([hidden, self.prefix_gru(embeddings)[0]], -1))
        return correction


@dataclass
class Domino(DSpark):
    """`prefix`: the first proposals of a block that are not corrected (pure_draft_prefix_len). `most`: proposals that
    are asked for. `anchor_first` is shift_label."""

    head: Any = None
    prefix: int = 0
    most: int = 64

    def corrected(self, row: int, hidden: Tensor, logits: Tensor, tokens: list[int]) -> Tensor:
        """Logits of proposal `row` [n_vocab], after `tokens`, the anchor first."""
        assert len(tokens) == row + 1
        if row < self.prefix:
            return logits
        states = self.head.prefix_gru(self.target.get_input_embeddings()(torch.tensor([tokens])))[0]
        correction: Tensor = self.head.embed_proj(torch.cat([hidden, states[0, -1]]))
        return logits + correction

    def drafts(self, tokens: list[int], taps: Tensor | None = None) -> list[int]:
        hidden, logits = self.draft(tokens, taps)
        path = [tokens[-1]]
        for row, (h, base) in enumerate(zip(hidden[self.first :], logits[self.first :], strict=True)):
            path.append(int(self.corrected(row, h, base, path).argmax()))
        return path[1 : 1 + self.most]
