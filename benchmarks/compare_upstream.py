"""dflash-local against upstream's own llama-server, one client: three drafters, three quantizations, temperatures 0 and
1.

Usage: python benchmarks/compare_upstream.py [--drafters dflash ...] [--types q4_0 ...] [--temperatures 0 1] [--resume]

docs/benchmarks.md says what is compared, what is held equal and why. The table (Markdown) and the figures of each
answer (JSON) are written after each cell; `--resume` continues an interrupted run. `--one-by-one` is for devices that
cannot hold five servers at once: each runs alone and answers everything, plain and ours first.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the package `benchmarks`

from benchmarks import memory_rate, pairs, record
from benchmarks.http_load import Answer, LoadError
from benchmarks.record import requests, say
from benchmarks.systems import OURS, OWN_PLAIN, PLAIN, SWEEP, VARIANTS, Setting, Systems
from dflash_local.build import peer
from dflash_local.demo.pocket import DRAFTERS

# After the first repeat, draft lengths slower than this share of the best one's speed are dropped: they cannot win.
LOST = 0.9


@dataclass(frozen=True)
class Run:
    """One system's answers to all prompts in one repeat. Lists have an item per prompt, times are in seconds."""

    tokens: list[int]  # after the first, including the one that ends the answer
    generate: list[float]  # from the first token to the last, by the server's clock
    latency: list[float]  # of the whole request, by the client's clock
    ttft: list[float]  # time of the prompt, by the server's clock
    passes: list[int]  # target passes after the prompt's
    texts: list[int]  # checksums

    @classmethod
    def of(cls, answers: Sequence[Answer]) -> Run:
        """From answers, with times rounded to microseconds."""
        return cls(
            [answer.n_tokens - 1 for answer in answers],
            [round(answer.generate, 6) for answer in answers],
            [round(answer.latency, 6) for answer in answers],
            [round(answer.ttft, 6) for answer in answers],
            [answer.passes for answer in answers],
            [zlib.crc32(answer.text.encode()) for answer in answers],
        )

    def waits(self) -> Iterator[float]:
        """Seconds that a client waited beside prompt and generation: HTTP, the template, a place to run, the answer."""
        for latency, ttft, generate in zip(self.latency, self.ttft, self.generate, strict=True):
            yield latency - ttft - generate


def speed(runs: Sequence[Run]) -> float:
    """Tokens per second: all tokens after each answer's first over all time since then, so long answers weigh more."""
    return sum(sum(run.tokens) for run in runs) / sum(sum(run.generate) for run in runs)


