"""The backbone of Gemma4DSparkModel, of transformers' own Gemma 4 parts.

Written from the published class (DeepSpec, deepspec/modeling/dspark/gemma4). What differs from DFlash: V is the
normalized K projection, attention is not scaled, each sub-layer has a norm behind it, a layer's output is scaled, GELU,
and only a part of each head rotates, by frequencies as if all of it did.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.models.gemma4.configuration_gemma4 import Gemma4TextConfig
from transformers.models.gemma4.modeling_gemma4 import (
    Gemma4RMSNorm,
    Gemma4TextDecoderLayer,
    Gemma4TextRotaryEmbedding,
    apply_rotary_pos_emb,
)

from .dspark import DSpark
from .reference import MASK, SHAPE, TARGET_LAYERS

SOFTCAP = 30.0


def gemma4_config(layers: int, taps: tuple[int, ...], **more: Any) -> Gemma4TextConfig:
    """As DeepSpec makes it of a target's: sizes of sliding layers are left in, and mean nothing."""
    full = {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 10000.0}
    config = Gemma4TextConfig(
        vocab_size=SHAPE["vocab_size"], hidden_size=SHAPE["hidden_size"], intermediate_size=SHAPE["intermediate_size"],
        num_hidden_layers=layers, num_attention_heads=4, num_key_value_heads=1, head_dim=32, global_head_dim=64,
        num_global_key_value_heads=2, attention_k_eq_v=True, layer_types=["full_attention"] * layers,
        rope_parameters={"full_attention": full, "sliding_attention": {"rope_type": "default", "rope_theta": 500.0}},
        hidden_size_per_layer_input=0, num_kv_shared_layers=0, final_logit_softcapping=SOFTCAP, sliding_window=16,
        max_position_embeddings=4096, tie_word_embeddings=False,
    )  # fmt: skip
    published = {"target_layer_ids": list(taps), "mask_token_id": MASK, "num_target_layers": TARGET_LAYERS}
    for key, value in (published | more).items():
        setattr(config, key, value)
    return config


class TableGelu(nn.Module):  # type: ignore[misc]
    """GELU as ggml has it on CPUs: a table of half-precision numbers. With the exact function hidden states differ by
    up to 4e-4 and logits by up to 1.2e-3 of their norm."""

    def forward(self, x: Tensor) -> Tensor:
        table = nn.functional.gelu(x.half().float(), approximate="tanh").half().float()
        return torch.where(x.abs() < 10, table, x.clamp(min=0))


class Gemma4Backbone(nn.Module):  # type: ignore[misc]
    """The published names. Takes what `DFlashDraftModel` takes."""

    def __init__(self, config: Gemma4TextConfig) -> None:
        super().__init__()
        self.config, self.target_layer_ids = config, config.target_layer_ids
        n_embd = config.hidden_size
        self.fc = nn.Linear(len(self.target_layer_ids) * n_embd, n_embd, bias=False)
        self.hidden_norm = Gemma4RMSNorm(n_embd, eps=config.rms_norm_eps)
        self.norm = Gemma4RMSNorm(n_embd, eps=config.rms_norm_eps)
        self.layers = nn.ModuleList(Gemma4TextDecoderLayer(config, i) for i in range(config.num_hidden_layers))
        for layer in self.layers:
            layer.mlp.act_fn = TableGelu()
        self.rotary_emb = Gemma4TextRotaryEmbedding(config)

    def attention(
        self, layer: Any, rows: Tensor, context: Tensor, positions: tuple[Tensor, Tensor], mask: Tensor | None
    ) -> Tensor:
        part, n_block = layer.self_attn, rows.shape[1]
        query = part.q_norm(part.q_proj(rows).unflatten(-1, (-1, part.head_dim)))
        key = part.k_proj(torch.cat([context, rows], 1)).unflatten(-1, (-1, part.head_dim))
        value = part.v_norm(key)
        cos, sin = positions
        query = apply_rotary_pos_emb(query, cos[:, -n_block:], sin[:, -n_block:], unsqueeze_dim=2)
        key = apply_rotary_pos_emb(part.k_norm(key), cos, sin, unsqueeze_dim=2)
        mixed = nn.functional.scaled_dot_product_attention(
            query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), mask, scale=1.0, enable_gqa=True
        )
        output: Tensor = part.o_proj(mixed.transpose(1, 2).flatten(2))
        return output

    def forward(
        self,
        target_hidden: Tensor,
        noise_embedding: Tensor,
        position_ids: Tensor,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        context = self.hidden_norm(self.fc(target_hidden))
        rows = noise_embedding * math.sqrt(self.config.hidden_size)
        positions = self.rotary_emb(rows, position_ids, "full_attention")
        for layer in self.layers:
            mixed = self.attention(layer, layer.input_layernorm(rows), context, positions, attention_mask)
            rows = rows + layer.post_attention_layernorm(mixed)
            rows = rows + layer.post_feedforward_layernorm(layer.mlp(layer.pre_feedforward_layernorm(rows)))
            rows = rows * layer.layer_scalar
        normalized: Tensor = self.norm(rows)
        return normalized


@dataclass
class Gemma4DSpark(DSpark):
    """With the soft cap of Gemma's logits, under the Markov head."""

    def draft(self, tokens: list[int], taps: Tensor | None = None) -> tuple[Tensor, Tensor]:
        hidden, logits = super().draft(tokens, taps)
        return hidden, torch.tanh(logits / SOFTCAP) * SOFTCAP
