"""`dflash-local launch`: start a coding agent, or another client, on a local model."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dflash_local.cli.commands.serve import add_serve_flags
from dflash_local.cli.flags.http_flags import port_of
from dflash_local.cli.launch.program import PROGRAMS, Program
from dflash_local.cli.parser_actions import actions_of
from dflash_local.cli.terminal.notes import aside
from dflash_local.cli.usage import Commands, add_command
from dflash_local.errors import DFlashError, RequestError

if TYPE_CHECKING:
    from dflash_local.cli.launch.server_facts import ServerFacts
    from dflash_local.cli.launch.setup import Place, Setup

EPILOG = """\
examples:
  dflash-local launch claude -hf unsloth/Qwen3-8B-GGUF:Q4_K_M
  dflash-local launch codex -m Qwen3-8B-Q4_K_M.gguf -md Qwen3-8B-DFlash.gguf -- exec "Fix the failing test"
  dflash-local launch opencode                    uses the server that runs
  dflash-local launch qwen --print                what to paste into a shell instead

The server ends with the program, if it was started for it. docs/clients.md has a section for each program.
"""
# Flags of `serve` that also say which key a running server wants, and where it is, unless --url does.
_KEY = frozenset({"api_key", "api_key_file"})
_ADDRESS = frozenset({"host", "port", "api_prefix", "ssl_key_file", "ssl_cert_file"})
_MODELS = ("model", "hf_repo", "models_dir", "models_preset")
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}

_DESCRIPTION = (
    "Start a program with a local model: it is set up for the server at --url or --port, and if none runs there,\n"
    "one is started with the flags of 'serve' that are given."
)


def add_parser(commands: Commands) -> None:
    parser = add_command(
        commands,
        "launch",
        run,
        "start Claude Code, Codex or another program on a local model",
        _DESCRIPTION,
        epilog=EPILOG,
        usage="dflash-local launch PROGRAM [-m TARGET.gguf] [-md DRAFTER.gguf] [flags of serve] [-- arguments]\n       "
        "dflash-local launch PROGRAM --print\n       dflash-local launch --help",
        allow_abbrev=False,
    )
    parser.add_argument("program", metavar="PROGRAM", choices=tuple(PROGRAMS), help=", ".join(PROGRAMS))
    parser.add_argument("--url", metavar="URL", help="a running server (default: the one at --port, if there is one)")
    parser.add_argument("--model-name", metavar="NAME", help="which model, if the server has several")
    parser.add_argument(
        "--any-context", action="store_true", help="start the program even if the context is shorter than it needs"
    )
    parser.add_argument(
        "--print", action="store_true", help="print variables, files and the command for a shell, and start nothing"
    )
    parser.set_defaults(own={action.dest for action in actions_of(parser)})  # all others are flags of `serve`
    add_serve_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Run the program, and return its exit status."""
    program, typed = PROGRAMS[args.program], _serve_flags(args)
    flags = [word for words in typed.values() for word in words]
    url, key = _url(args), _key(args)
    found = _running(url, key)
    if found is not None:
        _refuse_flags(typed, url, args)
    if args.print:
        _print(program, flags, url, key, found, args)
        return 0
    executable = _executable(program)
    if found is not None:
        with _ended_by_signals():
            return _run(program, executable, _place(program, found, url, key, args), args.passed)
    if args.url or not any(getattr(args, name) for name in _MODELS):
        hint = "start it, or leave out --url" if args.url else _name_a_model(args)
        raise RequestError(f"no server runs at {url}" + (", and no model is named" * (not args.url)), hint=hint)
    from dflash_local.cli.launch.launched_server import LaunchedServer

    with _ended_by_signals(), LaunchedServer(flags) as server:
        aside(f"starting 'dflash-local serve {shlex.join(flags)}'; its log is {server.log}")
        facts = server.wait(url, key)
        return _run(program, executable, _place(program, facts, url, key, args), args.passed)


# ---- the command line ----


def _serve_flags(args: argparse.Namespace) -> dict[str, tuple[str, ...]]:
    """The flags of `serve`, as typed, by `dest` in the parser."""
    from dflash_local.cli.flags.router_flags import ServeFlags

    if args.arguments[0] != args.program:
        raise RequestError("the program comes first", hint=f"dflash-local launch {args.program} [flags]")
    typed = ServeFlags(args.parser).typed(args.arguments[1:])
    return {place: words for place, words in typed.items() if place not in args.own}


def _name_a_model(args: argparse.Namespace) -> str:
    from dflash_local.cli.flags.model_flags import NO_MODEL

    return f"{NO_MODEL}: dflash-local launch {args.program} -m TARGET.gguf"


