"""SamplingParams: llama.cpp's names and defaults, strict values, and only what differs crosses the border."""

from __future__ import annotations

import json
import math

import pytest

from dflash_local.errors import RequestError
from dflash_local.sampling import SamplingParams


def test_defaults_are_empty() -> None:
    assert json.loads(SamplingParams().to_json()) == {}


def test_only_differences_are_sent() -> None:
    assert json.loads(SamplingParams(seed=7, temperature=0.0, top_k=40, logit_bias={"3": -100}).to_json()) == {
        "seed": 7,
        "temperature": 0.0,
        "logit_bias": {"3": -100},
    }


@pytest.mark.parametrize(("seed", "sent"), [(0, 0), (-1, 2**32 - 1), (2**32 + 5, 5)])
def test_seeds_fold_to_32_bits(seed: int, sent: int) -> None:
    assert json.loads(SamplingParams(seed=seed).to_json())["seed"] == sent


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", "hot"),
        ("temperature", True),
        ("temperature", None),
        ("temperature", 10**400),
        ("top_p", 1.5),
        ("min_p", -0.1),
        ("top_k", 1.5),
        ("mirostat", 3),
        ("seed", 1.0),
        ("seed", 2**70),
    ],
)
def test_bad_values_name_the_field(field: str, value: object) -> None:
    with pytest.raises(RequestError) as caught:
        SamplingParams(**{field: value})  # type: ignore[arg-type]
    assert caught.value.param == field
    assert field in caught.value.message


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(RequestError, match="must be JSON"):
        SamplingParams(grammar_triggers=[object()]).to_json()
