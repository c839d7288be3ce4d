"""Backends of `chat`: an engine of this process, or a server; both stream an answer as Changes."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Protocol

from dflash_local.errors import DFlashError
from dflash_local.media.abilities import Abilities

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
        """From a delta in OpenAI's shape."""
        return cls(delta.get("content") or "", delta.get("reasoning_content") or "")


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


@dataclass(frozen=True)
class ServerBackend:
    """A running server, by `/v1/chat/completions`."""

    url: str
    api_key: str | None = None

    def abilities(self) -> Abilities | None:
        """As `/props` tells it; other servers and routers do not."""
        try:
            with self._open("/props") as response:
                found = json.loads(response.read()).get("modalities")
        except (urllib.error.HTTPError, ValueError, AttributeError):
            return None
        except OSError as error:
            raise self._unreachable(error) from None
        return Abilities.of({"media": found}) if isinstance(found, dict) else None

    def answer(self, messages: list[Message], settings: dict[str, Any]) -> Generator[Change, None, None]:
        body = json.dumps({"messages": messages, "stream": True, **settings}).encode()
        try:
            with self._open("/v1/chat/completions", body) as response:
                for line in response:
                    if line.startswith(b"data: {"):
                        yield from _changes(json.loads(line[6:]))
        except urllib.error.HTTPError as error:
            raise DFlashError(_message(error.read()) or f"{self._address}: {error}") from None
        except (OSError, ValueError) as error:
            raise self._unreachable(error) from None

    @property
    def _address(self) -> str:
        return self.url.rstrip("/").removesuffix("/v1")

    def _open(self, path: str, body: bytes | None = None) -> IO[bytes]:
        headers = {"Content-Type": "application/json"}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        response: IO[bytes] = urllib.request.urlopen(urllib.request.Request(self._address + path, body, headers))
        return response

    def _unreachable(self, error: Exception) -> DFlashError:
        return DFlashError(f"cannot talk to {self._address}: {error}", hint="is 'dflash-local serve' running there?")


def _changes(event: dict[str, Any]) -> Iterator[Change]:
    if "error" in event:
        raise DFlashError(event["error"]["message"])
    if one_pass := event.get("dflash", {}).get("pass"):
        yield Change(drafted=one_pass)
    yield from (Change.of(choice["delta"]) for choice in event["choices"])
    if "timings" in event:
        yield Change(timings=event["timings"] | event.get("dflash", {}))


def _message(body: bytes) -> str | None:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return None
