"""dflash-local against upstream's own llama-server: same pair, flags, prompts and token limit, through HTTP, in alternation.

Usage: python benchmarks/compare_upstream.py [--quick] [--types q4_0 q4_k_m] [--temps 0 1] [--clients 1 4] [--rounds 5]

The pair is the pocket target with its DFlash drafter, inflated to the 0.6b shape, so that acceptance is that of a trained drafter and
time that of a larger model. Upstream is built from the unpatched pinned source (benchmarks/peer.py). docs/benchmarks.md says what is
held equal and why. Writes a Markdown table and every single measurement (JSON) to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))  # as a script, this file's siblings are found as what they are: the package `benchmarks`

from benchmarks import peer  # noqa: E402
from benchmarks.http_load import LoadError, LoadResult, Server, run_load  # noqa: E402
from dflash_local.demo.pocket import DRAFTERS, inflated_pair  # noqa: E402
from dflash_local.errors import DFlashError  # noqa: E402
from dflash_local.inflate import SHAPES, TYPES, Pair  # noqa: E402
from dflash_local.machine import this_machine  # noqa: E402

N_CTX_SLOT = 1024
PLAIN, OURS, BUDGET_1 = "plain", "dflash-local", "dflash-local, budget 1"
UPSTREAM_N_MAX = (3, 7, 15)
# llama.cpp's default chain with its default values, spelled out so that no server's defaults count. Temperature 0 makes it greedy.
SAMPLING = {"top_k": 40, "top_p": 0.95, "min_p": 0.05, "typical_p": 1.0, "repeat_penalty": 1.0}
IDLE_CPU_LIMIT = 0.05  # CPU seconds per second of a server that has nothing to do


def upstream(n_max: int) -> str:
    return f"upstream n_max {n_max}"


@dataclass(frozen=True)
class Setting:
    """What one set of servers is started with: one slot per client."""

    ftype: str
    clients: int
    threads: int

    def commands(self, pair: Pair, bins: Path) -> dict[str, list[str]]:
        """argv of every system under test."""
        sizes = ["-c", str(N_CTX_SLOT * self.clients), "-np", str(self.clients), "-t", str(self.threads), "-fa", "on"]
        common = ["-m", str(pair.target), *sizes]
        drafter = ["-md", str(pair.drafter)]
        # What makes upstream fastest here: one K/V buffer for all slots, no copies of finished prompts to a host cache (-cram).
        plain = [str(bins / "llama-server"), *common, "--kv-unified", "-cram", "0", "--fit", "off", "--no-webui", "-lv", "2"]
        ours = [sys.executable, "-m", "dflash_local.cli", "serve", *common]
        return {
            PLAIN: plain,
            **{upstream(n): [*plain, *drafter, "--spec-type", "draft-dflash", "--spec-draft-n-max", str(n)] for n in UPSTREAM_N_MAX},
            OURS: [*ours, *drafter],
            BUDGET_1: [*ours, "--budget", "1"],
        }


@dataclass(frozen=True)
class Run:
    """One system's answers to the whole prompt set. Times in seconds, medians over the answers but for `wall` and `cpu`."""

    wall: float
    cpu: float  # user + system time of the server process
    tokens: int
    al: float
    predicted_per_second: float
    ttft: float
    latency: float
    texts: tuple[str, ...]

    @classmethod
    def of(cls, load: LoadResult, cpu: float) -> Run:
        """From a load and the CPU time that it took."""
        tokens = sum(answer.n_tokens for answer in load.answers)
        passes = sum(answer.passes for answer in load.answers)
        return cls(
            wall=load.wall,
            cpu=cpu,
            tokens=tokens,
            al=(tokens - len(load.answers)) / passes if passes else 0.0,
            predicted_per_second=statistics.median(answer.predicted_per_second for answer in load.answers),
            ttft=statistics.median(answer.ttft for answer in load.answers),
            latency=statistics.median(answer.latency for answer in load.answers),
            texts=tuple(answer.text for answer in load.answers),
        )

    @property
    def speed(self) -> float:
        """Tokens per second of all clients together, prompts and HTTP included."""
        return self.tokens / self.wall

    def to_json(self) -> dict[str, Any]:
        return {"tokens_per_second": self.speed, **{key: value for key, value in asdict(self).items() if key != "texts"}}


