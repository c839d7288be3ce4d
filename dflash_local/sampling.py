"""SamplingParams: how the next token is chosen. Names and defaults are llama.cpp's (`common_params_sampling`)."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from dflash_local.errors import RequestError

_INT32_MAX = 2**31 - 1


def _number(default: float, low: float = -math.inf, high: float = math.inf) -> Any:
    """A float field within [low, high]."""
    return field(default=default, metadata={"type": float, "low": low, "high": high})


def _integer(default: int, low: int = -_INT32_MAX, high: int = _INT32_MAX) -> Any:
    """An int field within [low, high]."""
    return field(default=default, metadata={"type": int, "low": low, "high": high})


@dataclass(frozen=True)
class SamplingParams:
    """One request's sampler chain. `temperature=0` is greedy; everything else follows llama-server's documentation.

    Constraints (`grammar` as GBNF, `json_schema`) hold exactly: a draft token counts only if the constrained target samples
    it. The fields from `grammar_type` on are filled by `Engine.apply_chat`.

    Raises:
        RequestError: a value is out of range or of the wrong type; `param` names the field.
    """

    seed: int | None = None  # None or -1: random
    temperature: float = _number(0.8, 0.0)
    dynatemp_range: float = _number(0.0, 0.0)
    dynatemp_exponent: float = _number(1.0, 0.0)
    top_k: int = _integer(40)  # <= 0: the whole vocabulary
    top_p: float = _number(0.95, 0.0, 1.0)
    min_p: float = _number(0.05, 0.0, 1.0)
    typical_p: float = _number(1.0, 0.0, 1.0)
    top_n_sigma: float = _number(-1.0)
    xtc_probability: float = _number(0.0, 0.0, 1.0)
    xtc_threshold: float = _number(0.1, 0.0, 1.0)
    repeat_last_n: int = _integer(64, 0)
    repeat_penalty: float = _number(1.0, 0.0)
    frequency_penalty: float = _number(0.0)
    presence_penalty: float = _number(0.0)
    dry_multiplier: float = _number(0.0, 0.0)
    dry_base: float = _number(1.75, 0.0)
    dry_allowed_length: int = _integer(2, 0)
    dry_penalty_last_n: int = _integer(64, 0)
    dry_sequence_breakers: list[str] | None = None
    mirostat: int = _integer(0, 0, 2)
    mirostat_tau: float = _number(5.0, 0.0)
    mirostat_eta: float = _number(0.1, 0.0)
    min_keep: int = _integer(0, 0)
    samplers: list[str] | str | None = None  # names in order, or llama-server's string of their initials
    logit_bias: Mapping[str, float | bool] | list[list[Any]] | None = None
    ignore_eos: bool = False
    grammar: str | None = None
    json_schema: Mapping[str, Any] | bool | None = None
    grammar_type: str | None = None
    grammar_lazy: bool = False
    grammar_triggers: list[Any] | None = None
    preserved_tokens: list[Any] | None = None
    generation_prompt: str | None = None
    reasoning_budget_tokens: int = _integer(-1, -1)
    thinking_start_tag: str | None = None
    thinking_end_tags: list[str] | None = None

    def __post_init__(self) -> None:
        for spec in fields(self):
            if spec.metadata:
                _check_number(spec.name, getattr(self, spec.name), **spec.metadata)
        if self.seed is not None:
            _check_number("seed", self.seed, int, -(2**63), 2**64 - 1)
        for name in ("ignore_eos", "grammar_lazy"):
            if not isinstance(getattr(self, name), bool):
                raise _refusal(name, "must be true or false", getattr(self, name))
        _check_strings("dry_sequence_breakers", self.dry_sequence_breakers)
        if not isinstance(self.samplers, str):
            _check_strings("samplers", self.samplers)
        if self.grammar is not None and not isinstance(self.grammar, str):
            raise _refusal("grammar", "must be a string in GBNF", self.grammar)
        if self.json_schema is not None and not isinstance(self.json_schema, (Mapping, bool)):
            raise _refusal("json_schema", "must be an object", self.json_schema)
        if self.grammar and self.json_schema is not None:
            raise RequestError("grammar and json_schema exclude each other: give one", param="grammar")
        _check_logit_bias(self.logit_bias)

    def to_json(self) -> str:
        """The `sampling` string of dflash_request: only what differs from the defaults; no seed means random."""
        chosen = {spec.name: value for spec in fields(self) if (value := getattr(self, spec.name)) != spec.default}
        if self.seed is not None:
            # 2**32 - 1 is llama.cpp's "random", which -1 folds onto.
            chosen["seed"] = self.seed & 0xFFFFFFFF
        return json.dumps(chosen)


SAMPLING_FIELDS = frozenset(spec.name for spec in fields(SamplingParams))


def _refusal(param: str, must: str, value: object) -> RequestError:
    shown = repr(value)
    return RequestError(f"{param} {must}, got {shown if len(shown) <= 80 else shown[:77] + '...'}", param=param)


def _check_number(param: str, value: object, type: type, low: float, high: float) -> None:
    """`type` int accepts integers only, float both; booleans and NaN are never numbers."""
    kinds = int if type is int else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise _refusal(param, "must be an integer" if type is int else "must be a number", value)
    # Comparisons, unlike math.isfinite(), take integers too large for a double.
    if not low <= value <= high or not abs(value) <= sys.float_info.max:
        bounds = f"at least {low:g}" if math.isinf(high) or high >= _INT32_MAX else f"between {low:g} and {high:g}"
        raise _refusal(param, "must be finite" if math.isinf(low) else f"must be {bounds}", value)


def _check_strings(param: str, value: object) -> None:
    if value is not None and not (isinstance(value, list) and all(isinstance(item, str) for item in value)):
        raise _refusal(param, "must be a list of strings", value)


def _check_logit_bias(bias: object) -> None:
    """OpenAI's {"token": bias} or llama-server's [[token, bias], ...]; a bias of false bans the token."""
    if bias is None:
        return
    if isinstance(bias, Mapping):
        pairs: list[Any] = [list(item) for item in bias.items()]
    elif isinstance(bias, list):
        pairs = bias
    else:
        raise _refusal("logit_bias", "must be an object or a list of pairs", bias)
    for pair in pairs:
        if not isinstance(pair, (list, tuple)) or len(pair) != 2 or isinstance(pair[0], bool) or not isinstance(pair[0], (int, str)):
            raise _refusal("logit_bias", "must hold pairs of a token and a bias", pair)
        if pair[1] is not False and (isinstance(pair[1], bool) or not isinstance(pair[1], (int, float)) or not math.isfinite(pair[1])):
            raise _refusal("logit_bias", "must map tokens to finite numbers or false", pair)
