"""Checkpoints of the speculators library, kinds `dflash` and `dflash2`: hidden states, logits and lattices as in
PyTorch.

Random ones, saved as its classes save them (0.9.0, and what older ones saved beside). The reference is the authors'
class with the same weights; that the library's own classes compute the same was checked once by hand, and where they do
not: docs/proof.md.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dflash.model import DFlash2DraftModel, DFlashDraftModel
from safetensors.torch import save_file
from torch import Tensor
from transformers import Qwen3ForCausalLM

from dflash_local.convert import convert

from .f32 import engine_f32
from .reference import MASK, SHAPE, Reference, load_target
from .test_checkpoints import Checkpoint, random_drafter
from .test_drafter import assert_close, check_lattice

pytestmark = pytest.mark.parity
V, BLOCK_SIZE, N_DRAFT_VOCAB, WINDOW, TAPS = SHAPE["vocab_size"], 8, 600, 24, (1, 4)
DFLASH2 = {"conv_kernel_size": 3, "conv_group_size": 32, "selector_rank": 24, "selector_top_k": 5}
MIXED = ["sliding_attention", "full_attention"]


@dataclass(frozen=True)
class Published:
    """`non_causal`: of sliding layers. `reduced`: a head of N_DRAFT_VOCAB tokens. `copies`: what else older versions
    saved, copies of the target's. `top` stands beside the library's own settings."""

    layer_types: list[str]
    non_causal: bool = False
    dflash2: bool = False
    reduced: bool = False
    copies: tuple[str, ...] = ()
    top: dict[str, Any] = field(default_factory=dict)


CHECKPOINTS = {
    "dflash": Published(["full_attention"] * 2),
    "dflash, all layers slide": Published(["sliding_attention"] * 2),
    "dflash, all layers slide, not causal": Published(["sliding_attention"] * 2, non_causal=True),
    "dflash, reduced vocabulary, mixed layers": Published(MIXED, reduced=True),
    "dflash, reduced vocabulary, mixed layers, not causal": Published(MIXED, reduced=True, non_causal=True),
    "dflash, older, reduced vocabulary": Published(
        ["full_attention"] * 2, reduced=True, copies=("embed_tokens",),
        top={"architectures": ["DFlashSpeculator"], "num_hidden_layers": 2, "speculators_version": "0.5.0.dev"},
    ),
    "dflash, older": Published(["full_attention"] * 2, copies=("embed_tokens", "lm_head")),
    "dflash, in training": Published(
        ["full_attention"] * 2, copies=("embed_tokens", "lm_head", "verifier_lm_head", "verifier_norm")
    ),
    "dflash2": Published(["full_attention"] * 2, non_causal=True, dflash2=True),
    "dflash2, mixed layers": Published(MIXED, non_causal=True, dflash2=True),
    "dflash2, mixed layers, causal": Published(MIXED, dflash2=True),
}  # fmt: skip


def drafter_of(published: Published) -> DFlashDraftModel:
    """The authors' model of the same settings."""
    top: dict[str, Any] = {"layer_types": published.layer_types}
    if "sliding_attention" in published.layer_types:
        top |= {"use_sliding_window": True, "sliding_window": WINDOW}
    if published.non_causal:
        top["is_causal"] = False
    kind, nested = (DFlash2DraftModel, DFLASH2) if published.dflash2 else (DFlashDraftModel, {})
    return random_drafter(Checkpoint(kind, taps=TAPS, block_size=BLOCK_SIZE, top=top, nested=nested))


