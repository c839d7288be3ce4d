"""Rotary position settings of a drafter."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from .keys import Keys, wrong

_KINDS = ("default", "linear", "yarn", "llama3", "proportional")  # those of upstream's dialect
_NEVER = 1e30  # divisor for the frequency of a dimension that does not rotate


@dataclass(frozen=True)
class Llama3:
    """Bounds of llama3's frequency scaling (`_compute_llama3_parameters` in transformers)."""

    low_freq_factor: float
    high_freq_factor: float


@dataclass(frozen=True)
class Yarn:
    """YaRN's settings; None where llama.cpp and transformers have the same default.

    `attention_scale` multiplies the scale `0.1 ln(factor) + 1` that both apply by default. `truncate`: are the bounds
    of the ramp between scaled and kept frequencies whole dimensions, as always in llama.cpp? Not for gpt-oss.
    """

    beta_fast: float | None
    beta_slow: float | None
    attention_scale: float | None
    truncate: bool = True


@dataclass(frozen=True)
class Rope:
    """`n_dims` are the rotated dimensions of a head; kind "default" does not use `factor` and `n_ctx_original`."""

    kind: str
    theta: float
    n_dims: int
    factor: float = 1.0
    n_ctx_original: int = 0
    yarn: Yarn | None = None
    llama3: Llama3 | None = None
    n_proportional: int = 0  # rotated pairs of "proportional" RoPE, whose frequencies are those of the whole head

    @classmethod
    def read(
        cls, keys: Keys, head_dim: int, n_ctx: int, layer_types: Collection[str], *, partial: bool = False
    ) -> Rope:
        """Settings are in the object of `rope_settings`, or in it once per kind of layer; some also at the top level.
        Precedence is as in transformers (`RotaryEmbeddingConfigMixin`): the object's for the base, the top level's for
        the rotated part and the trained length; all others are only in the object. `partial`: is
        `partial_rotary_factor` used without scaling? If not, whole heads rotate, as in transformers'
        `Qwen3RotaryEmbedding`, whose other initialisers all use the factor."""
        place, chosen = rope_settings(keys)
        per_layer_type = [chosen[name] for name in sorted(set(layer_types)) if isinstance(chosen.get(name), dict)]
        if len(per_layer_type) > 1 and per_layer_type[0] != per_layer_type[1]:
            raise wrong(
                place, "full and sliding layers rotate differently, the GGUF dialect of DFlash has one rotation"
            )
        if per_layer_type:
            chosen = per_layer_type[0]
        scaling = Keys.inside(place, chosen)
        anywhere, top_first = scaling.before(keys), keys.before(scaling)

        kind = chosen.get("rope_type") or chosen.get("type") or "default"  # "type" is the key's old name
        if kind == "mrope":
            kind = "default"  # the same for text, and the drafter sees only text
        if kind not in _KINDS:
            raise wrong(f"{place}.rope_type", f"{kind!r} is not one of {', '.join(_KINDS)}")
        if kind == "proportional":
            pairs = int(head_dim * top_first.number("partial_rotary_factor", 1.0)) // 2
            theta, factor = anywhere.number("rope_theta", 10000.0), scaling.number("factor", 1.0)
            return cls(kind, theta, head_dim, factor=factor, n_proportional=min(pairs, head_dim // 2))
        n_dims = head_dim
        if partial or kind != "default":
            n_dims = int(head_dim * top_first.number("partial_rotary_factor", 1.0))
        if not 2 <= n_dims <= head_dim or n_dims % 2:
            raise wrong(
                top_first.find("partial_rotary_factor")[0],
                f"{n_dims} of {head_dim} dimensions cannot be rotated in pairs",
            )
        theta = anywhere.number("rope_theta", 10000.0)  # Qwen3Config's default
        if kind == "default":
            return cls(kind, theta, n_dims)
        if kind == "yarn" and theta <= 1:
            raise wrong(anywhere.find("rope_theta")[0], f"{theta:g} must exceed 1")
        return cls(
            kind,
            theta,
            n_dims,
            factor=scaling.number("factor"),
            n_ctx_original=top_first.integer("original_max_position_embeddings", n_ctx),
            yarn=_yarn(scaling) if kind == "yarn" else None,
            llama3=_llama3(scaling) if kind == "llama3" else None,
        )

    @property
    def has_factors(self) -> bool:
        """Whether a table of frequency factors is needed, because keys cannot express the rotation."""
        untruncated = self.yarn is not None and not self.yarn.truncate
        return self.llama3 is not None or untruncated or self.kind == "proportional"

    def frequency_factors(self) -> tuple[float, ...]:
        """Divisors of the rotation frequencies, `[n_dims / 2]`."""
        if self.kind == "proportional":
            return (self.factor,) * self.n_proportional + (_NEVER,) * (self.n_dims // 2 - self.n_proportional)
        kept = self._kept_by_llama3 if self.llama3 else self._kept_by_yarn
        return tuple(1 / ((1 - kept(i)) / self.factor + kept(i)) for i in range(self.n_dims // 2))

    def _kept_by_llama3(self, i: int) -> float:
        """The part of frequency i that is not scaled, 0 to 1."""
        assert self.llama3
        low, high = self.llama3.low_freq_factor, self.llama3.high_freq_factor
        turns = self.n_ctx_original / (2 * math.pi * self.theta ** (2 * i / self.n_dims))
        return min(max((turns - low) / (high - low), 0.0), 1.0)

    def _kept_by_yarn(self, i: int) -> float:
        """As for Llama 3, by bounds between dimensions (`_compute_yarn_parameters` in transformers)."""
        assert self.yarn

        def dimension(turns: float) -> float:
            return self.n_dims * math.log(self.n_ctx_original / (turns * 2 * math.pi)) / (2 * math.log(self.theta))

        low = max(dimension(self.yarn.beta_fast or 32.0), 0.0)
        high = min(dimension(self.yarn.beta_slow or 1.0), self.n_dims - 1.0)
        return 1.0 - min(max((i - low) / (high - low or 0.001), 0.0), 1.0)

    @property
    def magnitude(self) -> float:
        """YaRN's factor for queries and keys."""
        assert self.yarn
        return yarn_scale(self.factor) * (1.0 if self.yarn.attention_scale is None else self.yarn.attention_scale)


def rope_settings(keys: Keys) -> tuple[str, dict[str, Any]]:
    """Key and content of the object with the settings. As in transformers, `rope_scaling`, the older name, takes
    precedence over `rope_parameters` unless it is empty. Raises ConvertError."""
    place, found = keys.find("rope_scaling")
    if not found:
        place, found = keys.find("rope_parameters")
    if found is not None and not isinstance(found, dict):
        raise wrong(place, "it must be an object")
    return place, found or {}


def yarn_scale(factor: float, mscale: float = 1.0) -> float:
    """YaRN's default factor for queries and keys."""
    return 0.1 * mscale * math.log(factor) + 1 if factor > 1 else 1.0


def _yarn(keys: Keys) -> Yarn:
    factor = keys.number("factor")
    attention = None if keys.maybe_number("attention_factor") is None else keys.number("attention_factor")
    mscale, mscale_all = _positive(keys, "mscale"), _positive(keys, "mscale_all_dim")
    if attention is None and mscale and mscale_all:
        attention = yarn_scale(factor, mscale) / yarn_scale(factor, mscale_all)
    return Yarn(
        beta_fast=_positive(keys, "beta_fast"),
        beta_slow=_positive(keys, "beta_slow"),
        attention_scale=None if attention is None else attention / yarn_scale(factor),
        truncate=keys.flag("truncate", True),
    )


def _positive(keys: Keys, name: str) -> float | None:
    """A positive number; as in transformers, 0 counts as absent."""
    return keys.number(name) if keys.maybe_number(name) else None


def _llama3(keys: Keys) -> Llama3:
    bounds = Llama3(keys.number("low_freq_factor"), keys.number("high_freq_factor"))
    if bounds.high_freq_factor <= bounds.low_freq_factor:
        raise wrong(keys.find("high_freq_factor")[0], "it must exceed low_freq_factor")
    return bounds
