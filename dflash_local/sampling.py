"""SamplingParams: how the next token is chosen. Names and defaults are llama.cpp's (`common_params_sampling`)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from dflash_local.errors import RequestError

_INT32_MAX = 2**31 - 1
_LARGE = 1e6  # keeps every product of parameters finite
_MAX_HISTORY = 2**20  # tokens a penalty looks back; their memory is reserved at once


def _number(default: float, low: float = -_LARGE, high: float = _LARGE, least_positive: float = 0.0) -> Any:
    """A float field within [low, high]; what is above 0 must be at least `least_positive`."""
    return field(default=default, metadata={"type": float, "low": low, "high": high, "least_positive": least_positive})


def _integer(default: int, low: int, high: int = _INT32_MAX) -> Any:
    """An int field within [low, high]."""
    return field(default=default, metadata={"type": int, "low": low, "high": high})


@dataclass(frozen=True)
class SamplingParams:
    """One request's sampler chain. `temperature=0` is greedy; everything else follows llama-server's documentation.

    Constraints (`grammar` as GBNF, `json_schema`) hold exactly: a draft token counts only if the constrained target
    samples it. The fields from `grammar_type` on are filled by `Engine.apply_chat`. Numbers are checked here, so that a
    bad flag is told before a model loads; all else by libdflash when a request is submitted. The library's table
    (`dflash_sampling_fields`) has the same types, defaults and bounds; a test compares them.

    Raises:
        RequestError: a number is out of range; `param` names the field.
    """

    seed: int | None = None  # None or -1: random
    temperature: float = _number(0.8, 0.0, least_positive=1e-30)  # logits divided by less overflow
    dynatemp_range: float = _number(0.0, 0.0)
    dynatemp_exponent: float = _number(1.0, 0.0)
    top_k: int = _integer(40, -1)  # <= 0: the whole vocabulary
    top_p: float = _number(0.95, 0.0, 1.0)
    min_p: float = _number(0.05, 0.0, 1.0)
    typical_p: float = _number(1.0, 0.0, 1.0)
    top_n_sigma: float = _number(-1.0)
    xtc_probability: float = _number(0.0, 0.0, 1.0)
    xtc_threshold: float = _number(0.1, 0.0, 1.0)
    repeat_last_n: int = _integer(64, 0, _MAX_HISTORY)
    repeat_penalty: float = _number(1.0, 1 / _LARGE)
    frequency_penalty: float = _number(0.0)
    presence_penalty: float = _number(0.0)
    dry_multiplier: float = _number(0.0, 0.0)
    dry_base: float = _number(1.75, 1.0)  # below 1 DRY does nothing
    dry_allowed_length: int = _integer(2, 0)
    dry_penalty_last_n: int = _integer(64, 0, _MAX_HISTORY)
    dry_sequence_breakers: Sequence[str] | None = None
    mirostat: int = _integer(0, 0, 2)
    mirostat_tau: float = _number(5.0, 0.0)
    mirostat_eta: float = _number(0.1, 0.0)
    adaptive_target: float = _number(-1.0, -1.0, 1.0)
    adaptive_decay: float = _number(0.9, 0.0, 0.99)
    min_keep: int = _integer(0, 0)
    samplers: Sequence[str] | str | None = None  # names in order, or llama-server's string of their initials
    logit_bias: Mapping[str, float | bool] | Sequence[Sequence[Any]] | None = None  # {"token": bias}; false bans it
    ignore_eos: bool = False
    grammar: str | None = None
    json_schema: Mapping[str, Any] | bool | None = None
    grammar_type: str | None = None
    grammar_lazy: bool = False
    grammar_triggers: Sequence[Any] | None = None
    preserved_tokens: Sequence[Any] | None = None
    generation_prompt: str | None = None
    reasoning_budget_tokens: int = _integer(-1, -1)
    thinking_start_tag: str | None = None
    thinking_end_tags: Sequence[str] | None = None

    def __post_init__(self) -> None:
        for spec in fields(self):
            if spec.metadata:
                _check_number(spec.name, getattr(self, spec.name), **spec.metadata)
        if self.seed is not None:
            _check_number("seed", self.seed, int, -(2**63), 2**64 - 1)

    def to_json(self) -> str:
        """The `sampling` string of dflash_request: only what differs from the defaults; no seed means random."""
        chosen = {spec.name: value for spec in fields(self) if (value := getattr(self, spec.name)) != spec.default}
        if self.seed is not None:
            # 2**32 - 1 is llama.cpp's "random", which -1 folds onto.
            chosen["seed"] = self.seed & 0xFFFFFFFF
        try:
            return json.dumps(chosen)
        except (TypeError, ValueError, RecursionError) as error:
            raise RequestError(f"sampling fields must be JSON: {error}", param="sampling") from None


SAMPLING_FIELDS = frozenset(spec.name for spec in fields(SamplingParams))


def _check_number(param: str, value: object, type: type, low: float, high: float, least_positive: float = 0.0) -> None:
    """`type` int accepts integers only, float both; booleans and NaN are never numbers."""
    kinds = int if type is int else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds):
        must = "an integer" if type is int else "a number"
    elif low <= value <= high and not 0 < value < least_positive:
        return
    elif 0 < value < least_positive:
        must = f"0 or at least {least_positive:g}"
    elif value != value or (low, high) == (-_LARGE, _LARGE):
        must = f"between {low:g} and {high:g}"
    elif value < low:
        must = f"at least {low:g}" if high >= _LARGE else f"between {low:g} and {high:g}"
    else:
        must = f"at most {high:g}" if high >= _LARGE else f"between {low:g} and {high:g}"
    raise RequestError(f"{param} must be {must}, got {value!r:.80}", param=param)
