"""`dflash-local demo`: serves the pocket pair, inflated so that the speed-up is noticeable.

The pair answers small questions, writes small functions and calls tools; it was trained for this project (MIT).
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
import urllib.request
from typing import TYPE_CHECKING

from dflash_local.cli.engine_flags import count

if TYPE_CHECKING:
    from dflash_local.demo.shapes import Pair

SHAPES = ("pocket", "0.1b", "0.6b")
QUESTION = "Write a Python function that finds the largest result."
ALIAS = "pocket"
READY_TIMEOUT = 300.0


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `demo` to the command line."""
    parser = subparsers.add_parser(
        "demo",
        help="talk to a small model, no download needed",
        description="Serves a small model with its drafter at an OpenAI endpoint. The first start inflates the bundled "
        "pair to the shape of a real model (the same answers at a real model's cost), so that the speed-up is "
        "noticeable; later starts find it in the cache.",
    )
    parser.add_argument(
        "--shape", choices=SHAPES, default="0.6b", help="'pocket' is the pair itself (default: %(default)s)"
    )
    parser.add_argument(
        "--type", dest="ftype", choices=("f16", "q4_0", "q4_k_m", "q8_0"), default="q4_0", help="default: %(default)s"
    )
    parser.add_argument(
        "--drafter",
        choices=("dflash", "dflash2", "dflash-small", "dspark", "dspark-first", "hybrid"),
        default="dflash",
        help="'hybrid' is another target (gated delta-net and attention layers) with its own drafter; all but dflash "
        "and dspark need a checkout (default: %(default)s)",
    )
    parser.add_argument("--host", default="127.0.0.1", help="default: %(default)s")
    parser.add_argument("--port", type=count(1), default=8080, help="default: %(default)s")
    parser.add_argument("-t", "--threads", type=count(1), metavar="N", help="CPU threads (default: physical cores)")
    parser.add_argument(
        "--once", action="store_true", help="answer one question plain and drafted, print both speeds, and end"
    )
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from dflash_local import native

    native.load()  # so that a missing library is reported before the models are made
    pair = make_pair(args.shape, args.ftype, args.drafter)
    return once(pair, args.threads) if args.once else serve(pair, args)


def make_pair(shape: str, ftype: str, drafter: str) -> Pair:
    """The pair to serve, made at the first start, with progress."""
    from dflash_local.demo.pocket import bundled_pair, inflated_pair

    if shape == "pocket":
        return bundled_pair(drafter)
    progress = Written(f"preparing the demo model ({shape} shape, {ftype}), once")
    pair = inflated_pair(shape, ftype, drafter, progress=progress)
    progress.end()
    return pair


def once(pair: Pair, threads: int | None) -> int:
    """Answer one question plain and drafted, in this process."""
    from dflash_local.bench import DRAFTED, PLAIN, measure
    from dflash_local.engine import Engine
    from dflash_local.sampling import SamplingParams

    prompt = {"messages": [{"role": "user", "content": QUESTION}]}
    with Engine(pair.target, pair.drafter, n_ctx=2048, n_threads=threads) as engine:
        answer = engine.chat(prompt["messages"], temperature=0.0, max_tokens=200)
        print(f"> {QUESTION}\n\n{answer.text}\n", flush=True)
        report = measure(engine, [prompt], SamplingParams(temperature=0.0), 200, threads=threads)
    plain, drafted = report.summaries[PLAIN], report.summaries[DRAFTED]
    print(f"plain    {plain.tokens_per_second:7.1f} tokens/s")
    print(
        f"drafted  {drafted.tokens_per_second:7.1f} tokens/s, {report.speedup:.1f} times as fast, {drafted.al:.1f} "
        "tokens per target pass"
    )
    print(
        "the same answer both ways" if report.same else "the answers differ where two tokens were almost equally likely"
    )
    return 0


def serve(pair: Pair, args: argparse.Namespace) -> int:
    """Serve the pair until interrupted; once it listens, print how to use it."""
    from dflash_local.cli import main

    threading.Thread(target=_announce, args=(args.host, args.port), daemon=True).start()
    flags = ["-m", str(pair.target), "-md", str(pair.drafter), "--alias", ALIAS, "-c", "4096", "-np", "2"]
    flags += ["--host", args.host, "--port", str(args.port)]
    return main(["serve", *flags, *(["-t", str(args.threads)] if args.threads else [])])


def _announce(host: str, port: int) -> None:
    """Print what to try once the server is ready."""
    url = f"http://{'127.0.0.1' if host == '0.0.0.0' else host}:{port}"
    deadline = time.monotonic() + READY_TIMEOUT
    while time.monotonic() < deadline:
        time.sleep(0.3)
        try:
            with (
                urllib.request.urlopen(f"{url}/health", timeout=2),
                urllib.request.urlopen(f"{url}/v1/models", timeout=2) as models,
            ):
                if f'"{ALIAS}"'.encode() in models.read():  # not another program on this port
                    break
        except OSError:
            continue
    else:
        return
    body = f'{{"messages": [{{"role": "user", "content": "{QUESTION}"}}]}}'
    print(
        f"\nReady. A chat page: {url}\nOr, in another terminal:\n\n  curl {url}/v1/chat/completions -d '{body}'\n",
        flush=True,
    )
    print(
        "'timings' in the answer has the speed and AL, the tokens per pass of the large model. Ctrl-C ends.\n",
        flush=True,
    )


class Written:
    """Prints what takes long, and on a terminal its progress in one line."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._bytes = 0
        self._shown = -1

    def __call__(self, name: str, n_bytes: int) -> None:
        self._bytes += n_bytes
        if self._shown < 0:
            print(self.text, file=sys.stderr, flush=True)
        if (n_chunks := self._bytes >> 26) != self._shown:  # of 64 MiB
            self._shown = n_chunks
            if sys.stderr.isatty():
                print(f"\r  {self._bytes / 2**20:.0f} MiB written ", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._shown >= 0 and sys.stderr.isatty():
            print(file=sys.stderr)
