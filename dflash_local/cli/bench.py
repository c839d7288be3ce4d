"""`dflash-local bench`: what the drafter brings on one's own prompts."""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from dflash_local.bench import DEFAULT_PROMPTS, FORMATS, measure, read_prompts, user_message
from dflash_local.cli.flags import add_engine_flags, add_sampling_flags, count, load_engine, sampling_options
from dflash_local.errors import RequestError


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `bench` to the command line."""
    parser = subparsers.add_parser(
        "bench",
        help="measure what the drafter brings on your prompts",
        description="Answers the prompts plain and drafted, in turns, and prints tokens per second, speed-up, "
        "acceptance length (AL: tokens after the first over target passes after the prompt's), acceptance by position, "
        "time to first token, and what the budget controller chose: nodes, block lengths, reasons, reuse of graphs, "
        "time per phase.",
    )
    parser.add_argument(
        "-p",
        "--prompts",
        type=Path,
        metavar="FILE",
        help="one prompt a line: text, or JSON with 'messages' or 'prompt'",
    )
    parser.add_argument(
        "-n",
        "--predict",
        dest="n_predict",
        type=count(1),
        default=100,
        metavar="N",
        help="most new tokens (default: 100)",
    )
    parser.add_argument(
        "--repeat", type=count(1), default=3, metavar="N", help="repeats, plain and drafted in turns (default: 3)"
    )
    parser.add_argument("--format", choices=FORMATS, default="md", help="default: md")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write there instead of to the screen")
    parser.add_argument(
        "--trace",
        type=Path,
        metavar="FILE",
        help="write every step of the drafted answers there, one JSON object a line",
    )
    add_engine_flags(parser)
    add_sampling_flags(parser)
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    prompts = (
        read_prompts(args.prompts) if args.prompts else [{"messages": user_message(text)} for text in DEFAULT_PROMPTS]
    )
    sampling = sampling_options(args)
    if args.sampling_temperature is None:
        sampling = replace(sampling, temperature=0.0)  # without chance in it, a speed-up needs fewer repeats
    try:
        trace = args.trace.open("w", encoding="utf-8") if args.trace else None
    except OSError as error:
        raise RequestError(f"cannot write {args.trace}: {error.strerror}", param="--trace") from None
    with trace or nullcontext(), load_engine(args) as engine:
        report = measure(
            engine, prompts, sampling, args.n_predict, args.repeat, args.budget, threads=args.n_threads, trace=trace
        )
    text = FORMATS[args.format](report)
    if args.output:
        args.output.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    return 0
