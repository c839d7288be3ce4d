"""The command: unpack the bundle, then run the parts within their time limits, the most important first."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from benchmarks.gpu_proof import device, parts, summary
from benchmarks.gpu_proof.inflater import Inflater
from benchmarks.gpu_proof.runner import STOP_SECONDS, Clock, Outcome, run_parts
from benchmarks.gpu_proof.unpacked import BundleError, unpack

REPO = Path(__file__).resolve().parents[2]
BUNDLE, WORK = REPO / "build" / "bundle", REPO / "build" / "gpu-proof"
RESULTS = REPO / "benchmarks" / "results" / "gpu"
OWN_FOLDER = "gpu-proof-pairs"  # in the one of --pairs, where other programs have theirs


def parser() -> argparse.ArgumentParser:
    ap = argparse.ArgumentParser(prog="make gpu-proof", description="Prove a GPU: docs/gpu.md.")
    ap.add_argument("--from", dest="source", type=Path, default=BUNDLE, metavar="DIR", help="the bundle (build/bundle)")
    ap.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: a rehearsal, with small shapes")
    ap.add_argument(
        "--minutes", type=float, default=12.0, metavar="N", help="all of it ends within these (12; all they need: 35)"
    )
    ap.add_argument("--only", nargs="+", metavar="PART", help="these parts alone")
    ap.add_argument("--again", action="store_true", help="parts that are done, too")
    ap.add_argument(
        "--limit", nargs="+", default=[], type=limit, metavar="PART=SECONDS", help="other limits than the parts' own"
    )
    ap.add_argument("-t", "--threads", type=int, default=2, metavar="N", help="CPU threads of every server and engine")
    ap.add_argument(
        "-o", "--out", type=Path, metavar="DIR", help="results (benchmarks/results/gpu; cpu: build/gpu-proof/results)"
    )
    ap.add_argument("--pairs", type=Path, default=WORK / "pairs", metavar="DIR", help="inflated pairs: a fast disk")
    ap.add_argument(
        "--list", action="store_true", help="only say what would run, with the limits if each part takes all of its own"
    )
    return ap


def limit(text: str) -> tuple[str, float]:
    name, _, seconds = text.rpartition("=")
    return name, float(seconds)


def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    clock = Clock(60 * args.minutes - STOP_SECONDS)
    out = (args.out or (RESULTS if args.device == "cuda" else WORK / "results")).resolve()
    plan = parts.plan(args.device, out, args.threads, dict(args.limit), args.minutes)
    if unknown := {*(args.only or ()), *(name for name, _ in args.limit)} - {part.name for part in plan}:
        print(f"error: there is no part {', '.join(sorted(unknown))}; there is {', '.join(p.name for p in plan)}")
        return 2
    if args.list:
        chosen = [part for part in plan if not args.only or part.name in args.only]
        limits = parts.shares(chosen, clock.left)
        print(*(f"{s:5.0f} s  {part.name}: {part.what}" for part, s in zip(chosen, limits, strict=True)), sep="\n")
        return 0
    try:
        unpacked = unpack(args.source, WORK, REPO)
        found = device.look(args.device, unpacked.libraries, unpacked.flags)
        environment = unpacked.environment(args.device, found.libraries)
        device.check_seen(parts.SIZES[args.device].backend, environment)
    except (BundleError, device.DeviceError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    titles = [part.title for part in plan]
    record = summary.Record(out, args.device, unpacked.key, found, titles, unpacked.native)
    print(f"{found.text}\nthe bundle's native code is {unpacked.native}", flush=True)
    chosen = [part for part in plan if args.again or not record.is_done(part.name)]
    chosen = [part for part in chosen if not args.only or part.name in args.only]
    pairs = [part.pair for part in chosen if part.pair]
    with Inflater(pairs, args.pairs.resolve() / OWN_FOLDER, environment, out / "logs") as inflater:

        def tell(outcome: Outcome) -> None:
            record.add(outcome, inflater.seconds)

        outcomes = run_parts(chosen, clock, environment, inflater, out / "logs", tell)
    print(f"\n{record.text()}\n{out / 'summary.md'}")
    return 0 if all(outcome.status == Outcome.DONE for outcome in outcomes) else 1


def end_on_signals() -> None:
    """Parts have their own process groups, and would live on. A signal that is ignored (nohup) stays so."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda number, _: sys.exit(128 + number))


if __name__ == "__main__":
    end_on_signals()
    sys.exit(main())
