"""The keys and tensors that a drafter GGUF has by upstream's names, architecture `dflash`, and the sources of the
tensors in the checkpoint. Other projects' names for them are in dialects.py.

Source: src/models/dflash.cpp (`load_arch_hparams`, `load_arch_tensors`) of the pinned llama.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import replace

from gguf import GGMLQuantizationType, GGUFValueType

from .checkpoint import MASK_EMBEDDING
from .config import Architecture, DrafterConfig
from .gguf_metadata import Value, array, boolean, f32, string, u32
from .kinds import KINDS
from .target import MASK_TOKEN, Target
from .tensor_spec import TensorSpec, matrix, norm, vector

ARCH = "dflash"


def metadata(config: DrafterConfig, target: Target, name: str) -> dict[str, Value]:
    """All keys of the drafter GGUF except `general.file_type`; upstream's loader expects the architecture first."""
    keys: dict[str, Value | None] = {
        "block_count": u32(config.n_layer),
        "context_length": u32(config.n_ctx),
        "embedding_length": u32(config.n_embd),
        "feed_forward_length": u32(config.n_ff),
        "attention.head_count": u32(config.n_head),
        "attention.head_count_kv": u32(config.n_head_kv),
        "attention.key_length": u32(config.head_dim),
        "attention.value_length": u32(config.head_dim),
        "attention.layer_norm_rms_epsilon": f32(config.norm_eps),
        "attention.scale": f32(1.0) if config.is_gemma4 else None,
        "attention.value_scale": _maybe(config.value_scale),
        "attention.causal": None if config.causal is None else boolean(config.causal),
        "attention.sliding_window": u32(config.sliding_window) if config.sliding_window else None,
        "attention.sliding_window_pattern": array(GGUFValueType.BOOL, config.is_sliding)
        if config.sliding_window
        else None,
        "hidden_activation": string(config.activation) if config.activation != "silu" else None,
        "embedding_scale": _maybe(config.embedding_scale),
        "logit_scale": _maybe(config.logit_scale),
        "final_logit_softcapping": _maybe(config.logit_softcap),
        **_rope(config, target),
        "backbone_rotary_base": _maybe(config.context_theta),
        "block_size": u32(config.block_size),
        # the default of a plain drafter is false
        "sample_from_anchor": boolean(True) if config.samples_from_anchor else None,
        "target_layers": array(GGUFValueType.INT32, config.taps),
        "selector_vocab_size": u32(config.n_candidates) if config.n_candidates < config.n_vocab else None,
    }
    keys |= config.kind.metadata()
    return {
        "general.architecture": string(ARCH),
        "general.type": string("model"),
        "general.name": string(name),
        **{f"{ARCH}.{key}": value for key, value in keys.items() if value is not None},
        **target.tokenizer,
        MASK_TOKEN: u32(config.mask_token),
    }


def _maybe(number: float | None) -> Value | None:
    return None if number is None else f32(number)


