"""`dflash-local chat`: talk to a pair, or to a running server, in the terminal."""

from __future__ import annotations

import argparse
import json

from dflash_local.cli.chat.backends import local, remote
from dflash_local.cli.chat.repl import HELP, Chat
from dflash_local.cli.flags.engine_flags import add_engine_flags, add_sampling_flags, load_engine, sampling_options
from dflash_local.cli.flags.model_flags import NO_MODEL, take_models
from dflash_local.cli.flags.values import count
from dflash_local.cli.terminal.notes import aside
from dflash_local.cli.usage import Commands, add_command
from dflash_local.errors import RequestError

_DESCRIPTION = "Chat with a model in the terminal; after each answer, its speed and AL (tokens per pass of the target)."


def add_parser(commands: Commands) -> None:
    parser = add_command(
        commands,
        "chat",
        run,
        "chat in the terminal",
        _DESCRIPTION,
        epilog="commands inside the chat:\n" + HELP,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--url",
        metavar="URL",
        help="talk to a running server, such as http://127.0.0.1:8080, instead of loading a model",
    )
    parser.add_argument("--api-key", metavar="KEY", help="the server's key")
    parser.add_argument("--system", metavar="TEXT", help="system prompt")
    parser.add_argument(
        "-n", "--predict", type=count(-1), default=-1, metavar="N", help="most tokens per answer (default: no limit)"
    )
    parser.add_argument(
        "--show",
        choices=("text", "drafts"),
        default="text",
        help="drafts: tint what was drafted, by whom and how deep, show what the last pass refused, and tell more "
        "after each answer (default: text)",
    )
    add_engine_flags(parser)
    add_sampling_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Chat until /exit or the end of input."""
    settings = json.loads(sampling_options(args).to_json()) | {"max_tokens": args.predict}
    if args.url:
        return Chat(remote(args.url, args.api_key), settings, args.system, args.show == "drafts").loop()
    if not args.model and not args.hf_repo:
        raise RequestError("no model to chat with", hint=f"{NO_MODEL}, or --url of a running server")
    models = take_models(args)
    aside("loading ...")
    with load_engine(args, models) as engine:
        return Chat(local(engine), settings, args.system, args.show == "drafts").loop()
