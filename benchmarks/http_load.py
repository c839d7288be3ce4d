"""Servers as child processes and clients that load them, for all HTTP benchmarks."""

from __future__ import annotations

import http.client
import json
import os
import queue
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dflash_local.baseline import HOST, ServerProcess

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


class LoadError(RuntimeError):
    """A server did not start, or did not answer a benchmark's request."""


def end_group(process: subprocess.Popen[bytes], patience: float) -> None:
    """End a process and whatever it has started: SIGTERM, `patience` seconds later SIGKILL."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
            process.wait(patience)
        except ProcessLookupError:
            break
        except subprocess.TimeoutExpired:
            continue
    process.wait()


class Server(ServerProcess):
    """A server in its own process group, which ends as a whole. Raises LoadError."""

    failure = LoadError
    patience = 300.0
    poll = 0.02

    def __init__(self, name: str, argv: Sequence[str], log: Path) -> None:
        super().__init__(name, argv, log, start_new_session=True)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        end_group(process, 10.0)

    def cpu_seconds(self) -> float:
        """User + system time of the server process so far."""
        fields = self._told("stat").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS

    def memory(self) -> int:
        """Resident bytes of the server process."""
        return int(self._told("statm").split()[1]) * PAGE

    @property
    def pid(self) -> int:
        """The process's number, once it has started."""
        return self._process.pid

    def complaint(self) -> str:
        """The line of its log that says why it ended, without the source's folder; "" if there is none."""
        found = re.search(r"[\w.-]+:\d+: GGML_(?:ASSERT|ABORT).*", self._output())
        return found[0] if found else ""

    def _told(self, name: str) -> str:
        """A file under /proc about the process."""
        return Path(f"/proc/{self.pid}/{name}").read_text()


@dataclass(frozen=True)
class Answer:
    """One answered chat request. Times in seconds; `ttft` is the client's when streaming, else the server's prompt
    time.

    `n_prompt` are the prompt tokens read, `n_tokens` the generated ones, including the one that ends the answer;
    `passes` the target passes after the prompt's; `generate` the time from the first token to the last, by the server's
    own clock (both servers' `predicted_ms`); `n_drafted` the draft tokens that were verified, `n_accepted` those of
    them that were accepted.
    """

    text: str
    n_prompt: int
    n_tokens: int
    finish_reason: str
    latency: float
    ttft: float
    generate: float
    passes: int
    n_drafted: int = 0
    n_accepted: int = 0


@dataclass(frozen=True)
class LoadResult:
    """All answers of one prompt set, in prompt order, and the wall time from the first request to the last answer
    (seconds)."""

    wall: float
    answers: tuple[Answer, ...]


def run_load(port: int, bodies: Sequence[dict[str, Any]], clients: int, patience: float = 600.0) -> LoadResult:
    """Send all bodies to /v1/chat/completions over `clients` connections; each takes the next body when it is free.

    Raises LoadError if any request fails, or is silent for `patience` seconds, since gaps would make the benchmark
    useless.
    """
    waiting: queue.SimpleQueue[tuple[int, dict[str, Any]]] = queue.SimpleQueue()
    for item in enumerate(bodies):
        waiting.put(item)
    answers: dict[int, Answer] = {}
    errors: list[BaseException] = []

    def client() -> None:
        connection = http.client.HTTPConnection(HOST, port, timeout=patience)
        try:
            while not errors:
                try:
                    index, body = waiting.get_nowait()
                except queue.Empty:
                    return
                answers[index] = _ask(connection, body)
        except (OSError, ValueError, KeyError, http.client.HTTPException, LoadError) as error:
            errors.append(error)
        finally:
            connection.close()

    wall = together(client, clients)
    if errors:
        raise LoadError(f"a request failed: {errors[0]!r}") from errors[0]
    return LoadResult(wall, tuple(answers[i] for i in range(len(bodies))))


def together(work: Callable[[], None], n: int) -> float:
    """Run it in `n` threads at once. Returns the seconds until all have ended."""
    threads = [threading.Thread(target=work, daemon=True) for _ in range(n)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - start


def _ask(connection: http.client.HTTPConnection, body: dict[str, Any]) -> Answer:
    start = time.perf_counter()
    connection.request("POST", "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise LoadError(f"HTTP {response.status}: {response.read(2000).decode(errors='replace')}")
    if body.get("stream"):
        message, ttft = _read_stream(response, start)
    else:
        message, ttft = json.loads(response.read()), None
    latency = time.perf_counter() - start
    choice, timings = message["choices"][0], message["timings"]
    return Answer(
        text=_text(choice["message"]),
        n_prompt=timings["prompt_n"],
        n_tokens=timings["predicted_n"],
        finish_reason=choice["finish_reason"],
        latency=latency,
        ttft=timings["prompt_ms"] / 1000.0 if ttft is None else ttft,
        generate=timings["predicted_ms"] / 1000.0,
        passes=_passes(timings, message.get("dflash", {})),
        n_drafted=timings.get("draft_n", 0),
        n_accepted=timings.get("draft_n_accepted", 0),
    )


def _passes(timings: dict[str, Any], drafting: dict[str, Any]) -> int:
    """Target passes after the prompt's. llama-server does not count them, but each gives one token besides the accepted
    ones."""
    if drafting:
        return int(drafting["passes_n"])
    return max(timings["predicted_n"] - 1 - timings.get("draft_n_accepted", 0), 0)


def _read_stream(response: http.client.HTTPResponse, start: float) -> tuple[dict[str, Any], float]:
    """Fold server-sent events into the shape of an unstreamed answer; also the time to the first text."""
    message: dict[str, Any] = {}
    reason, ttft = "", None
    whole: dict[str, Any] = {}
    for raw in response:
        line = raw.strip()
        if not line.startswith(b"data:") or line == b"data: [DONE]":
            continue
        event = json.loads(line[5:])
        if "error" in event:
            raise LoadError(f"error inside a stream: {event['error']}")
        if event.get("timings"):
            whole |= {name: event[name] for name in ("timings", "dflash") if name in event}
        for choice in event.get("choices", ()):
            delta = choice.get("delta", {})
            for key in ("content", "reasoning_content"):
                if delta.get(key):
                    message[key] = message.get(key, "") + delta[key]
            message.setdefault("tool_calls", []).extend(delta.get("tool_calls") or [])
            reason = choice.get("finish_reason") or reason
            if ttft is None and any(delta.get(k) for k in ("content", "reasoning_content", "tool_calls")):
                ttft = time.perf_counter() - start
    whole["choices"] = [{"message": message, "finish_reason": reason}]
    return whole, time.perf_counter() - start if ttft is None else ttft


def _text(message: dict[str, Any]) -> str:
    """The whole output, so that two systems' answers can be compared, streamed or not."""
    calls = [call.get("function", {}) for call in message.get("tool_calls") or []]
    said = [
        message.get("reasoning_content"),
        message.get("content"),
        *(c.get(key) for c in calls for key in ("name", "arguments")),
    ]
    return "".join(part for part in said if part)
