"""Checkpoints with other settings than the pocket drafters': saved by the authors' classes, converted, and run by our
engine.

Weights are random; what is compared is what each setting does to the drafter's hidden states and logits, from
config.json to the graph.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from dflash.model import DFlash2DraftModel, DFlashDraftModel
from transformers import Qwen3Config

from dflash_local.convert import convert

from .dflare import QwenDFlareDraftModel
from .f32 import engine_f32
from .reference import DFLASH2, MASK, SHAPE, TARGET_LAYERS, Reference, load_target
from .test_drafter import assert_close

pytestmark = pytest.mark.parity
N_TOKENS = 90


@dataclass(frozen=True)
class Checkpoint:
    """What a drafter's config.json says beyond the shape of the target."""

    kind: type[DFlashDraftModel] = DFlashDraftModel
    layers: int = 2
    taps: tuple[int, ...] = (1, 4)
    block_size: int = 8
    top: dict[str, Any] = field(default_factory=dict)
    nested: dict[str, Any] = field(default_factory=dict)


SLIDING = {"layer_types": ["sliding_attention", "full_attention"], "use_sliding_window": True, "sliding_window": 24}
ROPE = {"rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 1024}
CHECKPOINTS = {
    "one layer, one tap": Checkpoint(layers=1, taps=(3,)),
    "wide block": Checkpoint(block_size=32),
    "causal": Checkpoint(top={"is_causal": True}),
    "sliding layers are causal": Checkpoint(top=SLIDING),
    "sliding layers, not causal": Checkpoint(top=SLIDING | {"is_causal": False}),
    "scales and soft-cap": Checkpoint(
        nested={"input_embedding_scale": 1.7, "output_multiplier": 3.0, "final_logit_softcapping": 2.0},
    ),
    "small epsilon, other theta": Checkpoint(
        top={"rms_norm_eps": 1e-5, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},
    ),
    "linear rope": Checkpoint(top={"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}}),
    "yarn rope": Checkpoint(top={"rope_parameters": ROPE | {"rope_type": "yarn"}}),
    "llama3 rope": Checkpoint(
        top={"rope_parameters": ROPE | {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}},
    ),
    "llama 3.1": Checkpoint(
        top={
            "rms_norm_eps": 1e-5,
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 500000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            },
        },
    ),
    "kimi: yarn with two scales": Checkpoint(
        top={
            "rms_norm_eps": 1e-5,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 50000.0,
                "factor": 64.0,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
                "original_max_position_embeddings": 64,
            },
        },
    ),
    "two different scales": Checkpoint(
        top={
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 5e6,
                "factor": 48.0,
                "mscale": 1.0,
                "mscale_all_dim": 0.5,
                "original_max_position_embeddings": 64,
            },
        },
    ),
    "yarn with bounds of its own": Checkpoint(
        top={
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 50000.0,
                "factor": 16.0,
                "beta_fast": 4.0,
                "beta_slow": 0.25,
                "original_max_position_embeddings": 64,
            },
        },
    ),
    "attention biases": Checkpoint(top={"attention_bias": True, "head_dim": 32}),
    "gpt-oss: biases, yarn without truncation": Checkpoint(
        top={
            "attention_bias": True,
            "head_dim": 32,
            "rms_norm_eps": 1e-5,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 150000.0,
                "factor": 32.0,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "truncate": False,
                "original_max_position_embeddings": 64,
            },
        },
    ),
    "partial rotation is noise": Checkpoint(
        top={"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25}},
    ),
    "dflash2": Checkpoint(
        DFlash2DraftModel, nested=DFLASH2 | {"conv_kernel_size": 3, "conv_group_size": 32, "selector_top_k": 5}
    ),
    "dflash2 sliding": Checkpoint(DFlash2DraftModel, top=SLIDING | {"is_causal": False}, nested=DFLASH2),
    "dflare": Checkpoint(QwenDFlareDraftModel, layers=3, taps=(0, 1, 3, 4)),
    "dflare, attention biases": Checkpoint(
        QwenDFlareDraftModel, layers=2, taps=(0, 1, 4), top={"attention_bias": True, "head_dim": 32}
    ),
    "dflare, one layer": Checkpoint(QwenDFlareDraftModel, layers=1, taps=(0, 1, 2, 3, 4)),
}


def random_drafter(checkpoint: Checkpoint) -> DFlashDraftModel:
    torch.manual_seed(0)
    config = Qwen3Config(**SHAPE | {"num_hidden_layers": checkpoint.layers} | checkpoint.top)
    config.num_target_layers = TARGET_LAYERS
    config.dflash_config = {
        "block_size": checkpoint.block_size,
        "mask_token_id": MASK,
        "target_layer_ids": list(checkpoint.taps),
    }
    config.dflash_config |= checkpoint.nested
    drafter = checkpoint.kind(config)
    for parameter in drafter.parameters():
        deviation = 0.3 if parameter.dim() == 1 else parameter.shape[-1] ** -0.5
        torch.nn.init.normal_(parameter, mean=float(parameter.dim() == 1), std=deviation)
    return drafter.eval()


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_converted_checkpoint(name: str, target_f32: Path, tmp_path: Path) -> None:
    checkpoint = CHECKPOINTS[name]
    drafter = random_drafter(checkpoint)
    drafter.save_pretrained(tmp_path / "checkpoint")
    convert(tmp_path / "checkpoint", target_f32, tmp_path / "drafter.gguf", outtype="f32")
    tokens = torch.randint(4, SHAPE["vocab_size"], [N_TOKENS]).tolist()
    hidden, logits = Reference(load_target(target_f32), drafter).draft(tokens, checkpoint.block_size)
    with engine_f32(target_f32, tmp_path / "drafter.gguf", n_ctx=256) as engine:
        probe = engine.draft_probe(tokens, checkpoint.block_size)
    assert_close(probe.hidden, hidden.numpy())
    assert_close(probe.logits, logits.numpy())
