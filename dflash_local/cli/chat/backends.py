"""Backends of `chat`: an engine of this process, or a server; both stream an answer as Changes."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dflash_local.errors import DFlashError

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


# Streams the answer to a conversation under the settings.
Backend = Callable[[list[Message], dict[str, Any]], Generator[Change, None, None]]


def local(engine: Engine) -> Backend:
    """A backend over an engine of this process."""

    def answer(messages: list[Message], settings: dict[str, Any]) -> Generator[Change, None, None]:
        passes = _passes(engine) if settings.get("return_drafts") else None
        for change in engine.chat(messages, stream=True, **settings):
            if passes and change.chunk and change.chunk.step:
                yield Change(drafted=passes.push(change.chunk.step, change.chunk.tokens))
            yield Change.of(change.delta)
            if change.completion:
                timings = change.completion.timings
                yield Change(timings=timings.to_dict() | timings.drafting())

    return answer


def _passes(engine: Engine) -> ChoicePasses:
    """Formats the passes of an answer like the server."""
    from dflash_local.server.formats.passes import ChoicePasses

    return ChoicePasses(0, engine.pieces(special=True))


def remote(url: str, api_key: str | None) -> Backend:
    """A backend over a server's `/v1/chat/completions`."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {api_key}"} if api_key else {})
    endpoint = url.rstrip("/").removesuffix("/v1") + "/v1/chat/completions"

    def answer(messages: list[Message], settings: dict[str, Any]) -> Generator[Change, None, None]:
        body = json.dumps({"messages": messages, "stream": True, **settings}).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(endpoint, body, headers)) as response:
                for line in response:
                    if line.startswith(b"data: {"):
                        yield from _changes(json.loads(line[6:]))
        except urllib.error.HTTPError as error:
            raise DFlashError(_message(error.read()) or f"{endpoint}: {error}") from None
        except (urllib.error.URLError, OSError, ValueError) as error:
            raise DFlashError(
                f"cannot talk to {endpoint}: {error}", hint="is 'dflash-local serve' running there?"
            ) from None

    return answer


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
