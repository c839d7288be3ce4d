"""Does a request with a large grammar delay another slot's steps?

Usage: python benchmarks/prepare.py [--label after] [--arrivals 20]

One slot of the pocket pair streams endlessly while requests for the other slot arrive, one after the other
(docs/benchmarks.md). Each wants one token and finds its prompt in the slot's cache, so that its grammar is the only
work. Two rows show effects that are not the engine's: `nothing`, without requests, and `hashing`, where a thread of the
same process uses a core for half a second.

Only the public Engine API is used, so the file also runs on older states of the code: --label names the state, and a
run replaces only the figures of its own label.
"""

from __future__ import annotations

import hashlib
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the package `benchmarks`

from benchmarks import record
from benchmarks.record import say
from dflash_local.demo.pocket import bundled_pair
from dflash_local.engine import Engine

WINDOW = 1.0  # seconds after an arrival; a request takes less
N_CTX_SLOT = 32768  # 200 tools are 23,000 tokens of the pocket pair's vocabulary
FIGURES = ("median", "longest_median", "longest_max", "request_median", "engine_cpu")
CODE = ("commit", "build")  # of each state
TYPES = ("string", "integer", "number", "boolean")


def tools(n: int) -> list[dict[str, Any]]:
    """Functions with four parameters each."""
    properties = {
        "path": {"type": "string"},
        "count": {"type": "integer"},
        "mode": {"enum": ["a", "b", "c"]},
        "tags": {"type": "array", "items": {"type": "string"}},
    }
    parameters = {"type": "object", "properties": properties, "required": ["path"]}
    return [
        {"type": "function", "function": {"name": f"tool_{i}", "description": f"Does {i}.", "parameters": parameters}}
        for i in range(n)
    ]


def schema(n: int) -> dict[str, Any]:
    """An object of n objects with twenty fields each."""

    def of(properties: dict[str, Any]) -> dict[str, Any]:
        return {"type": "object", "properties": properties, "required": list(properties)}

    return of({f"section_{i}": of({f"field_{j}": {"type": TYPES[j % 4]} for j in range(20)}) for i in range(n)})


def gbnf(n: int) -> str:
    """A form of n lines in sequence, since alternatives would slow the sampling of each token."""
    names = [f"line-{i}" for i in range(n)]
    rules = [f'{name} ::= "{name} " [a-z]+ " = " [0-9]{{1,8}} ("," [0-9]{{1,8}})* "\\n"' for name in names]
    return "\n".join([f"root ::= {' '.join(names)}", *rules])


def cases(engine: Engine) -> dict[str, Callable[[], object]]:
    """The arriving requests, by name."""
    messages, functions = [{"role": "user", "content": "Hello"}], tools(200)
    sections, lines = schema(200), gbnf(3000)
    return {
        "nothing": lambda: None,
        "hashing": lambda: hashlib.pbkdf2_hmac("sha256", b"", b"", 700_000),
        "200 tools": lambda: engine.chat(messages, tools=functions, max_tokens=1),
        "JSON schema, 4000 fields": lambda: engine.generate("Hello", json_schema=sections, max_tokens=1),
        "GBNF, 3000 rules": lambda: engine.generate("Hello", grammar=lines, max_tokens=1),
    }


class Stream(threading.Thread):
    """A client that reads one answer after the other and records the time of each chunk."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(daemon=True)
        self.times: list[list[float]] = []  # one list per answer
        self._engine, self._stopped = engine, threading.Event()

    def run(self) -> None:
        while not self._stopped.is_set():
            self.times.append([])
            for _ in self._engine.stream("Write a story.", max_tokens=4000, ignore_eos=True, temperature=0.8):
                self.times[-1].append(time.perf_counter())
                if self._stopped.is_set():
                    break

    def stop(self) -> None:
        self._stopped.set()
        self.join()

    def intervals(self, start: float, end: float) -> Iterator[float]:
        """Milliseconds of the intervals between chunks of an answer that overlap [start, end]."""
        for times in self.times:
            for before, after in pairwise(times):
                if after >= start and before <= end:
                    yield 1e3 * (after - before)


def engine_cpu_ms(arrive: Callable[[], object], n: int) -> float:
    """CPU time of the engine's thread for one request, the median of n."""
    thread = next(thread for thread in threading.enumerate() if thread.name == "dflash-engine")
    assert thread.ident is not None
    clock = time.pthread_getcpuclockid(thread.ident)
    spent = []
    for _ in range(n):
        before = time.clock_gettime(clock)
        arrive()
        spent.append(1e3 * (time.clock_gettime(clock) - before))
    return statistics.median(spent)


