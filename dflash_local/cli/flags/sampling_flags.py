"""Flags of numbers that choose tokens, with llama-server's names and variables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from dflash_local.cli.flags.flag import Flags, gathered
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


def _flags() -> Iterator[tuple[str, dict[str, Any]]]:
    """Names and options of the flag of each number."""
    for name, spec in _NUMBERS.items():
        default = "random" if spec.default is None else f"{spec.default:g}"
        yield (
            " ".join((*_ALIASES.get(name, ()), "--" + name.replace("_", "-"))),
            {
                "env": _ENV.get(name),
                "dest": f"sampling_{name}",
                "type": spec.metadata["range"]["type"],
                "metavar": "N",
                "help": f"{spec.metadata['help']} (default: {default})",
            },
        )


class SamplingFlags(Flags, title="sampling", text="defaults of requests; 0 temperature is greedy"):
    """`sampling`: the numeric fields of SamplingParams; None: not given."""

    sampling: Mapping[str, Any] = gathered({name: f"sampling_{name}" for name in _NUMBERS}, dict(_flags()))

    def sampling_params(self) -> SamplingParams:
        """What the flags describe. Raises RequestError if a value is out of range."""
        return SamplingParams(**{name: value for name, value in self.sampling.items() if value is not None})
