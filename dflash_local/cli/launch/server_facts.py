"""ServerFacts: what `launch` must know of the server at an address, as its endpoints tell it, at once or as soon as it
has loaded its model."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dflash_local.errors import DFlashError, RequestError, ServerError
from dflash_local.server_client import ServerClient

_OWNER = "dflash-local"
_SILENCE_TIMEOUT = 10.0  # seconds; a server knows these facts at once
_POLL = 0.3  # seconds between two looks
# Of looks in a row: a lasting one, as of TLS, is told within ten seconds, and a server that swaps while it loads may be
# silent for five minutes.
_MOST_FAULTS = 30


def client_at(url: str, key: str | None = None) -> ServerClient:
    """A client for ask_facts()."""
    return ServerClient(url, key, _SILENCE_TIMEOUT)


@dataclass(frozen=True)
class Loading:
    """A server that loads its model: `progress` goes from 0 to 1."""

    progress: float


@dataclass(frozen=True)
class ServerFacts:
    """Of one server: its models, each with what is known about it: `n_ctx`, a slot's context, and `n_ctx_train`. Both
    are absent while a router has not loaded the model."""

    models: Mapping[str, Mapping[str, Any]]

    def named(self, name: str | None) -> str:
        """The model of that name, or the only one. Raises RequestError."""
        if name in self.models or (name is None and len(self.models) == 1):
            return name or next(iter(self.models))
        there = ", ".join(self.models)
        what = f"there is no model {name!r}" if name else "the server has several models"
        raise RequestError(f"{what}: {there}", param="--model-name", hint="give --model-name one of these")


def ask_facts(server: ServerClient) -> ServerFacts | Loading | None:
    """The facts of a server; while it loads, how far it is; None if nothing answers.

    Raises:
        DFlashError: another program answers, or the server refuses, as without its key.
    """
    try:
        answer = server.ask("/v1/models")
        if answer.status == 503:
            progress = (server.ask("/health").object or {}).get("progress")
            if isinstance(progress, (int, float)):
                return Loading(progress)
            answer = server.ask("/v1/models")  # it may have loaded in between
    except ServerError as error:
        if error.status == 0:
            return None
        raise
    said = answer.error
    if answer.status == 401:
        message = f"the server at {server.address} wants a key" + (f": {said}" if said else "")
        raise RequestError(message, param="--api-key", hint="give --api-key KEY")
    models = _models(answer.object or {})
    if answer.status != 200 or not models:
        refuses = answer.status != 200 and said
        how = f"answered {answer.status}: {said}" if refuses else "answers, but not as dflash-local does"
        raise DFlashError(f"{server.address} {how}", hint="name another address: --port N, or --url URL")
    return ServerFacts(models)


def watched_facts(server: ServerClient, known: Loading | None = None) -> Iterator[ServerFacts | Loading | None]:
    """What ask_facts() finds, again and again without an end, of a server that loads. A fault may pass, so what is
    `known` counts; one that lasts is raised."""
    n_faults = 0
    found: ServerFacts | Loading | None = known
    while True:
        try:
            found, n_faults = ask_facts(server), 0
        except ServerError:
            n_faults += 1
            if n_faults == _MOST_FAULTS:
                raise
        yield found
        time.sleep(_POLL)


def _models(listed: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Our own models of a list in OpenAI's shape; another program's may have any shape."""
    try:
        return {one["id"]: one.get("meta") or {} for one in listed["data"] if one.get("owned_by") == _OWNER}
    except (KeyError, TypeError, AttributeError):
        return {}
