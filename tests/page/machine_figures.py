"""Draws docs/figures/machine-*.png, the machine page over an engine that replays a recorded run
(benchmarks/results/steps.json): python -m tests.page.machine_figures"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections import Counter
from itertools import cycle
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from dflash_local.engine import Engine
from dflash_local.native import StepUpdate
from dflash_local.server.service import Settings
from tests.fake_native import FakeNative
from tests.page.figures import FOLDER, LOOKS, save
from tests.page.test_machine import INFO
from tests.server.live import live

RECORD = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "steps.json"
SECONDS = 62.0
# Of each half minute, in seconds: one client rests from the first on, both do from the second on.
PACE = (16, 25)
HEIGHTS = {"light": 1480, "dark": 1480, "phone": 1700}


class Replay(FakeNative):
    """Each pass is the next one of the record: its tokens, its tree, its time."""

    def __init__(self) -> None:
        super().__init__(lambda _prompt: [[120] * 64] * 1000, n_slots=4, n_batch=64, info=INFO)
        record = json.loads(RECORD.read_text())
        self._costs, self._trace = record["cost"]["at_load"], cycle(record["trace"])
        self._seen: dict[str, Counter[Any]] = {"nodes": Counter(), "lengths": Counter(), "reasons": Counter()}
        self._last: dict[str, Any] = {}
        self._ms = 0.0

    def stats(self) -> dict[str, Any]:
        """With the record's costs and what was replayed of its choices."""
        told = super().stats()
        plain = self._costs["verify"]["1"]
        choice = {"length": self._last.get("n_denoised", 1), "reason": self._last.get("reason", "")}
        return told | {
            "cost_verify_ms": self._costs["verify"],
            "cost_draft_ms": self._costs["draft"],
            "choices": {name: {str(key): n for key, n in seen.items()} for name, seen in self._seen.items()},
            "choice": told["choice"] | choice | {"plain_rate": 1 / plain, "drafted_rate": 2.4 / plain},
        }

    def step(self) -> list[StepUpdate]:
        """As long as it took."""
        self._ms = 0.0
        updates = super().step()
        time.sleep(self._ms / 1e3)
        return updates

    def _pass(self, index: int, slot: Any) -> StepUpdate:
        one = next(self._trace)
        if slot.passes:
            slot.passes[0] = [120] * one["n_tokens"]
        update = super()._pass(index, slot)
        self._ms = max(self._ms, one["draft_ms"] + one["verify_ms"])
        if update.first or slot.n_read < slot.stats.n_prompt:
            return update
        self._last = one
        for name, key in (("nodes", "n_nodes"), ("lengths", "n_denoised"), ("reasons", "reason")):
            if one[key]:
                self._seen[name][one[key]] += 1
        return update._replace(n_drafted=one["n_nodes"] - 1, n_accepted=one["n_accepted"], n_denoised=one["n_denoised"])


class Traffic:
    """Two clients that ask, with pauses."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._start, self._is_over = engine, time.monotonic(), False
        self._threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(2)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Wait for the last answers."""
        self._is_over = True
        for thread in self._threads:
            thread.join()

    def _ask(self, number: int) -> None:
        count = 0
        while not self._is_over:
            if (time.monotonic() - self._start) % 30 > PACE[1 - number]:
                time.sleep(0.1)
                continue
            count += 1
            prompt = [number, *(count * [0, 1, 2])[:900], *range(3, 120)]
            self._engine.submit(prompt, max_tokens=260 + 90 * number).result()


def main() -> None:
    """Draw all of them."""
    settings = Settings(alias="pocket-0.6b-Q4_0")
    with live(lambda _: Engine.over(Replay()), settings) as server, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        traffic = Traffic(server.engine)
        time.sleep(SECONDS)
        for name, options in LOOKS.items():
            size = {**options["viewport"], "height": HEIGHTS[name]}
            page = chromium.new_context(**{**options, "viewport": size}).new_page()
            page.goto(server.url + "/#machine")
            page.locator("[data-card=costs] circle").first.wait_for()
            page.wait_for_timeout(1500)
            save(page.screenshot(), FOLDER / f"machine-{name}.png")
        traffic.stop()
        chromium.close()


if __name__ == "__main__":
    main()
