"""A next-token (MTP) layer in torch, for training: DeepSeek-V3 (arXiv 2412.19437, section 2.2) as Qwen3.5 has it, and
Hy3 without a gate.

What is computed is graph_mtp of src/models/qwen35.cpp and hy-v3.cpp of the pinned llama.cpp. A row pairs a token with
the target's final hidden state of the token before; from an anchor on, with the layer's own output there instead.
Parameters have the names of Qwen3.5's checkpoints, less "mtp.".
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dflash_local.train.mtp_file import MtpFile
from dflash_local.train.network import Blocks, FeedForward, Norm, TrainedNetwork, linear
from dflash_local.train.rotation import Rotation

HIDDEN = -1e30  # a score that softmax makes 0
Angles = tuple[Tensor, Tensor]


class Attention(nn.Module):  # type: ignore[misc]
    """Grouped-query attention whose output may pass a gate. Rows are [texts, ..., n_embd]."""

    def __init__(self, file: MtpFile) -> None:
        super().__init__()
        c = file.config
        self.n_kv, self.dim, self.group = c.n_head_kv, c.head_dim, c.n_head // c.n_head_kv
        self.gated = file.gated
        self.q_proj = linear(c.n_embd, (2 if file.gated else 1) * c.n_head * c.head_dim)
        self.k_proj = linear(c.n_embd, c.n_head_kv * c.head_dim)
        self.v_proj = linear(c.n_embd, c.n_head_kv * c.head_dim)
        self.o_proj = linear(c.n_head * c.head_dim, c.n_embd)
        self.q_norm, self.k_norm = Norm(c.head_dim, c.norm_eps), Norm(c.head_dim, c.norm_eps)

    def keys(self, x: Tensor, angles: Angles) -> Tensor:
        return Rotation.turn(self.k_norm(self.k_proj(x).unflatten(-1, (self.n_kv, self.dim))), angles)

    def values(self, x: Tensor) -> Tensor:
        return self.v_proj(x).unflatten(-1, (self.n_kv, self.dim))

    def forward(
        self, x: Tensor, angles: Angles, context: tuple[Tensor, Tensor], own: tuple[Tensor, Tensor], unseen: Tensor
    ) -> Tensor:
        """x [texts, n, n_embd], one row of each draft; keys and values of the text `context` [texts, T, n_kv, dim], of
        which those with `unseen` [texts, n, T] are not looked at, and of the draft so far `own` [texts, n, i, ...]."""
        q = self.q_proj(x).unflatten(-1, (self.n_kv * self.group, -1))  # each head, and its gate
        q, gate = q[..., : self.dim], q[..., self.dim :]
        q = Rotation.turn(self.q_norm(q), angles).unflatten(-2, (self.n_kv, self.group))
        far = torch.einsum("tnkgd,tckd->tnkgc", q, context[0]).float()
        near = torch.einsum("tnkgd,tnikd->tnkgi", q, own[0]).float()
        scores = torch.cat([far.masked_fill(unseen[:, :, None, None], HIDDEN), near], -1) * self.dim**-0.5
        far, near = scores.softmax(-1).split([far.shape[-1], near.shape[-1]], -1)
        out = torch.einsum("tnkgc,tckd->tnkgd", far, context[1]) + torch.einsum("tnkgi,tnikd->tnkgd", near, own[1])
        out = out.flatten(-3)
        return self.o_proj(out * gate.flatten(-2).sigmoid() if self.gated else out)


class MtpLayer(nn.Module):  # type: ignore[misc]
    def __init__(self, file: MtpFile) -> None:
        super().__init__()
        c = file.config
        self.self_attn, self.mlp = Attention(file), FeedForward(file)
        self.input_layernorm = Norm(c.n_embd, c.norm_eps)
        self.post_attention_layernorm = Norm(c.n_embd, c.norm_eps)


class MtpNetwork(TrainedNetwork):
    """An MTP layer with the values of its file, in float32."""

    def __init__(self, file: MtpFile, device: torch.device) -> None:
        super().__init__(file, device)
        c = file.config
        self.fc = linear(2 * c.n_embd, c.n_embd)
        self.pre_fc_norm_embedding, self.pre_fc_norm_hidden = Norm(c.n_embd, c.norm_eps), Norm(c.n_embd, c.norm_eps)
        self.norm = Norm(c.n_embd, c.norm_eps)
        self.layers = nn.ModuleList([MtpLayer(file)])
        self.fill(device)

    def forward(self, blocks: Blocks) -> Tensor:
        """Hidden states of the drafts' rows after the final norm, [texts, n, block_size, n_embd]."""
        assert blocks.context is not None
        layer, attention = self.layers[0], self.layers[0].self_attn
        states = F.pad(blocks.taps.float(), (0, 0, 1, 0))  # [i]: of the token before i
        places = torch.arange(blocks.taps.shape[1], device=blocks.anchors.device)
        rows = layer.input_layernorm(self._joined(blocks.context, states[:, :-1]))
        context = attention.keys(rows, self.rotation.at(places)), attention.values(rows)
        unseen = places >= blocks.anchors[..., None]
        texts = torch.arange(len(states), device=places.device)[:, None]
        state = states[texts, blocks.anchors]
        keys, values, out = [], [], []
        for i, embedded in enumerate(blocks.embedded.unbind(2)):
            x, angles = self._joined(embedded, state), self.rotation.at(blocks.anchors + i)
            rows = layer.input_layernorm(x)
            keys.append(attention.keys(rows, angles))
            values.append(attention.values(rows))
            x = x + attention(rows, angles, context, (torch.stack(keys, 2), torch.stack(values, 2)), unseen)
            x = x + layer.mlp(layer.post_attention_layernorm(x))
            state = self.norm(x)
            out.append(state)
        return torch.stack(out, 2)

    def _joined(self, embedded: Tensor, state: Tensor) -> Tensor:
        return self.fc(torch.cat([self.pre_fc_norm_embedding(embedded), self.pre_fc_norm_hidden(state)], -1)).float()