def _rope(config: DrafterConfig, target: Target) -> dict[str, Value | None]:
    rope = config.rope
    keys: dict[str, Value | None] = {"rope.freq_base": f32(rope.theta)}
    if rope.n_dims != config.head_dim:
        keys["rope.dimension_count"] = u32(rope.n_dims)
    if target.uses_mrope:
        # the drafter of an M-RoPE target uses only the first of its four positions
        keys["rope.dimension_sections"] = array(GGUFValueType.INT32, (rope.n_dims // 2, 0, 0, 0))
    if rope.yarn and rope.has_factors:
        keys["rope.scaling.attn_factor"] = f32(rope.magnitude)
        return keys
    if rope.kind in ("linear", "yarn"):
        keys["rope.scaling.type"] = string(rope.kind)
        keys["rope.scaling.factor"] = f32(rope.factor)
    if rope.yarn:
        keys["rope.scaling.original_context_length"] = u32(rope.n_ctx_original)
        keys["rope.scaling.yarn_beta_fast"] = _maybe(rope.yarn.beta_fast)
        keys["rope.scaling.yarn_beta_slow"] = _maybe(rope.yarn.beta_slow)
        # llama.cpp overwrites yarn_attn_factor with the default scale and then multiplies by this key
        # (llama-context.cpp)
        keys["rope.scaling.attn_factor"] = _maybe(rope.yarn.attention_scale)
    return keys


def without_head(embeddings: str) -> str:
    """What to say of embeddings that are left out, because they come without a head: they are a copy of the target's,
    and alone they would also become upstream's output head."""
    return f"{embeddings} is left out: without a head of its own, the drafter uses the target's"


# Tensors that drafting does not need, saved by speculators.
IGNORED = frozenset({"t2d", "verifier_norm.weight", "verifier_lm_head.weight"})

# The checkpoint's names of tensors that not every drafter has, by their names in the GGUF.
OPTIONAL = {
    "token_embd.weight": "embed_tokens.weight",
    "output.weight": "lm_head.weight",
    "mask_embd.weight": MASK_EMBEDDING,
    **{name: source for kind in KINDS for name, source in kind.optional.items()},
}
_OPTIONAL_OF_LAYER = re.compile(r"blk\.(\d+)\.attn_(q|k|v|output|sinks)\.(bias|weight)")
_F32 = GGMLQuantizationType.F32


def sources(names: Collection[str]) -> set[str]:
    """The checkpoint's names of the optional tensors among `names`, those of a GGUF; as `found` of `tensors`."""
    found = {source for name, source in OPTIONAL.items() if name in names}
    for layer, part, what in (match.groups() for match in map(_OPTIONAL_OF_LAYER.fullmatch, names) if match):
        if part == "sinks":
            found.add(f"layers.{layer}.self_attn.sinks")
        elif what == "bias":
            found.add(f"layers.{layer}.self_attn.{'o' if part == 'output' else part}_proj.bias")
    return found


def tensors(config: Architecture, found: Collection[str]) -> Iterator[TensorSpec]:
    """All tensors of the drafter GGUF, in file order. `found` are the checkpoint's tensor names, which decide about
    spellings and optional tensors.
    """
    n_embd, n_vocab = config.n_embd, config.n_vocab
    yield from config.kind.fusion(config)
    yield norm("enc.output_norm", "hidden_norm", n_embd)
    yield norm("output_norm", "norm", n_embd)
    if "lm_head.weight" in found or config.n_vocab_draft < n_vocab:
        if "embed_tokens.weight" in found:
            yield matrix("token_embd", "embed_tokens", n_vocab, n_embd)
        yield matrix("output", "lm_head", config.n_vocab_draft, n_embd)
    if config.n_vocab_draft < n_vocab:
        yield TensorSpec("d2t", (config.n_vocab_draft,), "d2t", (config.n_vocab_draft,), type=GGMLQuantizationType.I64)
    if MASK_EMBEDDING in found:
        yield vector("mask_embd.weight", MASK_EMBEDDING, n_embd)
    if config.rope.has_factors:
        # dimensions without rotation need a factor too, which is never read
        factors = config.rope.frequency_factors() + (1.0,) * ((config.head_dim - config.rope.n_dims) // 2)
        yield TensorSpec("rope_freqs.weight", (len(factors),), type=_F32, values=factors)
    yield from config.kind.tensors(config, found)
    for layer in range(config.n_layer):
        yield from _layer(config, layer, found)


def _layer(config: Architecture, layer: int, found: Collection[str]) -> Iterator[TensorSpec]:
    n_embd, n_ff, blk, src = config.n_embd, config.n_ff, f"blk.{layer}", f"layers.{layer}"
    n_q, n_kv = config.n_head * config.head_dim, config.n_head_kv * config.head_dim

    yield norm(f"{blk}.attn_norm", f"{src}.input_layernorm", n_embd)
    fused = f"{src}.self_attn.qkv_proj.weight"
    first_row = 0
    parts = (("q", n_q), ("k", n_kv)) if config.is_gemma4 else (("q", n_q), ("k", n_kv), ("v", n_kv))
    for part, n_rows in parts:
        spec = matrix(f"{blk}.attn_{part}", f"{src}.self_attn.{part}_proj", n_rows, n_embd, rotated=part != "v")
        if fused in found:
            spec = replace(spec, source=fused, source_shape=(n_q + 2 * n_kv, n_embd), first_row=first_row)
        first_row += n_rows
        yield spec
        yield from _bias(config, f"{blk}.attn_{part}", f"{src}.self_attn.{part}_proj", n_rows, found, part != "v")
    yield norm(f"{blk}.attn_q_norm", f"{src}.self_attn.q_norm", config.head_dim, rotated=True)
    yield norm(f"{blk}.attn_k_norm", f"{src}.self_attn.k_norm", config.head_dim, rotated=True)
    yield matrix(f"{blk}.attn_output", f"{src}.self_attn.o_proj", n_embd, n_q)
    yield from _bias(config, f"{blk}.attn_output", f"{src}.self_attn.o_proj", n_embd, found)
    for sinks in (f"{src}.self_attn.sinks", f"{src}.self_attn.attention_sink_bias"):
        if sinks in found:
            yield vector(f"{blk}.attn_sinks.weight", sinks, config.n_head)
    if config.is_gemma4:
        yield from gemma4_norms(layer, n_embd)
    else:
        yield norm(f"{blk}.ffn_norm", f"{src}.post_attention_layernorm", n_embd)
    yield from feed_forward(layer, n_embd, n_ff)
    yield from config.kind.layer_tensors(config, layer, found)


def gemma4_norms(layer: int, n_embd: int) -> Iterator[TensorSpec]:
    """What follows attention and surrounds the feed-forward part in Gemma 4's layers."""
    blk, src = f"blk.{layer}", f"layers.{layer}"
    yield norm(f"{blk}.post_attention_norm", f"{src}.post_attention_layernorm", n_embd)
    yield norm(f"{blk}.ffn_norm", f"{src}.pre_feedforward_layernorm", n_embd)
    yield norm(f"{blk}.post_ffw_norm", f"{src}.post_feedforward_layernorm", n_embd)
    yield vector(f"{blk}.layer_output_scale.weight", f"{src}.layer_scalar", 1)


def feed_forward(layer: int, n_embd: int, n_ff: int) -> Iterator[TensorSpec]:
    blk, src = f"blk.{layer}", f"layers.{layer}.mlp"
    yield matrix(f"{blk}.ffn_gate", f"{src}.gate_proj", n_ff, n_embd)
    yield matrix(f"{blk}.ffn_up", f"{src}.up_proj", n_ff, n_embd)
    yield matrix(f"{blk}.ffn_down", f"{src}.down_proj", n_embd, n_ff)


def _bias(
    config: Architecture, name: str, source: str, n: int, found: Collection[str], rotated: bool = False
) -> Iterator[TensorSpec]:
    """The bias of a projection in attention: not part of upstream's dialect, so named as in its other models."""
    if config.attention_bias or f"{source}.bias" in found:
        yield vector(f"{name}.bias", f"{source}.bias", n, rotated=rotated)
