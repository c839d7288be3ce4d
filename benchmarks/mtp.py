"""Next-token (MTP) layers as drafters: ours against upstream's, beside a DFlash drafter, both together, and plain
decoding.

Usage: python benchmarks/mtp.py [--target hybrid] [--shape 0.6b] [--type q4_0] [--temperatures 0 1]

The target is a pocket target with its MTP layer, inflated: the hybrid one, or the dense one as hy_v3. All servers are
resident and take turns at every prompt.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the package `benchmarks`

from benchmarks import pairs, record
from benchmarks.systems import PLAIN, Systems, common_flags, our_server, upstream_server
from dflash_local.build import peer
from dflash_local.demo.pocket import HYBRID
from dflash_local.demo.shapes import TYPES, Pair

OURS_PLAIN, OURS_MTP, OURS_DFLASH, OURS_BOTH = (f"dflash-local, {name}" for name in ("plain", "mtp", "dflash", "both"))
MTP_LENGTHS = (2, 4, 8, 12)
# Upstream's graph of hy_v3 gives out no layers' inputs, and its server ends when a drafter asks for them.
DFLASH_LENGTHS: dict[str, tuple[int, ...]] = {"hybrid": (7, 15), "dense": ()}
DRAFTERS = {"hybrid": HYBRID, "dense": "dflash"}  # of each target
N_CTX = 1024
OVER_BEST, OVER_PLAIN = 1.3, 0.99  # of upstream's best MTP, and of our own plain speed


@dataclass
class Speed:
    """What one system did over all prompts of one repeat."""

    tokens: int
    seconds: float
    passes: int

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds

    @property
    def acceptance(self) -> float:
        return self.tokens / max(1, self.passes)


def upstream(kind: str, n_max: int) -> str:
    return f"upstream {kind} {n_max}"


def commands(pair: Pair, bins: Path, threads: int, dflash_lengths: Sequence[int]) -> dict[str, list[str]]:
    """argv of every system."""
    common, drafter = common_flags(pair.target, N_CTX, threads), ["-md", str(pair.drafter)]

    def theirs(kind: str, n_max: int, *flags: str) -> list[str]:
        return upstream_server(bins, common, *flags, "--spec-type", f"draft-{kind}", "--spec-draft-n-max", str(n_max))

    ours = ("--no-cost-cache", "--lookup", "off")
    return {
        PLAIN: upstream_server(bins, common),
        **{upstream("mtp", n): theirs("mtp", n) for n in MTP_LENGTHS},
        **{upstream("dflash", n): theirs("dflash", n, *drafter) for n in dflash_lengths},
        OURS_PLAIN: our_server(common, *ours, "--draft", "off"),
        OURS_MTP: our_server(common, *ours, "--draft-kind", "mtp"),
        OURS_DFLASH: our_server(common, *ours, *drafter, "--draft-kind", "dflash"),
        OURS_BOTH: our_server(common, *ours, *drafter),
    }


def measure(systems: Systems, bodies: Sequence[dict[str, Any]], repeat: int) -> dict[str, Speed]:
    """One repeat: all systems answer each request in turn."""
    return {
        name: Speed(
            tokens=sum(answer.n_tokens - 1 for answer in answers),
            seconds=sum(answer.generate for answer in answers),
            passes=sum(answer.passes for answer in answers),
        )
        for name, answers in systems.answers(bodies, repeat * len(bodies)).items()
    }


def row(temperature: float, repeats: Sequence[Mapping[str, Speed]]) -> dict[str, Any]:
    """One temperature's line: medians over the repeats."""
    rates = {name: statistics.median(speeds[name].rate for speeds in repeats) for name in repeats[0]}
    lengths = {name: statistics.median(speeds[name].acceptance for speeds in repeats) for name in repeats[0]}
    best = max((upstream("mtp", n) for n in MTP_LENGTHS), key=rates.__getitem__)
    return {
        "temperature": temperature, "rates": rates, "acceptance": lengths, "best": best,
        "over_best": rates[OURS_MTP] / rates[best],
        "over_plain": min(rates[name] for name in (OURS_MTP, OURS_DFLASH, OURS_BOTH)) / rates[OURS_PLAIN],
        "all": [{name: asdict(speed) for name, speed in speeds.items()} for speeds in repeats],
    }  # fmt: skip


def _verdict(ratio: float, least: float) -> str:
    return f"{ratio:.2f} ({record.verdict(ratio >= least)}: at least {least})"


def markdown(rows: Sequence[Mapping[str, Any]], footer: str) -> str:
    names = list(rows[0]["rates"])
    head = ["system", *(f"tok/s at {r['temperature']:g} (AL)" for r in rows)]
    lines = [[name, *(f"{r['rates'][name]:.1f} ({r['acceptance'][name]:.2f})" for r in rows)] for name in names]
    verdicts = [
        f"At {r['temperature']:g}: our MTP over upstream's best ({r['best'].removeprefix('upstream ')}) "
        f"{_verdict(r['over_best'], OVER_BEST)}; the least of ours over our own plain "
        f"{_verdict(r['over_plain'], OVER_PLAIN)}."
        for r in rows
    ]
    return f"{record.table(head, lines)}\n\n{' '.join(verdicts)} {footer}\n"


def main(argv: Sequence[str] | None = None) -> int:
    ap = record.parser(__doc__, "mtp", n_predict=128, repeats=3, limit=6)
    ap.add_argument("--target", choices=DRAFTERS, default="hybrid", help="default: %(default)s")
    ap.add_argument("--shape", default="0.6b", help="of the inflated pair: 0.1b, 0.6b or 4b (default: %(default)s)")
    ap.add_argument("--type", choices=TYPES, default="q4_0", dest="ftype", help="quantization (default: %(default)s)")
    record.add_temperatures_option(ap, 0.0, 1.0)
    record.add_work_option(ap)
    args = ap.parse_args(argv)
    table = record.Table(ap, args, markdown)
    prompts, bins = record.read_prompts(args.prompts, args.limit), peer.build()
    pair = pairs.make_with_mtp(args.work, args.shape, args.ftype, DRAFTERS[args.target])
    with Systems(commands(pair, bins, args.threads, DFLASH_LENGTHS[args.target])) as systems:
        systems.warm_up(record.requests(prompts[:1], 8, 0.0))
        for temperature in args.temperatures:
            repeats = [
                measure(systems, record.requests(prompts, args.n_predict, temperature, repeat), repeat)
                for repeat in range(args.repeats)
            ]
            table.add(row(temperature, repeats))
            record.say(f"{temperature:g}: {table.rows[-1]['rates']}")
    return table.show()


if __name__ == "__main__":
    record.run(main)
