"""Clients that send sound, broken and odd images, all at once, and some of whom leave."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.fuzz.http.barrage import is_error, stream_fault, told
from tests.fuzz.http.client import Answer, Connection, Request

from . import forms
from .files import File, odd
from .forms import FORMS, Asked

CLIENTS = 8
SECONDS = 120
STREAMED = ("/v1/chat/completions", "/v1/responses", "/v1/messages", "/completion")


@dataclass
class Soak:
    """Requests to the server at `port`. `room`: images that fit into its context."""

    port: int
    sound: list[File]
    marker: str
    room: int
    answers: dict[tuple[str, str], Any] = field(default_factory=dict)  # by form and file, of the undisturbed server
    statuses: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    compared: int = 0

    async def learn(self) -> None:
        """Ask for each sound image in each form, one by one."""
        connection = Connection(self.port)
        for form in FORMS:
            for file in self.sound:
                answer = await self._ask(connection, forms.of_files(form, [file]))
                assert answer.status == 200, f"{form}, {file.name}: {answer.body[:500]!r}"
                self.answers[form, file.name] = told(json.loads(answer.body))
        await connection.close()

    async def fire(self, seeds: Iterable[int]) -> None:
        """Send the request of each seed."""
        left = iter(seeds)
        await asyncio.gather(*(self._client(left) for _ in range(CLIENTS)))

    async def _client(self, seeds: Iterator[int]) -> None:
        connection = Connection(self.port)
        for seed in seeds:
            rng = random.Random(seed)
            asked, known = self._chosen(rng)
            try:
                if rng.random() < 0.1:
                    await _leave(self.port, asked, rng)
                    self.statuses["left"] += 1
                    continue
                streams = asked.path in STREAMED and rng.random() < 0.2
                answer = await self._ask(connection, asked, stream=streams)
                fault = self._fault(asked, answer, None if streams else known)
            except (asyncio.TimeoutError, TimeoutError):
                answer, fault = Answer(0), f"no answer in {SECONDS} s"
                await connection.close()
            self.statuses[str(answer.status)] += 1
            if fault:
                self.faults.append(f"seed {seed}, {asked.path} ({asked.what}): {fault}")
        await connection.close()

    def _chosen(self, rng: random.Random) -> tuple[Asked, tuple[str, str] | None]:
        """A request; with a sound image alone, the key of the answer."""
        form = rng.choice(list(FORMS))
        fate = rng.random()
        if fate < 0.3:
            file = rng.choice(self.sound)
            return forms.of_files(form, [file]), (form, file.name)
        if fate < 0.65:
            return forms.of_files(form, [odd(rng, self.sound)]), None
        if fate < 0.7:
            return forms.of_files(form, [rng.choice(self.sound), odd(rng, self.sound)]), None
        if fate < 0.85:
            return forms.wrong(rng, form, rng.choice(self.sound)), None
        if fate < 0.88:
            return forms.many(rng, form, self.sound, self.room), None
        if fate < 0.94:
            return forms.unseen(rng, form), None
        return forms.completion(rng, self.sound, self.marker), None

    async def _ask(self, connection: Connection, asked: Asked, *, stream: bool = False) -> Answer:
        body = {**asked.body, "stream": True} if stream else asked.body
        return await connection.ask(Request("POST", asked.path, json.dumps(body).encode()), SECONDS)

    def _fault(self, asked: Asked, answer: Answer, known: tuple[str, str] | None) -> str:
        """What is wrong with the answer; empty: nothing."""
        said = answer.body[:300]
        if answer.status == 0:
            return "the connection ended without an answer"
        if answer.status >= 500:
            return f"{answer.status}: {said!r}"
        if answer.status >= 400:
            if asked.answers is True:
                return f"refused: {said!r}"
            return "" if is_error(answer.body) else f"{answer.status} without an error: {said!r}"
        if asked.answers is False and b"event: response.failed" not in answer.body:  # Responses' way in a stream
            return f"answered: {said!r}"
        if answer.headers.get("content-type", "").startswith("text/event-stream"):
            return stream_fault(answer.body)
        if known is None:
            return ""
        self.compared += 1
        now, before = told(json.loads(answer.body)), self.answers[known]
        return "" if now == before else f"another answer than before: {now} instead of {before}"


async def _leave(port: int, asked: Asked, rng: random.Random) -> None:
    """Send a request, or a part of it, and close the connection a little later."""
    data = Request("POST", asked.path, json.dumps(asked.body).encode()).bytes()
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data[: rng.choice([len(data), rng.randrange(len(data))])])
    await asyncio.sleep(rng.random() * 0.1)
    writer.transport.abort()