def settings(published: Published) -> dict[str, Any]:
    """config.json."""
    name, slides = "dflash2" if published.dflash2 else "dflash", "sliding_attention" in published.layer_types
    method = {"proposal_type": "greedy", "speculative_tokens": BLOCK_SIZE - 1, "accept_tolerance": 0.0}
    return {
        "architectures": ["DFlash2DraftModel" if published.dflash2 else "DFlashDraftModel"],
        "aux_hidden_state_layer_ids": [tap + 1 for tap in TAPS],
        "block_size": BLOCK_SIZE,
        "draft_vocab_size": N_DRAFT_VOCAB if published.reduced else V,
        "mask_token_id": MASK,
        "sample_from_anchor": False,
        "sliding_window_non_causal": published.non_causal,
        "speculators_config": {
            "algorithm": name, "default_proposal_method": "greedy", "proposal_methods": [method],
            "verifier": {"architectures": ["Qwen3ForCausalLM"], "name_or_path": None},
        },
        "speculators_model_type": name,
        "speculators_version": "0.9.0",
        "target_hidden_size": None,
        "tie_word_embeddings": False,
        "transformer_layer_config": SHAPE | {
            "attention_bias": False, "hidden_act": "silu", "layer_types": published.layer_types,
            "max_window_layers": 28, "model_type": "qwen3", "num_hidden_layers": 2,
            "sliding_window": WINDOW if slides else None, "use_sliding_window": slides,
        },
        **(DFLASH2 if published.dflash2 else {}),
        **published.top,
    }  # fmt: skip


def save(drafter: DFlashDraftModel, published: Published, extra: dict[str, Tensor], folder: Path) -> Path:
    """Codebooks are parameters of their own there, without ".weight"."""
    tensors = {name.replace("_codebook.weight", "_codebook"): tensor for name, tensor in drafter.state_dict().items()}
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(settings(published)))
    contents = {name: tensor.clone().contiguous() for name, tensor in (tensors | extra).items()}
    save_file(contents, folder / "model.safetensors")
    return folder


@pytest.fixture(scope="module")
def target(target_f32: Path) -> Qwen3ForCausalLM:
    return load_target(target_f32)


def vocabulary(published: Published, target: Qwen3ForCausalLM) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """The head, the target's ids of its rows, and the tensors that are saved of both."""
    frozen = {
        "embed_tokens": target.model.embed_tokens, "lm_head": target.lm_head, "verifier_lm_head": target.lm_head,
        "verifier_norm": target.model.norm,
    }  # fmt: skip
    saved = {f"{name}.weight": frozen[name].weight for name in published.copies}
    if not published.reduced:
        return target.lm_head.weight, torch.arange(V), saved
    head = torch.randn(N_DRAFT_VOCAB, SHAPE["hidden_size"]) * 0.1
    ids = torch.randperm(V)[:N_DRAFT_VOCAB].sort().values
    more = {"lm_head.weight": head, "d2t": ids - torch.arange(len(ids)), "t2d": torch.isin(torch.arange(V), ids)}
    return head, ids, saved | more


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_published_checkpoint(name: str, target: Qwen3ForCausalLM, target_f32: Path, tmp_path: Path) -> None:
    """Texts that the window holds and longer ones."""
    published = CHECKPOINTS[name]
    drafter = drafter_of(published)
    reference = Reference(target, drafter)
    head, ids, saved = vocabulary(published, target)
    path = tmp_path / "drafter.gguf"
    convert(save(drafter, published, saved, tmp_path / "checkpoint"), target_f32, path, outtype="f32")
    with engine_f32(target_f32, path, n_ctx=256) as engine:
        for n_tokens in (3, WINDOW - BLOCK_SIZE, 90):
            tokens = torch.randint(4, V, [n_tokens]).tolist()
            hidden, _ = reference.draft(tokens, BLOCK_SIZE)
            logits = hidden @ head.T
            probe = engine.draft_probe(tokens, BLOCK_SIZE)
            assert_close(probe.hidden, hidden.numpy())
            assert_close(probe.logits[:, ids], logits.numpy())
            if published.dflash2:
                check_lattice(probe.ids[1:], probe.scores[1:], reference.lattice(tokens[-1], hidden, logits))
            else:
                best = ids[logits[1:].topk(probe.ids.shape[1]).indices]
                np.testing.assert_array_equal(np.sort(probe.ids[1:]), np.sort(best.numpy()))
