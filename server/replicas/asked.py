"""Asked: a request on its way from the gateway to a replica, with what says whose conversation it goes on with."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.types import Scope

from dflash_local.server.fields.body import parse_json
from dflash_local.server.http_errors import HTTPError
from dflash_local.server.recordings.recordings import HEADER

REPLICA = "X-DFlash-Replica"  # the replica that answered; in a request: the one that must answer
# The keys of a scope that another process can use.
_SENT = ("type", "http_version", "method", "scheme", "path", "raw_path", "query_string", "root_path", "headers",
         "client", "server")  # fmt: skip
_SHORTEST = 64  # characters of the shortest prompt that is worth a key


@dataclass(frozen=True)
class Asked:
    """A request.

    Attributes:
        keys: names of its conversation's beginnings, the longest first. Requests that share one share that beginning.
        replica: which one must answer it; empty: any may.
    """

    scope: Mapping[str, Any]
    body: bytes
    keys: tuple[str, ...]
    replica: str

    @classmethod
    def of(cls, scope: Scope, body: bytes) -> Asked:
        """What a client asked the gateway."""
        headers = Headers(scope=scope)
        sent = {name: scope[name] for name in _SENT if scope.get(name) is not None}
        sent["headers"] = [(bytes(name), bytes(value)) for name, value in scope["headers"]]
        return cls(sent, body, keys(scope, body), headers.get(REPLICA, ""))


def keys(scope: Scope, body: bytes) -> tuple[str, ...]:
    """Names of the beginnings of a request's conversation, the longest first; none if it has none."""
    name = Headers(scope=scope).get(HEADER) or _query(scope, "conv_id")
    if name:
        return (_digest("name", name),)
    try:
        fields = parse_json(body) if body else {}
    except HTTPError:
        return ()  # the replica says what is wrong
    named = fields.get("conversation_ids")
    if isinstance(named, list) and named and isinstance(named[0], str):
        return (_digest("name", named[0]),)
    return tuple(_digest(kind, text) for kind, text in _beginnings(fields))


def _beginnings(fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name in ("messages", "input"):
        if isinstance(messages := fields.get(name), list):
            yield "chat", _first_turn(fields, messages)
            return
    for name in ("prompt", "input", "input_prefix"):
        if (prompt := fields.get(name)) is not None:
            yield from (("text", text) for text in _halves(fields, prompt))
            return


def _first_turn(fields: Mapping[str, Any], messages: list[Any]) -> str:
    """All up to the user's first message: later turns share it; other chats with the same instructions do not."""
    first = next((i for i, message in enumerate(messages) if _is_user(message)), len(messages) - 1)
    around = [fields.get(name) for name in ("model", "system", "instructions", "tools")]
    return _text([around, messages[: first + 1]])


def _is_user(message: Any) -> bool:
    return isinstance(message, dict) and message.get("role") == "user"


def _halves(fields: Mapping[str, Any], prompt: Any) -> Iterator[str]:
    """The whole prompt, and its beginnings of a power of two characters that are at least a quarter of it: less is not
    worth a busier replica. A prompt that grew shares beginnings with the earlier one."""
    text = prompt if isinstance(prompt, str) else _text(prompt).rstrip("]}")
    around = _text(fields.get("model"))
    yield around + text
    size = 1 << max(len(text).bit_length() - 1, 0)
    while size >= max(len(text) / 4, _SHORTEST):
        yield around + text[:size]
        size //= 2


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _digest(kind: str, text: str) -> str:
    return blake2b(f"{kind}:{text}".encode(errors="surrogatepass"), digest_size=12).hexdigest()


def _query(scope: Scope, name: str) -> str:
    values = parse_qs(scope.get("query_string", b"").decode("latin-1")).get(name)
    return values[0] if values else ""
