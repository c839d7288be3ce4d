"""LiliCorr in PyTorch: the authors' DFlash or DFlash 2 layers with a correlator over the candidates of a block.

Written from the published descriptions (arXiv 2608.20530; ModelOpt's exporter), whose implementations need a GPU.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from .dspark import DSpark
from .reference import SHAPE


class Attention(nn.Module):  # type: ignore[misc]
    """The parameters of torch.nn.MultiheadAttention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.in_proj_weight = nn.Parameter(torch.empty(3 * width, width))
        self.in_proj_bias = nn.Parameter(torch.empty(3 * width))
        self.out_proj = nn.Linear(width, width)

    def forward(self, rows: Tensor, bias: Tensor) -> Tensor:
        """Rows [n, width], bias [heads, n queries, n keys]."""
        parts = (rows @ self.in_proj_weight.T + self.in_proj_bias).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(0, 1) for part in parts)
        scores = q @ k.transpose(1, 2) * q.shape[-1] ** -0.5 + bias
        out: Tensor = self.out_proj((scores.softmax(-1) @ v).transpose(0, 1).flatten(1))
        return out


class Layer(nn.Module):  # type: ignore[misc]
    def __init__(self, width: int, heads: int, n_ff: int, eps: float) -> None:
        super().__init__()
        self.attn_norm, self.mlp_norm = nn.RMSNorm(width, eps), nn.RMSNorm(width, eps)
        self.attn = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, n_ff), nn.SiLU(), nn.Linear(n_ff, width))

    def forward(self, rows: Tensor, bias: Tensor) -> Tensor:
        rows = rows + self.attn(self.attn_norm(rows), bias)
        return rows + self.mlp(self.mlp_norm(rows))


@dataclass(frozen=True)
class Sizes:
    """Of a head. `width` 0: that of the hidden states."""

    top_k: int = 8
    width: int = 96
    factor: int = 48
    layers: int = 2
    heads: int = 4
    ratio: float = 2.0
    scale: float = 8.0
    eps: float = 1e-4


class LiliCorrHead(nn.Module):  # type: ignore[misc]
    """The published names, so that its state dict is the checkpoint's."""

    def __init__(self, sizes: Sizes, block_size: int) -> None:
        super().__init__()
        n_embd, eps = SHAPE["hidden_size"], SHAPE["rms_norm_eps"]
        width = sizes.width or n_embd
        self.sizes, self.block_size = sizes, block_size
        self.token_proj = nn.Identity() if width == n_embd else nn.Linear(n_embd, width)
        self.pass_hidden_proj, self.context_proj = nn.Linear(n_embd, width), nn.Linear(n_embd, width)
        self.feature_mlp = nn.Sequential(nn.LayerNorm(5), nn.Linear(5, width), nn.SiLU(), nn.Linear(width, width))
        self.slot_embedding = nn.Parameter(torch.empty(1, 1, block_size - 1, 1, width))
        self.rank_embedding = nn.Parameter(torch.empty(1, 1, 1, sizes.top_k, width))
        self.relative_slot_bias = nn.Parameter(torch.empty(sizes.heads, 2 * block_size - 1))
        self.same_slot_bias = nn.Parameter(torch.empty(sizes.heads))
        n_ff = int(width * sizes.ratio)
        self.layers = nn.ModuleList(Layer(width, sizes.heads, n_ff, eps) for _ in range(sizes.layers))
        self.output_norm, self.anchor_norm = nn.RMSNorm(width, eps), nn.RMSNorm(width, eps)
        self.factor_input_proj = nn.Linear(3 * width, width)
        self.out_head, self.in_head, self.anchor_out_head = (nn.Linear(width, sizes.factor) for _ in range(3))

    def bias(self, n: int) -> Tensor:
        """What attention adds, by positions [heads, n queries, n keys]."""
        places = torch.arange(n)
        distance = places[:, None] - places
        return self.relative_slot_bias[:, distance + self.block_size - 1] + torch.einsum(
            "h,qk->hqk", self.same_slot_bias, (distance == 0).float()
        )

    def features(self, log_probs: Tensor) -> Tensor:
        """Log-probabilities [n, k], falling -> [n, k, 5]."""
        k = log_probs.shape[-1]
        rank = torch.arange(k).expand_as(log_probs)
        return torch.stack(
            [log_probs, log_probs.exp(), log_probs - log_probs[:, :1], rank / max(k - 1, 1), (rank == 0).float()], -1
        )

    def forward(self, embeddings: Tensor, log_probs: Tensor, hidden: Tensor, context: Tensor) -> Tensor:
        """Pair scores [n, k before, k next]; before the first position, k times those after the context. Embeddings
        [n, k, n_embd], log-probabilities [n, k], hidden states [n, n_embd], the context row [n_embd]."""
        n, k = log_probs.shape
        rows = self.token_proj(embeddings) + self.pass_hidden_proj(hidden)[:, None]
        rows = rows + self.feature_mlp(self.features(log_probs))
        rows = rows + self.slot_embedding[0, 0, :n] + self.rank_embedding[0, 0]
        rows = rows.flatten(0, 1)
        bias = self.bias(n).repeat_interleave(k, 1).repeat_interleave(k, 2)
        for layer in self.layers:
            rows = layer(rows, bias)
        rows = self.output_norm(rows).unflatten(0, (n, k))
        anchor = self.anchor_norm(self.context_proj(context))
        both = torch.cat([rows, anchor.expand_as(rows), rows * anchor], -1)
        mixed = functional.silu(self.factor_input_proj(both))
        out, into, start = (
            functional.normalize(head(x), dim=-1, eps=self.sizes.eps)
            for head, x in ((self.out_head, mixed), (self.in_head, mixed), (self.anchor_out_head, anchor))
        )
        before = torch.cat([start.expand(1, k, -1), out[:-1]])
        return self.sizes.scale * before @ into.transpose(1, 2)


@dataclass
class LiliCorr(DSpark):
    """`most`: proposals that are asked for."""

    head: Any = None
    most: int = 64

    def lattice(self, tokens: list[int], hidden: Tensor, logits: Tensor, taps: Tensor) -> tuple[Tensor, Tensor]:
        """Candidates [n, k] and pair scores [n, k, k] of a block's hidden states and logits, after tokens[:-1]."""
        n = min(self.most, self.block_size - 1)
        hidden, logits = hidden[1 : n + 1], logits[1 : n + 1]
        log_probs, ids = logits.log_softmax(-1).topk(self.head.sizes.top_k)
        context = self.backbone.hidden_norm(self.backbone.fc(taps[0, len(tokens) - 2]))
        return ids, self.head(self.target.get_input_embeddings()(ids), log_probs, hidden, context)

    def drafts(self, tokens: list[int], taps: Tensor | None = None) -> list[int]:
        taps = self.taps(tokens[:-1]) if taps is None else taps
        ids, scores = self.lattice(tokens, *self.draft(tokens, taps), taps)
        path, chosen = [], 0
        for candidates, rows in zip(ids, scores, strict=True):
            chosen = int(rows[chosen].argmax())
            path.append(int(candidates[chosen]))
        return path
