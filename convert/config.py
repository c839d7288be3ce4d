"""The settings of a DFlash checkpoint, found wherever the published formats put them.

Three layouts of `config.json` are in use: the authors' (`dflash_config` beside Qwen3's keys), an older one of theirs (block size,
mask token and layer ids at the top level), and that of the speculators library (Qwen3's keys inside `transformer_layer_config`).
A setting is looked up in `dflash_config`, then at the top level, then in `transformer_layer_config`; `null` counts as absent.
Meanings follow the authors' implementation (package `dflash`, model.py); what upstream's `dflash` dialect cannot say is refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dflash_local.errors import ConvertError

from .target import MASK_TOKEN, Target

ARCHITECTURES = {"DFlashDraftModel": False, "DFlash2DraftModel": True}  # name -> is DFlash 2
_ACTIVATIONS = ("silu", "gelu", "gelu_pytorch_tanh")  # what the dialect knows


@dataclass(frozen=True)
class Rope:
    """`kind` is "default", "linear", "yarn" or "llama3"; `n_dims` the rotated dimensions of a head."""

    theta: float
    kind: str
    n_dims: int
    factor: float
    n_ctx_original: int
    yarn: dict[str, float]  # those of extrapolation_factor, attention_factor, beta_fast and beta_slow that are given
    low_freq_factor: float
    high_freq_factor: float

    def frequency_factors(self) -> list[float]:
        """Divisors of llama3's rotation frequencies, `[n_dims / 2]` (`_compute_llama3_parameters` in transformers)."""
        long, short = self.n_ctx_original / self.low_freq_factor, self.n_ctx_original / self.high_freq_factor
        factors = []
        for i in range(self.n_dims // 2):
            wavelength = 2 * math.pi * self.theta ** (2 * i / self.n_dims)
            if wavelength < short:
                factors.append(1.0)
            elif wavelength > long:
                factors.append(self.factor)
            else:
                smooth = (self.n_ctx_original / wavelength - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
                factors.append(1 / ((1 - smooth) / self.factor + smooth))
        return factors


@dataclass(frozen=True)
class Conv:
    """The DFlash 2 additions: grouped dynamic convolutions and the candidate selector."""

    kernel_size: int
    group_size: int
    selector_rank: int
    selector_top_k: int


@dataclass(frozen=True)
class DrafterConfig:
    """A drafter, checked against its target. `taps` are inputs of target layers: Hugging Face layer id + 1."""

    n_layer: int
    n_embd: int
    n_ff: int
    n_head: int
    n_head_kv: int
    head_dim: int
    n_ctx: int
    norm_eps: float
    activation: str
    block_size: int
    mask_token: int
    taps: tuple[int, ...]
    rope: Rope
    rope_interleaved: bool
    sliding_window: int  # 0: none
    is_sliding: tuple[bool, ...]
    causal: bool | None  # None: sliding layers are causal, full ones are not
    n_vocab: int
    n_vocab_draft: int  # smaller than the target's vocabulary if the drafter has a reduced one
    logit_scale: float | None
    logit_softcap: float | None
    embedding_scale: float | None
    value_scale: float | None
    conv: Conv | None

    @classmethod
    def read(cls, config: Mapping[str, Any], target: Target) -> DrafterConfig:
        """Raises ConvertError whose `field` is the key of `config.json` that is missing, wrong, or does not fit the target."""
        keys = _Keys(config)
        is_dflash2 = _architecture(config)
        n_layer, n_embd, n_head = (keys.integer(name) for name in ("num_hidden_layers", "hidden_size", "num_attention_heads"))
        n_head_kv = keys.integer("num_key_value_heads", n_head)
        head_dim = keys.integer("head_dim", n_embd // n_head)
        if n_head % n_head_kv:
            raise _wrong("num_key_value_heads", f"{n_head} heads cannot share {n_head_kv} key-value heads")
        if head_dim % 2 or not head_dim:
            raise _wrong("head_dim", f"{head_dim} cannot be rotated in pairs")
        if keys.flag("attention_bias", False):
            raise _wrong("attention_bias", "the GGUF dialect of DFlash has no attention biases")
        activation = keys.text("hidden_act", "silu")
        if activation not in _ACTIVATIONS:
            raise _wrong("hidden_act", f"{activation!r} is not one of {', '.join(_ACTIVATIONS)}")
        if keys.flag("sample_from_anchor", False):
            raise _wrong("sample_from_anchor", "a drafter that samples from the anchor is a DSpark drafter, not a DFlash one")

        if n_embd != target.n_embd:
            raise _unfit("hidden_size", n_embd, f"{target.arch}.embedding_length", target.n_embd)
        n_vocab = keys.integer("vocab_size", target.n_vocab)
        if n_vocab != target.n_vocab:
            raise _unfit("vocab_size", n_vocab, "tokenizer.ggml.tokens", target.n_vocab)
        n_target_layers = keys.integer("num_target_layers", target.n_layer)
        if n_target_layers != target.n_layer:
            raise _unfit("num_target_layers", n_target_layers, f"{target.arch}.block_count", target.n_layer)
        n_vocab_draft = keys.integer("draft_vocab_size", n_vocab)
        if n_vocab_draft > n_vocab:
            raise _wrong("draft_vocab_size", f"{n_vocab_draft} exceeds the vocabulary of {n_vocab} tokens")

        layer_types = _layer_types(keys, n_layer)
        sliding_window, is_sliding = _sliding(keys, layer_types)
        return cls(
            n_layer=n_layer,
            n_embd=n_embd,
            n_ff=keys.integer("intermediate_size"),
            n_head=n_head,
            n_head_kv=n_head_kv,
            head_dim=head_dim,
            n_ctx=keys.integer("max_position_embeddings"),
            norm_eps=keys.number("rms_norm_eps"),
            activation=activation,
            block_size=keys.integer("block_size", 16, minimum=2),
            mask_token=_mask_token(keys, target),
            taps=_taps(keys, n_layer, target),
            rope=_rope(keys, head_dim, any(is_sliding)),
            rope_interleaved=not keys.flag("rope_is_neox_style", True),
            sliding_window=sliding_window,
            is_sliding=is_sliding,
            causal=_causal(keys, layer_types),
            n_vocab=n_vocab,
            n_vocab_draft=n_vocab_draft,
            logit_scale=keys.number("output_multiplier", None),
            logit_softcap=keys.number("final_logit_softcapping", None, minimum=0.0) or None,
            embedding_scale=keys.number("input_embedding_scale", None),
            value_scale=keys.number("attention_value_scale", None),
            conv=_conv(keys, n_embd) if is_dflash2 else None,
        )


_REQUIRED: Any = object()


class _Keys:
    """Typed look-up over the places where a setting may stand. Without a default a missing key is an error."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._places: list[tuple[str, Mapping[str, Any]]] = [("", config)]
        for at, name in ((0, "dflash_config"), (2, "transformer_layer_config")):
            nested = config.get(name)
            if nested is None:
                continue
            if not isinstance(nested, dict):
                raise _wrong(name, "it must be an object")
            self._places.insert(at, (name + ".", nested))

    def find(self, name: str) -> tuple[str, Any]:
        """The full key and its value; the bare name and None if it stands nowhere."""
        for prefix, place in self._places:
            if place.get(name) is not None:
                return prefix + name, place[name]
        return name, None

    def _typed(self, name: str, default: Any, fits: Any, what: str) -> Any:
        key, value = self.find(name)
        if value is None:
            if default is _REQUIRED:
                raise _wrong(key, "it is missing")
            return default
        if not fits(value):
            raise _wrong(key, f"{value!r} is not {what}")
        return value

    def integer(self, name: str, default: int = _REQUIRED, *, minimum: int = 1) -> int:
        value: int = self._typed(
            name, default, lambda v: type(v) is int and minimum <= v < 2**31, f"a whole number of at least {minimum}"
        )
        return value

    def number(self, name: str, default: float | None = _REQUIRED, *, minimum: float = 1e-30) -> Any:
        value = self._typed(name, default, lambda v: _is_number(v) and v >= minimum, "a positive number")
        return None if value is None else float(value)

    def flag(self, name: str, default: bool | None = _REQUIRED) -> bool | None:
        value: bool | None = self._typed(name, default, lambda v: isinstance(v, bool), "true or false")
        return value

    def text(self, name: str, default: str = _REQUIRED) -> str:
        value: str = self._typed(name, default, lambda v: isinstance(v, str), "a string")
        return value

    def integers(self, name: str, default: list[int] | None) -> list[int] | None:
        value: list[int] | None = self._typed(
            name, default, lambda v: isinstance(v, list) and v and all(type(i) is int for i in v), "a list of whole numbers"
        )
        return value


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e38


def _wrong(key: str, what: str) -> ConvertError:
    return ConvertError(f"config.json: {key}: {what}", field=key)


def _unfit(key: str, ours: int, target_key: str, theirs: int) -> ConvertError:
    return ConvertError(
        f"the drafter does not fit the target: {key} is {ours}, the target's {target_key} says {theirs}",
        field=key,
        hint="give the GGUF of the model that the drafter was trained for",
    )


def _architecture(config: Mapping[str, Any]) -> bool:
    """Whether the checkpoint is DFlash 2."""
    names = config.get("architectures")
    if isinstance(names, list):
        for name in names:
            if isinstance(name, str) and name in ARCHITECTURES:
                return ARCHITECTURES[name]
    known = " or ".join(ARCHITECTURES)
    shown = ", ".join(map(str, names)) if isinstance(names, list) and names else "not given"
    raise ConvertError(
        f"config.json: the architecture is {shown}; this converter takes {known}",
        field="architectures",
        hint="give the directory of a DFlash drafter, not of the target",
    )


def _mask_token(keys: _Keys, target: Target) -> int:
    key, value = keys.find("mask_token_id")
    if value is None:
        if target.mask_token is None:
            raise ConvertError(
                f"no mask token: config.json lacks dflash_config.mask_token_id and the target lacks {MASK_TOKEN}",
                field="mask_token_id",
                hint="add dflash_config.mask_token_id to config.json (the drafter's model card names it)",
            )
        key, value = MASK_TOKEN, target.mask_token
    if type(value) is not int or not 0 <= value < target.n_vocab:
        raise ConvertError(f"the mask token {value!r} ({key}) is outside the target's vocabulary of {target.n_vocab} tokens", field=key)
    return value


def _taps(keys: _Keys, n_layer: int, target: Target) -> tuple[int, ...]:
    """Inputs of target layers. A Hugging Face id names a layer whose *output* is tapped, which is the next layer's input."""
    key, ids = "aux_hidden_state_layer_ids", keys.integers("aux_hidden_state_layer_ids", None)  # speculators: no offset
    offset = 0
    if ids is None:
        key, offset = keys.find("target_layer_ids")[0], 1
        ids = keys.integers("target_layer_ids", _default_layer_ids(target.n_layer, n_layer))
        assert ids is not None
    for layer in ids:
        if not 0 <= layer + offset < target.n_layer:
            raise ConvertError(
                f"{key}: {layer} is out of range: the target has {target.n_layer} layers, "
                f"so ids from {-offset} to {target.n_layer - 1 - offset} can be tapped",
                field=key,
                hint="give the GGUF of the model that the drafter was trained for",
            )
    return tuple(layer + offset for layer in ids)


def _default_layer_ids(n_target_layer: int, n_layer: int) -> list[int]:
    """The authors' choice where a checkpoint names none (`build_target_layer_ids`)."""
    if n_layer == 1:
        return [n_target_layer // 2]
    first, last = 1, n_target_layer - 3
    return [round(first + i * (last - first) / (n_layer - 1)) for i in range(n_layer)]


def _layer_types(keys: _Keys, n_layer: int) -> list[str]:
    key, types = keys.find("layer_types")
    if types is None:
        # Qwen3Config fills the list in from the first layer that uses the window
        first = keys.integer("max_window_layers", n_layer, minimum=0) if keys.flag("use_sliding_window", False) else n_layer
        return ["full_attention" if i < first else "sliding_attention" for i in range(n_layer)]
    if not isinstance(types, list) or len(types) != n_layer:
        raise _wrong(key, f"it must list {n_layer} layers")
    for name in types:
        if name not in ("full_attention", "sliding_attention"):
            raise _wrong(key, f"{name!r} is neither full_attention nor sliding_attention")
    return types


def _sliding(keys: _Keys, layer_types: list[str]) -> tuple[int, tuple[bool, ...]]:
    """Window (0: none) and the layers that have it. `use_swa` puts it on all layers, whatever their type."""
    if keys.flag("use_swa", False):
        window = keys.find("swa_window_size")[1]
        name = "swa_window_size" if window is not None else "sliding_window"
        return keys.integer(name), (True,) * len(layer_types)
    is_sliding = tuple(name == "sliding_attention" for name in layer_types)
    # transformers drops the window of a config that says use_sliding_window: false
    if not any(is_sliding) or keys.flag("use_sliding_window", True) is False:
        return 0, (False,) * len(layer_types)
    return keys.integer("sliding_window"), is_sliding


def _causal(keys: _Keys, layer_types: list[str]) -> bool | None:
    for name in ("is_causal", "causal"):
        if (value := keys.flag(name, None)) is not None:
            return value
    if keys.flag("sliding_window_non_causal", False):
        return False
    # by default sliding layers are causal and full ones are not; the dialect can say it only where all layers agree
    kinds = set(layer_types)
    return None if len(kinds) > 1 else kinds == {"sliding_attention"} or None


def _rope(keys: _Keys, head_dim: int, has_sliding: bool) -> Rope:
    key, found = keys.find("rope_parameters")
    if found is None:
        key, found = keys.find("rope_scaling")
    if found is not None and not isinstance(found, dict):
        raise _wrong(key, "it must be an object")
    scaling: dict[str, Any] = found or {}
    if isinstance(scaling.get("full_attention"), dict):
        if has_sliding and scaling.get("sliding_attention", scaling["full_attention"]) != scaling["full_attention"]:
            raise _wrong(key, "full and sliding layers rotate differently, the GGUF dialect of DFlash has one rotation")
        scaling = scaling["full_attention"]

    def number(name: str, default: float | None = None) -> float:
        value = scaling.get(name)
        if value is None:
            value = keys.find(name)[1] if default is None else default
        if value is None:
            raise _wrong(f"{key}.{name}", "it is missing")
        if not _is_number(value) or value <= 0:
            raise _wrong(f"{key}.{name}", f"{value!r} is not a positive number")
        return float(value)

    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    if kind == "mrope":  # a drafter sees text positions only, where M-RoPE is plain RoPE
        kind = "default"
    if kind not in ("default", "linear", "yarn", "llama3"):
        raise _wrong(f"{key}.rope_type", f"{kind!r} is not one of default, linear, yarn, llama3")
    scaled = kind != "default"
    theta = scaling.get("rope_theta", keys.find("rope_theta")[1])
    partial = scaling.get("partial_rotary_factor", keys.find("partial_rotary_factor")[1])
    n_dims = head_dim if partial is None else int(head_dim * number("partial_rotary_factor"))
    if not 2 <= n_dims <= head_dim or n_dims % 2:
        raise _wrong(f"{key}.partial_rotary_factor", f"{n_dims} of {head_dim} dimensions cannot be rotated in pairs")
    rope = Rope(
        theta=10000.0 if theta is None else number("rope_theta"),  # Qwen3Config's default
        kind=kind,
        n_dims=n_dims,
        factor=number("factor") if scaled else 1.0,
        n_ctx_original=int(number("original_max_position_embeddings")) if kind in ("yarn", "llama3") else 0,
        yarn={
            name: number(name)
            for name in ("extrapolation_factor", "attention_factor", "beta_fast", "beta_slow")
            if kind == "yarn" and scaling.get(name) is not None
        },
        low_freq_factor=number("low_freq_factor") if kind == "llama3" else 1.0,
        high_freq_factor=number("high_freq_factor") if kind == "llama3" else 1.0,
    )
    if kind == "llama3" and rope.high_freq_factor <= rope.low_freq_factor:
        raise _wrong(f"{key}.high_freq_factor", "it must exceed low_freq_factor")
    return rope


def _conv(keys: _Keys, n_embd: int) -> Conv:
    conv = Conv(*(keys.integer(name) for name in ("conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k")))
    if n_embd % conv.group_size:
        raise _wrong("conv_group_size", f"{conv.group_size} does not divide hidden_size {n_embd}")
    if n_embd < conv.selector_top_k * (conv.selector_top_k + 1):
        raise _wrong("selector_top_k", f"{conv.selector_top_k} candidates need a hidden_size of at least {conv.selector_top_k * (conv.selector_top_k + 1)}")
    return conv
