"""Flags of numbers that choose tokens, with llama-server's names and variables."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from dflash_local.cli.flags.flag import Flags, add_flag, gathered
from dflash_local.sampling import SamplingParams

# llama-server's other spellings of sampling flags, and its variables for them.
_ALIASES = {
    "seed": ("-s",),
    "temperature": ("--temp",),
    "top_n_sigma": ("--top-nsigma",),
    "typical_p": ("--typical",),
    "dynatemp_exponent": ("--dynatemp-exp",),
    "mirostat_tau": ("--mirostat-ent",),
    "mirostat_eta": ("--mirostat-lr",),
    "reasoning_budget_tokens": ("--reasoning-budget",),
}
_ENV = {
    **{name: f"LLAMA_ARG_{name.upper()}" for name in ("temperature", "top_k", "top_p", "min_p")},
    **{name: f"LLAMA_ARG_{name.upper()}" for name in ("repeat_penalty", "presence_penalty", "frequency_penalty")},
    "reasoning_budget_tokens": "LLAMA_ARG_THINK_BUDGET",
}
_NUMBERS = {spec.name: spec for spec in fields(SamplingParams) if "range" in spec.metadata}


class SamplingFlags(Flags):
    """`sampling`: the numeric fields of SamplingParams; None: not given."""

    sampling: Mapping[str, Any] = gathered({name: f"sampling_{name}" for name in _NUMBERS})

    def sampling_params(self) -> SamplingParams:
        """What the flags describe. Raises RequestError if a value is out of range."""
        return SamplingParams(**{name: value for name, value in self.sampling.items() if value is not None})


def add_sampling_flags(parser: argparse.ArgumentParser) -> None:
    """One flag for every numeric field of SamplingParams."""
    group = parser.add_argument_group("sampling", "defaults of requests; 0 temperature is greedy")
    for name, spec in _NUMBERS.items():
        add_flag(
            group,
            *_ALIASES.get(name, ()),
            "--" + name.replace("_", "-"),
            env=_ENV.get(name),
            dest=f"sampling_{name}",
            type=spec.metadata["range"]["type"],
            metavar="N",
            help=f"{spec.metadata['help']} (default: {'random' if spec.default is None else f'{spec.default:g}'})",
        )
