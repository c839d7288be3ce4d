"""`dflash-local serve`: llama-server's flags, and a few of our own."""

from __future__ import annotations

import argparse
import logging
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dflash_local import __version__
from dflash_local.cli.chat_flags import check_chat_flags
from dflash_local.cli.embeddings import (
    add_embedding_flags,
    check_embedding_flags,
    embedding_settings,
    writes_no_text,
)
from dflash_local.cli.flags import add_engine_flags, add_flag, add_sampling_flags, chat_template, load_engine
from dflash_local.cli.foreign import add_foreign_flags, check_variables
from dflash_local.cli.http_flags import add_http_flags, http_settings
from dflash_local.cli.logs import add_log_flags, set_up_logs
from dflash_local.cli.models import take_models, target_repository
from dflash_local.cli.request_flags import add_request_flags, request_defaults
from dflash_local.cli.router import add_router_flags, is_router, serve_router
from dflash_local.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dflash_local.engine import Engine
    from dflash_local.server.children.parent import Parent
    from dflash_local.server.service import Loader, Settings

EPILOG = """\
examples:
  dflash-local serve -hf unsloth/Qwen3-8B-GGUF:Q4_K_M -c 16384
  dflash-local serve -m Qwen3-8B-Q4_K_M.gguf -md Qwen3-8B-DFlash.gguf -c 16384 -np 2
  dflash-local serve --models-dir MODELS
  curl localhost:8080/v1/chat/completions -d '{"messages": [{"role": "user", "content": "Hello"}]}'

Flags and LLAMA_ARG_* variables are llama-server's where it has them; docs/serving.md lists the endpoints.
"""

log = logging.getLogger(__name__)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `serve` to the command line."""
    parser = subparsers.add_parser(
        "serve",
        help="OpenAI-compatible HTTP server",
        description="Serve a quantized model with its DFlash drafter at an OpenAI-compatible endpoint, and a chat page "
        "at /.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="dflash-local serve -m TARGET.gguf [-md DRAFTER.gguf] [flags]\n       "
        "dflash-local serve [--models-dir DIR] [flags]\n       dflash-local serve --help",
        allow_abbrev=False,
    )
    parser.add_argument("--usage", action="help", help=argparse.SUPPRESS)
    parser.add_argument("--version", action="version", version=f"dflash-local {__version__}")
    add_engine_flags(parser, defaults={"n_slots": -1})
    add_flag(
        parser, "--spec-type", env="LLAMA_ARG_SPEC_TYPE", type=_spec_type, metavar="TYPE",
        help="llama-server's name for the drafter: draft-dflash or draft-dspark, as the file is; none is --draft off",
    )  # fmt: skip
    add_http_flags(parser)
    add_request_flags(parser)
    add_sampling_flags(parser)
    add_embedding_flags(parser)
    add_router_flags(parser)
    add_log_flags(parser)
    add_foreign_flags(parser)
    parser.set_defaults(func=run, parser=parser, foreign_flags={})


def run(args: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM."""
    from dflash_local.native import load, set_log_level
    from dflash_local.server.app import create_app
    from dflash_local.server.process import serve
    from dflash_local.server.sockets import listening, url
    from dflash_local.server.tls import Tls

    parent = _parent(args) if args.parent_pipes else None
    native_level = set_up_logs(args)
    for note in check_variables(args.parser, args.foreign_flags, os.environ):
        log.warning("%s", note)
    check_embedding_flags(args)
    if is_router(args):
        return serve_router(args, make_settings(args))
    writes = not writes_no_text(args)
    if args.spec_type == "none" or not writes:
        args.draft = "off"
    repository = target_repository(args) if writes or args.embedding or args.rerank else None
    settings, tls = make_settings(args), Tls.of(args.ssl_key_file, args.ssl_cert_file)
    load()  # a missing library is told now, neither after a download nor after the socket is open
    chat_template(args)  # and so is a broken template
    if repository or args.model:
        take_models(args)
    names = settings.aliases or (repository or Path(args.model or "").name,)
    settings = replace(
        settings, alias=names[0], aliases=names, model_path=args.model or "", **embedding_settings(args, names[0])
    )
    set_log_level(native_level)
    app = create_app(_loader(args, settings) if writes else None, settings)
    if parent is not None:
        app.state.service.tell = parent.say
    models = ", ".join(str(model) for model in (args.model, args.embedding_model, args.rerank_model) if model)
    with listening(args.host, args.port, reuse_port=args.reuse_port) as sockets:
        urls = ", ".join(url(sock, "https" if tls else "http") + settings.api_prefix for sock in sockets)
        serve(
            app,
            sockets,
            drain_timeout=args.drain_timeout,
            tls=tls,
            on_ready=lambda: log.info("listening on %s, loading %s", urls, models),
            parent=parent,
        )
    return 0


def _parent(args: argparse.Namespace) -> Parent:
    """The router that started this process. If it was killed, this removes what it left behind: the socket, and the
    folder around it once that is empty."""
    from dflash_local.server.children.parent import Parent

    def clean_up() -> None:
        for path in map(Path, args.host):
            with suppress(OSError):
                path.unlink(missing_ok=True)
                path.parent.rmdir()

    parent = Parent()
    parent.on_gone = clean_up
    parent.obey()
    return parent


def _loader(args: argparse.Namespace, settings: Settings) -> Loader:
    def load(progress: Callable[[float], bool]) -> Engine:
        engine = load_engine(args, progress=progress, max_queue=args.max_queue)
        try:
            check_chat_flags(engine, settings.defaults.chat)
        except RequestError:
            engine.close()
            raise
        return engine

    return load


def _spec_type(text: str) -> str:
    if text in ("none", "draft-dflash", "draft-dspark"):
        return text
    if text.startswith("ngram"):
        raise argparse.ArgumentTypeError(f"{text} is not here: --lookup on drafts from the prompt, and is the default")
    raise argparse.ArgumentTypeError(
        f"must be none, draft-dflash or draft-dspark, got {text!r}: drafters are DFlash models ('dflash-local pairs')"
    )


def make_settings(args: argparse.Namespace) -> Settings:
    """The HTTP side of the flags.

    Raises:
        RequestError: a file cannot be read, or a value is malformed.
    """
    return replace(http_settings(args), defaults=request_defaults(args))
