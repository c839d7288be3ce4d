"""Details: what an answer in llama-server's own format has in addition to its text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dflash_local.engine import Engine
from dflash_local.generation import Completion, Generation
from dflash_local.server.fields.request import RequestFields
from dflash_local.server.formats.generation_settings import generation_settings
from dflash_local.server.formats.timings import timings
from dflash_local.server.shapes.native import NativeChunk, NativeCompletion


class Details:
    """The details of one response: what was asked for, and each choice's prompt.

    Args:
        settings: what the request asks for, with all defaults (`generation_settings`).
        prompts: text of each prompt.
    """

    def __init__(
        self,
        model: str,
        settings: dict[str, Any],
        prompts: Sequence[str],
        generations: Sequence[Generation],
        *,
        tokens: bool,
    ) -> None:
        self._model, self._settings, self._prompts, self._tokens = model, settings, prompts, tokens
        self._generations = generations

    def part(self, index: int, text: str, tokens: list[int], n_tokens: int) -> NativeChunk:
        """An event in the middle of a stream, after `n_tokens` tokens."""
        generation = self._generations[index]
        return {
            "index": index,
            "content": text,
            "tokens": tokens,
            "stop": False,
            "id_slot": generation.slot,
            "tokens_predicted": n_tokens,
            "tokens_evaluated": generation.request.n_prompt,
        }

    def whole(self, index: int, done: Completion) -> NativeCompletion:
        """A finished choice."""
        return {
            "index": index,
            "content": done.text,
            "tokens": done.tokens if self._tokens else [],
            "id_slot": done.slot,
            "stop": True,
            "model": self._model,
            "tokens_predicted": len(done.tokens),
            "tokens_evaluated": done.prompt_tokens,
            "generation_settings": self._settings,
            "prompt": self._prompts[index * len(self._prompts) // len(self._generations)],
            "has_new_line": "\n" in done.text,
            "truncated": done.truncated,
            "stop_type": "word" if done.stopped_by is not None else "eos" if done.finish_reason == "stop" else "limit",
            "stopping_word": done.stopped_by or "",
            "tokens_cached": done.slot_tokens,
            **timings([done.timings]),
        }


def details_of(
    engine: Engine, model: str, fields: RequestFields, generations: Sequence[Generation], *, tokens: bool = False
) -> Details:
    """The details of running generations; slow for long prompts."""
    texts = [engine.detokenize(one.request.prompt_tokens, special=True) for one in generations[:: fields.n]]
    return Details(model, generation_settings(engine, fields), texts, generations, tokens=tokens)
