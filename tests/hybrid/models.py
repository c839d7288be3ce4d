"""Tiny random f32 hybrids over 128 tokens: the three architectures whose delta-net layers take trees, heads of 64 as
the kernels want them.

Shapes and keys follow llama.cpp's src/models/{qwen35,qwen35moe,qwen3next}.cpp.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

from tests.fuzz.architectures import (
    EMBD,
    EXPERT_FF,
    EXPERT_KEYS,
    EXPERTS,
    HEAD,
    HEADS,
    Keys,
    Shapes,
    attention,
    dense,
    experts,
    image,
    qk_norm,
)
from tests.fuzz.gguf_image import Image
from tests.trees.models import find, tokenizer

STATE, HEADS_K, HEADS_V, KERNEL, LAYERS = 64, 2, 4, 4, 3
KEY, VALUE = STATE * HEADS_K, STATE * HEADS_V

SSM: Keys = {
    "ssm.conv_kernel": KERNEL, "ssm.inner_size": VALUE, "ssm.state_size": STATE, "ssm.time_step_rank": HEADS_V,
    "ssm.group_count": HEADS_K, "full_attention_interval": LAYERS,
}  # fmt: skip
SECTIONS: Keys = {"rope.dimension_sections": [4, 2, 2, 0]}
DELTA: Shapes = {
    "attn_norm.weight": [EMBD], "attn_qkv.weight": [EMBD, 2 * KEY + VALUE], "attn_gate.weight": [EMBD, VALUE],
    "ssm_conv1d.weight": [KERNEL, 2 * KEY + VALUE], "ssm_dt.bias": [HEADS_V], "ssm_a": [HEADS_V],
    "ssm_norm.weight": [STATE], "ssm_out.weight": [VALUE, EMBD],
}  # fmt: skip
SPLIT: Shapes = {"ssm_beta.weight": [EMBD, HEADS_V], "ssm_alpha.weight": [EMBD, HEADS_V]}
JOINT: Shapes = {"ssm_ba.weight": [EMBD, 2 * HEADS_V]}
# All experts are used: a choice of the best two jumps when two are nearly tied.
MIXED: Keys = EXPERT_KEYS | {"expert_used_count": EXPERTS, "expert_shared_feed_forward_length": EXPERT_FF}
MIXTURE: Shapes = experts() | {
    "ffn_gate_inp_shexp.weight": [EMBD], "ffn_gate_shexp.weight": [EMBD, EXPERT_FF],
    "ffn_up_shexp.weight": [EMBD, EXPERT_FF], "ffn_down_shexp.weight": [EXPERT_FF, EMBD],
}  # fmt: skip


def hybrid(name: str, base: Image, keys: Keys, delta: Shapes, rest: Shapes) -> Image:
    """Two delta-net layers, then one of attention."""
    rest = rest | {"post_attention_norm.weight": [EMBD]}
    full = attention(2 * HEADS * HEAD) | qk_norm() | rest
    made = image(name, base, SSM | keys, lambda i: full if i == LAYERS - 1 else DELTA | delta | rest, layers=LAYERS)
    rng = random.Random(name)
    for i in range(LAYERS - 1):
        # As trained: gates that forget within a few to a few hundred tokens, and inputs of all d_conv rows that matter.
        find(made, f"blk.{i}.ssm_a").data = struct.pack(
            f"<{HEADS_V}f", *(-rng.choice((0.01, 0.1, 0.5)) for _ in range(HEADS_V))
        )
        conv = find(made, f"blk.{i}.ssm_conv1d.weight")
        n = KERNEL * (2 * KEY + VALUE)
        conv.data = struct.pack(f"<{n}f", *(rng.gauss(0, 0.7) for _ in range(n)))
    return made


def qwen35(base: Image) -> Image:
    return hybrid("qwen35", base, SECTIONS, SPLIT, dense())


def qwen35moe(base: Image) -> Image:
    return hybrid("qwen35moe", base, SECTIONS | MIXED, SPLIT, MIXTURE)


def qwen3next(base: Image) -> Image:
    return hybrid("qwen3next", base, MIXED, JOINT, MIXTURE)


HYBRIDS: dict[str, Callable[[Image], Image]] = {"qwen35": qwen35, "qwen35moe": qwen35moe, "qwen3next": qwen3next}


def write(name: str, path: Path) -> Path:
    """Write the model of an architecture as GGUF; returns `path`."""
    path.write_bytes(HYBRIDS[name](tokenizer()).encode()[0])
    return path
