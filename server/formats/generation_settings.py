"""Generation settings: what a request asks for, with all defaults, in llama-server's terms."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from dflash_local.engine import Engine
from dflash_local.sampling import SAMPLING_FIELDS, SamplingParams
from dflash_local.server.fields.request import Defaults, RequestFields

# Values of --spec-type, by the drafter's kind in `info`.
_SPEC_TYPES = {"dspark": "draft-dspark", "mtp": "draft-mtp"}
# A token id as a key of `logit_bias`, as libdflash reads it. The zeros may be more than int() takes.
_ID = re.compile(r"0*([0-9]+)")


def default_settings(engine: Engine, defaults: Defaults) -> dict[str, Any]:
    """The settings of a request that sets nothing."""
    format = defaults.chat.get("reasoning_format", "auto")
    return {**_settings(engine, defaults.sampling, defaults.max_tokens), "stream": False, "reasoning_format": format}


def generation_settings(engine: Engine, fields: RequestFields) -> dict[str, Any]:
    """`generation_settings`: what all of a response's choices have in common."""
    sampling, options = fields.sampling, fields.options
    return {
        **{name: value for name in SAMPLING_FIELDS if (value := getattr(sampling, name)) is not None},
        **_settings(engine, sampling, options["max_tokens"]),
        "grammar": sampling.grammar or "",
        "logit_bias": _biases(engine, sampling),
        "stop": list(options["stop"]),
        "stream": fields.stream,
        "timings_per_token": options["timings"],
        "n_probs": fields.probs.n_top or 0,
        "post_sampling_probs": fields.probs.post_sampling,
        "t_max_predict_ms": options["time_limit_ms"],
        "budget": options["budget"],
        "speculative.n_max": options["draft_n_max"],
    }


def _settings(engine: Engine, sampling: SamplingParams, max_tokens: int) -> dict[str, Any]:
    drafter = engine.info.get("drafter")
    return {
        **sampling.settings(),
        "max_tokens": max_tokens,
        "n_predict": max_tokens,
        "n_keep": 0,
        "n_discard": 0,
        "speculative.types": _SPEC_TYPES.get(drafter["kind"], "draft-dflash") if drafter else "none",
        "timings_per_token": False,
        "post_sampling_probs": False,
        "n_probs": 0,
        "backend_sampling": False,
        "lora": [],
    }


def _biases(engine: Engine, sampling: SamplingParams) -> list[dict[str, Any]]:
    """Minus infinity, the bias of a banned token, is null in JSON."""
    given: Any = sampling.logit_bias or []
    pairs = [(_id(name), bias) for name, bias in given.items()] if isinstance(given, Mapping) else given
    banned = [(token, None) for token in engine.eog_tokens] if sampling.ignore_eos else []
    return [
        {"token": token, "bias": None if bias is False or bias == -math.inf else bias}
        for token, bias in [*pairs, *banned]
    ]


def _id(name: str) -> int | str:
    """OpenAI's objects have token ids as keys. libdflash has accepted them: they are in the vocabulary."""
    number = _ID.fullmatch(name)
    return int(number[1]) if number else name
