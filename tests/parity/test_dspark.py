"""DSpark drafters: hidden states, logits, pair scores and greedy chains as in PyTorch, over packagings and layouts.

Checkpoints are random and saved as their publishers save them; acceptance is compared with the trained ones that ship.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import Qwen3ForCausalLM

from dflash_local.convert import convert
from tests.fast import some_fast

from .dspark import CONFIDENCE, W1, W2, DSpark, Tensors, backbone
from .f32 import engine_f32, widen
from .reference import MASK, SHAPE, load_target
from .test_drafter import assert_close

pytestmark = pytest.mark.parity
V, H, RANK, LAYERS, TAPS = SHAPE["vocab_size"], SHAPE["hidden_size"], 24, 2, (1, 4)
N_DRAFT_VOCAB = 600


@dataclass(frozen=True)
class Published:
    """A checkpoint as somebody publishes it. `nested`: its settings stand in this part of config.json."""

    architecture: str
    anchor_first: bool
    block_size: int = 7
    prefix: str = ""
    nested: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    reduced: bool = False
    interleaved: bool = False
    sees_markov: bool = True
    markov: bool = True


SPECULATORS = {
    "speculators_model_type": "dspark", "aux_hidden_state_layer_ids": [tap + 1 for tap in TAPS],
    "mask_token_id": MASK, "markov_head_type": "vanilla", "markov_rank": RANK,
}  # fmt: skip
DEEPSPEC = {
    "target_layer_ids": list(TAPS), "mask_token_id": MASK, "markov_rank": RANK, "markov_head_type": "vanilla",
    "confidence_head_with_markov": True,
}  # fmt: skip
CHECKPOINTS = {
    "speculators, nothing said": Published(
        "DSparkDraftModel", False, nested="transformer_layer_config", config=SPECULATORS
    ),
    "speculators, anchor first, reduced vocabulary": Published(
        "DSparkSpeculator", True, nested="transformer_layer_config", reduced=True,
        config=SPECULATORS | {"sample_from_anchor": True, "draft_vocab_size": N_DRAFT_VOCAB},
    ),
    "speculators, bonus anchor, reduced vocabulary": Published(
        "DSparkDraftModel", False, block_size=8, nested="transformer_layer_config", reduced=True,
        config=SPECULATORS | {"sample_from_anchor": False, "draft_vocab_size": N_DRAFT_VOCAB},
    ),
    "DeepSpec": Published("Qwen3DSparkModel", True, prefix="backbone.", config=DEEPSPEC),
    "DeepSpec without heads": Published("Qwen3DSparkModel", True, config=DEEPSPEC | {"markov_rank": 0}, markov=False),
    "SpecForge": Published(
        "DSparkDraftModel", True, sees_markov=False,
        config={"dflash_config": {"projector_type": "dspark", "attention_mode": "full", "markov_rank": RANK,
                                  "target_layer_ids": list(TAPS), "mask_token_id": MASK}},
    ),
    "LiquidAI": Published(
        "Lfm2DSparkDraftModel", True, block_size=9, interleaved=True,
        config={"dflash_config": {"target_layer_ids": list(TAPS), "mask_token_id": MASK}, "markov_rank": RANK,
                "rope_is_neox_style": False},
    ),
    "ModelOpt": Published(
        "Qwen3DSparkModel", False,
        config={"target_layer_ids": list(TAPS), "mask_token_id": MASK, "dspark_fixup_head_type": "markov",
                "dspark_markov_rank": RANK, "dspark_bonus_anchor": True, "dflash_query_causal": True},
    ),
}  # fmt: skip


def interleaved(weight: torch.Tensor) -> torch.Tensor:
    """Rows of heads [n * head_dim, ...] for rotation of neighbours, from those for rotation of halves."""
    heads = weight.view(-1, 2, SHAPE["head_dim"] // 2, *weight.shape[1:])
    return heads.transpose(1, 2).reshape(weight.shape).contiguous()


def random_drafter(published: Published, target: Qwen3ForCausalLM) -> DSpark:
    torch.manual_seed(0)
    model = backbone(LAYERS, TAPS)
    for parameter in model.parameters():
        deviation = 0.3 if parameter.dim() == 1 else parameter.shape[-1] ** -0.5
        torch.nn.init.normal_(parameter, mean=float(parameter.dim() == 1), std=deviation)
    if published.config.get("dflash_query_causal"):
        for layer in model.layers:
            layer.self_attn.is_causal = True
    n_draft = N_DRAFT_VOCAB if published.reduced else V
    heads = {
        W1: torch.randn(V, RANK),
        W2: torch.randn(n_draft, RANK) * 0.1,
        f"{CONFIDENCE}.weight": torch.randn(1, H + RANK * published.sees_markov) / 8,
        f"{CONFIDENCE}.bias": torch.randn(1),
    }
    lm_head, d2t = None, None
    if published.reduced:
        lm_head, d2t = torch.randn(n_draft, H) * 0.1, torch.randperm(V)[:n_draft].sort().values
    return DSpark(
        target, model, heads if published.markov else {}, published.block_size, published.anchor_first, lm_head, d2t
    )


def save(drafter: DSpark, published: Published, folder: Path) -> Path:
    """The checkpoint of `drafter`, copies of the target's embeddings and head among it where they are published."""
    shape = {key: value for key, value in SHAPE.items() if key != "rope_parameters"} | {
        "num_hidden_layers": LAYERS, "rope_theta": 10000.0, "hidden_act": "silu",
    }  # fmt: skip
    config = {published.nested: shape} if published.nested else shape
    config = config | published.config | {"architectures": [published.architecture], "block_size": published.block_size}
    tensors: Tensors = dict(drafter.backbone.state_dict()) | dict(drafter.heads)
    if published.interleaved:
        for name in tensors:
            if any(part in name for part in ("q_proj.weight", "k_proj.weight", "q_norm", "k_norm")):
                tensors[name] = interleaved(tensors[name])
    if published.architecture == "Qwen3DSparkModel":  # frozen copies, which the target makes superfluous
        tensors["embed_tokens.weight"] = drafter.target.model.embed_tokens.weight
        tensors["lm_head.weight"] = drafter.target.lm_head.weight
    if drafter.d2t is not None and drafter.lm_head is not None:
        tensors["lm_head.weight"] = drafter.lm_head
        tensors["d2t"] = drafter.d2t - torch.arange(len(drafter.d2t))
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    contents = {published.prefix + name: tensor.clone().contiguous() for name, tensor in tensors.items()}
    save_file(contents, folder / "model.safetensors")
    return folder


