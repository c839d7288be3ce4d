"""The authors' models (package `dflash` 0.1.0) with the weights of the bundled GGUFs.

The shapes and settings below are those of the published checkpoints' config.json, written out on purpose: were they
read from the GGUF, an error of the converter would be on both sides of the comparison.
"""

import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dflash.model
import numpy as np
import numpy.typing as npt
import torch
from dflash.model import DFlash2DraftModel, DFlashDraftModel, dflash_generate, extract_context_feature
from transformers import Qwen3Config, Qwen3ForCausalLM

from tests.gguf_files import numbers

BLOCK_SIZE = 16
MASK = 3
END_OF_TURN = 2
SHAPE: dict[str, Any] = {
    "vocab_size": 1699,
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}
TARGET_LAYERS = 6
DFLASH2 = {"conv_kernel_size": 2, "conv_group_size": 16, "selector_rank": 64, "selector_top_k": 8}


@dataclass(frozen=True)
class Drafter:
    """A published drafter: number of layers, layers of the target after which its taps sit (Hugging Face ids), kind."""

    layers: int
    taps: tuple[int, ...]
    kind: type[DFlashDraftModel] = DFlashDraftModel


DRAFTERS = {
    "dflash": Drafter(2, (0, 2, 4)),
    "dflash2": Drafter(2, (0, 2, 4), DFlash2DraftModel),
    "dflash-small": Drafter(1, (2,)),
}

# GGUF name -> Hugging Face name, without ".weight"
GLOBAL_NAMES = {
    "token_embd": "embed_tokens",
    "output": "lm_head",
    "output_norm": "norm",
    "fc": "fc",
    "enc.output_norm": "hidden_norm",
    "selector_predecessor": "candidate_selector.predecessor_codebook",
    "selector_successor": "candidate_selector.successor_codebook",
    "selector_hidden": "candidate_selector.hidden_projection",
}
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_conv_base": "attention_conv.base_kernel",
    "attn_conv_proj": "attention_conv.kernel_projection",
    "ffn_conv_base": "mlp_conv.base_kernel",
    "ffn_conv_proj": "mlp_conv.kernel_projection",
}


def huggingface_name(name: str) -> str:
    """Hugging Face name of a drafter tensor (a target's has "model." before all but lm_head). KeyError if unknown."""
    stem, dot, suffix = name.partition(".weight")
    if layer := re.fullmatch(r"blk\.(\d+)\.(\w+)", stem):
        return f"layers.{layer[1]}.{LAYER_NAMES[layer[2]]}{dot}{suffix}"
    return f"{GLOBAL_NAMES[stem]}{dot}{suffix}"


def load_target(path: Path) -> Qwen3ForCausalLM:
    """The pocket target as Hugging Face model in f32."""
    model = Qwen3ForCausalLM(Qwen3Config(**SHAPE, num_hidden_layers=TARGET_LAYERS, eos_token_id=END_OF_TURN))
    state = {huggingface_name(name): torch.from_numpy(tensor) for name, tensor in numbers(path).items()}
    model.load_state_dict(
        {name if name.startswith("lm_head") else f"model.{name}": tensor for name, tensor in state.items()}, strict=True
    )
    return model.eval()


def load_drafter(path: Path, published: Drafter) -> DFlashDraftModel:
    """A pocket drafter as the authors' model in f32."""
    config = Qwen3Config(**SHAPE, num_hidden_layers=published.layers, layer_types=["full_attention"] * published.layers)
    config.num_target_layers = TARGET_LAYERS
    config.dflash_config = {"block_size": BLOCK_SIZE, "mask_token_id": MASK, "target_layer_ids": list(published.taps)}
    if published.kind is DFlash2DraftModel:
        config.is_causal = False
        config.dflash_config |= DFLASH2
    model = published.kind(config)
    model.load_state_dict({huggingface_name(n): torch.from_numpy(t) for n, t in numbers(path).items()}, strict=True)
    return model.eval()


@dataclass(frozen=True)
class Answer:
    """Tokens after the prompt (the end-of-turn token included, if reached) and tokens per target pass after the
    prompt's."""

    tokens: list[int]
    acceptance_lengths: list[int]


@dataclass(frozen=True)
class Lattice:
    """DFlash 2: candidates `ids` [n, k] and pair scores [n, k, k], predecessor first; position 0 is the one after the
    anchor."""

    ids: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float32]


class Reference:
    """A target with a drafter, as the authors run them."""

    def __init__(self, target: Qwen3ForCausalLM, drafter: DFlashDraftModel) -> None:
        self.target, self.drafter = target, drafter

    def generate(self, prompt: list[int], max_tokens: int) -> Answer:
        """Greedy speculative decoding by `dflash_generate` until the end-of-turn token or `max_tokens`."""
        dflash.model._cuda_time = time.perf_counter  # its clock synchronises CUDA, which a CPU build of torch has not
        out = dflash_generate(
            self.drafter, self.target, torch.tensor([prompt]), max_tokens, [END_OF_TURN], return_stats=True
        )
        return Answer(out.output_ids[0, len(prompt) :].tolist(), out.acceptance_lengths)

    def target_logits(self, tokens: list[int]) -> torch.Tensor:
        """Logits [n, n_vocab]: row i ranks what follows tokens[i]."""
        return self.target(torch.tensor([tokens])).logits[0]

    def draft(self, tokens: list[int], n_block: int = BLOCK_SIZE) -> tuple[torch.Tensor, torch.Tensor]:
        """One drafter pass on the anchor tokens[-1] and n_block - 1 masks: hidden [n_block, n_embd] and logits
        [n_block, n_vocab]."""
        context = tokens[:-1]
        states = self.target(torch.tensor([context]), output_hidden_states=True).hidden_states
        block = torch.tensor([[tokens[-1]] + [MASK] * (n_block - 1)])
        hidden = self.drafter(
            target_hidden=extract_context_feature(states, self.drafter.target_layer_ids),
            noise_embedding=self.embed(block) * self.drafter.config.dflash_config.get("input_embedding_scale", 1.0),
            position_ids=torch.arange(len(context) + n_block)[None],
        )
        return hidden[0], self.drafter.compute_logits(hidden, self.target.lm_head)[0]

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """What the drafter is given for the tokens of a block."""
        embeddings: torch.Tensor = self.target.get_input_embeddings()(tokens)
        return embeddings

    def lattice(self, anchor: int, hidden: torch.Tensor, logits: torch.Tensor) -> Lattice:
        """All pair scores of a DFlash 2 block, by the formula of `CandidateSelector.select` for every predecessor
        instead of one.

        At position 0 the only predecessor is the anchor; its row is repeated k times.
        """
        selector = self.drafter.candidate_selector
        unary, ids = torch.topk(logits[1:], selector.top_k)
        previous = torch.cat([torch.full_like(ids[:1], anchor), ids[:-1]])
        gate = selector.hidden_projection(hidden[1:])
        pair = torch.einsum(
            "npr,nsr->nps", selector.predecessor_codebook(previous) * gate[:, None], selector.successor_codebook(ids)
        )
        return Lattice(ids.numpy(), (unary[:, None] + pair).numpy())
