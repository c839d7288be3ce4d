"""Backends of `chat`: an engine of this process, or a server; both stream an answer as Changes."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlencode

from dflash_local.errors import ServerError
from dflash_local.media.abilities import Abilities
from dflash_local.server_client import ServerClient

if TYPE_CHECKING:
    from dflash_local.engine import Engine
    from dflash_local.server.formats.passes import ChoicePasses

Message = dict[str, Any]


@dataclass(frozen=True)
class Change:
    """What one event adds to an answer. If drafts are shown, `drafted` (a pass, as the server tells it) comes before
    the texts that the pass made; the timings come last."""

    content: str = ""
    thought: str = ""
    drafted: Mapping[str, Any] | None = None
    timings: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, delta: Mapping[str, Any]) -> Change:
        """From a delta in OpenAI's shape. Raises TypeError: a text is none."""
        content, thought = (delta.get(name) or "" for name in ("content", "reasoning_content"))
        if not isinstance(content, str) or not isinstance(thought, str):
            raise TypeError
        return cls(content, thought)


class Backend(Protocol):
    """What answers. Its errors are DFlashErrors."""

    def abilities(self) -> Abilities | None:
        """Which media the model reads; None: not known."""
        ...

    def answer(self, messages: list[Message], settings: dict[str, Any]) -> Generator[Change, None, None]:
        """Stream the answer to a conversation under the settings."""
        ...


@dataclass(frozen=True)
class EngineBackend:
    """An engine of this process."""

    engine: Engine

    def abilities(self) -> Abilities:
        return self.engine.abilities

    def answer(self, messages: list[Message], settings: dict[str, Any]) -> Generator[Change, None, None]:
        passes = _passes(self.engine) if settings.get("return_drafts") else None
        for change in self.engine.chat(messages, stream=True, **settings):
            if passes and change.chunk and change.chunk.step:
                yield Change(drafted=passes.push(change.chunk.step, change.chunk.tokens))
            yield Change.of(change.delta)
            if change.completion:
                timings = change.completion.timings
                yield Change(timings=timings.to_dict() | timings.drafting())


def _passes(engine: Engine) -> ChoicePasses:
    """Formats the passes of an answer like the server."""
    from dflash_local.server.formats.passes import ChoicePasses

    return ChoicePasses(0, engine.pieces(special=True))


class ServerBackend:
    """A running server, by `/v1/chat/completions`; of several models there, the one of this name. Raises RequestError
    if `url` is none."""

    def __init__(self, url: str, api_key: str | None = None, model_name: str | None = None) -> None:
        self._client = ServerClient(url, api_key)
        self._named = {"model": model_name} if model_name else {}

    def abilities(self) -> Abilities | None:
        """As `/props` tells it; other servers, and routers whose model is not loaded, do not."""
        # To look does not load a model, which may take minutes.
        query = "?" + urlencode({**self._named, "autoload": "0"}) if self._named else ""
        found = (self._client.ask(f"/props{query}").object or {}).get("modalities")
        return Abilities.of({"media": found}) if isinstance(found, dict) else None

    def answer(self, messages: list[Message], settings: dict[str, Any]) -> Generator[Change, None, None]:
        body = {**self._named, "messages": messages, "stream": True, **settings}
        for event in self._client.events("/v1/chat/completions", body):
            try:
                changes = [*_changes(event)]
            except (KeyError, TypeError, AttributeError):
                raise ServerError(
                    f"{self._client.address} does not answer as OpenAI's chat completions do",
                    hint="chat needs a server with this API: check the address",
                ) from None
            yield from changes


def _changes(event: dict[str, Any]) -> Iterator[Change]:
    if one_pass := event.get("dflash", {}).get("pass"):
        yield Change(drafted=one_pass)
    yield from (Change.of(choice["delta"]) for choice in event["choices"])
    timings = event.get("timings") or {}
    if isinstance(timings.get("predicted_per_second"), int | float):  # llama-server's is null after no time
        yield Change(timings=timings | event.get("dflash", {}))
