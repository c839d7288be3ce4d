"""Backbones with more than the authors' classes have: attention sinks (gpt-oss, MiMo), and what MiMo's drafters have of
their own. The reference is the authors' model with the parts put in that its users have put in."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import dflash.model
import numpy as np
import pytest
import torch
from dflash.model import DFlashDraftModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward

from dflash_local import Engine
from dflash_local.convert import convert

from .f32 import engine_f32
from .reference import MASK, SHAPE, Reference, load_target
from .test_checkpoints import N_TOKENS, Checkpoint, random_drafter
from .test_drafter import assert_close

pytestmark = pytest.mark.parity
BLOCK = 8


def with_sinks(module: Any, query: Any, key: Any, value: Any, mask: Any, scale: float = 1.0, **options: Any) -> Any:
    """The attention of gpt-oss in transformers; `scale` multiplies what leaves it. The target has none."""
    if not hasattr(module, "sinks"):
        return sdpa_attention_forward(module, query, key, value, mask, **options)
    if mask is not None:
        mask = torch.where(mask, 0.0, -torch.inf)
    out, weights = eager_attention_forward(module, query, key, value, mask, **options)
    return out * scale, weights


def add_sinks(drafter: DFlashDraftModel, name: str) -> None:
    for layer in drafter.layers:
        sinks = torch.nn.Parameter(torch.randn(SHAPE["num_attention_heads"]))
        layer.self_attn.register_parameter(name, sinks)
        layer.self_attn.__dict__["sinks"] = sinks  # the name that gpt-oss has for it


def save(drafter: DFlashDraftModel, directory: Path, changes: dict[str, Any]) -> None:
    """A checkpoint; `changes` are made in its config.json, None removes a key."""
    drafter.save_pretrained(directory)
    config = json.loads((directory / "config.json").read_text()) | changes
    (directory / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v is not None}))


def open_engine(tmp_path: Path, target: Path) -> Engine:
    convert(tmp_path / "checkpoint", target, tmp_path / "drafter.gguf", outtype="f32")
    return engine_f32(target, tmp_path / "drafter.gguf", n_ctx=256)


def assert_same_block(engine: Engine, reference: Reference, tokens: list[int]) -> None:
    hidden, logits = reference.draft(tokens, BLOCK)
    probe = engine.draft_probe(tokens, BLOCK)
    assert_close(probe.hidden, hidden.numpy())
    assert_close(probe.logits, logits.numpy())


def random_tokens(n: int = N_TOKENS) -> list[int]:
    tokens: list[int] = torch.randint(4, SHAPE["vocab_size"], [n]).tolist()
    return tokens


@pytest.mark.parametrize("flash_attn", ["off", "on"])
def test_sinks_with_biases(target_f32: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flash_attn: str) -> None:
    """gpt-oss: heads narrower than the hidden size, biases, sinks; full layers and sliding ones."""
    sliding = {"layer_types": ["sliding_attention", "full_attention"], "use_sliding_window": True, "sliding_window": 24}
    drafter = random_drafter(Checkpoint(top={"attention_bias": True, "head_dim": 32} | sliding))
    add_sinks(drafter, "sinks")
    monkeypatch.setitem(dflash.model.ALL_ATTENTION_FUNCTIONS, "sdpa", with_sinks)
    save(drafter, tmp_path / "checkpoint", {})
    reference = Reference(load_target(target_f32), drafter)
    with open_engine(tmp_path, target_f32) as engine:
        assert_same_block(engine, reference, random_tokens())
    if flash_attn == "on":  # which rounds K and V
        with engine_f32(target_f32, tmp_path / "drafter.gguf", n_ctx=256, flash_attn="on") as engine:
            tokens = random_tokens()
            hidden, _ = reference.draft(tokens, BLOCK)
            difference = engine.draft_probe(tokens, BLOCK).hidden - hidden.numpy()
            assert np.linalg.norm(difference) < 5e-3 * np.linalg.norm(hidden.numpy())


class ContextRotary:
    """Angles for the rotation of `n_dims` of each head, with another base for the first `n_context` positions."""

    def __init__(self, n_dims: int, theta: float, context_theta: float, n_context: Callable[[], int]) -> None:
        self.n_dims, self.theta, self.context_theta, self.n_context = n_dims, theta, context_theta, n_context

    def __call__(self, _: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        exponents = torch.arange(0, self.n_dims, 2) / self.n_dims
        bases = torch.full([positions.shape[1]], self.theta, dtype=torch.float64)
        bases[: self.n_context()] = self.context_theta
        angles = positions[0, :, None] / bases[:, None] ** exponents
        angles = torch.cat([angles, angles], -1)[None]
        return angles.cos().float(), angles.sin().float()


def rotate_partly(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        first, rest = x[..., : cos.shape[-1]], x[..., cos.shape[-1] :]
        return torch.cat([first * cos + dflash.model.rotate_half(first) * sin, rest], -1)

    cos, sin = cos[:, None], sin[:, None]
    n = q.shape[-2]
    return rotate(q, cos[..., -n:, :], sin[..., -n:, :]), rotate(k, cos, sin)


class MaskedReference(Reference):
    """A drafter that brings the mask token's embedding."""

    mask_embedding: torch.Tensor

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        return torch.where((tokens == MASK)[..., None], self.mask_embedding, super().embed(tokens))


def test_mimo(target_f32: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """config.json as XiaomiMiMo publishes it; an anchor that is the mask token has the mask's embedding, too."""
    window = {"layer_types": ["sliding_attention"] * 2, "use_sliding_window": True, "sliding_window": 24}
    drafter = random_drafter(Checkpoint(top=window | {"is_causal": False, "rms_norm_eps": 1e-5}))
    add_sinks(drafter, "attention_sink_bias")
    monkeypatch.setitem(dflash.model.ALL_ATTENTION_FUNCTIONS, "sdpa", partial(with_sinks, scale=0.612))
    monkeypatch.setattr(dflash.model, "apply_rotary_pos_emb", rotate_partly)
    tokens = random_tokens()
    drafter.rotary_emb.forward = ContextRotary(SHAPE["head_dim"] // 2, 10000.0, 5e6, lambda: len(tokens) - 1)
    nested = dict(drafter.config.dflash_config)
    nested |= {
        "use_swa": True, "swa_window_size": 24, "backbone_rotary_base": 5000000, "attention_value_scale": 0.612,
        "attention_sink_bias": True,
    }  # fmt: skip
    published = {
        "dflash_config": nested, "layer_types": None, "use_sliding_window": None, "is_causal": None,
        "rope_parameters": None, "rope_theta": 10000, "partial_rotary_factor": 0.5,
    }  # fmt: skip
    save(drafter, tmp_path / "checkpoint", published)
    embedding = torch.randn(SHAPE["hidden_size"]).to(torch.bfloat16)
    torch.save({"mask_token_id": MASK, "embedding": embedding}, tmp_path / "checkpoint" / "mask_embedding.pt")
    reference = MaskedReference(load_target(target_f32), drafter)
    reference.mask_embedding = embedding.float()
    with open_engine(tmp_path, target_f32) as engine:
        assert_same_block(engine, reference, tokens)
        tokens[-1] = MASK
        assert_same_block(engine, reference, tokens)
        tokens = random_tokens(2)  # the block's own rows with one row of context
        assert_same_block(engine, reference, tokens)