def measure(engine: Engine, arrive: Callable[[], object], n: int) -> dict[str, Any]:
    """Intervals of the stream while n requests arrive, in milliseconds."""
    stream = Stream(engine)
    stream.start()
    arrive()  # reads the prompt, so that the measured ones find it in the cache
    starts, seconds = [], []
    for _ in range(n):
        starts.append(time.perf_counter())
        arrive()
        seconds.append(time.perf_counter() - starts[-1])
        time.sleep(max(WINDOW - seconds[-1], 0))
    stream.stop()
    every = list(stream.intervals(starts[0], starts[-1] + WINDOW))
    longest = [max(stream.intervals(start, start + WINDOW)) for start in starts]
    return {
        "median": round(statistics.median(every), 2),
        "longest_median": round(statistics.median(longest), 1),
        "longest_max": round(max(longest), 1),
        "request_median": round(1e3 * statistics.median(seconds), 1),
        "chunks": len(every),
        "engine_cpu": round(engine_cpu_ms(arrive, 5), 1),
    }


def footer(found: dict[str, Any]) -> str:
    """Each state has its own commit and build."""
    versions = [f"{label}: {record.code(found[label])}" for label in labels_of(found)]
    return f"{'; '.join(versions)}. {record.place(found)}. `{found['command']}`"


def labels_of(found: dict[str, Any]) -> list[str]:
    """The measured states of the code."""
    return [key for key, value in found.items() if isinstance(value, dict) and "cases" in value]


def report(found: dict[str, Any]) -> str:
    labels = labels_of(found)
    rows = []
    for name in found[labels[-1]]["cases"]:
        for label in labels:
            case = found[label]["cases"].get(name)
            if case:
                figures = (case[key] for key in FIGURES)
                rows.append([name, label, *(f"{ms:.1f}" for ms in figures)])
    head = ["arriving", "code", "median interval", "longest, median", "longest, worst", "request", "engine's thread"]
    return record.table(head, rows)


def main() -> int:
    """Measure, then write the figures beside those of other labels."""
    ap = record.parser(__doc__, "prepare", n_predict=1, repeats=1, threads=1)
    ap.add_argument("--label", default="after", metavar="NAME", help="the state of the code that is measured")
    ap.add_argument("--arrivals", type=int, default=20, metavar="N", help="requests of each kind")
    args = ap.parse_args()
    env, found = record.environment(ap, args), record.load(args.out)
    if found.keys() - {args.label}:
        record.check_same(args.out, found, env, ("machine", "devices"))
    files = bundled_pair("dflash")
    options: dict[str, Any] = {"n_slots": 2, "n_ctx": 2 * N_CTX_SLOT, "n_threads": args.threads, "cost_cache": False}
    with Engine(files.target, files.drafter, **options) as engine:
        measured = {}
        for name, arrive in cases(engine).items():
            measured[name] = measure(engine, arrive, args.arrivals)
            say(f"{args.label}, {name}: {measured[name]}")
    found |= {name: value for name, value in env.items() if name not in CODE}
    found[args.label] = {name: env[name] for name in CODE} | {"cases": measured}
    text = (
        "# What a large request costs the others\n\n"
        "Milliseconds between two chunks of a streaming answer while requests arrive in the other slot: over all "
        f"chunks, and the longest one in the second after each of {args.arrivals} arrivals. "
        "`request`: from the call to its result. "
        "`engine's thread`: the CPU time that a request takes there, without the stream.\n\n"
        f"{report(found)}\n\n{footer(found)}\n"
    )
    record.save(args.out, found, text)
    return 0


if __name__ == "__main__":
    record.run(main)
