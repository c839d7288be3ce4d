"""`dflash-local serve` on Vulkan, as a person with a GPU types it."""

from __future__ import annotations

import httpx
import pytest

from dflash_local.demo.pocket import bundled_pair
from tests.server.live import serving

pytestmark = pytest.mark.slow

QUESTIONS = ["Count from 15 in steps of 3, 14 numbers.", "Write a Python function that filters limits above 37."]


def ask(url: str, question: str) -> str:
    """An answer that was drafted for."""
    body = {"messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": 32}
    response = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=120)
    assert response.status_code == 200, response.text
    answer = response.json()
    assert answer["timings"]["draft_n_accepted"] > 0
    return str(answer["choices"][0]["message"]["content"])


def moved(url: str) -> float:
    """Bytes in both directions."""
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("dflash:moved_bytes_total{"))


@pytest.mark.parametrize("flags", [["-ngl", "99"], [], ["-ngl", "0"]])
def test_it_answers(environment: dict[str, str], flags: list[str]) -> None:
    """All layers there, `--fit`'s own choice, and none."""
    pair = bundled_pair("dflash")
    command = ["-m", pair.target, "-md", pair.drafter, "-c", 1024, "--budget", 16, *flags]
    with serving(command, environment, seconds=300) as (_, url):  # the warm-up's passes take a minute
        first = [ask(url, question) for question in QUESTIONS]
        assert all(first) and first[0] != first[1]
        assert [ask(url, question) for question in QUESTIONS] == first
        if flags != ["-ngl", "0"]:
            assert moved(url) > 0
