"""SamplingParams: how the next token is chosen. Names and defaults are llama.cpp's (`common_params_sampling`).

A new field also needs dflash_local/keywords.py and ggml_ops/accept/sampling_params.cpp; the field of HTTP bodies is
derived from it (server/fields/derived.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from dflash_local.arguments import check_fields, to_json
from dflash_local.errors import RequestError

_INT32_MAX = 2**31 - 1
_LARGE = 1e6  # keeps every product of parameters finite
_RANDOM_SEED = 2**32 - 1  # llama.cpp's: another seed each time
MAX_HISTORY = 2**20  # tokens a penalty looks back; their memory is reserved at once


def _number(
    default: float, low: float = -_LARGE, high: float = _LARGE, *, help: str, least_positive: float = 0.0
) -> Any:
    """A float field within [low, high]; positive values must be at least `least_positive`."""
    range_of = {"type": float, "low": low, "high": high, "least_positive": least_positive}
    return field(default=default, metadata={"help": help, "range": range_of})


def _integer(default: int | None, low: int, high: int = _INT32_MAX, *, help: str) -> Any:
    """An int field within [low, high]."""
    return field(default=default, metadata={"help": help, "range": {"type": int, "low": low, "high": high}})


def _other(default: Any, schema: Any, *, help: str) -> Any:
    """A field that libdflash checks; `schema` is the rough JSON schema of its values."""
    return field(default=default, metadata={"help": help, "schema": schema})


# Samplers by llama.cpp's initials, in its default order; the last two are not in it.
SAMPLERS = {
    "e": "penalties", "d": "dry", "s": "top_n_sigma", "k": "top_k", "y": "typ_p", "p": "top_p", "m": "min_p",
    "x": "xtc", "t": "temperature", "i": "infill", "a": "adaptive_p",
}  # fmt: skip
DEFAULT_SAMPLERS = "edskypmxt"

_TEXT, _FLAG = {"type": "string"}, {"type": "boolean"}
_TEXTS = {"type": "array", "items": _TEXT}


@dataclass(frozen=True)
class SamplingParams:
    """One request's sampler chain. `temperature=0` is greedy; everything else follows llama-server's documentation.

    Constraints (`grammar` as GBNF, `json_schema`) hold exactly: a draft token counts only if the constrained target
    samples it. The fields from `grammar_type` on are filled by `Engine.apply_chat`. Numbers are checked here, so that a
    bad flag fails before a model loads; everything else by libdflash when a request is submitted. The library's table
    (`dflash_sampling_fields`) has the same types, defaults and bounds, except of `seed`, which it gets folded into 32
    bits; a test compares them.

    Raises:
        RequestError: a field has a wrong type, or a number is out of range; `param` names it.
    """

    seed: int | None = _integer(None, -(2**63), 2**64 - 1, help="seed of the random numbers; -1 or absent: random")
    # Logits divided by a smaller positive temperature would overflow.
    temperature: float = _number(0.8, 0.0, least_positive=1e-30, help="how random the text is; 0 is greedy")
    dynatemp_range: float = _number(0.0, 0.0, help="the temperature varies by this much around itself; 0: off")
    dynatemp_exponent: float = _number(1.0, 0.0, help="exponent that maps entropy to that range")
    top_k: int = _integer(40, -1, help="only the k likeliest tokens; 0 or less: the whole vocabulary")
    top_p: float = _number(0.95, 0.0, 1.0, help="only the likeliest tokens that have this probability together; 1: off")
    min_p: float = _number(0.05, 0.0, 1.0, help="least probability of a token relative to the likeliest one; 0: off")
    typical_p: float = _number(1.0, 0.0, 1.0, help="locally typical sampling; 1: off")
    top_n_sigma: float = _number(-1.0, help="only logits within n standard deviations of the best; negative: off")
    xtc_probability: float = _number(0.0, 0.0, 1.0, help="chance that the likeliest tokens are left out (XTC); 0: off")
    xtc_threshold: float = _number(0.1, 0.0, 1.0, help="least probability of a token that XTC may leave out")
    repeat_last_n: int = _integer(64, 0, MAX_HISTORY, help="tokens that the penalties look back; 0: off")
    repeat_penalty: float = _number(1.0, 1 / _LARGE, help="divides the logits of repeated tokens; 1: off")
    frequency_penalty: float = _number(0.0, help="taken from a logit for each repetition of its token; 0: off")
    presence_penalty: float = _number(0.0, help="subtracted once from the logits of tokens that occurred; 0: off")
    dry_multiplier: float = _number(0.0, 0.0, help="strength of the DRY penalty on repeated sequences; 0: off")
    dry_base: float = _number(1.75, 1.0, help="base of the DRY penalty, which grows with a repetition's length")
    dry_allowed_length: int = _integer(2, 0, help="tokens that may be repeated without a DRY penalty")
    dry_penalty_last_n: int = _integer(64, 0, MAX_HISTORY, help="tokens that DRY looks back; 0: off")
    dry_sequence_breakers: Sequence[str] | None = _other(None, _TEXTS, help="strings over which DRY sees no repetition")
    mirostat: int = _integer(0, 0, 2, help="Mirostat's version, in place of the other samplers; 0: off")
    mirostat_tau: float = _number(5.0, 0.0, help="Mirostat's target entropy")
    mirostat_eta: float = _number(0.1, 0.0, help="Mirostat's learning rate")
    adaptive_target: float = _number(-1.0, -1.0, 1.0, help="probability that adaptive sampling aims at; negative: off")
    adaptive_decay: float = _number(0.9, 0.0, 0.99, help="how slowly adaptive sampling forgets")
    min_keep: int = _integer(0, 0, help="candidates that every sampler must leave")
    samplers: Sequence[str] | str | None = _other(
        None,
        {"anyOf": [_TEXTS, _TEXT]},
        help="the samplers in order: names, or llama-server's string of their initials",
    )
    logit_bias: Mapping[str, float | bool] | Sequence[Sequence[Any]] | None = _other(
        None,
        {"anyOf": [{"type": "object"}, {"type": "array", "items": {"type": "array"}}]},
        help='added to logits: {"token id or text": bias} or [[token, bias], ...]; false bans the token',
    )
    ignore_eos: bool = _other(False, _FLAG, help="never end the answer by an end-of-generation token")
    grammar: str | None = _other(None, _TEXT, help="GBNF grammar that the answer must follow")
    json_schema: Mapping[str, Any] | bool | None = _other(
        None, {"anyOf": [{"type": "object"}, _FLAG]}, help="JSON schema that the answer must follow"
    )
    grammar_type: str | None = _other(None, _TEXT, help="origin of the grammar")
    grammar_lazy: bool = _other(False, _FLAG, help="the grammar applies from the first trigger on")
    grammar_triggers: Sequence[Any] | None = _other(None, {"type": "array"}, help="what a lazy grammar waits for")
    preserved_tokens: Sequence[Any] | None = _other(
        None, {"type": "array"}, help="control tokens that stay visible in the text"
    )
    generation_prompt: str | None = _other(None, _TEXT, help="beginning of the answer that the template has written")
    reasoning_budget_tokens: int = _integer(-1, -1, help="most tokens of the reasoning; -1: no limit")
    thinking_start_tag: str | None = _other(None, _TEXT, help="text that begins the reasoning")
    thinking_end_tags: Sequence[str] | None = _other(None, _TEXTS, help="texts that end the reasoning")
    reasoning_budget_message: str | None = _other(
        None, _TEXT, help="text that the model writes before its reasoning is cut off: by its budget, or by request"
    )

    def __post_init__(self) -> None:
        check_fields(self, [spec.name for spec in fields(self) if "range" not in spec.metadata])
        for spec in fields(self):
            value = getattr(self, spec.name)
            if "range" in spec.metadata and value is not spec.default:  # no seed is None
                _check_number(spec.name, value, **spec.metadata["range"])

    def to_json(self) -> str:
        """The `sampling` string of dflash_request_params: only what differs from the defaults; no seed means random."""
        chosen = {spec.name: value for spec in fields(self) if (value := getattr(self, spec.name)) != spec.default}
        if self.seed is not None:
            chosen["seed"] = _folded(self.seed)
        return to_json(chosen)

    def settings(self) -> dict[str, Any]:
        """As llama-server shows a request's settings: the numbers, `ignore_eos`, and the samplers by name."""
        numbers = {spec.name: getattr(self, spec.name) for spec in fields(self) if "range" in spec.metadata}
        samplers = DEFAULT_SAMPLERS if self.samplers is None else self.samplers
        names = [SAMPLERS.get(letter, letter) for letter in samplers] if isinstance(samplers, str) else [*samplers]
        seed = _RANDOM_SEED if self.seed is None else _folded(self.seed)
        return {**numbers, "seed": seed, "ignore_eos": self.ignore_eos, "samplers": names}


def seed_of(seed: int | None, choice: int) -> int | None:
    """The seed of an answer's choice, from 0 on, if `seed` is the first one's. They count on in 32 bits past 2**32 - 1,
    with which one choice of a repeatable answer would be random; a random seed stays so."""
    if seed is None or _folded(seed) == _RANDOM_SEED:
        return seed
    return (_folded(seed) + choice) % _RANDOM_SEED


def _folded(seed: int) -> int:
    """The seed in the 32 bits that llama.cpp has for it; -1 becomes its random one."""
    return seed % 2**32


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
