"""What another slot notices while a picture is encoded: the time between two of its steps, beside that of a step alone.

Usage: python benchmarks/pauses.py [--shape 0.6b] [--type q4_0] [--sides 512 1024]

The pair is the pocket-VL, inflated, with a vision tower of SigLIP's size. One slot writes; another one asks about new
pictures, one after the other. The pass that reads a picture's rows is one like those of any prompt, and told apart.
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
from dflash_local.drafting import Budget
from dflash_local.generation import Generation

N_CTX = 8192
ALONE = 100  # steps of the writing slot, before
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


def row(engine: Engine, side: int, budget: Budget, repeats: int) -> dict[str, Any]:
    """Medians and extremes for pictures of one size, while a slot writes with that budget."""
    alone = [end - begin for begin, end in (look(engine, side) for _ in range(repeats))]
    writer = Writer(engine, budget)
    writer.wait(10)
    begin = time.perf_counter()
    writer.wait(ALONE)
    steps = writer.pauses(begin, time.perf_counter())
    beside, pauses, reads = [], list[float](), []
    for _ in range(repeats):
        begin, end = look(engine, side)
        writer.wait(2)
        found = writer.pauses(begin, end)
        # What takes more than a quarter of the longest is a pass that reads the rows.
        reads.append(max(found))
        pauses += itertools.takewhile(lambda pause: pause < reads[-1] / 4, found)
        beside.append(end - begin)
        writer.wait(20)
    writer.stop()
    step = statistics.median(steps)
    return {
        "side": side, "rows": (side // 32) ** 2, "budget": budget, "step": step, "steps": len(pauses),
        "median": statistics.median(pauses), "p95": float(np.quantile(pauses, 0.95)), "longest": max(pauses),
        "p95_alone": float(np.quantile(steps, 0.95)), "longest_alone": max(steps), "read": statistics.median(reads),
        "seconds_alone": statistics.median(alone),
        "seconds_beside": statistics.median(beside), "held": statistics.median(pauses) <= MOST * step,
    }  # fmt: skip


def markdown(rows: Sequence[Mapping[str, Any]], footer: str) -> str:
    """The table and its legend."""
    head = ["pixels", "rows", "budget", "step alone, ms", "95%", "longest", "between steps, median", "95%", "longest",
            f"median, at most {MOST:.0f} steps", "pass of the rows", "answer alone, s", "beside, s"]  # fmt: skip
    lines = [
        [f"{r['side']} x {r['side']}", str(r["rows"]), str(r["budget"]), f"{r['step']:.1f}",
         f"{r['p95_alone']:.1f}", f"{r['longest_alone']:.1f}", f"{r['median']:.1f}", f"{r['p95']:.1f}",
         f"{r['longest']:.1f}",
         f"{r['median'] / r['step']:.2f} {record.verdict(r['held'])}", f"{r['read']:.0f}", f"{r['seconds_alone']:.2f}",
         f"{r['seconds_beside']:.2f}"]
        for r in rows
    ]  # fmt: skip
    return f"{record.table(head, lines)}\n\n{footer}\n"


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
                record.say(f"{side} pixels, budget {budget}: {table.rows[-1]['median']:.1f} ms")
    return table.show()


if __name__ == "__main__":
    record.run(main)
