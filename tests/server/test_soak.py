"""32 streaming clients that come and go: what survives is right, and nothing is left behind.

An answer given under load may differ from the same client's answer alone only where the target itself is undecided.
Passes of different widths round differently; how much that moves a logit is measured on the same weights and answers:
`tolerance` is the largest difference between scoring the answers in passes of 1 row and of as many rows as all slots
together verify. Two candidates may each move by that much, so a gap of at most twice the tolerance is a tie.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pytest

from dflash_local.engine import Engine
from tests.patience import PATIENCE, wait_until
from tests.server.live import serving

CLIENTS, SLOTS, WIDE = 32, 8, 64
MAX_TOKENS = 48
ASKED = 2  # times by each client in a round
# Allocator and caches settle within this many bytes; a leaked answer per request would exceed it soon.
SETTLING = 24 * 2**20


@dataclass
class Tally:
    """What the clients saw."""

    answers: dict[int, set[tuple[int, ...]]] = field(default_factory=dict)  # prompt -> different token lists
    survived: int = 0
    left: int = 0
    left_early: int = 0
    errors: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def prompts() -> list[str]:
    lines = (Path(__file__).parents[1] / "parity" / "prompts.jsonl").read_text().splitlines()
    return [
        f"<|im_start|>user\n{json.loads(line)['messages'][0]['content']}<|im_end|>\n<|im_start|>assistant\n"
        for line in lines[:24]
    ]


@pytest.fixture(scope="module")
def server(pocket: dict[str, Path]) -> Iterator[tuple[psutil.Process, str]]:
    flags = ["-m", pocket["target"], "-md", pocket["dflash"], "-c", SLOTS * 512, "-np", SLOTS, "-t", 1]
    with serving(flags) as (process, url):
        yield psutil.Process(process.pid), url
        process.terminate()
        assert process.wait(PATIENCE) == 0


def body(prompt: str) -> dict[str, Any]:
    return {"prompt": prompt, "temperature": 0, "max_tokens": MAX_TOKENS, "stream": True}


async def tokens_of(client: httpx.AsyncClient, prompt: str) -> AsyncIterator[list[int]]:
    async with client.stream("POST", "/completion", json=body(prompt)) as response:
        assert response.status_code == 200, (await response.aread()).decode()
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                event = json.loads(line[6:])
                assert "error" not in event, event
                yield event["tokens"]


async def whole(client: httpx.AsyncClient, prompt: str) -> tuple[int, ...]:
    return tuple([token async for tokens in tokens_of(client, prompt) for token in tokens])


async def one_client(url: str, prompts: list[str], rng: random.Random, tally: Tally) -> None:
    """Ask some times; every third time leave after some events, every tenth before the first, by closing the
    connection."""
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE) as client:
        for _ in range(ASKED):
            index = rng.randrange(len(prompts))
            try:
                fate = rng.random()
                if fate < 0.1:
                    chat = {"messages": [{"role": "user", "content": prompts[index]}], "stream": rng.random() < 0.5}
                    with pytest.raises(asyncio.TimeoutError):
                        await asyncio.wait_for(_endless(client, chat), rng.random() * 0.05)
                    tally.left_early += 1
                elif fate < 0.4:
                    remaining = rng.randrange(1, 6)
                    stream = tokens_of(client, prompts[index])
                    async for _ in stream:
                        remaining -= 1
                        if not remaining:
                            break
                    await stream.aclose()  # type: ignore[attr-defined]
                    tally.left += 1
                else:
                    tally.answers.setdefault(index, set()).add(await whole(client, prompts[index]))
                    tally.survived += 1
            except Exception as error:
                tally.errors.append(f"{type(error).__name__}: {error}")


async def _endless(client: httpx.AsyncClient, chat: dict[str, Any]) -> None:
    await client.post("/v1/chat/completions", json=chat)
    await asyncio.sleep(PATIENCE)


async def soak(url: str, prompts: list[str], n_rounds: int, process: psutil.Process) -> tuple[Tally, list[int]]:
    """Run the clients: the same amount of work in each round, however long it takes; and the server's memory after
    each."""
    tally, memory = Tally(), []
    clients = [random.Random(seed) for seed in range(CLIENTS)]
    for _ in range(n_rounds):
        await asyncio.gather(*(one_client(url, prompts, rng, tally) for rng in clients))
        memory.append(process.memory_info().rss)
    return tally, memory


def assert_ties(pocket: dict[str, Path], prompts: list[str], alone: list[tuple[int, ...]], tally: Tally) -> float:
    """Every answer is the one given alone, or leaves it at a tie. Returns the tolerance."""
    with Engine(pocket["target"], n_ctx=1024, n_threads=1, warmup=False) as engine:
        contexts = [engine.tokenize(prompt) for prompt in prompts]

        def logits(index: int, tokens: tuple[int, ...], width: int) -> np.ndarray:
            return engine.score([*contexts[index], *tokens], len(contexts[index]), width).logit

        tolerance = max(
            float(np.abs(logits(i, tokens, 1) - logits(i, tokens, WIDE)).max())
            for i, tokens in enumerate(alone)
            if tokens
        )
        for index, answers in tally.answers.items():
            for tokens in answers - {alone[index]}:
                at = next((i for i, (a, b) in enumerate(zip(tokens, alone[index], strict=False)) if a != b), None)
                assert at is not None, f"prompt {index}: one answer is a beginning of the other"
                gap = abs(float(logits(index, tokens[: at + 1], 1)[at] - logits(index, alone[index][: at + 1], 1)[at]))
                assert gap <= 2 * tolerance, (
                    f"prompt {index}, token {at}: a gap of {gap} is no tie (tolerance {tolerance})"
                )
    return tolerance


async def each_alone(url: str, prompts: list[str]) -> list[tuple[int, ...]]:
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE) as client:
        return [await whole(client, prompt) for prompt in prompts]


@pytest.mark.parametrize("n_rounds", [4, pytest.param(120, marks=pytest.mark.slow)])
def test_soak(server: tuple[psutil.Process, str], pocket: dict[str, Path], prompts: list[str], n_rounds: int) -> None:
    process, url = server
    alone = asyncio.run(each_alone(url, prompts))
    files = process.num_fds() if os.name == "posix" else 0
    threads = process.num_threads()

    tally, memory = asyncio.run(soak(url, prompts, n_rounds, process))

    assert tally.errors == []
    assert tally.survived + tally.left + tally.left_early == n_rounds * CLIENTS * ASKED
    assert min(tally.survived, tally.left, tally.left_early) > n_rounds
    tolerance = assert_ties(pocket, prompts, alone, tally)
    print(
        f"{tally.survived} answers, {tally.left} + {tally.left_early} left; tolerance {tolerance:.4f}; memory {memory}"
    )

    wait_until(lambda: not any(slot["is_processing"] for slot in httpx.get(url + "/slots").json()))
    metrics = httpx.get(url + "/metrics").text
    assert "llamacpp:requests_processing 0\n" in metrics
    assert "llamacpp:requests_deferred 0\n" in metrics
    assert memory[-1] - memory[n_rounds // 2 - 1] < SETTLING
    assert process.num_threads() <= threads + 8  # asyncio.to_thread keeps a bounded pool
    if os.name == "posix":
        wait_until(lambda: process.num_fds() <= files + 2)
    afterwards = Tally(answers={index: {tokens} for index, tokens in enumerate(asyncio.run(each_alone(url, prompts)))})
    assert_ties(pocket, prompts, alone, afterwards)
