"""The drafter in torch, for training: many blocks of many texts at once.

The layers are those of the paper (arXiv 2602.06036, section 3) and of the authors' package `dflash`; the parameters
have the names of their checkpoints. A block attends to the context strictly before its anchor and to itself alone, so
it is computed as the engine computes it, whatever else is in the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dflash_local.convert.kinds import DFlash2, DSpark
from dflash_local.train.drafter_file import D2T, DrafterFile
from dflash_local.train.rotation import Rotation
from dflash_local.train.trained_parts import is_trained

_TOGETHER = 8  # anchors of a view
_CONTEXT_STEP = 64  # a view's context ends at a multiple of it: fewer shapes for torch to prepare for


@dataclass(frozen=True)
class Blocks:
    """A batch of texts, with as many anchors each.

    taps [texts, T, width], of which no block looks at those from its anchor on; anchors [texts, n]: positions; embedded
    [texts, n, block_size, n_embd]: the anchor's token and masks, for an MTP layer the text's own tokens; context
    [texts, T, n_embd]: the text's tokens for an MTP layer, of which the same holds as of taps.
    """

    taps: Tensor
    anchors: Tensor
    embedded: Tensor
    context: Tensor | None = None


class Norm(nn.Module):  # type: ignore[misc]
    """RMS norm."""

    def __init__(self, n: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], self.weight.to(x.dtype), self.eps)


def linear(n_in: int, n_out: int, bias: bool = False) -> nn.Linear:
    return nn.Linear(n_in, n_out, bias=bias)


@dataclass(frozen=True)
class View:
    """What the blocks of some anchors of each text see: their `anchors`, the first `n_context` rows of the context, and
    where of these and of these blocks' own rows each row looks, `seen` [texts, 1, group * rows, n_context + rows]."""

    anchors: slice
    n_context: int
    seen: Tensor


