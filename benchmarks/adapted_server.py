"""What `serve --adapt` brings and costs: a server whose drafter learns from what it is asked about one code base.

Usage: python benchmarks/adapted_server.py [--rounds 2] [--adapt-tokens 20000]

The requests ask SmolLM2 about functions of this project, one after the other, and the drafter is the one that comes
with us. After each round new functions are asked about by an engine with the drafter as it was and as it is, at
temperature 0. While a round runs, requests come in: they are timed beside those before any round. Last, a long answer
without an end: how far its parts are drafted before and after.
"""

from __future__ import annotations

import ast
import json
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the package `benchmarks`

from benchmarks import real_models, record
from benchmarks.answers import acceptance_length, answers
from benchmarks.http_load import LoadError, Server, run_load
from benchmarks.systems import our_server
from dflash_local import Engine, SamplingParams

CODE = record.HERE.parent / "dflash_local"
DRAFTER = CODE / "hub" / "drafters" / "SmolLM2-135M-Instruct-DFlash.gguf"
ASKS = (
    "Explain in a few sentences what this Python function does:\n\n{}",
    "Write a docstring for this Python function:\n\n{}",
    "Write this Python function again, with a comment for each step:\n\n{}",
    "Write a test with pytest for this Python function:\n\n{}",
)
SHORTEST, LONGEST = 6, 30  # lines of a function
N_UNSEEN = 24  # requests that the server never gets
N_PROBES = 12  # timed requests before the first round, and while each runs
PROBE = {"messages": [{"role": "user", "content": "Name three rivers."}], "max_tokens": 48, "temperature": 0}
GAP = 4.0  # seconds between two of them: the round goes on meanwhile
CLIENTS = 4
PARTS = 4  # of the long answer
N_CTX = 4096  # of a slot


def functions(folder: Path) -> list[str]:
    """The source of all functions of a folder's Python files that are neither short nor long."""
    found = []
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and SHORTEST <= (node.end_lineno or 0) - node.lineno < LONGEST:
                found.append(ast.get_source_segment(text, node) or "")
    return found


def requests(n_predict: int, temperature: float) -> list[dict[str, Any]]:
    """Requests about the code base, in an order without a meaning."""
    sources = functions(CODE)
    random.Random(1).shuffle(sources)
    return [
        {
            "messages": [{"role": "user", "content": ASKS[i % len(ASKS)].format(source)}],
            "max_tokens": n_predict, "temperature": temperature, "seed": i,
        }
        for i, source in enumerate(sources)
    ]  # fmt: skip


class Session:
    """A server that adapts, what it was asked so far, and its rounds."""

    def __init__(self, server: Server, folder: Path, asked: Iterator[dict[str, Any]]) -> None:
        self._server, self._folder, self._asked = server, folder, asked

    def write(self, n_tokens: int) -> int:
        """Ask until so many new tokens were answered; returns how many requests that took."""
        n_requests = n_written = 0
        while n_written < n_tokens:
            bodies = [next(self._asked) for _ in range(4 * CLIENTS)]
            n_written += sum(answer.n_tokens for answer in run_load(self._server.port, bodies, CLIENTS).answers)
            n_requests += len(bodies)
        return n_requests

    @property
    def rounds(self) -> list[dict[str, Any]]:
        """What the server says of its rounds."""
        return [json.loads(line) for path in self._folder.glob("*/rounds.jsonl") for line in path.open()]

    @property
    def runs(self) -> bool:
        """Whether a round has begun and not ended, or the engine has not got what it made."""
        return any(self._folder.glob("*/round/round.json")) or any(self._folder.glob("*/next.gguf"))

    def drafter(self) -> Path | None:
        """What the rounds made so far."""
        return next(self._folder.glob("*/drafter.gguf"), None)

    def probe(self) -> float:
        """Milliseconds of one short request."""
        return 1e3 * run_load(self._server.port, [PROBE], 1).answers[0].latency

    def round(self, patience: float) -> tuple[dict[str, Any], list[float]]:
        """Wait for the next round, and time requests while it runs. Raises LoadError: none came in `patience`
        seconds."""
        n, deadline, times = len(self.rounds), time.monotonic() + patience, list[float]()
        while len(self.rounds) == n or self.runs:
            if time.monotonic() > deadline:
                raise LoadError(f"no round of training ended within {patience:.0f} s: {self._server.complaint}")
            time.sleep(GAP)
            if self.runs and len(times) < N_PROBES:
                time.sleep(random.random())
                times.append(self.probe())
        return self.rounds[-1], times


def speeds(
    target: Path, drafters: Mapping[str, Path], bodies: Sequence[dict[str, Any]], args: Any
) -> dict[str, dict[str, float]]:
    """AL, and tokens per second over those of decoding without drafts, with each drafter; they take turns."""
    found: dict[str, dict[str, float]] = {}
    with ExitStack() as stack:
        engines = {
            name: stack.enter_context(
                Engine(target, path, n_ctx=N_CTX, n_threads=args.threads, cost_cache=False, cache_ram=0)
            )
            for name, path in drafters.items()
        }
        done: dict[str, list[Any]] = {name: [] for name in (*engines, "plain")}
        for repeat in range(args.repeats):
            for body in bodies:
                for name, engine in engines.items():
                    done[name] += answers(engine, [body], args.n_predict, 0.0)
                if repeat == 0:
                    first = next(iter(engines.values()))
                    done["plain"] += answers(first, [body], args.n_predict, 0.0, budget=1)
    plain = speed(done["plain"])
    for name in engines:
        found[name] = {"al": acceptance_length(done[name]), "over_plain": speed(done[name]) / plain}
    return found


