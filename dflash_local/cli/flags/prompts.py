"""Flags of commands that measure answers to prompts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflash_local.cli.flags.flag import flag
from dflash_local.cli.flags.sampling_flags import SamplingFlags
from dflash_local.cli.flags.values import count

if TYPE_CHECKING:
    from dflash_local.sampling import SamplingParams


class PromptFlags(SamplingFlags):
    """Which prompts, and how they are answered."""

    prompts: Path | None = flag("-p --prompts", "one prompt a line: text, or JSON with 'messages' or 'prompt'")
    n_predict: int = flag("-n --predict", "most new tokens (default: 100)", type=count(1), default=100)


def prompts_of(args: PromptFlags) -> list[dict[str, Any]]:
    """The prompts of the file, or our default ones. Raises RequestError."""
    from dflash_local.bench import DEFAULT_PROMPTS, read_prompts, user_message

    if args.prompts:
        return read_prompts(args.prompts)
    return [{"messages": user_message(text)} for text in DEFAULT_PROMPTS]


def steady_sampling(args: PromptFlags) -> SamplingParams:
    """The flags' sampling, with a default temperature of 0: without randomness, fewer repeats are enough.
    Raises RequestError."""
    sampling = args.sampling_params()
    return replace(sampling, temperature=0.0) if args.sampling["temperature"] is None else sampling
