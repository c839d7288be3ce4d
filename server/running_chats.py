"""RunningChats: chat completions by their ids, while their answers are on the way."""

from __future__ import annotations

from collections.abc import Sequence

from dflash_local.generation import Generation


class RunningChats:
    """What `/v1/chat/completions/control` can reach."""

    def __init__(self) -> None:
        self._generations: dict[str, Sequence[Generation]] = {}

    def add(self, chat_id: str, generations: Sequence[Generation]) -> None:
        """Remember a chat until all of its choices are done."""
        self._generations = {known: running for known, running in self._generations.items() if _unfinished(running)}
        self._generations[chat_id] = generations

    def get(self, chat_id: str) -> list[Generation]:
        """The choices that still run; none if the chat is unknown or done."""
        return _unfinished(self._generations.get(chat_id, ()))


def _unfinished(generations: Sequence[Generation]) -> list[Generation]:
    return [generation for generation in generations if not generation.done]
