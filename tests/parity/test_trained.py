"""A trained drafter under other settings of its config.json: the same tokens in the same target passes as the authors'
code, and about as many of them as the drafter was trained for (AL 5.2)."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from dflash.model import DFlashDraftModel

from dflash_local.convert import convert

from .f32 import engine_f32, widen
from .reference import BLOCK_SIZE, DRAFTERS, SHAPE, Reference, load_drafter, load_target
from .test_decoding import MAX_TOKENS

pytestmark = pytest.mark.parity
PROMPTS = Path(__file__).parent / "prompts.jsonl"


def partial_rotation_is_noise(drafter: DFlashDraftModel) -> None:
    """What trainers copy from a Qwen3.5 target. Honoured, it costs four fifths of the acceptance length."""
    drafter.config.rope_parameters = drafter.config.rope_parameters | {"partial_rotary_factor": 0.25}
    drafter.config.partial_rotary_factor = 0.25


def attention_biases(drafter: DFlashDraftModel) -> None:
    """Biases that gpt-oss's drafters have. Attention weighs to one, so what is added to all values can be taken off the
    output again; small numbers are added to queries and keys."""
    torch.manual_seed(0)
    drafter.config.attention_bias = True
    group = SHAPE["num_attention_heads"] // SHAPE["num_key_value_heads"]
    for layer in drafter.layers:
        attention = layer.self_attn
        values = torch.randn(SHAPE["num_key_value_heads"], SHAPE["head_dim"])
        biases = {
            "q_proj": 0.02 * torch.randn(attention.q_proj.out_features),
            "k_proj": 0.02 * torch.randn(attention.k_proj.out_features),
            "v_proj": values.flatten(),
            "o_proj": -attention.o_proj.weight @ values.repeat_interleave(group, 0).flatten(),
        }
        for name, bias in biases.items():
            getattr(attention, name).bias = torch.nn.Parameter(bias)


@pytest.mark.parametrize("change", [partial_rotation_is_noise, attention_biases])
def test_same_tokens_and_acceptance_lengths(
    pocket: dict[str, Path], target_f32: Path, tmp_path: Path, change: Callable[[DFlashDraftModel], None]
) -> None:
    drafter = load_drafter(widen(pocket["dflash"], tmp_path / "trained.gguf"), DRAFTERS["dflash"])
    change(drafter)
    drafter.save_pretrained(tmp_path / "checkpoint")
    convert(tmp_path / "checkpoint", target_f32, tmp_path / "drafter.gguf", outtype="f32")
    reference = Reference(load_target(target_f32), drafter)
    n_tokens = n_passes = 0
    with engine_f32(target_f32, tmp_path / "drafter.gguf", n_ctx=1024) as engine:
        for line in PROMPTS.read_text().splitlines()[::8]:
            prompt = engine.tokenize(engine.apply_chat(json.loads(line)).prompt)
            theirs = reference.generate(prompt, MAX_TOKENS)
            ours = engine.generate(prompt, temperature=0, max_tokens=MAX_TOKENS, budget=BLOCK_SIZE, draft="chain")
            assert ours.tokens == theirs.tokens[:-1]
            assert ours.acceptance_lengths[: len(theirs.acceptance_lengths) - 1] == theirs.acceptance_lengths[:-1]
            n_tokens += sum(theirs.acceptance_lengths)
            n_passes += len(theirs.acceptance_lengths)
    assert n_tokens / n_passes > 4.5
