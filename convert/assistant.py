"""Gemma 4's assistant: the settings of its checkpoint, and the keys and tensors of its GGUF.

It drafts token by token for one target, with the target's embeddings, hidden states, and K and V. Sources: Gemma4Model
and Gemma4AssistantModel in upstream's conversion/gemma.py; `load_arch_hparams` and `load_arch_tensors` in
src/models/gemma4-assistant.cpp.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gguf import GGMLQuantizationType, GGUFValueType

from dflash_local.errors import ConvertError

from .config import FULL, LARGEST_HEAD, SLIDING, read_layer_types, stored_rows, unfit
from .gguf_metadata import Value, array, f32, string, u32
from .keys import Keys, wrong
from .names import feed_forward, gemma4_norms
from .rope import Rope
from .target import TOKENS, Target
from .tensor_spec import TensorSpec, matrix, norm

ARCH = "gemma4-assistant"
_TARGET_ARCH, _ACTIVATION = "gemma4", "gelu_pytorch_tanh"
_ROPES = {FULL: "proportional", SLIDING: "default"}


@dataclass(frozen=True)
class Heads:
    """Attention in the layers of one type; K and V are the target's."""

    head_dim: int
    n_head_kv: int
    rope: Rope


@dataclass(frozen=True)
class AssistantConfig:
    """An assistant, checked against its target. `n_target_embd`: width of the hidden states that it reads and makes."""

    n_embd: int
    n_target_embd: int
    n_ff: int
    n_head: int
    n_ctx: int
    n_vocab: int
    n_vocab_stored: int  # rows of the checkpoint's embeddings: more than n_vocab by padding
    norm_eps: float
    logit_softcap: float | None
    sliding_window: int
    layer_types: tuple[str, ...]
    heads: Mapping[str, Heads]  # by layer type
    title: str = "Gemma 4 assistant"
    warnings: tuple[str, ...] = ()

    @property
    def details(self) -> str:
        """Further facts about a conversion, for the user."""
        return f"{len(self.layer_types)} layers, hidden states of {self.n_target_embd} numbers"

    @classmethod
    def read(cls, config: Mapping[str, Any], target: Target) -> AssistantConfig:
        """Raises ConvertError; `field` is the key that is missing, wrong, or does not fit the target."""
        if target.arch != _TARGET_ARCH:
            raise ConvertError(
                f"the checkpoint is an assistant of Gemma 4, and the target is {target.arch}",
                field="general.architecture",
                hint="give the GGUF of the Gemma 4 model that the assistant was trained for",
            )
        if not isinstance(text := config.get("text_config"), dict):
            raise wrong("text_config", "it must be an object with the settings of the layers")
        keys = Keys.inside("text_config", text)
        n_target_embd = Keys(config).integer("backbone_hidden_size")
        if n_target_embd != target.n_embd:
            raise unfit("backbone_hidden_size", n_target_embd, f"{target.arch}.embedding_length", target.n_embd)
        n_vocab_stored = stored_rows(keys, target)
        if n_vocab_stored < target.n_vocab:
            raise unfit("vocab_size", n_vocab_stored, TOKENS, target.n_vocab)
        if (activation := keys.text("hidden_activation", _ACTIVATION)) != _ACTIVATION:
            raise wrong(keys.find("hidden_activation")[0], f"{activation!r} is not {_ACTIVATION}")
        layer_types = tuple(read_layer_types(keys, keys.integer("num_hidden_layers", maximum=512)))
        return cls(
            n_embd=keys.integer("hidden_size"),
            n_target_embd=n_target_embd,
            n_ff=keys.integer("intermediate_size"),
            n_head=keys.integer("num_attention_heads"),
            n_ctx=keys.integer("max_position_embeddings"),
            n_vocab=target.n_vocab,
            n_vocab_stored=n_vocab_stored,
            norm_eps=keys.number("rms_norm_eps"),
            logit_softcap=keys.maybe_number("final_logit_softcapping"),
            sliding_window=keys.integer("sliding_window"),
            layer_types=layer_types,
            heads=_heads(keys, layer_types),
        )


def _heads(keys: Keys, layer_types: tuple[str, ...]) -> dict[str, Heads]:
    """By layer type. Newer versions of transformers write what differs in full layers once for each of them."""
    if set(layer_types) != {FULL, SLIDING}:
        raise wrong(keys.find("layer_types")[0], "there must be layers with a window and layers without one")
    first = str(layer_types.index(FULL))
    place, per_layer = keys.find("per_layer_config")
    own = per_layer.get(first) if isinstance(per_layer, dict) else None
    full = Keys.inside(f"{place}.{first}", own if isinstance(own, dict) else {})
    head_dim, n_head_kv = keys.integer("head_dim", maximum=LARGEST_HEAD), keys.integer("num_key_value_heads")
    full_dim = full.integer("head_dim", 0, maximum=LARGEST_HEAD)
    full_dim = full_dim or keys.integer("global_head_dim", maximum=LARGEST_HEAD)
    n_full_kv = full.integer("num_key_value_heads", 0) or keys.integer("num_global_key_value_heads", n_head_kv)
    return {
        SLIDING: Heads(head_dim, n_head_kv, _rope(keys, head_dim, SLIDING)),
        FULL: Heads(full_dim, n_full_kv, _rope(keys, full_dim, FULL)),
    }


