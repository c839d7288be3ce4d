"""The settings of a DFlash checkpoint.

Three layouts of `config.json` are in use: the authors' (`dflash_config` beside Qwen3's keys), an older one of theirs
(block size, mask token and layer ids at the top level), and that of the speculators library (Qwen3's keys inside
`transformer_layer_config`). Meanings follow the authors' implementation (package `dflash`, model.py) and, for keys that
it does not know, vLLM's (qwen3_dflash.py). Settings that upstream's `dflash` dialect cannot express are refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from dflash_local.errors import ConvertError

from . import gemma4
from .keys import Keys, wrong
from .kinds import Kind, KindClues, read_kind
from .packaging import recognise, samples_from_anchor
from .rope import Rope, rope_settings
from .target import MASK_TOKEN, TOKENS, Target
from .tensor_spec import Dimensions

_ACTIVATIONS = ("silu", "gelu", "gelu_pytorch_tanh")  # those of the dialect
FULL, SLIDING = "full_attention", "sliding_attention"
LARGEST_HEAD = 65536  # dimensions, far beyond any; tables of rotations are made before a shape is compared
_RIGHT_TARGET = "give the GGUF of the model that the drafter was trained for"
# Limits for the padding of a vocabulary, in rows (gpt-oss has 1069, Qwen3 267) and as a part of it. Either the
# vocabulary has more rows than tokens, or a converter's token list is longer.
_MAX_PADDING, _MAX_PADDING_PART = 2048, 1 / 16


@dataclass(frozen=True)
class Architecture(Dimensions):
    """What determines a drafter's tensors."""

    kind: Kind
    rope: Rope
    attention_bias: bool = False  # of q, k, v and the output; a checkpoint may have them without this key
    is_gemma4: bool = False  # norms after each sub-layer, V made from K, attention without scale


@dataclass(frozen=True, kw_only=True)
class DrafterConfig(Architecture):
    """A drafter, checked against its target. `taps` are inputs of target layers: Hugging Face layer id + 1. `warnings`
    are sentences for the user."""

    n_ctx: int
    norm_eps: float
    activation: str
    block_size: int
    mask_token: int
    n_vocab_stored: int  # rows of the checkpoint's vocabulary tensors: differs from n_vocab by padding
    n_candidates: int  # only tokens below this are proposed
    samples_from_anchor: bool  # a block's first row proposes the token after the anchor
    context_theta: float | None  # RoPE base of injected keys, if it differs
    rope_interleaved: bool
    sliding_window: int  # 0: none
    is_sliding: tuple[bool, ...]
    causal: bool | None  # of all layers; None: sliding layers are causal, full ones are not
    logit_scale: float | None
    logit_softcap: float | None
    embedding_scale: float | None
    value_scale: float | None
    warnings: tuple[str, ...]

    @property
    def title(self) -> str:
        return f"{self.kind.name} drafter"

    @property
    def details(self) -> str:
        """Further facts about a conversion, for the user."""
        taps = ", ".join(map(str, self.taps))
        return f"block size {self.block_size}, mask token {self.mask_token}, taps at the inputs of layers {taps}"

    @classmethod
    def read(cls, config: Mapping[str, Any], target: Target, found: Collection[str] = ()) -> DrafterConfig:
        """`found` are the checkpoint's tensor names. Raises ConvertError; `field` is the key of `config.json` that is
        missing, wrong, or does not fit the target."""
        packaging = recognise(config, found)
        keys = Keys(gemma4.settings(config) if packaging.is_gemma4 else config)
        warnings: list[str] = []
        n_layer = keys.integer("num_hidden_layers", maximum=512)  # LLAMA_MAX_LAYERS
        n_embd = check_width(keys, target)
        n_head, n_head_kv, head_dim = _heads(keys, n_embd)
        _compare_depth(keys, packaging.depth_key, target, warnings)
        n_vocab_stored, n_vocab_draft = _vocabulary(keys, target, warnings)
        first_row_proposes = samples_from_anchor(keys, packaging)
        n_ctx = keys.integer("max_position_embeddings")
        layer_types = read_layer_types(keys, n_layer)
        sliding_window, is_sliding = _sliding(keys, layer_types)
        embedding_scale, softcap = _gemma4_scales(keys, target, found, warnings)
        return cls(
            n_layer=n_layer,
            n_embd=n_embd,
            n_ff=keys.integer("intermediate_size"),
            n_head=n_head,
            n_head_kv=n_head_kv,
            head_dim=head_dim,
            n_ctx=n_ctx,
            norm_eps=keys.number("rms_norm_eps"),
            n_vocab_stored=n_vocab_stored,
            n_candidates=min(keys.integer("selector_vocab_size", n_vocab_stored), n_vocab_stored, target.n_vocab),
            attention_bias=keys.flag("attention_bias", False),
            activation=_activation(keys),
            block_size=keys.integer("block_size", 16, minimum=2),
            mask_token=_mask_token(keys, target),
            samples_from_anchor=first_row_proposes,
            taps=_taps(keys, target),
            rope=Rope.read(keys, head_dim, n_ctx, _rotated_as(keys, layer_types), partial=packaging.partial_rotary),
            context_theta=_context_theta(keys, target),
            rope_interleaved=not keys.flag("rope_is_neox_style", True),
            sliding_window=sliding_window,
            is_sliding=is_sliding,
            causal=_causal(keys, layer_types, sliding_window),
            n_vocab=target.n_vocab,
            n_vocab_draft=n_vocab_draft,
            logit_scale=keys.maybe_number("output_multiplier"),
            logit_softcap=softcap if softcap and softcap > 0 else None,
            embedding_scale=embedding_scale,
            value_scale=keys.maybe_number("attention_value_scale"),
            is_gemma4=packaging.is_gemma4,
            kind=read_kind(KindClues(keys, packaging, found, n_embd, target.n_vocab, first_row_proposes)),
            warnings=tuple(warnings),
        )


