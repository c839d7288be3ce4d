"""Drafters with Gemma 4's layers: hidden states, logits, pair scores and greedy chains as in PyTorch, acceptance of a
trained one."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import Qwen3ForCausalLM

from dflash_local.convert import convert

from .dspark import CONFIDENCE, W1, W2
from .f32 import engine_f32
from .gemma4 import SOFTCAP, Gemma4Backbone, Gemma4DSpark, gemma4_config
from .reference import SHAPE, load_target
from .test_drafter import assert_close
from .test_dspark import best_path, check_lattice
from .training import answers, fine_tune, weighted_loss

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


def trained_drafter(target: Qwen3ForCausalLM, texts: list[Tensor]) -> Gemma4DSpark:
    """A drafter with a Markov head that has learned `texts`."""
    torch.manual_seed(0)
    model = Gemma4Backbone(gemma4_config(1, (2, 4), markov_rank=RANK, markov_head_type="vanilla"))
    model.block_size = BLOCK_SIZE
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5)
    for norm in (model.layers[0].self_attn.q_norm, model.layers[0].self_attn.k_norm):
        norm.weight.fill_(64**-0.25)  # attention has no scale
    # trained along, as a part of it
    model.markov = torch.nn.ParameterDict({"w1": 0.1 * torch.randn(V, RANK), "w2": torch.zeros(V, RANK)})

    def loss(hidden: Tensor, tokens: Tensor) -> Tensor:
        logits = torch.tanh(target.lm_head(hidden) / SOFTCAP) * SOFTCAP
        return weighted_loss(logits + model.markov["w1"][tokens[:, :-1]] @ model.markov["w2"].T, tokens[:, 1:])

    fine_tune(model, target, texts, loss, steps=150, learning_rate=3e-3)
    heads = {W1: model.markov["w1"].data, W2: model.markov["w2"].data}
    del model.markov
    return Gemma4DSpark(target, model, heads, BLOCK_SIZE, True)


@pytest.mark.slow
def test_trained_drafter(target: Qwen3ForCausalLM, target_f32: Path, prompts: list[list[int]], tmp_path: Path) -> None:
    """The same acceptance lengths over answers that it has seen and over others, with a Markov head that matters. The
    last pass may differ: the end-of-turn token is not among our tokens."""
    seen, others = prompts[::8], prompts[4::16]
    drafter = trained_drafter(target, answers(target_f32, seen))
    convert(save(drafter, tmp_path / "checkpoint"), target_f32, tmp_path / "drafter.gguf", outtype="f32")
    plain = replace(drafter, heads={})
    lengths, without = [], []
    with engine_f32(target_f32, tmp_path / "drafter.gguf", n_ctx=1024) as engine:
        for prompt in seen + others:
            ours = engine.generate(prompt, temperature=0, max_tokens=96, budget=BLOCK_SIZE + 1, draft="chain")
            theirs = drafter.acceptance_lengths(prompt, ours.tokens)[:-1]
            assert ours.acceptance_lengths[: len(theirs)] == theirs
            lengths.append(theirs)
            without.append(plain.acceptance_lengths(prompt, ours.tokens)[:-1])
    learned = lengths[: len(seen)]
    assert sum(map(sum, learned)) / sum(map(len, learned)) > 3
    assert lengths != without
