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
from collections.abc import Collection, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the package `benchmarks`

from benchmarks import memory_rate, pairs, record
from benchmarks.comparison import Cell, Run, speed
from benchmarks.http_load import LoadError
from benchmarks.record import requests, say
from benchmarks.systems import OURS, OWN_PLAIN, PLAIN, SWEEP, VARIANTS, Setting, Systems
from dflash_local.build import peer
from dflash_local.demo.pocket import DRAFTERS

# After the first repeat, draft lengths slower than this share of the best one's speed are dropped: they cannot win.
LOST = 0.9


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
    the filled cells once plain and ours are in them, and after each further system: those that were best elsewhere
    first (n-grams, a least probability, long drafts), so that little is missing if the time ends early.

    Upstream's draft lengths that fail are left out. Raises LoadError if plain or ours fails.
    """
    commands = setting.sweep()
    names = [PLAIN, OURS, *reversed(SWEEP)]
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
    """The whole table in a few numbers; those over upstream's best are of the cells that have one, and left out if none
    has."""
    best = [(cell, name) for cell in cells if (name := cell.best)]
    return {
        **_least_and_mean("over_best", [cell.ratio(name) for cell, name in best]),
        "over_better_mean": statistics.geometric_mean(cell.over_better for cell in cells),
        **_least_and_mean("over_plain", [cell.ratio(PLAIN) for cell in cells]),
        **_least_and_mean("over_own_plain", [cell.ratio(OWN_PLAIN) for cell in cells]),
        **_mean("over_best_with_prompts", [cell.with_prompts(name) for cell, name in best]),
    }


def _mean(name: str, ratios: Sequence[float]) -> dict[str, float]:
    return {f"{name}_mean": statistics.geometric_mean(ratios)} if ratios else {}


def _least_and_mean(name: str, ratios: Sequence[float]) -> dict[str, float]:
    return {**_mean(name, ratios), f"{name}_min": min(ratios)} if ratios else {}


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
    parts = [
        record.table(head, [_row(cell, systems) for cell in cells]),
        _means(cells),
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


def _row(cell: Cell, systems: Sequence[str]) -> list[str]:
    """A cell's line. Without any of upstream's draft lengths nothing is over its best; of some, it says of how many."""
    best, pair = cell.best, [OURS, *([cell.best] if cell.best else [])]
    speeds = {name: f"{cell.speed(name):.1f}" if name in cell.runs else "-" for name in systems}
    for name in pair:
        speeds[name] = f"**{speeds[name]}**"
    ratios = [
        "{:.2f} ({:.2f}-{:.2f})".format(cell.ratio(base), *cell.spread(base)) if base else "-"
        for base in (best, PLAIN, OWN_PLAIN)
    ]
    if best and cell.left_out:
        ratios[0] += f", of {len(cell.lengths)} of {len(SWEEP)}"
    als = [f"{cell.al(name):.1f}" for name in pair]
    waits = ["{:.1f} ({:.1f})".format(*cell.waits_ms(name)) for name in pair]
    both = [", ".join(words if best else [*words, "-"]) for words in (als, waits)]
    return [cell.drafter, cell.ftype.upper(), f"{cell.temperature:g}", *speeds.values(), *ratios, *both]


def _means(cells: Sequence[Cell]) -> str:
    """The sentence of `summary`."""
    s, n = summary(cells), sum(cell.best is not None for cell in cells)
    plain = (
        f"over plain {s['over_plain_mean']:.3f} (lowest {s['over_plain_min']:.3f}), over own plain "
        f"{s['over_own_plain_mean']:.3f} (lowest {s['over_own_plain_min']:.3f})"
    )
    if n == 0:
        return f"Over {len(cells)} cells: ours {plain}; none of upstream's draft lengths was measured."
    some = " of the draft lengths that were measured" if any(cell.left_out for cell in cells) else ""
    some += f", in {n} of them," if n < len(cells) else ""
    return (
        f"Over {len(cells)} cells: ours over upstream's best{some} {s['over_best_mean']:.3f} (geometric mean; lowest "
        f"{s['over_best_min']:.3f}), over the better of plain and upstream's best {s['over_better_mean']:.3f}, "
        f"{plain}; over upstream's best with prompts and HTTP {s['over_best_with_prompts_mean']:.3f}."
    )


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
