"""`dflash-local serve`: llama-server's flags, and a few of our own."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dflash_local.cli.command import Commands, add_command
from dflash_local.cli.flags.adapt_flags import check_adapt_flags
from dflash_local.cli.flags.embedding_flags import check_embedding_flags
from dflash_local.cli.flags.foreign import check_config_files, check_variables
from dflash_local.cli.flags.logs import set_up_logs
from dflash_local.cli.flags.replica_flags import check_replica_flags, refuse_replicas
from dflash_local.cli.flags.serve_flags import ServeFlags, add_serve_flags, check_record_flags, is_router
from dflash_local.cli.serving.serve_app import bound_sockets, check_flags, early_app, make_settings, serve_at
from dflash_local.process_memory import collect_rarely, return_large_blocks

if TYPE_CHECKING:
    from dflash_local.server.children.parent import Parent
    from dflash_local.server.tls import Tls

EPILOG = """\
examples:
  dflash-local serve -hf unsloth/Qwen3-8B-GGUF:Q4_K_M -c 16384
  dflash-local serve -m Qwen3-8B-Q4_K_M.gguf -md Qwen3-8B-DFlash.gguf -c 16384 -np 2
  dflash-local serve -m ollama:llama3.2:3b     (a name that 'dflash-local models' lists)
  dflash-local serve --models-dir MODELS
  curl localhost:8080/v1/chat/completions -d '{"messages": [{"role": "user", "content": "Hello"}]}'

Flags and LLAMA_ARG_* variables are llama-server's where it has them; docs/serving.md lists the endpoints.
"""

log = logging.getLogger(__name__)

_DESCRIPTION = "Serve a quantized model with its DFlash drafter at an OpenAI-compatible endpoint, and a chat page at /."


def add_parser(commands: Commands) -> None:
    parser = add_command(
        commands,
        "serve",
        ServeFlags,
        run,
        "OpenAI-compatible HTTP server",
        _DESCRIPTION,
        epilog=EPILOG,
        usage="dflash-local serve -m TARGET.gguf [-md DRAFTER.gguf] [flags]\n       "
        "dflash-local serve [--models-dir DIR] [flags]\n       dflash-local serve --help",
    )
    add_serve_flags(parser)


def run(args: ServeFlags) -> int:
    """Serve until SIGINT or SIGTERM."""
    # pydantic looks for plugins in the metadata of all that is installed, when the first class is built.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    return_large_blocks()
    parent = _parent(args) if args.parent_pipes else None
    native_level = set_up_logs(args)
    for note in check_variables(args.line.parser, args.foreign_flags, os.environ):
        log.warning("%s", note)
    if not args.parent_pipes:  # or its parent tells
        for note in check_config_files(os.environ):
            log.warning("%s", note)
    check_embedding_flags(args)
    if is_router(args):
        refuse_replicas(args)
        check_adapt_flags(args, several=True)
        from dflash_local.cli.serving.serve_router import serve_router

        return serve_router(args, make_settings(args))
    check_replica_flags(args)
    check_record_flags(args)
    check_adapt_flags(args)
    if args.replicas:
        from dflash_local.cli.serving.serve_replicas import serve_replicas

        return serve_replicas(args)
    if not args.writes_no_text:  # until the engine is there
        collect_rarely()
    tls = _tls(args)
    check_flags(args)
    with bound_sockets(args) as sockets, early_app(args, native_level) as app:
        if parent is not None:
            app.state.service.life.tell = parent.say
        target = app.state.service.settings.model_path
        models = ", ".join(str(model) for model in (target, args.embedding_model, args.rerank_model) if model)
        return serve_at(sockets, args, app, tls, f"loading {models}", parent)


def _tls(args: ServeFlags) -> Tls | None:
    """The certificate, if there is to be one. Raises RequestError."""
    if not (args.ssl_key_file or args.ssl_cert_file):
        return None
    from dflash_local.server.tls import Tls

    return Tls.of(args.ssl_key_file, args.ssl_cert_file)


def _parent(args: ServeFlags) -> Parent:
    """The router that started this process. If it was killed, the socket is removed, and its folder once empty."""
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
