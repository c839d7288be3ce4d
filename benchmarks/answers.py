"""Answers from an engine in this process, for measurements of acceptance, which need no server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.record import SAMPLING, seed_of
from dflash_local.engine import Completion, Engine, SamplingParams


def answers(
    engine: Engine,
    prompts: Sequence[dict[str, Any]],
    n: int,
    temperature: float,
    repeats: int = 1,
    *,
    ignore_eos: bool = False,
    **options: Any,
) -> Iterator[Completion]:
    """Answer all prompts `repeats` times (at temperature 0 once, since repeats would be the same), without reuse
    between them.

    `options` are those of `Engine.submit`. Seeds depend only on prompt and repeat.
    """
    for repeat in range(repeats if temperature > 0 else 1):
        for i, prompt in enumerate(prompts):
            sampling = SamplingParams(
                seed=seed_of(i, repeat), temperature=temperature, ignore_eos=ignore_eos, **SAMPLING
            )
            yield engine.submit_chat(
                engine.apply_chat(prompt), sampling, max_tokens=n, cache_prompt=False, **options
            ).result()


def acceptance_length(done: Sequence[Completion]) -> float:
    """AL over all answers together: tokens after the first over target passes after the prompt's."""
    return sum(answer.timings.n_steps for answer in done) / sum(answer.timings.n_passes for answer in done)