@dataclass(frozen=True)
class Cell:
    """One line of the table: the runs of each system, one per repeat. A draft length that could not win has fewer, one
    that could not be measured none; `left_out` has the reason."""

    drafter: str
    ftype: str
    temperature: float
    runs: dict[str, list[Run]]
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, float]:
        return self.drafter, self.ftype, self.temperature

    def speed(self, system: str) -> float:
        return speed(self.runs[system])

    def al(self, system: str) -> float:
        """Acceptance length over all answers."""
        passes = sum(sum(run.passes) for run in self.runs[system])
        return sum(sum(run.tokens) for run in self.runs[system]) / passes if passes else 0.0

    @property
    def best(self) -> str:
        """The fastest of upstream's completely measured draft lengths; plain if there is none."""
        n = len(self.runs[PLAIN])
        complete = [name for name in SWEEP if len(self.runs.get(name, ())) == n]
        return max(complete, key=self.speed, default=PLAIN)

    def ratio(self, base: str) -> float:
        """Ours over `base`."""
        return self.speed(OURS) / self.speed(base)

    def spread(self, base: str) -> tuple[float, float]:
        """The lowest and the highest ratio of a single repeat."""
        ratios = [speed([a]) / speed([b]) for a, b in zip(self.runs[OURS], self.runs[base], strict=True)]
        return min(ratios), max(ratios)

    @property
    def over_better(self) -> float:
        """Ours over the better of plain and upstream's best."""
        return min(self.ratio(PLAIN), self.ratio(self.best))

    def over_best_with_prompts(self) -> float:
        """Ours over upstream's best from a client's view: all tokens over all requests' time, with prompts and HTTP."""

        def rate(name: str) -> float:
            runs = self.runs[name]
            return sum(sum(run.tokens) + len(run.tokens) for run in runs) / sum(sum(run.latency) for run in runs)

        return rate(OURS) / rate(self.best)

    def waits_ms(self, system: str) -> tuple[float, float]:
        """What a client waited beside prompt and generation: the median of the answers, and the worst."""
        waits = [1e3 * wait for run in self.runs[system] for wait in run.waits()]
        return statistics.median(waits), max(waits)

    def same_answers(self, system: str) -> int:
        """The number of answers in the first repeat that equal plain upstream's."""
        return sum(a == b for a, b in zip(self.runs[system][0].texts, self.runs[PLAIN][0].texts, strict=True))

    def to_json(self) -> dict[str, Any]:
        systems = {
            name: {
                "tokens_per_second": round(self.speed(name), 2),
                "al": round(self.al(name), 3),
                "ttft_ms": round(1e3 * statistics.median(x for run in runs for x in run.ttft), 2),
                "wait_ms": [round(x, 2) for x in self.waits_ms(name)],
                "same_answers_as_plain": self.same_answers(name),
                "runs": [asdict(run) for run in runs],
            }
            for name, runs in self.runs.items()
        }
        return {
            "drafter": self.drafter,
            "ftype": self.ftype,
            "temperature": self.temperature,
            "best_upstream": self.best,
            "over_best": round(self.ratio(self.best), 4),
            "over_best_spread": [round(x, 4) for x in self.spread(self.best)],
            "over_plain": round(self.ratio(PLAIN), 4),
            "over_plain_spread": [round(x, 4) for x in self.spread(PLAIN)],
            "over_own_plain": round(self.ratio(OWN_PLAIN), 4),
            "over_own_plain_spread": [round(x, 4) for x in self.spread(OWN_PLAIN)],
            "over_best_with_prompts": round(self.over_best_with_prompts(), 4),
            "systems": systems,
            **({"left_out": self.left_out} if self.left_out else {}),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Cell:
        names = [field.name for field in fields(Run)]
        runs = {
            system: [Run(**{name: run[name] for name in names}) for run in found["runs"]]
            for system, found in data["systems"].items()
        }
        return cls(data["drafter"], data["ftype"], data["temperature"], runs, data.get("left_out", {}))


def measure(
    systems: Systems,
    prompts: Sequence[dict[str, Any]],
    temperature: float,
    n: int,
    repeats: int,
    where: str,
    may_lose: Collection[str] = SWEEP,
) -> dict[str, list[Run]]:
    """All systems answer each prompt in turns, `repeats` times; those of `may_lose` until they cannot win."""
    runs: dict[str, list[Run]] = {name: [] for name in systems.names}
    playing = list(runs)
    for repeat in range(repeats):
        answers = systems.answers(requests(prompts, n, temperature, repeat), repeat * len(prompts), playing)
        for name in playing:
            runs[name].append(Run.of(answers[name]))
        speeds = {name: speed(runs[name]) for name in playing}
        say(
            f"{where}, {repeat + 1}/{repeats}: " + ", ".join(f"{name} {s:.1f}" for name, s in speeds.items()) + " tok/s"
        )
        best = max((speeds[name] for name in playing if name in may_lose), default=0.0)
        playing = [name for name in playing if name not in may_lose or speeds[name] >= LOST * best]
    return runs


def measure_apart(
    setting: Setting, prompts: Sequence[dict[str, Any]], cells: Sequence[Cell], n: int, repeats: int
) -> Iterator[Sequence[Cell]]:
    """One server after the other answers all prompts of all `cells`, which have no runs yet, `repeats` times. Yields
    the filled cells once plain and ours are in them, and after each further system.

    Upstream's draft lengths that fail are left out. Raises LoadError if plain or ours fails.
    """
    commands = setting.sweep()
    names = [PLAIN, OURS, *(name for name in commands if name not in (PLAIN, OURS))]
    for cell in cells:
        cell.left_out.update(dict.fromkeys(names, "not measured yet"))
    for name in names:
        try:
            with Systems({name: commands[name]}, variants=VARIANTS if name == OURS else {}) as systems:
                for system, cell in product(systems.names, cells):
                    cell.runs[system] = list(_alone(systems, system, prompts, cell, n, repeats))
                    cell.left_out.pop(system, None)
        except LoadError as error:
            if name in (PLAIN, OURS):
                raise
            say(f"{name} is left out: {error}")
            for cell in cells:
                cell.runs.pop(name, None)
                cell.left_out[name] = str(error)
        if OWN_PLAIN in cells[-1].runs:
            yield cells


def _alone(
    systems: Systems, name: str, prompts: Sequence[dict[str, Any]], cell: Cell, n: int, repeats: int
) -> Iterator[Run]:
    """The runs of one system that runs alone."""
    systems.turn(name, requests(prompts[:2], n, cell.temperature))
    for repeat in range(repeats):
        bodies = requests(prompts, n, cell.temperature, repeat)
        run = Run.of(systems.answers(bodies, 0, [name])[name])
        where = f"{cell.drafter} {cell.ftype} T{cell.temperature:g}, {repeat + 1}/{repeats}"
        say(f"{where}: {name} {speed([run]):.1f} tok/s")
        yield run


def summary(cells: Sequence[Cell]) -> dict[str, float]:
    """The whole table in a few numbers."""
    best, plain, own = ([cell.ratio(of or cell.best) for cell in cells] for of in (None, PLAIN, OWN_PLAIN))
    return {
        "over_best_mean": statistics.geometric_mean(best),
        "over_best_min": min(best),
        "over_better_mean": statistics.geometric_mean(cell.over_better for cell in cells),
        "over_plain_mean": statistics.geometric_mean(plain),
        "over_plain_min": min(plain),
        "over_own_plain_mean": statistics.geometric_mean(own),
        "over_own_plain_min": min(own),
        "over_best_with_prompts_mean": statistics.geometric_mean(cell.over_best_with_prompts() for cell in cells),
    }


def memory_use(cells: Sequence[Cell], n_bytes: dict[str, int], rate: dict[str, Any] | None) -> dict[str, Any]:
    """What a record has of plain decoding's share of the device's memory rate. `n_bytes`: read for a token, by type;
    nothing is said of cells of other types, or without a rate."""
    if rate is None:
        return {}
    shares = [
        {
            "drafter": cell.drafter,
            "ftype": cell.ftype,
            "temperature": cell.temperature,
            "bytes_per_token": n_bytes[cell.ftype],
            "share": round(memory_rate.share(n_bytes[cell.ftype], cell.speed(PLAIN), rate), 4),
        }
        for cell in cells
        if cell.ftype in n_bytes
    ]
    return {"memory_rate": rate, "memory_shares": shares} if shares else {}


def joined(before: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Two results of `memory_use` in one."""
    shares = [*before.get("memory_shares", []), *more.get("memory_shares", [])]
    return {**before, **more, "memory_shares": shares} if shares else {}


def markdown(cells: Sequence[Cell], footer: str, memory: dict[str, Any] | None = None) -> str:
    """The README's table, with its means; `memory`: of `memory_use`."""
    systems = (PLAIN, *SWEEP, OWN_PLAIN, OURS)
    head = ["drafter", "type", "temperature", *(f"{name}, tok/s" for name in systems)]
    head += ["over upstream's best", "over plain", "over own plain", "AL: ours, upstream", "wait, ms: ours, upstream"]
    rows = []
    for cell in cells:
        speeds = {name: f"{cell.speed(name):.1f}" if name in cell.runs else "-" for name in systems}
        for name in (cell.best, OURS):
            speeds[name] = f"**{speeds[name]}**"
        bases = (cell.best, PLAIN, OWN_PLAIN)
        ratios = ["{:.2f} ({:.2f}-{:.2f})".format(cell.ratio(base), *cell.spread(base)) for base in bases]
        als = f"{cell.al(OURS):.1f}, {cell.al(cell.best):.1f}"
        waits = ", ".join("{:.1f} ({:.1f})".format(*cell.waits_ms(name)) for name in (OURS, cell.best))
        rows.append([cell.drafter, cell.ftype.upper(), f"{cell.temperature:g}", *speeds.values(), *ratios, als, waits])
    s = summary(cells)
    parts = [
        record.table(head, rows),
        f"Over {len(cells)} cells: ours over upstream's best {s['over_best_mean']:.3f} (geometric mean; lowest "
        f"{s['over_best_min']:.3f}), over the better of plain and upstream's best {s['over_better_mean']:.3f}, over "
        f"plain {s['over_plain_mean']:.3f} (lowest {s['over_plain_min']:.3f}), over own plain "
        f"{s['over_own_plain_mean']:.3f} (lowest {s['over_own_plain_min']:.3f}); over upstream's best with prompts and "
        f"HTTP {s['over_best_with_prompts_mean']:.3f}.",
        *([memory_rate.words(memory["memory_shares"], memory["memory_rate"])] if memory else []),
        "Tokens after the first over the time since; in brackets the lowest and highest repeat. Wait: a client's time "
        f"beside prompt and generation, the answers' median (and worst). {footer}",
        *(
            f"Left out of T{cell.temperature:g}: {name}, {why.splitlines()[0]}"
            for cell in cells
            for name, why in cell.left_out.items()
        ),
    ]
    return "\n\n".join(parts) + "\n"


def resumed(args: argparse.Namespace, env: dict[str, Any]) -> tuple[list[Cell], float]:
    """The finished cells of an interrupted run with the same settings, commit, build and machine, and its seconds;
    nothing without `--resume`. Raises LoadError if any of these differ."""
    results = record.load(args.out) if args.resume else {}
    if not results:
        return [], 0.0
    selection = ("drafters", "types", "temperatures")
    before, now = (
        {k: v for k, v in options.items() if k not in selection} for options in (results["options"], env["options"])
    )
    if before != now:
        different = [key for key in now if before.get(key) != now[key]]
        raise LoadError(
            f"{args.out.name}.json was measured with other settings ({', '.join(different)}): leave --resume out, or "
            "give -o"
        )
    record.check_same(args.out, results, env)
    # Cells with systems left out are measured again.
    cells = [Cell.from_json(cell) for cell in results["cells"] if not cell.get("left_out")]
    return cells, float(results["seconds"])


def parser() -> argparse.ArgumentParser:
    ap = record.parser(__doc__, "compare_upstream", n_predict=100, repeats=2)
    record.add_pair_options(ap)
    record.add_pair_choices(ap, DRAFTERS, ["q4_0", "q4_k_m", "q8_0"])
    record.add_temperatures_option(ap, 0.0, 1.0)
    ap.add_argument("--resume", action="store_true", help="keep the cells that STEM.json has")
    ap.add_argument(
        "--one-by-one",
        action="store_true",
        default=None,
        help="never two servers at once: if memory is short, or the machine's speed is steady",
    )
    return ap


def measured(
    args: argparse.Namespace, setting: Setting, cells: Sequence[Cell], prompts: Sequence[dict[str, Any]]
) -> Iterator[Sequence[Cell]]:
    """Yields `cells`, which have no runs yet, as they are filled."""
    if args.one_by_one:
        yield from measure_apart(setting, prompts, cells, args.n_predict, args.repeats)
        return
    with Systems(setting.sweep(), variants=VARIANTS) as systems:
        for i, cell in enumerate(cells, 1):
            systems.warm_up(requests(prompts[:2], args.n_predict, cell.temperature))
            where = f"{cell.drafter} {cell.ftype} T{cell.temperature:g}"
            cell.runs.update(measure(systems, prompts, cell.temperature, args.n_predict, args.repeats, where))
            yield cells[:i]


def main(argv: Sequence[str] | None = None) -> int:
    ap = parser()
    args = ap.parse_args(argv)
    prompts = record.read_prompts(args.prompts, args.limit)
    env = record.environment(ap, args)
    say(record.footer(env))
    cells, before = resumed(args, env)
    start = time.monotonic()
    bins = peer.build()
    rate = memory_rate.rate_of(env["devices"]) if args.ngl != 0 else None
    memory: dict[str, Any] = {}
    for drafter in args.drafters:
        for ftype in args.types:
            done = {cell.key for cell in cells}
            missing = [Cell(drafter, ftype, t, {}) for t in args.temperatures if (drafter, ftype, t) not in done]
            if not missing:
                continue
            pair = pairs.make(args.work, args.shape, ftype, drafter)
            setting = Setting(pair, bins, threads=args.threads, n_gpu_layers=args.ngl)
            n_bytes = {ftype: memory_rate.bytes_per_token(pair.target)}
            for filled in measured(args, setting, missing, prompts):
                known = [*cells, *filled]
                use = joined(memory, memory_use(filled, n_bytes, rate))
                results = {**env, "seconds": round(before + time.monotonic() - start), "summary": summary(known), **use}
                results["cells"] = [cell.to_json() for cell in known]
                record.save(args.out, results, markdown(known, record.footer(env), use))
            cells += missing
            memory = joined(memory, memory_use(missing, n_bytes, rate))
    print(markdown(cells, record.footer(env), memory))
    return 0


if __name__ == "__main__":
    record.run(main)