class Attention(nn.Module):  # type: ignore[misc]
    """Grouped-query attention of blocks over the context and themselves."""

    def __init__(self, file: DrafterFile) -> None:
        super().__init__()
        c = file.config
        self.n_head, self.n_kv, self.dim = c.n_head, c.n_head_kv, c.head_dim
        bias = {name: f"layers.0.self_attn.{name}_proj.bias" in file.values for name in "qkvo"}
        self.q_proj = linear(c.n_embd, self.n_head * self.dim, bias["q"])
        self.k_proj = linear(c.n_embd, self.n_kv * self.dim, bias["k"])
        self.v_proj = linear(c.n_embd, self.n_kv * self.dim, bias["v"])
        self.o_proj = linear(self.n_head * self.dim, c.n_embd, bias["o"])
        self.q_norm, self.k_norm = Norm(self.dim, c.norm_eps), Norm(self.dim, c.norm_eps)
        self.value_scale = c.value_scale or 1.0

    def _keys(self, x: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
        return Rotation.turn(self.k_norm(self.k_proj(x).unflatten(-1, (self.n_kv, self.dim))), angles)

    def _values(self, x: Tensor) -> Tensor:
        values = self.v_proj(x).unflatten(-1, (self.n_kv, self.dim))
        return values if self.value_scale == 1.0 else values * self.value_scale

    def forward(
        self,
        x: Tensor,
        context: Tensor,
        context_angles: tuple[Tensor, Tensor],
        angles: tuple[Tensor, Tensor],
        views: Sequence[View],
    ) -> Tensor:
        """x [texts, n, block, n_embd], context [texts, T, n_embd]."""
        q = Rotation.turn(self.q_norm(self.q_proj(x).unflatten(-1, (self.n_head, self.dim))), angles)
        own_k, own_v = self._keys(x, angles), self._values(x)
        dtype = own_v.dtype
        q, own_k = q.to(dtype), own_k.to(dtype)
        far_k, far_v = self._keys(context, context_angles).to(dtype), self._values(context)
        out = []
        for view in views:
            k, v = (
                torch.cat([far[:, : view.n_context], near[:, view.anchors].flatten(1, 2)], 1).transpose(1, 2)
                for far, near in ((far_k, own_k), (far_v, own_v))
            )  # [texts, n_kv, n_context + rows, dim]
            # Heads that share keys are rows of one product: [texts, n_kv, group * rows, dim].
            rows = q[:, view.anchors].flatten(1, 2).unflatten(2, (self.n_kv, -1)).permute(0, 2, 3, 1, 4)
            y = F.scaled_dot_product_attention(rows.flatten(2, 3), k, v, view.seen)
            out.append(y.unflatten(2, rows.shape[2:4]).permute(0, 3, 1, 2, 4).flatten(2))
        return self.o_proj(torch.cat(out, 1).view(*x.shape[:3], -1))


class FeedForward(nn.Module):  # type: ignore[misc]
    """Gated feed-forward network."""

    def __init__(self, file: DrafterFile) -> None:
        super().__init__()
        c = file.config
        self.gate_proj, self.up_proj = linear(c.n_embd, c.n_ff), linear(c.n_embd, c.n_ff)
        self.down_proj = linear(c.n_ff, c.n_embd)
        self.activation = c.activation

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(self._activated(self.gate_proj(x)) * self.up_proj(x))

    def _activated(self, x: Tensor) -> Tensor:
        if self.activation == "silu":
            return F.silu(x)
        return F.gelu(x, approximate="tanh" if self.activation == "gelu_pytorch_tanh" else "none")


class Convolution(nn.Module):  # type: ignore[misc]
    """DFlash 2: causal convolutions before and after a sub-layer, whose kernels depend on the row (authors'
    GroupedDynamicCausalConv). Blocks are a dimension here, so none reaches into another."""

    def __init__(self, n_embd: int, kind: DFlash2) -> None:
        super().__init__()
        self.size, self.group = kind.conv_kernel_size, kind.conv_group_size
        self.base_kernel = nn.Parameter(torch.zeros(2, self.size, n_embd))
        self.kernel_projection = linear(n_embd, 2 * self.size * (n_embd // self.group))

    def before(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The sub-layer's input, and the kernels for its output."""
        kernels = self.kernel_projection(x).unflatten(-1, (2, self.size, -1))
        return self._convolve(x, kernels[..., 0, :, :], self.base_kernel[0]), kernels[..., 1, :, :]

    def after(self, x: Tensor, kernels: Tensor) -> Tensor:
        return self._convolve(x, kernels, self.base_kernel[1])

    def _convolve(self, x: Tensor, kernels: Tensor, base: Tensor) -> Tensor:
        out = torch.zeros_like(x)
        for back in range(self.size):
            moved = x if back == 0 else F.pad(x[..., :-back, :], (0, 0, back, 0))
            kernel = base[back] + kernels[..., back, :].repeat_interleave(self.group, -1)
            out = out + kernel * moved
        return out


class Layer(nn.Module):  # type: ignore[misc]
    def __init__(self, file: DrafterFile) -> None:
        super().__init__()
        c = file.config
        self.self_attn, self.mlp = Attention(file), FeedForward(file)
        self.input_layernorm = Norm(c.n_embd, c.norm_eps)
        self.post_attention_layernorm = Norm(c.n_embd, c.norm_eps)
        kind = c.kind
        self.attention_conv = Convolution(c.n_embd, kind) if isinstance(kind, DFlash2) else None
        self.mlp_conv = Convolution(c.n_embd, kind) if isinstance(kind, DFlash2) else None

    def forward(self, x: Tensor, *seen: object) -> Tensor:
        y, kernels = self._before(self.attention_conv, self.input_layernorm(x))
        x = x + self._after(self.attention_conv, self.self_attn(y, *seen), kernels)
        y, kernels = self._before(self.mlp_conv, self.post_attention_layernorm(x))
        return x + self._after(self.mlp_conv, self.mlp(y), kernels)

    @staticmethod
    def _before(conv: Convolution | None, x: Tensor) -> tuple[Tensor, Tensor | None]:
        return (x, None) if conv is None else conv.before(x)

    @staticmethod
    def _after(conv: Convolution | None, x: Tensor, kernels: Tensor | None) -> Tensor:
        return x if conv is None else conv.after(x, kernels)


class Selector(nn.Module):  # type: ignore[misc]
    """DFlash 2: scores of a candidate given the one before (authors' CandidateSelector)."""

    def __init__(self, n_vocab: int, n_embd: int, kind: DFlash2) -> None:
        super().__init__()
        self.top_k = kind.selector_top_k
        self.predecessor_codebook = nn.Embedding(n_vocab, kind.selector_rank)
        self.successor_codebook = nn.Embedding(n_vocab, kind.selector_rank)
        self.hidden_projection = linear(n_embd, kind.selector_rank)

    def forward(self, hidden: Tensor, before: Tensor, candidates: Tensor) -> Tensor:
        """What is added to the logits of `candidates` [..., k], given the token before [...]."""
        gate = self.predecessor_codebook(before) * self.hidden_projection(hidden)
        return (self.successor_codebook(candidates) @ gate[..., None].to(hidden.dtype))[..., 0]


class MarkovHead(nn.Module):  # type: ignore[misc]
    """DSpark: scores of every token by the one before it, of low rank."""

    def __init__(self, n_vocab: int, n_draft: int, rank: int) -> None:
        super().__init__()
        self.markov_w1, self.markov_w2 = nn.Embedding(n_vocab, rank), nn.Embedding(n_draft, rank)


class ConfidenceHead(nn.Module):  # type: ignore[misc]
    """DSpark: the drafter's own estimate that a row will be accepted."""

    def __init__(self, n_in: int, bias: bool) -> None:
        super().__init__()
        self.proj = linear(n_in, 1, bias)

    def forward(self, hidden: Tensor, before: Tensor) -> Tensor:
        """Logits [...] of rows [..., n_embd] after tokens with Markov rows [..., rank]."""
        return self.proj(torch.cat([hidden, before], -1).to(self.proj.weight.dtype))[..., 0]


class TrainedNetwork(nn.Module):  # type: ignore[misc]
    """What all networks have: the file that it is made from, and its values."""

    def __init__(self, file: DrafterFile, device: torch.device) -> None:
        super().__init__()
        self.file, self.rotation = file, Rotation(file, device)

    def fill(self, device: torch.device) -> None:
        """Take the values of the file, once all modules are there."""
        values = {name: torch.from_numpy(value.copy()) for name, value in self.file.values.items()}
        self.load_state_dict(values, strict=True)
        self.to(device)

    def numbers(self) -> dict[str, Tensor]:
        """The current values by their checkpoint names, float32 on the CPU; low-rank changes are merged."""
        from dflash_local.train.low_rank import merged

        return {name: value.detach().float().cpu() for name, value in merged(self).items()}


class Network(TrainedNetwork):
    """A drafter with the values of its file, in float32."""

    def __init__(self, file: DrafterFile, device: torch.device) -> None:
        super().__init__(file, device)
        c = file.config
        self.file_places = draft_places(file)
        self.fc = linear(len(c.taps) * c.n_embd, c.n_embd)
        self.hidden_norm, self.norm = Norm(c.n_embd, c.norm_eps), Norm(c.n_embd, c.norm_eps)
        self.layers = nn.ModuleList(Layer(file) for _ in range(c.n_layer))
        kind = c.kind
        if isinstance(kind, DFlash2):
            self.candidate_selector = Selector(c.n_vocab, c.n_embd, kind)
        if isinstance(kind, DSpark):
            self.markov_head = MarkovHead(c.n_vocab, c.n_vocab_draft, kind.rank)
            if kind.has_confidence:
                bias = "confidence_head.proj.bias" in file.values
                self.confidence_head = ConfidenceHead(c.n_embd + kind.rank, bias)
        self.fill(device)

    def forward(self, blocks: Blocks) -> Tensor:
        """Hidden states of the blocks' rows after the final norm, [texts, n, block_size, n_embd]."""
        c = self.file.config
        context = self.hidden_norm(self.fc(blocks.taps).float())
        device = blocks.anchors.device
        places = torch.arange(blocks.taps.shape[1], device=device)
        positions = blocks.anchors[..., None] + torch.arange(blocks.embedded.shape[2], device=device)
        context_angles, angles = self.rotation.at(places), self.rotation.at(positions)
        views = {slides: self._views(blocks, positions, slides) for slides in set(c.is_sliding)}
        x = blocks.embedded
        for layer, slides in zip(self.layers, c.is_sliding, strict=True):
            x = layer(x, context, context_angles, angles, views[slides])
        return self.norm(x)

    def _views(self, blocks: Blocks, positions: Tensor, slides: bool) -> list[View]:
        """The same for all layers of one window. A few anchors at a time, which are near each other: the blocks of one
        view also meet each other, for nothing, and all of its rows meet what the last anchor sees."""
        return [
            self._view(blocks, positions, slice(first, first + _TOGETHER), slides)
            for first in range(0, positions.shape[1], _TOGETHER)
        ]

    def _view(self, blocks: Blocks, positions: Tensor, anchors: slice, slides: bool) -> View:
        c = self.file.config
        device, positions = positions.device, positions[:, anchors]
        first = positions[..., :1]
        n_context = min(-(-int(first.max()) // _CONTEXT_STEP) * _CONTEXT_STEP, blocks.taps.shape[1])
        places = torch.arange(n_context, device=device)
        far = (places < first).unsqueeze(2).expand(-1, -1, positions.shape[2], -1)  # strictly before the anchor
        if slides:
            far = far & (positions[..., None] - places < c.sliding_window)
        far = far.flatten(1, 2)  # [texts, rows, n_context]
        block = torch.arange(positions.shape[1], device=device).repeat_interleave(positions.shape[2])
        own = self._own(positions.shape[2], slides, device).repeat(positions.shape[1], positions.shape[1])
        near = (own & (block[:, None] == block)).expand(len(far), -1, -1)
        seen = torch.cat([far, near], -1)
        return View(anchors, n_context, seen[:, None].repeat(1, 1, c.n_head // c.n_head_kv, 1))

    def _own(self, block: int, slides: bool, device: torch.device) -> Tensor:
        """Where rows of a block look within it, [block, block]."""
        c = self.file.config
        rows = torch.arange(block, device=device)
        ahead = rows[:, None] - rows  # of the row over the one that it looks at
        own = torch.ones_like(ahead, dtype=torch.bool)
        if causal := slides if c.causal is None else c.causal:
            own &= ahead >= 0
        if slides:
            own &= ahead < c.sliding_window
            if not causal:
                own &= -ahead < c.sliding_window
        return own


def draft_places(file: DrafterFile) -> Tensor | None:
    """The row of each token in tables that have one for each draft token; None: the token itself."""
    if D2T not in file.frozen:
        return None
    tokens = torch.from_numpy(file.frozen[D2T].rows(0, 1).view(np.int64).reshape(-1).copy())
    places = torch.zeros(file.config.n_vocab, dtype=torch.long)
    places[tokens] = torch.arange(len(tokens))
    return places


def trained_parameters(network: TrainedNetwork, only: str | None) -> list[nn.Parameter]:
    """Freezes what `only` leaves out, and returns the others."""
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(is_trained(name, only))
    return [parameter for parameter in network.parameters() if parameter.requires_grad]