def check_width(keys: Keys, target: Target) -> int:
    """Width of the residual stream, which must be that of the target and of its taps. Raises ConvertError."""
    n_embd = keys.integer("hidden_size")
    if n_embd != target.n_embd:
        raise unfit("hidden_size", n_embd, f"{target.arch}.embedding_length", target.n_embd)
    tap_width = keys.integer("target_hidden_size", n_embd)
    if tap_width != n_embd:
        raise wrong(
            "target_hidden_size",
            f"taps of {tap_width} values: several streams of the target (hyper-connections), of which llama.cpp "
            "offers the mean alone",
        )
    return n_embd


def _heads(keys: Keys, n_embd: int) -> tuple[int, int, int]:
    """Heads of q, heads of k and v, and their size."""
    n_head = keys.integer("num_attention_heads")
    n_head_kv = keys.integer("num_key_value_heads", n_head)
    head_dim = keys.integer("head_dim", n_embd // n_head, maximum=LARGEST_HEAD)
    if n_head % n_head_kv:
        raise wrong("num_key_value_heads", f"{n_head} heads cannot share {n_head_kv} key-value heads")
    if head_dim % 2 or head_dim == 0:
        raise wrong("head_dim", f"{head_dim} cannot be rotated in pairs")
    return n_head, n_head_kv, head_dim


def _activation(keys: Keys) -> str:
    activation = keys.text("hidden_act", "silu")
    if activation not in _ACTIVATIONS:
        raise wrong("hidden_act", f"{activation!r} is not one of {', '.join(_ACTIVATIONS)}")
    return activation


def _compare_depth(keys: Keys, key: str, target: Target, warnings: list[str]) -> None:
    n_layer = keys.integer(key, target.n_layer)
    if n_layer != target.n_layer:
        warnings.append(
            f"{key} is {n_layer}, but {target.path.name} has {target.n_layer} layers; "
            "check that it is the target that the drafter was trained for"
        )


def _vocabulary(keys: Keys, target: Target, warnings: list[str]) -> tuple[int, int]:
    """Rows of the checkpoint's vocabulary tensors, and tokens that the drafter's own head scores."""
    n_stored = stored_rows(keys, target)
    if n_stored != target.n_vocab:
        warnings.append(
            f"vocab_size is {n_stored}, the target has {target.n_vocab} tokens; "
            "the difference is taken for padding and never proposed"
        )
    n_draft = keys.integer("draft_vocab_size", n_stored)
    if n_draft > n_stored:
        raise wrong("draft_vocab_size", f"{n_draft} exceeds the vocabulary of {n_stored} tokens")
    return n_stored, n_draft if n_draft < n_stored else target.n_vocab


def stored_rows(keys: Keys, target: Target) -> int:
    """Rows of the checkpoint's vocabulary tensors: as many as the target has tokens, but for padding. Raises
    ConvertError."""
    n_stored = keys.integer("vocab_size", target.n_vocab)
    if abs(n_stored - target.n_vocab) > min(_MAX_PADDING, _MAX_PADDING_PART * target.n_vocab):
        raise unfit("vocab_size", n_stored, TOKENS, target.n_vocab)
    return n_stored


def unfit(key: str, ours: int, target_key: str, theirs: int) -> ConvertError:
    return ConvertError(
        f"the drafter does not fit the target: {key} is {ours}, the target's {target_key} says {theirs}",
        field=key,
        hint=_RIGHT_TARGET,
    )


def _mask_token(keys: Keys, target: Target) -> int:
    key, value = keys.find("mask_token_id")
    if value is None and target.mask_token is None:
        raise ConvertError(
            f"no mask token: config.json lacks dflash_config.mask_token_id and the target lacks {MASK_TOKEN}",
            field="mask_token_id",
            hint="add dflash_config.mask_token_id to config.json (the drafter's model card names it)",
        )
    return checked_mask_token(key, value, target)


def checked_mask_token(key: str, value: Any, target: Target) -> int:
    """The mask token that the drafter's `key` says, or else the target's. Raises ConvertError."""
    if value is None:
        key, value = MASK_TOKEN, target.mask_token
    if type(value) is not int or not 0 <= value < target.n_vocab:
        raise ConvertError(
            f"the mask token {value!r} ({key}) is outside the target's vocabulary of {target.n_vocab} tokens", field=key
        )
    return value


def _gemma4_scales(
    keys: Keys, target: Target, found: Collection[str], warnings: list[str]
) -> tuple[float | None, float | None]:
    """Scale of embeddings and soft cap of logits. Older drafters of Gemma 4 share the target's embeddings and head, but
    their config lacks Gemma's scale and cap. Those of the speculators library were trained without either."""
    scale, softcap = keys.maybe_number("input_embedding_scale"), keys.maybe_number("final_logit_softcapping")
    if _is_speculators(keys) or target.arch != "gemma4":
        return scale, softcap
    borrowed = gemma4.borrowed_scales(
        target, own_embeddings="embed_tokens.weight" in found, own_head="lm_head.weight" in found
    )
    if scale is None and (scale := borrowed.get("embedding_scale")) is not None:
        warnings.append(f"input_embedding_scale is missing; taken as Gemma's, sqrt({target.n_embd})")
    if softcap is None and (softcap := borrowed.get("final_logit_softcapping")) is not None:
        warnings.append(f"final_logit_softcapping is missing; taken as the target's, {softcap:g}")
    return scale, softcap


def _is_speculators(keys: Keys) -> bool:
    """Whether the drafter was trained by the speculators library."""
    return keys.find("speculators_model_type")[1] is not None


def _rotated_as(keys: Keys, layer_types: list[str]) -> list[str]:
    """The kinds of layers whose rotation is used. If each kind has one, the speculators library rotates all layers as
    sliding ones, even if there are none (its flatten_rope_parameters)."""
    if _is_speculators(keys) and SLIDING in rope_settings(keys)[1]:
        return [SLIDING]
    return layer_types


def _context_theta(keys: Keys, target: Target) -> float | None:
    """MiMo's drafters rotate keys made from taps like their target."""
    key, value = keys.find("backbone_rotary_base")
    if value is None:
        return None
    if target.uses_mrope:
        raise wrong(key, "the engine has no separate base for injected keys of targets with M-RoPE")
    return keys.number("backbone_rotary_base")


def _taps(keys: Keys, target: Target) -> tuple[int, ...]:
    """Inputs of target layers. A Hugging Face id names a layer whose *output* is tapped: the input of the next layer,
    or the output of the last one."""
    name, offset = "aux_hidden_state_layer_ids", 0  # of speculators, which counts inputs
    if keys.find(name)[1] is None:
        name, offset = "target_layer_ids", 1
    key = keys.find(name)[0]
    ids = keys.integers(name, [])
    if not ids:
        # the authors' default spread is rarely what a checkpoint was trained with
        raise ConvertError(
            f"config.json: {key}: it names no layer of the target",
            field=key,
            hint="add dflash_config.target_layer_ids to config.json (the drafter's model card names them)",
        )
    for layer in ids:
        if not 0 <= layer + offset <= target.n_layer:
            raise ConvertError(
                f"config.json: {key}: layer {layer} is out of range: "
                f"a target of {target.n_layer} layers can be tapped at {-offset} to {target.n_layer - offset}",
                field=key,
                hint=_RIGHT_TARGET,
            )
    return tuple(layer + offset for layer in ids)


def read_layer_types(keys: Keys, n_layer: int) -> list[str]:
    key, types = keys.find("layer_types")
    if types is None:
        # Qwen3Config fills the list from the first layer with the window
        first = (
            keys.integer("max_window_layers", n_layer, minimum=0) if keys.flag("use_sliding_window", False) else n_layer
        )
        return [FULL if i < first else SLIDING for i in range(n_layer)]
    if not isinstance(types, list) or len(types) != n_layer:
        raise wrong(key, f"it must list {n_layer} layers")
    for name in types:
        if name not in (FULL, SLIDING):
            raise wrong(key, f"{name!r} is neither full_attention nor sliding_attention")
    return types


def _sliding(keys: Keys, layer_types: list[str]) -> tuple[int, tuple[bool, ...]]:
    """Window (0: none) and the layers that have it. `use_swa` applies it to all layers of any type."""
    if keys.flag("use_swa", False):
        window = keys.find("swa_window_size")[1]
        name = "swa_window_size" if window is not None else "sliding_window"
        return keys.integer(name), (True,) * len(layer_types)
    is_sliding = tuple(name == SLIDING for name in layer_types)
    # transformers ignores the window if use_sliding_window is false
    if not any(is_sliding) or not keys.flag("use_sliding_window", True):
        return 0, (False,) * len(layer_types)
    return keys.integer("sliding_window"), is_sliding


def _causal(keys: Keys, layer_types: list[str], sliding_window: int) -> bool | None:
    for name in ("is_causal", "causal", "dflash_query_causal"):
        if (value := keys.maybe_flag(name)) is not None:
            return value
    if keys.flag("sliding_window_non_causal", False):
        return False
    # by default sliding layers are causal and full ones are not; the dialect has one value for all layers
    if len(set(layer_types)) > 1:
        return None
    if layer_types[0] == SLIDING:
        return True
    return False if sliding_window else None  # without a window it is the default