def speed(done: Sequence[Any]) -> float:
    """Tokens per second after each answer's first."""
    return sum(one.timings.n_steps for one in done) / sum(one.timings.predicted_ms / 1e3 for one in done)


def long_answer(target: Path, drafter: Path, n_tokens: int, threads: int) -> list[float]:
    """AL of each part of one long answer, by the drafter alone: a text without an end repeats itself, and lookup would
    quote it."""
    ask = {"messages": [{"role": "user", "content": "Write a Python module with many small functions."}]}
    options: dict[str, Any] = {"n_ctx": n_tokens + 256, "n_threads": threads, "cost_cache": False, "lookup": False}
    with Engine(target, drafter, **options) as engine:
        sampling = SamplingParams(temperature=0.8, seed=1, ignore_eos=True)
        answer = engine.submit_chat(engine.apply_chat(ask), sampling, max_tokens=n_tokens, budget=16).result()
    lengths = answer.acceptance_lengths
    step = -(-len(lengths) // PARTS)
    return [statistics.mean(lengths[i : i + step]) for i in range(0, len(lengths), step)]


def markdown(rows: Sequence[Mapping[str, Any]], footer: str) -> str:
    """The table and its legend."""
    head = ("round", "new tokens", "minutes", "AL, held out", "taken", "AL, new requests", "over own plain",
            "a short request, ms: before", "while it learns", "AL of a long answer's quarters")  # fmt: skip
    lines = [
        (
            str(r["round"]), f"{r['tokens']:,}", f"{r['minutes']:.1f}", pair(r["held_out"]),
            "yes" if r["taken"] else "no", pair([one["al"] for one in r["unseen"]]),
            pair([one["over_plain"] for one in r["unseen"]]), times(r["alone_ms"]), times(r["beside_ms"]),
            " ".join(f"{al:.2f}" for al in r["long_before"]) + " → " + " ".join(f"{al:.2f}" for al in r["long_after"]),
        )
        for r in rows
    ]  # fmt: skip
    return f"{record.table(head, lines)}\n\nBefore the first round → after this one. {footer}\n"


def pair(values: Sequence[float]) -> str:
    return " → ".join(f"{value:.2f}" for value in values)


def times(found: Sequence[float]) -> str:
    """Median, lowest and highest."""
    return f"{statistics.median(found):.0f} ({min(found):.0f}-{max(found):.0f})" if found else "-"


def main(argv: Sequence[str] | None = None) -> int:
    ap = record.parser(__doc__, "adapted_server", n_predict=200, repeats=2)
    ap.add_argument("--rounds", type=int, default=2, metavar="N", help="how often it learns")
    ap.add_argument("--adapt-tokens", type=int, default=20000, metavar="N", help="new tokens that a round waits for")
    ap.add_argument("--long", type=int, default=7500, metavar="N", help="tokens of the long answer")
    ap.add_argument("--patience", type=float, default=1800, metavar="SECONDS", help="for a round")
    args = ap.parse_args(argv)
    table = record.Table(ap, args, markdown)
    target = real_models.fetch("smollm2")
    every = requests(args.n_predict, 0.7)
    unseen, asked = every[: args.limit or N_UNSEEN], iter(every[N_UNSEEN:])
    with tempfile.TemporaryDirectory() as work:
        folder, log = Path(work) / "adapt", Path(work) / "server.log"
        flags = ["-m", str(target), "-md", str(DRAFTER), "-c", str(N_CTX * CLIENTS), "-np", str(CLIENTS)]
        more = ["-t", str(args.threads), "--adapt", str(folder), "--adapt-tokens", str(args.adapt_tokens)]
        with Server("adapting", our_server([*flags, *more]), log) as server:
            session = Session(server, folder, asked)
            session.probe()
            alone = [session.probe() for _ in range(N_PROBES)]
            first_long = long_answer(target, DRAFTER, args.long, args.threads)
            for _ in range(args.rounds):
                record.say(f"{session.write(args.adapt_tokens)} requests answered")
                learned, beside = session.round(args.patience)
                record.say(f"round {learned}")
                if learned["failure"]:
                    raise LoadError(f"training failed: {learned['failure']}")
                drafters = {"before": DRAFTER, "after": Path(work) / "after.gguf"}
                shutil.copyfile(session.drafter() or DRAFTER, drafters["after"])
                found = speeds(target, drafters, unseen, args)
                table.add(
                    {
                        "round": learned["round"], "tokens": learned["tokens"], "minutes": learned["minutes"],
                        "held_out": [learned["before"], learned["after"]], "taken": learned["taken"],
                        "unseen": [found["before"], found["after"]], "alone_ms": alone, "beside_ms": beside,
                        "long_before": first_long,
                        "long_after": long_answer(target, drafters["after"], args.long, args.threads),
                    }
                )  # fmt: skip
    return table.show()


if __name__ == "__main__":
    record.run(main)
