"""All clients at once, for a given time, and the server's memory meanwhile."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx
import psutil

from tests.fuzz.http.barrage import Barrage, granted
from tests.fuzz.http.sound import Sound
from tests.patience import PATIENCE

from .answers import Said, difference
from .clients import Asked, Client, Tally
from .deeds import DEEDS, Busy, answer_to
from .questions import QUESTIONS, VARIANTS

CLIENTS = 32
SAMPLES = 240  # of memory in all
SAMPLED_FROM = 1 / 12  # of the time: minute 5 of an hour


class Sample(NamedTuple):
    """The memory of the server and its children at a time."""

    part: float  # of the whole time
    size: int  # bytes


def memory_of(process: psutil.Process) -> int:
    """Bytes of the process and its children in memory."""
    sizes = []
    for one in (process, *process.children(recursive=True)):
        try:
            sizes.append(one.memory_info().rss)
        except psutil.NoSuchProcess:
            continue  # it ended just now
    return sum(sizes)


async def learn(url: str) -> tuple[dict[Asked, Said], set[str]]:
    """The answers of a server that does nothing else, and the kinds of questions that it refuses."""
    known: dict[Asked, Said] = {}
    refused = set()
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE) as http:
        for kind, question in QUESTIONS.items():
            for variant in range(VARIANTS):
                asked = question(variant)
                try:
                    for stream in (False, True) if asked.streams else (False,):
                        known[Asked(kind, variant, stream)] = await answer_to(http, asked, stream=stream)
                except AssertionError as error:
                    print(f"{kind}, {variant}: {error}")
                    refused.add(kind)
    return {asked: said for asked, said in known.items() if asked.kind not in refused}, refused


def changed(now: Mapping[Asked, Said], before: Mapping[Asked, Said]) -> list[str]:
    """Where answers differ from those given before."""
    found = ((asked, difference(said, before[asked])) for asked, said in now.items())
    return [f"{asked}: {what}" for asked, what in found if what]


@dataclass
class Crowd:
    """Clients of the server at `url`. `off`: paths that may answer 501."""

    url: str
    process: psutil.Process
    known: Mapping[Asked, Said]
    endpoints: list[Sound]
    off: tuple[str, ...]
    tally: Tally = field(default_factory=Tally)
    samples: list[Sample] = field(default_factory=list)

    async def run(self, seconds: float) -> None:
        """Let all of them do what they do for so long."""
        start, port = time.monotonic(), urlsplit(self.url).port
        assert port
        for place, endpoint in enumerate(self.endpoints):
            if endpoint.method == "POST":
                self.endpoints[place], _ = await granted(port, endpoint)
        barrage = Barrage(port, self.endpoints, self.off)
        sampling = asyncio.create_task(self._sample(start, seconds))
        await asyncio.gather(*(self._client(number, port, barrage, start + seconds) for number in range(CLIENTS)))
        sampling.cancel()
        self.samples.append(Sample(1, memory_of(self.process)))

    @property
    def early_memory(self) -> int:
        """The most that was taken in the first twelfth of the time."""
        return max(sample.size for sample in self.samples if sample.part <= SAMPLED_FROM)

    @property
    def later_memory(self) -> int:
        """The most that was taken after that."""
        return max(sample.size for sample in self.samples if sample.part > SAMPLED_FROM)

    async def _client(self, number: int, port: int, barrage: Barrage, end: float) -> None:
        rng = random.Random(number)
        names = {deed.__name__: deed for deed in DEEDS}
        async with httpx.AsyncClient(base_url=self.url, timeout=PATIENCE) as http:
            client = Client(http, port, self.known, barrage, self.tally)
            while time.monotonic() < end and not self.tally.is_full:
                (name,) = rng.choices([*names], [*DEEDS.values()])
                seed = rng.getrandbits(32)
                self.tally.done[name] += 1
                try:
                    await names[name](client, random.Random(seed))
                except Busy as busy:
                    self.tally.busy[str(busy)] += 1
                    await asyncio.sleep(0.05)
                except Exception as error:
                    self.tally.failures.append(f"{name}, seed {seed}: {type(error).__name__}: {error!s:.2000}")

    async def _sample(self, start: float, seconds: float) -> None:
        while True:
            part = (time.monotonic() - start) / seconds
            self.samples.append(Sample(part, memory_of(self.process)))
            await asyncio.sleep(seconds / SAMPLES)