def check_lattice(drafter: DSpark, anchor: int, logits: torch.Tensor, ids: Any, scores: Any) -> None:
    """Pair scores [n, k, k] of candidates ids [n, k] against the Markov head's, over the whole vocabulary."""
    rows = logits[drafter.first :]
    for i, row in enumerate(rows):
        before = [anchor] * ids.shape[1] if i == 0 else ids[i - 1].tolist()
        theirs = torch.stack([drafter.score(row, token) for token in before])
        draft_ids = ids[i]
        if drafter.d2t is not None:
            draft_ids = np.searchsorted(drafter.d2t.numpy(), ids[i])
        assert_close(scores[i], theirs[:, draft_ids].numpy())


def best_path(ids: Any, scores: Any) -> list[int]:
    """The greedy chain through a lattice."""
    path, before = [], 0
    for row, pairs in zip(ids, scores, strict=True):
        before = int(pairs[before].argmax())
        path.append(int(row[before]))
    return path


@pytest.fixture(scope="module")
def target(target_f32: Path) -> Qwen3ForCausalLM:
    return load_target(target_f32)


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_published_checkpoint(name: str, target: Qwen3ForCausalLM, target_f32: Path, tmp_path: Path) -> None:
    """Hidden states, logits, every pair score, and the greedy chain, for several texts."""
    published = CHECKPOINTS[name]
    drafter = random_drafter(published, target)
    convert(save(drafter, published, tmp_path / "checkpoint"), target_f32, tmp_path / "drafter.gguf", outtype="f32")
    with engine_f32(target_f32, tmp_path / "drafter.gguf", n_ctx=256) as engine:
        for n_tokens in (3, 40, 90):
            tokens = torch.randint(4, V, [n_tokens]).tolist()
            hidden, logits = drafter.draft(tokens)
            probe = engine.draft_probe(tokens, published.block_size)
            assert_close(probe.hidden, hidden.numpy())
            # spread over the target's vocabulary where the drafter's is reduced
            assert_close(probe.logits if drafter.d2t is None else probe.logits[:, drafter.d2t], logits.numpy())
            ids, scores = probe.ids[drafter.first :], probe.scores[drafter.first :]
            theirs = drafter.chain(tokens[-1], logits)
            if published.markov:
                check_lattice(drafter, tokens[-1], logits, ids, scores)
                assert best_path(ids, scores) == theirs
            else:
                assert ids[:, 0].tolist() == theirs


# ---- the drafters that ship ----

TRAINED = {"dspark": (16, False), "dspark-first": (8, True)}


@pytest.mark.parametrize("name", some_fast(TRAINED, ["dspark"]))
def test_same_acceptance_lengths(
    name: str,
    pocket: dict[str, Path],
    target: Qwen3ForCausalLM,
    target_f32: Path,
    tmp_path: Path,
    chats: list[list[int]],
) -> None:
    """Greedy chains of the trained drafters at temperature 0."""
    block_size, anchor_first = TRAINED[name]
    path = widen(pocket[name], tmp_path / "drafter.gguf")
    drafter = DSpark.load(path, target, (2,), block_size, anchor_first)
    with engine_f32(target_f32, path, n_ctx=1024) as engine:
        for prompt in chats:
            budget = block_size + anchor_first
            ours = engine.generate(prompt, temperature=0, max_tokens=96, budget=budget, draft="chain", ignore_eos=True)
            assert ours.acceptance_lengths[:-1] == drafter.acceptance_lengths(prompt, ours.tokens)[:-1]
