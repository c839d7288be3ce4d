"""Drafters with Gemma 4's layers: hidden states, logits, pair scores and greedy chains as in PyTorch."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from transformers import Qwen3ForCausalLM

from dflash_local.convert import convert

from .dspark import CONFIDENCE, W1, W2
from .f32 import engine_f32
from .gemma4 import Gemma4Backbone, Gemma4DSpark, gemma4_config
from .reference import SHAPE, load_target
from .test_drafter import assert_close
from .test_dspark import best_path, check_lattice

pytestmark = pytest.mark.parity
V, H, RANK, BLOCK_SIZE, LAYERS, TAPS = SHAPE["vocab_size"], SHAPE["hidden_size"], 24, 7, 2, (1, 4)


@pytest.fixture(scope="module")
def target(target_f32: Path) -> Qwen3ForCausalLM:
    return load_target(target_f32)


def random_drafter(target: Qwen3ForCausalLM, rank: int) -> Gemma4DSpark:
    torch.manual_seed(0)
    model = Gemma4Backbone(gemma4_config(LAYERS, TAPS, markov_rank=rank, markov_head_type="vanilla")).eval()
    for parameter in model.parameters():
        deviation = 0.3 if parameter.dim() == 1 else parameter.shape[-1] ** -0.5
        torch.nn.init.normal_(parameter, mean=float(parameter.dim() == 1), std=deviation)
    for i, layer in enumerate(model.layers):
        layer.layer_scalar.fill_(0.4 + 0.3 * i)
        # attention has no scale, so its norms have learned one: without, every difference would show in its sharp peaks
        layer.self_attn.q_norm.weight.mul_(64**-0.25)
        layer.self_attn.k_norm.weight.mul_(64**-0.25)
    heads = {
        W1: torch.randn(V, RANK),
        W2: torch.randn(V, RANK) * 0.1,
        f"{CONFIDENCE}.weight": torch.randn(1, H + RANK) / 8,
        f"{CONFIDENCE}.bias": torch.randn(1),
    }
    return Gemma4DSpark(target, model, heads if rank else {}, BLOCK_SIZE, True)


def save(drafter: Gemma4DSpark, folder: Path) -> Path:
    """The checkpoint as DeepSpec saves it, with its copies of the target's embeddings and head."""
    assert isinstance(drafter.backbone, Gemma4Backbone)
    config = drafter.backbone.config.to_dict() | {
        "architectures": ["Gemma4DSparkModel"], "block_size": BLOCK_SIZE, "confidence_head_with_markov": True,
        "global_head_dim": 64, "num_global_key_value_heads": 2,  # transformers now writes them once for each layer
    }  # fmt: skip
    tensors = dict(drafter.backbone.state_dict()) | dict(drafter.heads)
    tensors["embed_tokens.weight"] = drafter.target.model.embed_tokens.weight
    tensors["lm_head.weight"] = drafter.target.lm_head.weight
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file({name: tensor.clone().contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("rank", [RANK, 0])
def test_published_checkpoint(rank: int, target: Qwen3ForCausalLM, target_f32: Path, tmp_path: Path) -> None:
    """With a Markov head (dspark_gemma4_12b_block7) and without one (dflash_gemma4_12b_block7)."""
    drafter = random_drafter(target, rank)
    convert(save(drafter, tmp_path / "checkpoint"), target_f32, tmp_path / "drafter.gguf", outtype="f32")
    with engine_f32(target_f32, tmp_path / "drafter.gguf", n_ctx=256) as engine:
        for n_tokens in (3, 40, 90):
            tokens = torch.randint(4, V, [n_tokens]).tolist()
            hidden, logits = drafter.draft(tokens)
            probe = engine.draft_probe(tokens, BLOCK_SIZE)
            assert_close(probe.hidden, hidden.numpy())
            assert_close(probe.logits, logits.numpy())
            theirs = drafter.drafts(tokens)
            if rank:
                check_lattice(drafter, tokens[-1], logits, probe.ids, probe.scores)
                assert best_path(probe.ids, probe.scores) == theirs
            else:
                assert probe.ids[:, 0].tolist() == theirs
