"""`dflash-local serve` on Vulkan, as a person with a GPU types it."""

from __future__ import annotations

import httpx
import pytest

from dflash_local.demo.pocket import bundled_pair
from tests.server.live import serving

pytestmark = pytest.mark.slow

QUESTIONS = ["Count from 15 in steps of 3, 14 numbers.", "Write a Python function that filters limits above 37."]


@pytest.mark.parametrize("flags", [["-ngl", "99"], [], ["-ngl", "0"]])
def test_it_answers(environment: dict[str, str], flags: list[str]) -> None:
    """All layers there, `--fit`'s own choice, and none."""
    pair = bundled_pair("dflash")
    command = ["-m", pair.target, "-md", pair.drafter, "-c", 1024, "--budget", 16, *flags]
    with serving(command, environment, seconds=300) as (_, url):  # the warm-up's passes take a minute
        texts = []
        for question in 2 * QUESTIONS:
            body = {"messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": 32}
            answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=120)
            assert answer.status_code == 200, answer.text
            texts.append(answer.json()["choices"][0]["message"]["content"])
            assert answer.json()["timings"]["draft_n_accepted"] > 0
        assert all(texts) and texts[0] != texts[1]
        moved = httpx.get(f"{url}/metrics").text
        line = next(line for line in moved.splitlines() if line.startswith('dflash:moved_bytes_total{direction="to_'))
        assert (float(line.split()[-1]) > 0) == (flags != ["-ngl", "0"])
