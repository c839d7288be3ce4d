"""Draws docs/figures/machine-*.png, the machine page over a real engine with the inflated pocket pair:
python -m tests.page.machine_figures [SECONDS of traffic]"""

from __future__ import annotations

import json
import shutil
import sys
import threading
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from dflash_local.demo.pocket import inflated_pair
from dflash_local.engine import Engine
from dflash_local.server.settings import Settings
from tests.page.figures import FOLDER, LOOKS, save
from tests.server.live import live

PROMPTS = Path(__file__).resolve().parents[2] / "benchmarks" / "prompts.jsonl"
SECONDS = 150.0
# Of each minute, in seconds: requests run until the first, only one at a time from the second on, none after the third.
PACE = (25, 40, 52)
# The curve is measured for two seconds at most: it has its last point if nothing else kept the machine busy.
WIDEST = "64"
ATTEMPTS = 20
HEIGHTS = {"light": 1480, "dark": 1480, "phone": 1700}


class Traffic:
    """Two clients that chat, with pauses."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._prompts = [json.loads(line) for line in PROMPTS.read_text().splitlines()]
        self._start, self._is_over = time.monotonic(), False
        self._threads = [threading.Thread(target=self._chat, args=(number,)) for number in range(2)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._is_over = True
        for thread in self._threads:
            thread.join()

    def _chat(self, number: int) -> None:
        place = number
        while not self._is_over:
            passed = (time.monotonic() - self._start) % 60
            if passed > PACE[2] or (number and not PACE[1] > passed > PACE[0]):
                time.sleep(0.1)
                continue
            prompt = self._prompts[place % len(self._prompts)]
            place += 2
            self._engine.chat(prompt["messages"], max_tokens=160, temperature=0.0)


def main() -> None:
    """Draw all of them."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    pair = inflated_pair("0.6b", "q4_0")

    def load(_: Any) -> Engine:
        for _attempt in range(ATTEMPTS):
            engine = Engine(
                pair.target, pair.drafter, n_ctx=4096, n_slots=4, share_ctx=True, cost_cache=False, n_threads=1
            )
            if WIDEST in engine.stats()["cost_verify_ms"]:
                return engine
            engine.close()
        raise SystemExit("other work keeps this machine too busy for a whole curve")

    with live(load, Settings(alias="pocket-0.6b-Q4_0")) as server, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        traffic = Traffic(server.engine)
        time.sleep(seconds)
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
