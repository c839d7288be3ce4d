"""What other programs take from an engine: its speed alone, beside a process that keeps a core busy, and beside another
engine.

Usage: python benchmarks/neighbours.py [--target FILE [--drafter FILE]] [--cases plain drafted prompt]

Tokens per second of answers at temperature 0.8 (`plain` without drafts, `drafted`), or of reading a prompt of
`--prompt-tokens`. Each engine is a process with `-t` threads; for meaningful results use as many as there are cores.
States take turns in every repeat. Exits with 1 below BESIDE_BUSY or BESIDE_ENGINE of the speed alone.
"""

from __future__ import annotations

import multiprocessing
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the package `benchmarks`

from benchmarks import record
from dflash_local import Engine
from dflash_local.demo.pocket import bundled_pair

BESIDE_BUSY, BESIDE_ENGINE = 0.5, 0.45
STATES = {"alone": (1, 0), "beside a busy process": (1, 1), "two engines": (2, 0)}  # engines, busy processes
ANSWER = 32  # tokens of each

Work = Callable[[Engine, int], int]  # (engine, number of the turn) -> tokens


def answer(engine: Engine, i: int) -> int:
    done = engine.generate(
        "Explain how photosynthesis works.", max_tokens=ANSWER, temperature=0.8, seed=i, ignore_eos=True
    )
    return len(done.tokens)


def read_prompt(engine: Engine, i: int) -> int:
    """Read a prompt that shares no beginning with a cached one."""
    words = engine.tokenize(f"{i}. " + "The sun gives light to all leaves. " * engine.n_ctx_slot)[
        : engine.n_ctx_slot - 8
    ]
    engine.generate(words, max_tokens=1)
    return len(words)


def serve_turns(pipe: Connection, target: Path, drafter: Path | None, threads: int, n_ctx: int, work: Work) -> None:
    """Main of a child process: for each duration received, sends back its tokens per second over about that time."""
    with Engine(target, drafter, n_ctx=n_ctx, n_threads=threads) as engine:
        work(engine, 0)
        pipe.send(0.0)
        turn = 1
        while seconds := pipe.recv():
            begin, n = time.perf_counter(), 0
            while time.perf_counter() - begin < seconds:
                n, turn = n + work(engine, turn), turn + 1
            pipe.send(n / (time.perf_counter() - begin))


@contextmanager
def engines(n: int, *arguments: Any) -> Iterator[list[Connection]]:
    """`n` loaded engines, each in its own process."""
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(n)]
    processes = [context.Process(target=serve_turns, args=(there, *arguments), daemon=True) for _, there in pipes]
    for process in processes:
        process.start()
    try:
        for here, _ in pipes:
            here.recv()
        yield [here for here, _ in pipes]
        for here, _ in pipes:
            here.send(0)
    finally:
        for process in processes:
            process.join(10)
            process.kill()


@contextmanager
def busy(n: int) -> Iterator[None]:
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()


def measure(pipes: Sequence[Connection], repeats: int, seconds: float) -> dict[str, list[float]]:
    """Tokens per second of the slowest engine, by state."""
    speeds: dict[str, list[float]] = {state: [] for state in STATES}
    for _ in range(repeats):
        for state, (n_engines, n_busy) in STATES.items():
            with busy(n_busy):
                for pipe in pipes[:n_engines]:
                    pipe.send(seconds)
                speeds[state].append(min(pipe.recv() for pipe in pipes[:n_engines]))
    return speeds


def row_of(case: str, speeds: dict[str, list[float]]) -> dict[str, Any]:
    alone, beside, two = (statistics.median(values) for values in speeds.values())
    return {
        "case": case,
        "speeds": {state: [round(value, 2) for value in values] for state, values in speeds.items()},
        "beside_busy": round(beside / alone, 3),
        "beside_engine": round(two / alone, 3),
        "held": beside >= BESIDE_BUSY * alone and two >= BESIDE_ENGINE * alone,
    }


def markdown(target: str, rows: Sequence[dict[str, Any]], footer: str) -> str:
    head = [f"{target}, tok/s", *STATES, "beside busy over alone", "of two, over alone", ""]
    lines = []
    for row in rows:
        speeds = [f"{statistics.median(row['speeds'][state]):.1f}" for state in STATES]
        shares = [f"{row[key]:.2f}" for key in ("beside_busy", "beside_engine")]
        lines.append([row["case"], *speeds, *shares, record.verdict(row["held"])])
    return f"{record.table(head, lines)}\n\n{footer}\n"


def main(argv: Sequence[str] | None = None) -> int:
    ap = record.parser(__doc__, "neighbours", n_predict=ANSWER, repeats=3)
    small = bundled_pair()
    ap.add_argument("--target", type=Path, metavar="FILE", help="(default: the bundled pair)")
    ap.add_argument("--drafter", type=Path, metavar="FILE", help="of the target, for `drafted`")
    ap.add_argument("--cases", nargs="+", choices=("plain", "drafted", "prompt"), default=["plain", "prompt"])
    ap.add_argument("--seconds", type=float, default=8, help="of each measurement")
    ap.add_argument("--prompt-tokens", type=int, default=2000, metavar="N", help="of `prompt`")
    args = ap.parse_args(argv)
    if args.target is None:
        args.target, args.drafter = small.target, small.drafter
    if "drafted" in args.cases and args.drafter is None:
        ap.error("drafted needs --drafter")
    table = record.Table(ap, args, partial(markdown, args.target.stem), target=args.target.name)
    for case in args.cases:
        work, n_ctx = (read_prompt, args.prompt_tokens + 8) if case == "prompt" else (answer, 1024)
        drafter = args.drafter if case == "drafted" else None
        with engines(2, args.target, drafter, args.threads, n_ctx, work) as pipes:
            table.add(row_of(case, measure(pipes, args.repeats, args.seconds)))
    return table.show()


if __name__ == "__main__":
    record.run(main)