@dataclass(frozen=True)
class Cell:
    """One line of the table: every system's runs, one per alternation."""

    setting: Setting
    temperature: float
    runs: dict[str, tuple[Run, ...]]

    def median(self, system: str, field: str) -> float:
        return statistics.median(float(getattr(run, field)) for run in self.runs[system])

    def best_upstream(self) -> str:
        """The fastest of upstream's settings in this cell."""
        return max((system for system in self.runs if system.startswith("upstream")), key=lambda system: self.median(system, "speed"))

    def ratio(self, system: str, base: str) -> float:
        """Median over the alternations of the ratio of two speeds: runs of one alternation share the machine's mood."""
        return statistics.median(a.speed / b.speed for a, b in zip(self.runs[system], self.runs[base], strict=True))

    def same_answers(self, system: str) -> int:
        """How many answers of the first alternation equal plain upstream's."""
        return sum(a == b for a, b in zip(self.runs[system][0].texts, self.runs[PLAIN][0].texts, strict=True))

    def to_json(self) -> dict[str, Any]:
        systems = {
            system: {
                "tokens_per_second": self.median(system, "speed"),
                "over_plain": self.ratio(system, PLAIN),
                "over_best_upstream": self.ratio(system, self.best_upstream()),
                "same_answers_as_plain": self.same_answers(system),
                "runs": [run.to_json() for run in runs],
            }
            for system, runs in self.runs.items()
        }
        return {**asdict(self.setting), "temperature": self.temperature, "best_upstream": self.best_upstream(), "systems": systems}


def requests(prompts: Sequence[dict[str, Any]], n: int, temperature: float, stream: bool) -> list[dict[str, Any]]:
    """Request bodies, equal for every system; each prompt has a seed of its own, and no prompt is answered from a cache."""
    extra = {**SAMPLING, "max_tokens": n, "temperature": temperature, "cache_prompt": False, "stream": stream}
    return [{**prompt, **extra, "seed": 1000 + i} for i, prompt in enumerate(prompts)]


class Bench:
    """All systems of one setting, resident at once; one at a time works."""

    def __init__(self, setting: Setting, pair: Pair, bins: Path, logs: Path) -> None:
        self.setting = setting
        self._stack = ExitStack()
        self.servers = {
            name: Server(name, argv, logs / f"{setting.ftype}-{setting.clients}-{name.replace(' ', '_')}.log")
            for name, argv in setting.commands(pair, bins).items()
        }

    def __enter__(self) -> Bench:
        with ExitStack() as stack:
            for server in self.servers.values():
                stack.enter_context(server)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def run(self, name: str, bodies: Sequence[dict[str, Any]]) -> Run:
        """One system's turn."""
        server = self.servers[name]
        before = server.cpu_seconds()
        load = run_load(server.port, bodies, self.setting.clients)
        return Run.of(load, server.cpu_seconds() - before)

    def check_idle(self, seconds: float = 2.0) -> None:
        """Refuse to measure beside a server that burns CPU while it has nothing to do: it would slow down whoever works."""
        time.sleep(0.5)  # thread pools poll for a moment after their last graph
        before = {name: server.cpu_seconds() for name, server in self.servers.items()}
        time.sleep(seconds)
        for name, server in self.servers.items():
            idle = (server.cpu_seconds() - before[name]) / seconds
            if idle > IDLE_CPU_LIMIT:
                raise LoadError(f"{name} uses {idle:.0%} of a core while it is idle; the comparison would not be fair")


def measure(bench: Bench, prompts: Sequence[dict[str, Any]], args: argparse.Namespace) -> Iterator[Cell]:
    """Warm everything up, then yield one cell per temperature."""
    names = list(bench.servers)
    for name in names:
        bench.run(name, requests(prompts[: 2 * bench.setting.clients], args.n_predict, 0.0, args.stream))
    bench.check_idle()
    for temperature in args.temps:
        bodies = requests(prompts, args.n_predict, temperature, args.stream)
        runs: dict[str, list[Run]] = {name: [] for name in names}
        for i in range(args.rounds):
            for name in order(names, i):
                runs[name].append(bench.run(name, bodies))
                where = f"{bench.setting.ftype} T{temperature:g} x{bench.setting.clients}, {i + 1}/{args.rounds}"
                say(f"{where}: {name} {runs[name][-1].speed:.1f} tok/s, AL {runs[name][-1].al:.2f}")
        yield Cell(bench.setting, temperature, {name: tuple(done) for name, done in runs.items()})


def order(systems: list[str], i: int) -> list[str]:
    """The order of alternation `i`: systems take turns in going first, and odd alternations run backwards."""
    shift = i % len(systems)
    turned = systems[shift:] + systems[:shift]
    return turned[::-1] if i % 2 else turned


