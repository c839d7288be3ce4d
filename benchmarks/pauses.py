"""What another slot notices while a picture is encoded: the time between two of its steps, beside that of a step alone.

Usage: python benchmarks/pauses.py [--shape 0.6b] [--type q4_0] [--sides 512 1024]

The pair is the pocket-VL, inflated, with a vision tower of SigLIP's size. One slot writes; another one asks about new
pictures, one after the other.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the package `benchmarks`

from PIL import Image

from benchmarks import pairs, record
from dflash_local import Engine, SamplingParams
from dflash_local.demo.shapes import TYPES
from dflash_local.draft_options import Budget
from dflash_local.generation import Generation

N_CTX = 16384
ALONE = 100  # steps of the writing slot, before and after a picture
FIRST = 4  # pauses, of which one is the pass of the request's text
MOST = 2.0  # steps between two of another slot
BUDGETS: tuple[Budget, ...] = (1, "auto")
WORDS = "Write a long story about a river."
NOISE = np.random.default_rng(0)
GREEDY = SamplingParams(temperature=0, ignore_eos=True)


class Writer:
    """A slot that writes on and on: `times` are when its steps came, in seconds."""

    def __init__(self, engine: Engine, budget: Budget) -> None:
        self.times: list[float] = []
        prompt = engine.apply_chat({"messages": [{"role": "user", "content": WORDS}]})
        self._generation = engine.submit_chat(prompt, GREEDY, max_tokens=N_CTX // 2 - 100, budget=budget)
        self._thread = threading.Thread(target=self._read, args=(self._generation,), daemon=True)
        self._thread.start()

    def _read(self, generation: Generation) -> None:
        for _ in generation:
            self.times.append(time.perf_counter())

    def wait(self, n_steps: int) -> None:
        """Until it has done so many steps more. Raises EngineDeadError."""
        until = len(self.times) + n_steps
        while len(self.times) < until and self._thread.is_alive():
            time.sleep(0.01)

    def pauses(self, begin: float, end: float) -> list[float]:
        """Milliseconds between the steps of that time, or a part of it."""
        return [1e3 * (b - a) for a, b in zip(self.times, self.times[1:], strict=False) if begin < b and a < end]

    def alone(self) -> list[float]:
        """Milliseconds between steps from now on."""
        begin = time.perf_counter()
        self.wait(ALONE)
        return self.pauses(begin, time.perf_counter())

    def stop(self) -> None:
        self._generation.cancel()
        self._thread.join()


def look(engine: Engine, side: int) -> tuple[float, float]:
    """Ask about a new picture. Returns when that began and ended."""
    noise = Image.fromarray(NOISE.integers(0, 255, (side, side, 3), np.uint8))
    parts = [{"type": "image", "image": noise}, {"type": "text", "text": "Describe the picture."}]
    begin = time.perf_counter()
    engine.chat([{"role": "user", "content": parts}], temperature=0, max_tokens=1)
    return begin, time.perf_counter()


def pauses_beside(found: Sequence[float]) -> list[float]:
    """Those while a picture is encoded: before them comes the pass of the request's text, after them those of its rows,
    which are passes as for any prompt: the longest."""
    text = int(np.argmax(found[:FIRST]))
    longest = max(found)
    return list(itertools.takewhile(lambda pause: pause < longest / 4, found[text + 1 :]))


def row(engine: Engine, side: int, budget: Budget, repeats: int) -> dict[str, Any]:
    """Quantiles over pictures of one size, while a slot writes with that budget: in steps of that slot alone, which are
    measured before and after each picture, since they take longer the more is written."""
    seconds_alone = [end - begin for begin, end in (look(engine, side) for _ in range(repeats))]
    steps, alone, beside, seconds_beside = list[float](), list[float](), list[float](), list[float]()
    for _ in range(repeats):
        writer = Writer(engine, budget)
        writer.wait(10)
        before = writer.alone()
        begin, end = look(engine, side)
        writer.wait(2)
        found, after = pauses_beside(writer.pauses(begin, end)), writer.alone()
        writer.stop()
        first, last = statistics.median(before), statistics.median(after)
        beside += [float(x) for x in np.asarray(found) / np.linspace(first, last, len(found))]
        alone += [*(pause / first for pause in before), *(pause / last for pause in after)]
        steps += [first, last]
        seconds_beside.append(end - begin)
    return {
        "side": side, "rows": (side // 32) ** 2, "budget": budget, "step": statistics.median(steps),
        "n_beside": len(beside), "alone": quantiles(alone), "beside": quantiles(beside),
        "seconds_alone": statistics.median(seconds_alone), "seconds_beside": statistics.median(seconds_beside),
    }  # fmt: skip


def quantiles(pauses: Sequence[float]) -> list[float]:
    """Median, 95%, 99% and the longest."""
    return [float(q) for q in np.quantile(pauses, (0.5, 0.95, 0.99, 1))]


def markdown(rows: Sequence[Mapping[str, Any]], footer: str) -> str:
    """The table and its legend."""
    head = ["pixels", "rows", "budget", "step alone, ms", "alone: 95%", "99%", "longest", "beside: median", "95%",
            "99%", "longest", f"95% in {MOST:.0f} steps", "answer alone, s", "beside, s"]  # fmt: skip
    lines = [
        [f"{r['side']} x {r['side']}", str(r["rows"]), str(r["budget"]), f"{r['step']:.1f}",
         *[f"{q:.2f}" for q in (*r["alone"][1:], *r["beside"])],
         record.verdict(r["beside"][1] <= MOST), f"{r['seconds_alone']:.2f}", f"{r['seconds_beside']:.2f}"]
        for r in rows
    ]  # fmt: skip
    return f"{record.table(head, lines)}\n\nTimes between two steps are in steps of the slot alone. {footer}\n"


def main(argv: Sequence[str] | None = None) -> int:
    ap = record.parser(__doc__, "pauses", n_predict=1, repeats=3)
    ap.add_argument("--shape", choices=("0.1b", "0.6b"), default="0.6b", help="of the inflated pair")
    ap.add_argument("--type", choices=TYPES, default="q4_0", dest="ftype", help="quantization of target and drafter")
    ap.add_argument("--sides", nargs="+", type=int, default=[512, 1024], metavar="PIXELS", help="of the pictures")
    record.add_work_option(ap)
    args = ap.parse_args(argv)
    table = record.Table(ap, args, markdown)
    target, mmproj, drafter = pairs.make_seeing(args.work, args.shape, args.ftype)
    options: dict[str, Any] = {"n_threads": args.threads, "n_threads_batch": args.threads, "cost_cache": False}
    with Engine(target, drafter, mmproj=mmproj, n_ctx=N_CTX, n_slots=2, lookup=False, **options) as engine:
        for side in args.sides:
            for budget in BUDGETS:
                table.add(row(engine, side, budget, args.repeats))
                record.say(f"{side} pixels, budget {budget}: {table.rows[-1]['beside'][1]:.2f} steps")
    return table.show()


if __name__ == "__main__":
    record.run(main)
