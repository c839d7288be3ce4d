"""How smooth a long answer is: the times between frames while 16 thousand tokens come, written to $FRAMES if set. In
the fast set it is two thousand, and nothing is said of times."""

from __future__ import annotations

import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

import pytest

from tests.fake_native import EOG
from tests.page.conftest import OpenTab, serve
from tests.page.drafted import DraftedNative
from tests.page.scripts import RICH
from tests.patience import wait_until

TOKENS, BYTES_PER_TOKEN, TOKENS_PER_PASS = 16_384, 4, 4
LENGTH = TOKENS * BYTES_PER_TOKEN
STEP_SECONDS = 0.008  # 500 tokens a second, were the machine idle

CODE = "```python\n" + "".join(f"total_{line} = sum(values[{line}:]) + {line}  # so far\n" for line in range(1400))
TEXTS = {
    "mixed": RICH * (LENGTH // len(RICH.encode()) + 1),
    "one block of code": CODE,
    "one list": "".join(f"- point {line}: *some* `words` about it, and **more**\n" for line in range(1300)),
}
WATCH = """() => {
  window.frames_ = [];
  let last = performance.now();
  const watch = (now) => { window.frames_.push(now - last); last = now; requestAnimationFrame(watch); };
  requestAnimationFrame(watch);
}"""


def passes_of(name: str, n_tokens: int = TOKENS) -> list[list[int]]:
    text = TEXTS[name].encode()[: n_tokens * BYTES_PER_TOKEN]
    size = BYTES_PER_TOKEN * TOKENS_PER_PASS
    return [[*text[at : at + size]] for at in range(0, len(text), size)]


def test_frames_come_while_an_answer_is_written(open_tab: OpenTab) -> None:
    passes = passes_of("mixed", 2048)
    told = watch(open_tab, "short", passes, shows_drafts=False)
    assert told["all"]["n"] > 20


@pytest.mark.slow
@pytest.mark.timing
@pytest.mark.parametrize("name", TEXTS)
def test_a_long_answer_stays_smooth(open_tab: OpenTab, name: str) -> None:
    """The last quarter is not slower than the first by more than text layout asks for."""
    check(watch(open_tab, name, passes_of(name), shows_drafts=False))


@pytest.mark.slow
@pytest.mark.timing
def test_a_long_answer_stays_smooth_with_drafts_shown(open_tab: OpenTab) -> None:
    """The same by tokens, with a tree for each pass."""
    words = DraftedNative.words.of(RICH)
    tokens = (words * (TOKENS // len(words) + 1))[:TOKENS]
    passes = [tokens[at : at + TOKENS_PER_PASS] for at in range(0, TOKENS, TOKENS_PER_PASS)]
    check(watch(open_tab, "drafts shown", passes, shows_drafts=True))


def watch(open_tab: OpenTab, name: str, passes: list[list[int]], shows_drafts: bool) -> dict[str, Any]:
    """Figures of the frames of an answer of these passes."""
    with serve(step_seconds=STEP_SECONDS, n_ctx_slot=2 * LENGTH) as served:
        served.native._answer = lambda _prompt: [*passes, [EOG]]
        tab = open_tab(served.url)
        if shows_drafts:
            tab.button("Show drafts").click()
        tab.page.evaluate(WATCH)
        start = time.monotonic()
        tab.ask("go")
        wait_until(lambda: tab.page.locator(".answer.done").count() == 1, 300)
        seconds = time.monotonic() - start
        frames: list[float] = tab.page.evaluate("window.frames_")
        if shows_drafts:
            assert tab.page.locator(".token.first").count() == len(passes)
    quarter = len(frames) // 4
    told: dict[str, Any] = {
        "all": summary(frames),
        "first quarter": summary(frames[:quarter]),
        "last": summary(frames[-quarter:]),
    }
    told["seconds"] = round(seconds, 1)
    print(name, json.dumps(told))
    if path := os.environ.get("FRAMES"):
        with Path(path).open("a") as file:
            file.write(json.dumps({"answer": name, **told}) + "\n")
    return told


def check(told: dict[str, Any]) -> None:
    assert told["last"]["p95"] < 100
    assert told["last"]["mean"] < 3 * max(told["first quarter"]["mean"], 16.7)


def summary(frames: list[float]) -> dict[str, Any]:
    """Milliseconds between frames."""
    cuts = statistics.quantiles(frames, n=100)
    mean = statistics.fmean(frames)
    figures = {"mean": mean, "median": cuts[49], "p95": cuts[94], "p99": cuts[98], "max": max(frames)}
    return {"n": len(frames), **{name: round(value, 1) for name, value in figures.items()}}