def markdown(cells: Sequence[Cell], environment: str) -> str:
    """The table of the README: tokens per second of all clients together, medians over the alternations."""
    systems = list(cells[0].runs)
    head = ["type", "temp.", "clients", *systems, "ours / best upstream", "ours / plain", "AL: ours, upstream", "TTFT, ms: ours, plain"]
    rows = [head, ["---"] * len(head)]
    for cell in cells:
        best = cell.best_upstream()
        speeds = [f"{cell.median(system, 'speed'):.1f}" for system in systems]
        rows.append(
            [cell.setting.ftype.upper(), f"{cell.temperature:g}", str(cell.setting.clients)]
            + [f"**{speed}**" if system in (OURS, best) else speed for system, speed in zip(systems, speeds, strict=True)]
            + [f"{cell.ratio(OURS, best):.2f}", f"{cell.ratio(OURS, PLAIN):.2f}"]
            + [f"{cell.median(OURS, 'al'):.1f}, {cell.median(best, 'al'):.1f}"]
            + [f"{1e3 * cell.median(OURS, 'ttft'):.0f}, {1e3 * cell.median(PLAIN, 'ttft'):.0f}"]
        )
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    return f"{table}\n\nTokens per second, all clients together; medians of {len(cells[0].runs[PLAIN])} alternations. {environment}\n"


def save(cells: Sequence[Cell], args: argparse.Namespace, environment: str, machine: dict[str, Any]) -> None:
    """Write what is measured so far: an hour of figures must survive an interrupt."""
    pinned = peer.pin()
    options = {key: value for key, value in vars(args).items() if not isinstance(value, Path)}
    record = {
        "machine": machine,
        "upstream": {"package": f"{pinned.package}=={pinned.version}", "llama.cpp": pinned.commit},
        "options": options,
        "cells": [cell.to_json() for cell in cells],
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    args.out.with_suffix(".md").write_text(markdown(cells, environment), encoding="utf-8")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    ap = argparse.ArgumentParser(
        description="dflash-local against upstream's own llama-server, through HTTP, in alternation.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    ap.add_argument("--types", nargs="+", choices=TYPES, default=["q4_0", "q4_k_m"], help="quantizations of the pair")
    ap.add_argument("--temps", nargs="+", type=float, default=[0.0, 1.0], metavar="T", help="temperatures")
    ap.add_argument("--clients", nargs="+", type=int, default=[1, 4], metavar="N", help="concurrent clients, one slot each")
    ap.add_argument("--rounds", type=int, default=5, metavar="N", help="alternations that the medians are over")
    ap.add_argument("--shape", choices=SHAPES, default="0.6b", help="what the pocket pair is inflated to")
    ap.add_argument("--drafter", choices=DRAFTERS, default="dflash", help="the bundled drafter")
    ap.add_argument("-t", "--threads", type=int, default=2, metavar="N", help="threads of every server")
    ap.add_argument("-n", "--n-predict", type=int, default=100, metavar="N", help="most new tokens per answer")
    ap.add_argument("-p", "--prompts", type=Path, default=HERE / "prompts.jsonl", metavar="FILE", help="chat requests, one a line")
    ap.add_argument("--stream", action="store_true", help="stream the answers; TTFT is then the client's, else the server's")
    ap.add_argument("--quick", action="store_true", help="eight prompts and one alternation: does it run at all?")
    ap.add_argument("-o", "--out", type=Path, default=HERE / "results" / "compare_upstream", metavar="STEM", help="STEM.md, STEM.json")
    args = ap.parse_args(argv)
    if args.quick:
        args.rounds = 1
    return args


def main(argv: Sequence[str] | None = None) -> int:
    args = parse_args(argv)
    # A terminated benchmark must not leave servers behind: unwind as for Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    prompts = [json.loads(line) for line in args.prompts.read_text(encoding="utf-8").splitlines() if line.strip()]
    if args.quick:
        prompts = prompts[:: max(len(prompts) // 8, 1)][:8]
    machine = this_machine()
    environment = f"{args.shape} shape, drafter {args.drafter}, {args.threads} threads; {machine}."
    say(f"{environment} Load {machine.load:.2f}.")
    bins = peer.build()
    cells: list[Cell] = []
    with tempfile.TemporaryDirectory(prefix="compare-upstream-") as logs:
        for ftype in args.types:
            pair = inflated_pair(args.shape, ftype, args.drafter, quantize=peer.quantizer(bins))
            for clients in args.clients:
                with Bench(Setting(ftype, clients, args.threads), pair, bins, Path(logs)) as bench:
                    for cell in measure(bench, prompts, args):
                        cells.append(cell)
                        save(cells, args, environment, machine.to_json())
    print(markdown(cells, environment))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except (DFlashError, LoadError) as error:
        sys.exit(f"error: {error}")