def _url(args: argparse.Namespace) -> str:
    """The server's address, without /v1. Raises RequestError."""
    if args.url:
        url = str(args.url).rstrip("/").removesuffix("/v1")
        if not url.startswith(("http://", "https://")):
            raise RequestError(f"--url {args.url} is no URL", param="--url", hint="such as --url http://127.0.0.1:8080")
        return url
    host = args.host[0]
    if host.endswith(".sock"):
        raise RequestError(f"programs cannot reach the UNIX socket {host}", param="--host", hint="give an address")
    if args.port == 0:
        raise RequestError("--port 0 takes a port that is not known before", param="--port", hint="give a number")
    host = _ANY.get(host, host)
    scheme = "https" if args.ssl_cert_file else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port_of(args)}{args.api_prefix}"


def _key(args: argparse.Namespace) -> str:
    from dflash_local.server.security.api_keys import read_keys

    keys = read_keys(args.api_key, args.api_key_file)
    return keys[0] if keys else "none"


def _executable(program: Program) -> str:
    """Its path. Raises DFlashError if it is not installed."""
    if path := shutil.which(program.command):
        return path
    raise DFlashError(f"{program.title} is not installed: there is no '{program.command}'", hint=program.install)


# ---- the server ----


def _running(url: str, key: str) -> ServerFacts | None:
    """The server that runs already, once it has loaded its model."""
    from dflash_local.cli.launch.server_facts import ServerFacts

    if isinstance(found := ServerFacts.at(url, key), float):
        aside(f"waiting for the server at {url}, which loads its model ({found:.0%})")
    while isinstance(found, float):
        time.sleep(0.5)
        found = ServerFacts.at(url, key)
    return found


def _refuse_flags(typed: Mapping[str, Sequence[str]], url: str, args: argparse.Namespace) -> None:
    """Flags that a running server cannot follow are an error."""
    known = _KEY if args.url else _KEY | _ADDRESS
    if other := [words[0] for place, words in typed.items() if place not in known]:
        raise RequestError(
            f"a server runs at {url}, and {other[0]} is for one that starts",
            param=other[0],
            hint=f"leave it out, or start another server: --port {port_of(args) + 1}",
        )


def _place(program: Program, facts: ServerFacts, url: str, key: str, args: argparse.Namespace) -> Place:
    """Raises RequestError: the context is too short, or the model is unclear."""
    name = facts.named(args.model_name)
    meta = facts.models[name]
    context = meta.get("n_ctx")
    if context is not None and context < program.context and not args.any_context:
        raise RequestError(
            f"{program.title} needs a context of {program.context} tokens, and {name} has {context}: "
            f"{_why(context, meta, args)}",
            param="n_ctx",
            hint="take a model or flags with more ('dflash-local plan' tells), or start it anyway: --any-context",
        )
    return _at(url, name, context or program.context, key)


def _why(context: int, meta: Mapping[str, Any], args: argparse.Namespace) -> str:
    """Why a context is no longer."""
    trained = meta.get("n_ctx_train") or context
    if trained <= context:
        return f"it was trained for {trained}"
    if args.n_ctx:
        return f"-c {args.n_ctx} says so (it was trained for {trained})"
    return f"so its server was started, or more has no room in memory (it was trained for {trained})"


def _at(url: str, model: str, context: int, key: str) -> Place:
    from dflash_local.build.upstream import cache_dir
    from dflash_local.cli.launch.setup import Place

    return Place(url, model, context, key, cache_dir() / "launch")


# ---- the program ----


def _print(
    program: Program, flags: Sequence[str], url: str, key: str, found: ServerFacts | None, args: argparse.Namespace
) -> None:
    if found is None:
        name = args.model_name or (args.alias[0] if args.alias else "local")
        place = _at(url, name, args.n_ctx or program.context, key)
        print(f"# first, in another terminal: dflash-local serve {shlex.join(flags) or '-m TARGET.gguf'}")
    else:
        place = _place(program, found, url, key, args)
    print(*program.setup(place).shell_lines(program.command, args.passed), sep="\n")


def _run(program: Program, executable: str, place: Place, passed: Sequence[str]) -> int:
    """Run the program until it ends."""
    setup: Setup = program.setup(place)
    setup.write_files()
    command = [executable, *setup.arguments, *passed]
    # The terminal sends Ctrl-C to the program, too, which decides what it means.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    process = subprocess.Popen(command, env={**os.environ, **setup.variables})
    try:
        status = process.wait()
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
        signal.signal(signal.SIGINT, before)
    return 128 - status if status < 0 else status


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """The end of this process, or of its terminal, is the end of all that it started."""

    def end(number: int, _frame: object) -> None:
        sys.exit(128 + number)

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        if before[number] != signal.SIG_IGN:  # nohup
            signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
