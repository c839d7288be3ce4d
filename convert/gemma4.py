"""Drafters with Gemma 4's layers: their settings, translated to the keys of the other drafters.

Source: DeepSpec, deepspec/modeling/dspark/gemma4 (Gemma4DSparkModel); upstream's conversion/gemma.py. The settings were
copied from the target's text model; those of its sliding layers mean nothing here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from .keys import Keys, wrong
from .target import Target

_ROPE = {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6}  # Gemma4TextConfig's default
_SOFTCAP = 30.0  # the same, and llama.cpp's for a GGUF without the key


def settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """config.json with the keys of a Qwen3-shaped drafter. Raises ConvertError."""
    keys = Keys(config)
    for name, what in (
        ("enable_moe_block", "the GGUF dialect of DFlash has no experts"),
        ("hidden_size_per_layer_input", "the GGUF dialect of DFlash has no inputs per layer"),
    ):
        if keys.find(name)[1]:
            raise wrong(keys.find(name)[0], what)
    if not keys.flag("attention_k_eq_v", False):
        raise wrong("attention_k_eq_v", "it is not true: the engine normalizes V only where it is the projection of K")
    return {
        **config,
        "head_dim": keys.integer("global_head_dim"),
        "num_key_value_heads": keys.integer("num_global_key_value_heads"),
        "hidden_act": keys.text("hidden_activation", "gelu_pytorch_tanh"),
        "input_embedding_scale": math.sqrt(keys.integer("hidden_size")),
        "rope_parameters": keys.find("rope_parameters")[1] or _ROPE,
        "rope_scaling": None,  # Gemma4TextConfig ignores both, Qwen3Config would use them
        "partial_rotary_factor": None,
    }


def borrowed_scales(target: Target, *, own_embeddings: bool, own_head: bool) -> dict[str, float]:
    """The scales that belong to what a drafter borrows of the target, by their keys in a GGUF: of embeddings, and the
    soft cap of the head's logits, which is the target's. Not all drafters of Gemma 4 have them in their settings."""
    scales: dict[str, float] = {}
    if not own_embeddings:
        scales["embedding_scale"] = math.sqrt(target.n_embd)
    if not own_head:
        scales["final_logit_softcapping"] = target.logit_softcap or _SOFTCAP
    return scales
