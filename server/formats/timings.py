"""What every generated answer says of itself: tokens, times, and how far its prompt has been read."""

from __future__ import annotations

from typing import cast

from dflash_local.generation import Completion, Progress, Timings
from dflash_local.server.shapes.answer import pick
from dflash_local.server.shapes.timings import (
    DraftingAnswer,
    Measured,
    ProgressAnswer,
    PromptTokens,
    TimingsAnswer,
    Usage,
)


def prompt_progress(progress: Progress) -> ProgressAnswer:
    """llama-server's `prompt_progress`."""
    return pick(ProgressAnswer, progress._asdict())


def usage(completions: list[Completion], n_prompts: int) -> Usage:
    """OpenAI's `usage`: each prompt counts once, however many choices it has."""
    step = len(completions) // n_prompts
    prompt = sum(done.prompt_tokens for done in completions[::step])
    completion = sum(len(done.tokens) for done in completions)
    found: Usage = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": _prompt_details(completions[::step]),
    }
    total = Timings.total(done.timings for done in completions)
    if total.prediction_n:
        found["completion_tokens_details"] = {
            "accepted_prediction_tokens": total.prediction_n_accepted,
            "rejected_prediction_tokens": total.prediction_n - total.prediction_n_accepted,
        }
    return found


def _prompt_details(completions: list[Completion]) -> PromptTokens:
    """Of the first completion of each prompt."""
    details: PromptTokens = {"cached_tokens": sum(done.cached_tokens for done in completions)}
    if n_image := sum(done.image_tokens for done in completions):
        details["image_tokens"] = n_image
    if n_audio := sum(done.audio_tokens for done in completions):
        details["audio_tokens"] = n_audio
    return details


def timings(parts: list[Timings]) -> Measured:
    """llama-server's `timings`, summed over the choices, and our own `dflash` beside it."""
    total = Timings.total(parts)
    return {"timings": cast(TimingsAnswer, total.to_dict()), "dflash": cast(DraftingAnswer, total.drafting())}
