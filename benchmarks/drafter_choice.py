"""What it costs to have two drafters: with fixed pass times, so that nothing but the controller's choices counts.

Usage: python benchmarks/drafter_choice.py [--mtp-ms 1.0 1.8] [--temperatures 0 1]

The pocket hybrid answers with its MTP layer alone, with its DFlash drafter alone, and with both. Every target pass and
drafter pass costs what a table says (about the shape 0.6b in Q4_0 on two cores), so the sums are the same everywhere.
The temperatures take turns in one engine: what was learned in one round is there in the next.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the package `benchmarks`

from benchmarks import record
from benchmarks.pass_times import FIXED_COSTS, Curve, PassTimes
from dflash_local import Engine, SamplingParams
from dflash_local.demo.pocket import HYBRID, bundled_pair, with_mtp
from dflash_local.draft_options import DraftKind

VERIFY: Curve = {1: 18, 2: 18.5, 4: 20, 8: 24, 12: 29, 16: 33, 24: 44, 32: 55, 64: 100}
DFLASH: Curve = {4: 3.0, 8: 4.0, 12: 5.0, 16: 6.0}
MTP_LENGTHS = (4, 8, 12, 16, 17)
KINDS: tuple[DraftKind, ...] = ("mtp", "dflash", "auto")
WITHIN = 0.03  # of the better one alone


def pass_times(drafts: Sequence[Curve]) -> PassTimes:
    return PassTimes(VERIFY, drafts)


def measure(
    kind: DraftKind, mtp_ms: float, folder: Path, prompts: Sequence[Any], temperatures: Sequence[float], n_predict: int
) -> list[float]:
    """Milliseconds per token of each round."""
    mtp = {n: (n - 1) * mtp_ms for n in MTP_LENGTHS}
    drafts: list[Curve] = [*([DFLASH] if kind != "mtp" else []), *([mtp] if kind != "dflash" else [])]
    costs, drafter = folder / "costs.json", None if kind == "mtp" else bundled_pair(HYBRID).drafter
    times = pass_times(drafts)
    times.write(costs)
    rounds = []
    with Engine(folder / "target.gguf", drafter, n_ctx=1024, n_threads=1, lookup=False, draft_kind=kind,
                cost_cache=costs) as engine:  # fmt: skip
        for number, temperature in enumerate(temperatures):
            ms, n_tokens = 0.0, 0
            for seed, messages in enumerate(prompts):
                prompt = engine.apply_chat({"messages": messages}).prompt
                sampling = SamplingParams(temperature=temperature, seed=100 * number + seed, ignore_eos=temperature > 0)
                answer = engine.generate(prompt, sampling, max_tokens=n_predict, trace=True, return_drafts=True)
                ms, n_tokens = ms + times.milliseconds(answer.steps), n_tokens + len(answer.tokens) - 1
            rounds.append(ms / n_tokens)
    return rounds


def markdown(rows: Sequence[Mapping[str, Any]], footer: str) -> str:
    head = ["ms of an MTP pass", "temperature", "MTP", "DFlash", "both", "both, to the better one"]
    lines = [
        [f"{r['mtp_ms']:g}", f"{r['temperature']:g}", *(f"{r[kind]:.2f}" for kind in KINDS),
         f"{r['over']:+.1%} ({record.verdict(r['over'] <= WITHIN)})"]
        for r in rows
    ]  # fmt: skip
    return f"{record.table(head, lines)}\n\nModelled milliseconds per token. {footer}\n"


def main(argv: Sequence[str] | None = None) -> int:
    os.environ[FIXED_COSTS] = "1"
    ap = record.parser(__doc__, "drafter_choice", n_predict=96, repeats=2, limit=28)
    ap.add_argument("--mtp-ms", type=float, nargs="+", default=[1.0, 1.8], help="of one MTP pass (default: 1.0 1.8)")
    record.add_temperatures_option(ap, 0.0, 1.0)
    args = ap.parse_args(argv)
    table = record.Table(ap, args, markdown)
    temperatures = args.temperatures * args.repeats
    prompts = [prompt["messages"] for prompt in record.read_prompts(args.prompts, args.limit)]
    with TemporaryDirectory() as name:
        with_mtp(HYBRID, Path(name) / "target.gguf")
        for mtp_ms in args.mtp_ms:
            rounds: dict[str, list[float]] = {
                kind: measure(kind, mtp_ms, Path(name), prompts, temperatures, args.n_predict) for kind in KINDS
            }
            for i, temperature in enumerate(temperatures):
                found = {kind: times[i] for kind, times in rounds.items()}
                over = found["auto"] / min(found["mtp"], found["dflash"]) - 1
                table.add({"mtp_ms": mtp_ms, "temperature": temperature, **found, "over": over})
    return table.show()


if __name__ == "__main__":
    record.run(main)
