"""All clients at once, for a given time, and the server's memory meanwhile; and what must have happened in it."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx
import psutil

from tests.fuzz.http.barrage import Barrage, granted
from tests.fuzz.http.sound import Sound
from tests.patience import PATIENCE

from .answers import Said, difference, is_silent
from .clients import Asked, Client, Tally
from .deeds import COMPARING, DEEDS, OUTCOMES, Busy, Deed, Refused, answer_to
from .questions import QUESTIONS, VARIANTS
from .refusals import REFUSALS

CLIENTS = 32
SAMPLES = 240  # in all
PARTS = 12  # of the time, in each of which answers must be compared


def parts_after(start: float) -> list[tuple[float, float]]:
    """The rest of the time in equal parts, each about as long as what is before `start`, and at least two."""
    n_parts = max(2, round(1 / start) - 1)
    ends = [start + part * (1 - start) / n_parts for part in range(n_parts + 1)]
    return list(pairwise(ends))


class Sample(NamedTuple):
    """What there is at a time."""

    part: float  # of the whole time
    memory: int  # bytes, of the server and its children
    compared: int  # answers so far


def memory_of(process: psutil.Process) -> int:
    """Bytes of the process and its children in memory; 0 if it has ended."""
    sizes = []
    with contextlib.suppress(psutil.NoSuchProcess):
        for one in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):  # it ended just now
                sizes.append(one.memory_info().rss)
    return sum(sizes)


async def learn(url: str) -> tuple[dict[Asked, Said], dict[Asked, str]]:
    """The answers of a server that does nothing else, and with what it refuses the other questions. Raises
    AssertionError: something else is wrong with an answer."""
    known: dict[Asked, Said] = {}
    refused: dict[Asked, str] = {}
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE) as http:
        for kind, question in QUESTIONS.items():
            for variant in range(VARIANTS):
                wanted = question(variant)
                for stream in (False, True) if wanted.streams else (False,):
                    asked = Asked(kind, variant, stream)
                    try:
                        known[asked] = await answer_to(http, wanted, stream=stream)
                    except Refused as why:
                        refused[asked] = str(why)
    return known, refused


def silent(known: Mapping[Asked, Said]) -> set[str]:
    """The kinds of questions to which no answer says anything, so that comparing them would show little."""
    return {asked.kind for asked in known} - {asked.kind for asked, said in known.items() if not is_silent(said)}


def changed(now: Mapping[Asked, Said], before: Mapping[Asked, Said]) -> list[str]:
    """Where answers differ from those given before, or are missing or new."""
    found = {asked: difference(now[asked], before[asked]) for asked in now.keys() & before.keys()}
    found |= dict.fromkeys(now.keys() ^ before.keys(), "was answered only once")
    return [f"{asked}: {what}" for asked, what in found.items() if what]


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
        port = urlsplit(self.url).port
        assert port
        for place, endpoint in enumerate(self.endpoints):
            if endpoint.method == "POST":
                self.endpoints[place], _ = await granted(port, endpoint)
        barrage, start = Barrage(port, self.endpoints, self.off), time.monotonic()
        sampling = asyncio.create_task(self._sample(start, seconds))
        await asyncio.gather(*(self._client(number, port, barrage, start + seconds) for number in range(CLIENTS)))
        sampling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await sampling  # or raise what went wrong in it
        self._add_sample(1)

    def memory(self, start: float, end: float = math.inf) -> int:
        """The most that was taken from a part of the time on, up to another one; 0: nobody looked."""
        return max((sample.memory for sample in self.samples if start <= sample.part <= end), default=0)

    def usual_memory(self, start: float, end: float = math.inf) -> int:
        """Likewise: the median."""
        sizes = [sample.memory for sample in self.samples if start <= sample.part <= end]
        return statistics.median_low(sizes) if sizes else 0

    def stalls(self) -> list[int]:
        """Those of the `PARTS` of the time in which no answer was compared."""
        counts = [0] * (PARTS + 1)
        for sample in self.samples:
            until = min(math.ceil(sample.part * PARTS), PARTS)
            counts[until] = max(counts[until], sample.compared)
        return [part for part in range(PARTS) if counts[part + 1] <= max(counts[: part + 1])]

    def missing(self, *, wholly: bool) -> list[str]:
        """What must happen, and did not. `wholly`: each question and refusal must, not only each kind of them."""
        tally = self.tally
        found = [f"{deed.__name__} was never done" for deed in DEEDS if not tally.done[deed.__name__]]
        found += [f"{deed.__name__} compared nothing" for deed in COMPARING if not tally.comparing[deed.__name__]]
        found += [f"never {outcome}" for outcome in OUTCOMES if not tally.seen[outcome]]
        kinds = {asked.kind for asked in tally.compared}
        found += [f"{kind} was never compared" for kind in sorted({asked.kind for asked in self.known} - kinds)]
        found += [f"nothing was compared in part {part + 1} of {PARTS} of the time" for part in self.stalls()]
        if wholly:
            found += [f"{asked} was never compared" for asked in sorted(self.known.keys() - tally.compared.keys())]
            found += [f"never refused: {what}" for place, what in enumerate(REFUSALS) if not tally.refusals[place]]
        return found

    async def _client(self, number: int, port: int, barrage: Barrage, end: float) -> None:
        rng = random.Random(number)
        async with httpx.AsyncClient(base_url=self.url, timeout=PATIENCE) as http:
            client = Client(http, port, self.known, barrage, self.tally)
            while time.monotonic() < end and not self.tally.is_full:
                (deed,) = rng.choices([*DEEDS], [*DEEDS.values()])
                await self._do(deed, client, rng.getrandbits(32))

    async def _do(self, deed: Deed, client: Client, seed: int) -> None:
        name, tally = deed.__name__, self.tally
        tally.begun[name] += 1
        try:
            await deed(client, random.Random(seed))
        except Busy as busy:
            tally.busy[str(busy)] += 1
            await asyncio.sleep(0.05)
        except Exception as error:
            tally.failures.append(f"{name}, seed {seed}: {type(error).__name__}: {error!s:.2000}")
        else:
            tally.done[name] += 1

    async def _sample(self, start: float, seconds: float) -> None:
        while True:
            self._add_sample((time.monotonic() - start) / seconds)
            await asyncio.sleep(seconds / SAMPLES)

    def _add_sample(self, part: float) -> None:
        self.samples.append(Sample(part, memory_of(self.process), self.tally.compared.total()))
