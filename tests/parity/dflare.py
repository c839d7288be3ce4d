"""DFlare in PyTorch, on top of the authors' DFlash.

Written from the published class (package `angelslim` 0.5.0, `QwenDFlareDraftModel`), which cannot be installed beside
the pinned torch; that both compute the same was checked once by hand.
"""

from typing import Any

import torch
from dflash.model import DFlashDraftModel, Qwen3DFlashAttention, apply_rotary_pos_emb
from torch import Tensor, nn


class DFlareAttention(Qwen3DFlashAttention):  # type: ignore[misc]
    """Context rows have projections of their own to K and V."""

    def __init__(self, config: Any, layer_idx: int) -> None:
        super().__init__(config, layer_idx)
        sizes = self.k_proj.in_features, self.k_proj.out_features
        self.k_proj_target = nn.Linear(*sizes, bias=config.attention_bias)
        self.v_proj_target = nn.Linear(*sizes, bias=config.attention_bias)

    def forward(
        self,
        hidden_states: Tensor,
        target_hidden: Tensor,
        position_embeddings: tuple[Tensor, Tensor],
        attention_mask: Tensor | None,
        past_key_values: Any = None,
        **_: Any,
    ) -> tuple[Tensor, None]:
        def heads(*rows: Tensor) -> Tensor:
            return torch.cat(rows, 1).unflatten(-1, (-1, self.head_dim))

        query = self.q_norm(heads(self.q_proj(hidden_states))).transpose(1, 2)
        key = self.k_norm(heads(self.k_proj_target(target_hidden), self.k_proj(hidden_states))).transpose(1, 2)
        value = heads(self.v_proj_target(target_hidden), self.v_proj(hidden_states)).transpose(1, 2)
        query, key = apply_rotary_pos_emb(query, key, *position_embeddings)
        if past_key_values is not None:
            key, value = past_key_values.update(key, value, self.layer_idx)
        mixed = nn.functional.scaled_dot_product_attention(
            query, key, value, attention_mask, scale=self.scaling, enable_gqa=True
        )
        return self.o_proj(mixed.transpose(1, 2).flatten(2)), None


class QwenDFlareDraftModel(DFlashDraftModel):  # type: ignore[misc]
    """Each layer has its own mixture of the taps; the published name, which `save_pretrained` writes."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        del self.fc
        for index, layer in enumerate(self.layers):
            layer.self_attn = DFlareAttention(config, index)
        self.layer_fusion_weights = nn.Parameter(torch.zeros(len(self.layers), len(self.target_layer_ids)))
        self.post_init()

    def forward(
        self,
        position_ids: Tensor,
        attention_mask: Tensor | None = None,
        noise_embedding: Tensor | None = None,
        target_hidden: Tensor | None = None,
        past_key_values: Any = None,
        use_cache: bool = False,
        **_: Any,
    ) -> Tensor:
        assert noise_embedding is not None and target_hidden is not None
        taps = target_hidden.unflatten(-1, (len(self.target_layer_ids), -1))
        mixtures = torch.einsum("bsth,lt->lbsh", taps, self.layer_fusion_weights.softmax(-1))
        hidden = noise_embedding
        positions = self.rotary_emb(hidden, position_ids)
        for layer, context in zip(self.layers, self.hidden_norm(mixtures), strict=True):
            hidden = layer(
                hidden_states=hidden,
                target_hidden=context,
                attention_mask=attention_mask,
                past_key_value=past_key_values,
                use_cache=use_cache,
                position_embeddings=positions,
            )
        return self.norm(hidden)