def _rope(keys: Keys, head_dim: int, layer_type: str) -> Rope:
    rope = Rope.read(keys, head_dim, keys.integer("max_position_embeddings"), [layer_type])
    if rope.kind != _ROPES[layer_type]:
        raise wrong(
            f"text_config.rope_parameters.{layer_type}.rope_type",
            f"{rope.kind!r} is not {_ROPES[layer_type]}, as llama.cpp rotates these layers",
        )
    return rope


def metadata(config: AssistantConfig, target: Target, name: str) -> dict[str, Value]:
    """All keys of the GGUF except `general.file_type`; upstream's loader expects the architecture first."""
    full, sliding, n_layer = config.heads[FULL], config.heads[SLIDING], len(config.layer_types)
    n_head_kv = [config.heads[kind].n_head_kv for kind in config.layer_types]
    keys: dict[str, Value] = {
        "block_count": u32(n_layer),
        "nextn_predict_layers": u32(n_layer),
        "context_length": u32(config.n_ctx),
        "embedding_length": u32(config.n_embd),
        "embedding_length_out": u32(config.n_target_embd),
        "embedding_length_per_layer_input": u32(0),
        "feed_forward_length": u32(config.n_ff),
        "attention.head_count": u32(config.n_head),
        "attention.head_count_kv": array(GGUFValueType.INT32, n_head_kv)
        if len(set(n_head_kv)) > 1
        else u32(n_head_kv[0]),
        "attention.shared_kv_layers": u32(n_layer),
        "attention.key_length": u32(full.head_dim),
        "attention.value_length": u32(full.head_dim),
        "attention.key_length_swa": u32(sliding.head_dim),
        "attention.value_length_swa": u32(sliding.head_dim),
        "attention.layer_norm_rms_epsilon": f32(config.norm_eps),
        "attention.sliding_window": u32(config.sliding_window),
        "attention.sliding_window_pattern": array(GGUFValueType.BOOL, [kind == SLIDING for kind in config.layer_types]),
        "rope.freq_base": f32(full.rope.theta),
        "rope.freq_base_swa": f32(sliding.rope.theta),
        "rope.dimension_count": u32(full.head_dim),
        "rope.dimension_count_swa": u32(sliding.head_dim),
    }
    if config.logit_softcap:
        keys["final_logit_softcapping"] = f32(config.logit_softcap)
    return {
        "general.architecture": string(ARCH),
        "general.type": string("model"),
        "general.name": string(name),
        **{f"{ARCH}.{key}": value for key, value in keys.items()},
        **target.tokenizer,
    }


def tensors(config: AssistantConfig) -> Iterator[TensorSpec]:
    """All tensors of the GGUF, in file order. The embeddings are the output projection, too."""
    n_embd, n_target_embd = config.n_embd, config.n_target_embd
    yield TensorSpec(
        "token_embd.weight", (config.n_vocab, n_embd), "embed_tokens.weight", (config.n_vocab_stored, n_embd)
    )
    yield norm("output_norm", "norm", n_embd)
    yield matrix("nextn.pre_projection", "pre_projection", n_embd, 2 * n_target_embd)
    yield matrix("nextn.post_projection", "post_projection", n_target_embd, n_embd)
    factors = config.heads[FULL].rope.frequency_factors()
    yield TensorSpec("rope_freqs.weight", (len(factors),), type=GGMLQuantizationType.F32, values=factors)
    for layer, kind in enumerate(config.layer_types):
        blk, src, head_dim = f"blk.{layer}", f"layers.{layer}", config.heads[kind].head_dim
        yield norm(f"{blk}.attn_norm", f"{src}.input_layernorm", n_embd)
        yield matrix(f"{blk}.attn_q", f"{src}.self_attn.q_proj", config.n_head * head_dim, n_embd)
        yield norm(f"{blk}.attn_q_norm", f"{src}.self_attn.q_norm", head_dim)
        yield matrix(f"{blk}.attn_output", f"{src}.self_attn.o_proj", n_embd, config.n_head * head_dim)
        yield from gemma4_norms(layer, n_embd)
        yield from feed_forward(layer, n_embd, config.n_ff)
