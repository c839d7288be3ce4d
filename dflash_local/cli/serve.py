"""`dflash-local serve`: llama-server's flags, and a few of our own."""

from __future__ import annotations

import argparse
import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflash_local.cli.embeddings import (
    add_embedding_flags,
    check_embedding_flags,
    embedding_settings,
    writes_no_text,
)
from dflash_local.cli.flags import add_engine_flags, add_flag, add_sampling_flags, count, load_engine, sampling_options
from dflash_local.cli.models import take_models, target_repository
from dflash_local.errors import RequestError

if TYPE_CHECKING:
    from dflash_local.server.service import Loader, Settings

EPILOG = """\
examples:
  dflash-local serve -hf unsloth/Qwen3-8B-GGUF:Q4_K_M -c 16384
  dflash-local serve -m Qwen3-8B-Q4_K_M.gguf -md Qwen3-8B-DFlash.gguf -c 16384 -np 2
  curl localhost:8080/v1/chat/completions -d '{"messages": [{"role": "user", "content": "Hello"}]}'

Flags and LLAMA_ARG_* variables are llama-server's where it has them; docs/serving.md lists the endpoints.
"""

# Flags of llama-server that change nothing here. They are accepted so that its command lines work.
IGNORED_SWITCHES = (
    "--jinja", "--metrics", "--ui", "--webui", "--slots", "-cb", "--cont-batching", "--no-context-shift", "--no-mmproj",
    "--perf", "--no-perf", "--prefill-assistant", "--log-disable",
)  # fmt: skip
IGNORED_OPTIONS = (
    "--threads-http",
    "--spec-type",
    "--cache-reuse",
    "-to",
    "--timeout",
    "-sps",
    "--slot-prompt-similarity",
)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `serve` to the command line."""
    parser = subparsers.add_parser(
        "serve",
        help="OpenAI-compatible HTTP server",
        description="Serve a quantized model with its DFlash drafter at an OpenAI-compatible endpoint, and a chat page "
        "at /.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_engine_flags(parser)

    http = parser.add_argument_group("HTTP")
    add_flag(
        http,
        "--host",
        env="LLAMA_ARG_HOST",
        default="127.0.0.1",
        metavar="HOST",
        help="address to listen on (default: 127.0.0.1)",
    )
    add_flag(
        http,
        "--port",
        env="LLAMA_ARG_PORT",
        type=count(),
        default=8080,
        metavar="N",
        help="port; 0 takes a free one (default: 8080)",
    )
    add_flag(
        http,
        "-a",
        "--alias",
        env="LLAMA_ARG_ALIAS",
        metavar="NAME",
        help="the model's name in the API (default: its file name)",
    )
    add_flag(
        http, "--api-key", env="LLAMA_API_KEY", metavar="KEY[,KEY]", help="keys that clients must show (default: none)"
    )
    add_flag(
        http, "--api-key-file", env="LLAMA_ARG_API_KEY_FILE", type=Path, metavar="FILE", help="file with one key a line"
    )
    add_flag(
        http, "--cors-origins", env="LLAMA_ARG_CORS_ORIGINS", default="*", metavar="LIST",
        help="comma-separated origins that browsers may call from (default: *)",
    )  # fmt: skip
    add_flag(http, "--ssl-key-file", env="LLAMA_ARG_SSL_KEY_FILE", metavar="FILE", help="PEM private key, for HTTPS")
    add_flag(http, "--ssl-cert-file", env="LLAMA_ARG_SSL_CERT_FILE", metavar="FILE", help="PEM certificate, for HTTPS")
    http.add_argument(
        "--max-queue", type=count(), default=64, metavar="N", help="requests that may wait for a slot (default: 64)"
    )
    http.add_argument(
        "--drain-timeout", type=float, default=60.0, metavar="SECONDS",
        help="how long running requests may take to finish after SIGTERM (default: 60)",
    )  # fmt: skip
    http.add_argument(
        "--max-body", type=count(1), default=64, metavar="MIB", help="largest request body in MiB (default: 64)"
    )
    add_flag(
        http, "--sse-ping-interval", env="LLAMA_ARG_SSE_PING_INTERVAL", type=count(-1), default=30, metavar="SECONDS",
        help="a stream that is silent for so long is pinged; -1: never (default: 30)",
    )  # fmt: skip
    http.add_argument("--no-webui", "--no-ui", dest="webui", action="store_false", help="no chat page at /")
    http.add_argument("--no-slots", dest="slots", action="store_false", help="no /slots endpoint")
    http.add_argument(
        "--strict-fields", action="store_true",
        help="refuse requests with unknown fields (default: name them in the header X-DFlash-Ignored)",
    )  # fmt: skip

    requests = parser.add_argument_group("requests", "defaults for requests that do not say")
    add_flag(
        requests, "-n", "--predict", "--n-predict", env="LLAMA_ARG_N_PREDICT", type=count(-1), default=-1, metavar="N",
        help="most new tokens (default: until the context is full)",
    )  # fmt: skip
    add_flag(
        requests, "--reasoning-format", env="LLAMA_ARG_THINK", default="auto", metavar="none|auto|deepseek",
        help="where thoughts go: none leaves them in the text (default: auto)",
    )  # fmt: skip
    add_flag(
        requests, "--chat-template-kwargs", env="LLAMA_ARG_CHAT_TEMPLATE_KWARGS", metavar="JSON",
        help="""more variables for the chat template, such as '{"enable_thinking": false}'""",
    )  # fmt: skip
    add_sampling_flags(parser)
    add_embedding_flags(parser)

    parser.add_argument("-v", "--verbose", action="store_true", help="log what llama.cpp says")
    for name in IGNORED_SWITCHES:
        parser.add_argument(name, dest="_ignored", action="store_true", help=argparse.SUPPRESS)
    for name in IGNORED_OPTIONS:
        parser.add_argument(name, dest="_ignored", help=argparse.SUPPRESS)
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM."""
    from dflash_local.native import load, set_log_level
    from dflash_local.server.app import create_app
    from dflash_local.server.process import listen, serve

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    check_embedding_flags(args)
    writes = not writes_no_text(args)
    repository = target_repository(args) if writes or args.embedding or args.rerank else None
    settings = make_settings(args)
    load()  # a missing library is told now, neither after a download nor after the socket is open
    if not writes:
        args.draft = "off"
    if repository or args.model:
        take_models(args)
    name = args.alias or repository or Path(args.model or "").name
    settings = replace(settings, alias=name, model_path=args.model or "", **embedding_settings(args, name))
    set_log_level(logging.INFO if args.verbose else logging.WARNING)
    app = create_app(_loader(args) if writes else None, settings)
    models = ", ".join(str(model) for model in (args.model, args.embedding_model, args.rerank_model) if model)
    with listen(args.host, args.port) as sock:
        scheme = "https" if args.ssl_cert_file else "http"
        host = f"[{args.host}]" if ":" in args.host else args.host
        url = f"{scheme}://{host}:{sock.getsockname()[1]}"
        serve(
            app,
            sock,
            drain_timeout=args.drain_timeout,
            ssl_key=args.ssl_key_file,
            ssl_cert=args.ssl_cert_file,
            on_ready=lambda: logging.getLogger(__name__).info("listening on %s, loading %s", url, models),
        )
    return 0


