"""The hybrid pocket pair: logits within 1e-3 of transformers' Qwen3.5, drafts within 1e-3 of the authors' drafter on
its hidden states.

As in reference.py, the target's settings are those of its checkpoint, written out, and its weights go back from the
GGUF to Hugging Face's names, layout and units.
"""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from transformers import Qwen3_5ForCausalLM
from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5TextConfig

from dflash_local import Engine
from dflash_local.demo.pocket import HYBRID, bundled_pair
from tests.gguf_files import numbers

from .f32 import engine_f32, widen
from .reference import BLOCK_SIZE, END_OF_TURN, Drafter, Reference, load_drafter
from .test_drafter import assert_close

pytestmark = pytest.mark.parity
N_KEY_HEADS, N_VALUE_HEADS = 2, 4
SHAPE: dict[str, Any] = {
    "vocab_size": 1699, "hidden_size": 256, "intermediate_size": 640, "num_hidden_layers": 8, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 64, "linear_num_key_heads": N_KEY_HEADS,
    "linear_num_value_heads": N_VALUE_HEADS, "linear_key_head_dim": 64, "linear_value_head_dim": 64,
    "linear_conv_kernel_dim": 4, "full_attention_interval": 4, "max_position_embeddings": 4096, "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False, "eos_token_id": END_OF_TURN, "rope_parameters": {
        "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "mrope_section": [6, 5, 5],
        "mrope_interleaved": True,
    },
}  # fmt: skip
DRAFTER = Drafter(2, (1, 3, 5))
NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
    "attn_norm.weight": "input_layernorm.weight",
    "post_attention_norm.weight": "post_attention_layernorm.weight",
    "attn_qkv.weight": "linear_attn.in_proj_qkv.weight",
    "attn_gate.weight": "linear_attn.in_proj_z.weight",
    "ssm_beta.weight": "linear_attn.in_proj_b.weight",
    "ssm_alpha.weight": "linear_attn.in_proj_a.weight",
    "ssm_conv1d.weight": "linear_attn.conv1d.weight",
    "ssm_dt.bias": "linear_attn.dt_bias",
    "ssm_a": "linear_attn.A_log",
    "ssm_norm.weight": "linear_attn.norm.weight",
    "ssm_out.weight": "linear_attn.out_proj.weight",
    **{f"attn_{x}.weight": f"self_attn.{x}_proj.weight" for x in "qkv"},
    "attn_output.weight": "self_attn.o_proj.weight",
    **{f"attn_{x}_norm.weight": f"self_attn.{x}_norm.weight" for x in "qk"},
    **{f"ffn_{x}.weight": f"mlp.{x}_proj.weight" for x in ("gate", "up", "down")},
}


def grouped(values: npt.NDArray[Any], axis: int = 0) -> npt.NDArray[Any]:
    """Value heads along `axis`, which in GGUF take turns over the key heads, with those of one key head together."""
    turns = np.moveaxis(values, axis, 0)
    split = turns.reshape(N_VALUE_HEADS // N_KEY_HEADS, N_KEY_HEADS, -1, *turns.shape[1:])
    return np.moveaxis(split.swapaxes(0, 1).reshape(turns.shape), 0, axis)


def original(part: str, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A tensor as the checkpoint has it."""
    if part in ("attn_qkv.weight", "ssm_conv1d.weight"):
        n_value = len(values) // 2  # q and k have a head for every two of v
        values = np.concatenate([values[:-n_value], grouped(values[-n_value:])])
        return values[:, None] if part == "ssm_conv1d.weight" else values
    if part in ("attn_gate.weight", "ssm_alpha.weight", "ssm_beta.weight", "ssm_dt.bias"):
        return grouped(values)
    if part == "ssm_out.weight":
        return grouped(values, 1)
    if part == "ssm_a":
        return grouped(np.log(-values))
    if part.endswith("norm.weight") and part != "ssm_norm.weight":
        return values - 1
    return values


def load_hybrid(path: Path) -> Qwen3_5ForCausalLM:
    """The hybrid pocket target as Hugging Face model in f32."""
    state = {}
    for name, values in numbers(path).items():
        _, layer, part = name.split(".", 2) if name.startswith("blk.") else ("", "", name)
        state[f"model.layers.{layer}.{NAMES[part]}" if layer else NAMES[part]] = torch.from_numpy(
            original(part, values).copy()
        )
    model = Qwen3_5ForCausalLM(Qwen3_5TextConfig(**SHAPE))
    model.load_state_dict(state, strict=True)
    return model.eval()


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Engine, Reference]]:
    folder = tmp_path_factory.mktemp("hybrid")
    target, drafter = (widen(path, folder / path.name) for path in bundled_pair(HYBRID))
    with engine_f32(target, drafter, n_ctx=1024) as engine:
        yield engine, Reference(load_hybrid(target), load_drafter(drafter, DRAFTER))


@pytest.fixture(scope="module")
def chats(hybrid: tuple[Engine, Reference]) -> list[list[int]]:
    """Real prompts as tokens: a short one, a long one, and many in a row."""
    lines = (Path(__file__).parent / "prompts.jsonl").read_text().splitlines()
    prompts = [hybrid[0].tokenize(hybrid[0].apply_chat(json.loads(line)).prompt) for line in lines]
    return [prompts[0], max(prompts, key=len), list(itertools.chain.from_iterable(prompts))[:300]]


def test_target_logits(hybrid: tuple[Engine, Reference], chats: list[list[int]]) -> None:
    engine, reference = hybrid
    for tokens in chats:
        logits = reference.target_logits(tokens)[:-1].numpy()
        for width in (1, BLOCK_SIZE):
            score = engine.score(tokens, 1, width)
            assert_close(score.logit, np.take_along_axis(logits, np.array(tokens[1:])[:, None], -1)[:, 0])
            assert_close(score.best_logit, logits.max(-1))


def test_drafts(hybrid: tuple[Engine, Reference], chats: list[list[int]]) -> None:
    engine, reference = hybrid
    for tokens in chats:
        hidden, logits = reference.draft(tokens)
        probe = engine.draft_probe(tokens, BLOCK_SIZE)
        assert_close(probe.hidden, hidden.numpy())
        assert_close(probe.logits, logits.numpy())
