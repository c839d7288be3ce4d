"""Many damaged requests from several connections, and what was wrong with the answers."""

from __future__ import annotations

import asyncio
import copy
import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .client import Answer, Connection, Request
from .mutations import JSON_TYPE, mutate
from .sound import Sound, field_names

CONNECTIONS = 12
# A request that takes longer hangs. Other processes may have the machine for a while.
SECONDS = 120
MAX_FAULTS = 20
# What a server cannot do, by its flags or its model, answers 501, as in llama-server.
OFF = 501
# Fields that may be taken from a sound body until this server grants it.
MAX_TRIMMED = 12


@dataclass
class Outcome:
    """Statuses by endpoint, faults, and the slowest requests."""

    statuses: dict[str, Counter[int]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    slowest: list[tuple[float, str]] = field(default_factory=list)

    def total(self) -> int:
        return sum(sum(counter.values()) for counter in self.statuses.values())


@dataclass
class Barrage:
    """Requests to the server at `port`; `off` lists paths that may answer 501."""

    port: int
    endpoints: Sequence[Sound]
    off: Sequence[str] = ()
    headers: tuple[tuple[str, str], ...] = ()
    outcome: Outcome = field(default_factory=Outcome)

    def __post_init__(self) -> None:
        self.names = field_names(self.endpoints)
        # What reads a body is asked most.
        self.turns = [endpoint for endpoint in self.endpoints for _ in range(1 if endpoint.bodies == (None,) else 4)]

    async def fire(self, seeds: range) -> None:
        """Send the mutation of each seed to one endpoint, all endpoints by turns."""
        left = iter(seeds)
        await asyncio.gather(*(self._one(left) for _ in range(CONNECTIONS)))

    async def _one(self, seeds: Any) -> None:
        connection = Connection(self.port)
        for seed in seeds:
            if len(self.outcome.faults) >= MAX_FAULTS:
                break
            endpoint = self.turns[seed % len(self.turns)]
            request, what = mutate(endpoint, seed, self.names)
            start = time.monotonic()
            try:
                answer = await connection.ask(request, SECONDS)
                fault = self.fault(endpoint, request, answer)
            except (asyncio.TimeoutError, TimeoutError):
                answer, fault = Answer(0), f"no answer in {SECONDS} s"
                await connection.close()
            except OSError as error:
                answer, fault = Answer(0), f"no server: {error}"
                self.outcome.faults += [f"seed {seed}: {fault}"] * MAX_FAULTS
            self._note(endpoint, answer, time.monotonic() - start, f"seed {seed}: {what}")
            if fault:
                self.outcome.faults.append(f"seed {seed}, {request.method} {request.target} ({what}): {fault}")
        await connection.close()

    def _note(self, endpoint: Sound, answer: Answer, seconds: float, what: str) -> None:
        self.outcome.statuses.setdefault(f"{endpoint.method} {endpoint.path}", Counter())[answer.status] += 1
        self.outcome.slowest = sorted([*self.outcome.slowest, (seconds, f"{endpoint.path} {what}")])[-10:]

    def fault(self, endpoint: Sound, request: Request, answer: Answer) -> str:
        """What is wrong with the answer; empty: nothing."""
        said = answer.body[:300]
        if answer.status == 0:
            return "the connection ended without an answer"
        if answer.status == 503 and "retry-after" not in answer.headers:
            return f"503 without Retry-After: {said!r}"
        typed = b"not_supported_error" in answer.body or endpoint.path.startswith("/api/")  # whose errors have no type
        reviewed = answer.status == OFF and endpoint.path in self.off and typed
        if answer.status >= 500 and answer.status != 503 and not reviewed:
            return f"{answer.status}: {said!r}"
        if answer.status >= 400 and request.method != "HEAD":
            return "" if is_error(answer.body) else f"{answer.status} without an error: {said!r}"
        if answer.headers.get("content-type", "").startswith("text/event-stream"):
            return stream_fault(answer.body)
        return ""


def is_error(body: bytes) -> bool:
    """An error of OpenAI's, Anthropic's or Ollama's shape; or plain text, of a request that is not HTTP."""
    try:
        answer = json.loads(body)
    except ValueError:
        return body.startswith(b"Invalid HTTP request")
    error = answer.get("error") if isinstance(answer, dict) else None
    return bool(error.get("message") if isinstance(error, dict) else isinstance(error, str) and error)


def stream_fault(body: bytes) -> str:
    """Whether each line of the stream is one, and none reports a fault of the server."""
    for line in body.decode("utf-8", "strict").split("\n"):
        if line and not line.startswith((":", "data: ", "event: ")):
            return f"no line of an event stream: {line[:200]!r}"
        if line.startswith("data: {") and '"error"' in line[:300]:
            error = json.loads(line[6:]).get("error") or {}
            if isinstance(error, dict) and error.get("type") in ("server_error", "api_error"):
                return f"an error in the stream: {line[:300]}"
    return ""


async def granted(port: int, endpoint: Sound) -> tuple[Sound, list[str]]:
    """The endpoint with bodies that this server grants, and what it refused of them: mutations of a body that is
    refused anyway would reach nothing behind the first check."""
    connection, bodies, refused = Connection(port), [], []
    for body in endpoint.bodies:
        trimmed = copy.deepcopy(body)
        for _ in range(MAX_TRIMMED):
            request = Request(endpoint.method, endpoint.filled("0"), json.dumps(trimmed).encode())
            answer = await connection.ask(request, SECONDS)
            if answer.status != 400 or not isinstance(trimmed, dict):
                break
            name = str(json.loads(answer.body)["error"].get("param")).split(".")[0].split("[")[0]
            if name not in trimmed:
                refused.append(f"a body: {answer.body[:200]!r}")
                break
            refused.append(name)
            del trimmed[name]
        bodies.append(trimmed)
    await connection.close()
    return replace(endpoint, bodies=tuple(bodies)), refused


async def witness(port: int, requests: Mapping[str, Any], headers: tuple[tuple[str, str], ...] = ()) -> dict[str, Any]:
    """The texts, vectors and tokens that the server answers to each of the sound requests; of what is off, none."""
    connection, answers = Connection(port), {}
    for path, body in requests.items():
        request = Request("POST", path, json.dumps(body).encode(), (JSON_TYPE, *headers))
        answer = await connection.ask(request, SECONDS)
        if answer.status == OFF:
            continue
        assert answer.status == 200, f"{path}: {answer.status} {answer.body[:500]!r}"
        answers[path] = told(json.loads(answer.body))
    await connection.close()
    return answers


def told(value: Any) -> Any:
    """What an answer says, without ids and times."""
    keys = ("content", "text", "choices", "message", "output", "data", "embedding", "tokens", "finish_reason",
            "response", "input_tokens")  # fmt: skip
    if isinstance(value, dict):
        return {name: told(item) for name, item in value.items() if name in keys}
    if isinstance(value, list):
        return [told(item) for item in value]
    return value
