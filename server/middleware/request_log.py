"""RequestLog: one line for each request, without a word of its text."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dflash_local.generation import Completion, Generation, Timings
from dflash_local.server.middleware.http_middleware import HTTPMiddleware

log = logging.getLogger(__name__)

# Polled by monitors and pages: logged at the level DEBUG.
POLLED = frozenset(
    {"/", "/favicon.ico", "/health", "/v1/health", "/machine", "/metrics", "/models", "/v1/models", "/props", "/slots"}
    | {"/api/version", "/api/tags", "/api/ps"}
)
LONGEST = 200


class RequestLog(HTTPMiddleware):
    """ASGI middleware, the outermost. A handler that generates leaves its generations in the request's state, as
    `generations`; a router leaves the name of the answering model, as `instance`."""

    def __init__(self, app: ASGIApp, root: str = "") -> None:
        super().__init__(app)
        self._root = root

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        began, status = time.monotonic(), 0

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        scope.setdefault("state", {})["began"] = began
        try:
            await self._app(scope, receive, watched)
        finally:
            path = scope["path"].removeprefix(self._root)
            polled = (
                (path in POLLED or path.startswith("/page/"))
                and scope["method"] in ("GET", "HEAD")
                and status in (200, 304, 503)
            )
            level = logging.DEBUG if polled else logging.INFO
            if log.isEnabledFor(level):
                log.log(level, "%s", _line(scope, status, time.monotonic() - began))
            scope["state"].pop("generations", None)  # a connection that waits for its next request keeps the scope


def _line(scope: Scope, status: int, seconds: float) -> str:
    """`POST /v1/completions 200 812 ms, prompt 31 (cached 20), generated 128, 163.1 tok/s, AL 4.2`."""
    head = f"{printable(scope['method'])} {printable(scope['path'])} {status or '-'} {1e3 * seconds:.0f} ms"
    model = [f"model {printable(name)}"] if (name := scope["state"].get("instance")) else []
    return ", ".join((head, *model, *_answers(scope["state"].get("generations", ()))))


def _answers(generations: Sequence[Generation]) -> Iterator[str]:
    outcomes = [generation.outcome for generation in generations]
    if any(isinstance(outcome, Exception) for outcome in outcomes):
        yield "failed"
    done = [outcome for outcome in outcomes if isinstance(outcome, Completion)]
    if done:
        yield from _figures(done, len(generations))
    if None in outcomes or any(completion.finish_reason == "cancelled" for completion in done):
        yield "the client left"


def _figures(done: Sequence[Completion], n_choices: int) -> Iterator[str]:
    timings = Timings.total(completion.timings for completion in done)
    if n_choices > 1:
        yield f"{n_choices} choices"
    yield f"prompt {sum(completion.prompt_tokens for completion in done)} (cached {timings.cache_n})"
    yield f"generated {sum(len(completion.tokens) for completion in done)}"
    if timings.n_steps:
        yield f"{timings.predicted_per_second:.1f} tok/s"
    if timings.acceptance_length is not None:
        yield f"AL {timings.acceptance_length:.2f}"


def printable(text: str) -> str:
    """What a client sent, fit for a log: on one line, without control characters, and not long."""
    safe = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text[:LONGEST])
    return safe + "..." * (len(text) > LONGEST)