def _loader(args: argparse.Namespace) -> Loader:
    return lambda progress: load_engine(args, progress=progress, max_queue=args.max_queue)


def make_settings(args: argparse.Namespace) -> Settings:
    """The HTTP side of the flags.

    Raises:
        RequestError: a file cannot be read, or a value is malformed.
    """
    from dflash_local.server.fields.request import Defaults
    from dflash_local.server.service import Settings

    keys = (args.api_key or "").split(",")
    if args.api_key_file:
        try:
            keys += args.api_key_file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise RequestError(f"cannot read the API keys: {error}", param="--api-key-file") from None
    chat: dict[str, Any] = {"reasoning_format": args.reasoning_format}
    if args.chat_template_kwargs:
        chat["chat_template_kwargs"] = _json_object(args.chat_template_kwargs)
    return Settings(
        alias=args.alias or Path(args.model or "").name,
        model_path=args.model or "",
        api_keys=tuple(key.strip() for key in keys if key.strip()),
        cors_origins=tuple(origin.strip() for origin in args.cors_origins.split(",")),
        defaults=Defaults(sampling_options(args), args.predict, chat, args.sse_ping_interval),
        max_body=args.max_body * 2**20,
        webui=args.webui,
        slots_endpoint=args.slots,
        strict_fields=args.strict_fields,
    )


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise RequestError(
            f"--chat-template-kwargs is not valid JSON: {error}", param="--chat-template-kwargs"
        ) from None
    if not isinstance(value, dict):
        raise RequestError("--chat-template-kwargs must be a JSON object", param="--chat-template-kwargs")
    return value
