"""Flags of `serve` about HTTP: addresses, access, endpoints and limits."""

from __future__ import annotations

import argparse
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflash_local.cli.flags.flag import Flags, Joined, Merged, flag
from dflash_local.cli.flags.values import amount, count, json_object, path_text, read_text
from dflash_local.cli.typed_path import is_folder
from dflash_local.errors import RequestError
from dflash_local.media.media_hosts import MediaHosts
from dflash_local.server_address import is_loopback
from dflash_local.words import MIB

if TYPE_CHECKING:
    from dflash_local.server.settings import Settings

log = logging.getLogger(__name__)

PORT, OLLAMA_PORT = 8080, 11434
_ALL = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # addresses of all interfaces, and this machine's own


def _hosts(text: str) -> tuple[str, ...]:
    hosts = tuple(host.strip().strip("[]") for host in text.split(",") if host.strip())
    if not hosts:
        raise argparse.ArgumentTypeError("needs at least one address")
    return hosts


def _media_hosts(text: str) -> MediaHosts:
    try:
        return MediaHosts.of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _names(text: str) -> tuple[str, ...]:
    return tuple(sorted({name.strip() for name in text.split(",")} - {""}))


def _prefix(text: str) -> str:
    prefix = text.rstrip("/")
    if prefix and not prefix.startswith("/"):
        raise argparse.ArgumentTypeError(f"must begin with /, got {text!r}")
    return prefix


def _idle_seconds(text: str) -> int:
    seconds = count(-1)(text)
    if seconds == 0:
        raise argparse.ArgumentTypeError("must be at least 1, or -1 for never, got 0")
    return seconds


def _key_file(text: str) -> Path:
    """Other paths may have an empty variable; here it would leave the server open."""
    return Path(path_text(text))


class EndpointFlags(Flags, title="HTTP"):
    """Addresses, and what is served there."""

    host: tuple[str, ...] = flag(
        "--host",
        "addresses to listen on; what ends in .sock is a UNIX socket (default: 127.0.0.1)",
        env="LLAMA_ARG_HOST",
        type=_hosts,
        default="127.0.0.1",
        metavar="HOST[,HOST]",
    )
    port: int | None = flag(
        "--port", "port; 0 takes a free one (default: 8080, with --ollama 11434)", env="LLAMA_ARG_PORT", type=count()
    )
    ollama: bool = flag(
        "--ollama", "listen on Ollama's port unless --port is given, for programs that look for Ollama there"
    )
    reuse_port: bool = flag(
        "--reuse-port",
        "let other servers listen on the same port; the system distributes the connections",
        env="LLAMA_ARG_REUSE_PORT",
    )
    api_prefix: str = flag(
        "--api-prefix",
        "serve below this path (default: none)",
        env="LLAMA_ARG_API_PREFIX",
        type=_prefix,
        default="",
        metavar="/PATH",
    )
    alias: tuple[str, ...] = flag(
        "-a --alias",
        "the model's names in the API; the alphabetically first is its id (default: its file name)",
        env="LLAMA_ARG_ALIAS",
        action=Merged,
        type=_names,
        default=(),
        metavar="NAME[,NAME]",
    )
    tags: tuple[str, ...] = flag(
        "--tags",
        "tags for /v1/models, without other effect",
        env="LLAMA_ARG_TAGS",
        action=Merged,
        type=_names,
        default=(),
        metavar="TAG[,TAG]",
    )
    webui: bool = flag(
        "--ui --webui",
        "a chat page at / (default)",
        env="LLAMA_ARG_UI",
        off="--no-webui --no-ui",
        off_help="no chat page at /",
    )
    path: Path | None = flag(
        "--path",
        "serve the files of this folder in place of the chat page; they need no key",
        env="LLAMA_ARG_STATIC_PATH",
        metavar="DIR",
    )
    ui_config: str | None = flag(
        "--ui-config --webui-config",
        "settings for a user interface, which /props shows",
        env="LLAMA_ARG_UI_CONFIG",
        metavar="JSON",
    )
    ui_config_file: Path | None = flag(
        "--ui-config-file --webui-config-file", "the same from a file", env="LLAMA_ARG_UI_CONFIG_FILE"
    )
    slots: bool = flag(
        "--slots",
        "the /slots endpoint (default)",
        env="LLAMA_ARG_ENDPOINT_SLOTS",
        off="--no-slots",
        off_help="no /slots endpoint",
    )
    slot_save_path: Path | None = flag(
        "--slot-save-path", "let POST /slots/ID save slots to files of this folder", metavar="DIR"
    )
    media_path: Path | None = flag(
        "--media-path", "let requests name images and audio of this folder, by file:// URLs", metavar="DIR"
    )
    media_hosts: MediaHosts = flag(
        "--media-hosts",
        "hosts that images and audio may be fetched from, such as example.com or *.example.com, at public addresses "
        "alone (default: none)",
        type=_media_hosts,
        default=MediaHosts(),
        metavar="HOST[,HOST]",
    )
    metrics: bool = flag(
        "--metrics",
        "the /metrics endpoint (default)",
        env="LLAMA_ARG_ENDPOINT_METRICS",
        off="--no-metrics",
        off_help="no /metrics endpoint",
    )
    sleep_idle_seconds: int = flag(
        "--sleep-idle-seconds",
        "free the model after N idle seconds, and load it for the next request (default: -1, never)",
        type=_idle_seconds,
        default=-1,
    )
    spm_infill: bool = flag("--spm-infill", "infill: put the suffix first, as some models need")
    strict_fields: bool = flag(
        "--strict-fields", "refuse requests with unknown fields (default: name them in the header X-DFlash-Ignored)"
    )
    ssl_key_file: str | None = flag(
        "--ssl-key-file", "PEM private key, for HTTPS", env="LLAMA_ARG_SSL_KEY_FILE", type=path_text, metavar="FILE"
    )
    ssl_cert_file: str | None = flag(
        "--ssl-cert-file", "PEM certificate, for HTTPS", env="LLAMA_ARG_SSL_CERT_FILE", type=path_text, metavar="FILE"
    )


class ClientFlags(Flags, title="who may ask"):
    """Keys, host names and origins."""

    api_key: str | None = flag(
        "--api-key",
        "keys; clients must send one of them (default: none)",
        env="LLAMA_API_KEY",
        action=Joined,
        metavar="KEY[,KEY]",
    )
    api_key_file: Path | None = flag(
        "--api-key-file",
        "file with one key a line; lines that begin with # are comments",
        env="LLAMA_ARG_API_KEY_FILE",
        type=_key_file,
    )
    allowed_hosts: str = flag(
        "--allowed-hosts",
        "allowed host names of a server that only this machine reaches, besides private ones; * for any",
        metavar="NAME[,NAME]",
        default="",
    )
    cors_origins: str | None = flag(
        "--cors-origins",
        "origins whose pages may call; localhost means all of this machine, * all (default: * with a key, else "
        "localhost)",
        env="LLAMA_ARG_CORS_ORIGINS",
        metavar="LIST",
    )
    cors_methods: str = flag(
        "--cors-methods",
        "methods that they may use (default: GET, POST, DELETE, OPTIONS)",
        env="LLAMA_ARG_CORS_METHODS",
        default="GET, POST, DELETE, OPTIONS",
        metavar="LIST",
    )
    cors_headers: str = flag(
        "--cors-headers",
        "headers that they may send (default: *, all requested ones)",
        env="LLAMA_ARG_CORS_HEADERS",
        default="*",
        metavar="LIST",
    )
    cors_credentials: bool = flag(
        "--cors-credentials",
        "they may send credentials (default)",
        env="LLAMA_ARG_CORS_CREDENTIALS",
        off="--no-cors-credentials",
        off_help="they may not",
    )


class LimitFlags(Flags, title="limits"):
    """Sizes, counts and times."""

    sse_ping_interval: int = flag(
        "--sse-ping-interval",
        "ping a stream after this time of silence; -1: never (default: 30)",
        env="LLAMA_ARG_SSE_PING_INTERVAL",
        type=count(-1),
        default=30,
        metavar="SECONDS",
    )
    max_queue: int = flag("--max-queue", "requests that may wait for a slot (default: 64)", type=count(), default=64)
    timeout: int = flag(
        "-to --timeout",
        "time for a client to send its request, or to read a part of the answer (default: 300)",
        env="LLAMA_ARG_TIMEOUT",
        type=count(1),
        default=300,
        metavar="SECONDS",
    )
    max_connections: int = flag(
        "--max-connections",
        "connections at once; above that, the longest idle one is closed (default: 2048)",
        type=count(1),
        default=2048,
    )
    max_body: int = flag(
        "--max-body", "largest request body in MiB (default: 64)", type=count(1), default=64, metavar="MIB"
    )
    drain_timeout: float = flag(
        "--drain-timeout",
        "time for running requests to finish after SIGTERM (default: 60)",
        type=amount(),
        default=60.0,
        metavar="SECONDS",
    )


class RecordFlags(Flags, title="record", text="for training; off unless --record or --adapt is given"):
    """Keeping prompts and answers, and learning from them."""

    record: Path | None = flag(
        "--record",
        "keep all prompts and answers, as token ids, in files of this folder that only you may read; none with images "
        "or audio",
        metavar="DIR",
    )
    record_limit: int = flag(
        "--record-limit",
        "most that the folder may hold of them (default: 256)",
        type=count(1),
        default=256,
        metavar="MIB",
    )
    adapt: Path | None = flag(
        "--adapt",
        "keep them in this folder, and go on training the drafter on them while nobody asks (experimental)",
        metavar="DIR",
    )
    adapt_tokens: int = flag(
        "--adapt-tokens",
        "new tokens of answers after which the drafter is trained again (default: 20000)",
        type=count(1),
        default=20000,
    )


class HttpFlags(EndpointFlags, ClientFlags, LimitFlags):
    """All that `http_settings` reads."""

    parent_pipes: bool

    @property
    def listening_port(self) -> int:
        """The port to listen on."""
        if self.port is not None:
            return self.port
        return OLLAMA_PORT if self.ollama else PORT


def url_from_here(host: str, port: int, scheme: str = "http") -> str:
    """The URL by which programs of this machine reach a server that listens at an address."""
    host = _ALL.get(host, host)
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def http_settings(args: HttpFlags) -> Settings:
    """Settings from the flags, without those about the model and the defaults of requests.

    Raises:
        RequestError: a file cannot be read, or a value is malformed.
    """
    from dflash_local.media.media_sources import MediaSources
    from dflash_local.server.security.api_keys import read_keys
    from dflash_local.server.security.limits import Limits
    from dflash_local.server.security.origins import Cors, default_origins, parse_origins
    from dflash_local.server.settings import Settings

    keys = read_keys(args.api_key, args.api_key_file)
    origins = default_origins(keys) if args.cors_origins is None else parse_origins(args.cors_origins)
    exposed = _exposed(args)
    if not keys:
        _warn_if_open(exposed, origins)
    return Settings(
        aliases=args.alias,
        tags=args.tags,
        api_keys=keys,
        behind_router=args.parent_pipes,
        cors=Cors(origins, args.cors_methods, args.cors_headers, args.cors_credentials),
        allowed_hosts=_allowed_hosts(args, all_by_default=bool(keys or exposed)),
        limits=Limits(
            timeout=args.timeout,
            head_timeout=min(args.timeout, Limits.head_timeout),
            connections=args.max_connections,
            body=args.max_body * MIB,
            bodies=max(Limits.bodies, args.max_body * MIB),
        ),
        api_prefix=args.api_prefix,
        webui=args.webui,
        static=_folder(args.path, "--path", "with index.html"),
        ui_settings=_ui_settings(args),
        slots_endpoint=args.slots,
        slot_save_path=_folder(args.slot_save_path, "--slot-save-path", "for saved slots"),
        media=MediaSources(args.media_hosts, _folder(args.media_path, "--media-path", "with images and audio")),
        media_marker=os.environ.get("LLAMA_MEDIA_MARKER", ""),  # llama-server has no flag for it either
        metrics_endpoint=args.metrics,
        strict_fields=args.strict_fields,
        spm_infill=args.spm_infill,
        sleep_idle_seconds=args.sleep_idle_seconds,
        max_queue=args.max_queue,
    )


def _exposed(args: HttpFlags) -> list[str]:
    """The addresses that other machines may reach."""
    from dflash_local.server.sockets import is_unix

    return [host for host in args.host if not is_loopback(host) and not is_unix(host)]


def _allowed_hosts(args: HttpFlags, *, all_by_default: bool) -> tuple[str, ...] | None:
    """The allowed host names; None: all, by default if a key is needed, or if the server is reachable anyway."""
    named = tuple(name.strip() for name in args.allowed_hosts.split(",") if name.strip())
    return (*named, *args.host) if named or not all_by_default else None


def _warn_if_open(exposed: list[str], origins: tuple[str, ...]) -> None:
    from dflash_local.server.security.origins import ANY

    if exposed:
        log.warning("everybody who can reach %s may use this server: --api-key demands a key", ", ".join(exposed))
    if ANY in origins:
        log.warning("every web page that a user opens may use this server: --api-key, or --cors-origins without *")


def _folder(path: Path | None, param: str, purpose: str) -> Path | None:
    if path is not None and not is_folder(path):
        raise RequestError(f"{path} is no folder", param=param, hint=f"give {param} the folder {purpose}")
    return path


def _ui_settings(args: HttpFlags) -> dict[str, Any]:
    text, param = args.ui_config, "--ui-config"
    if args.ui_config_file and text:
        raise RequestError("--ui-config and --ui-config-file both give the page's settings", param=param)
    if args.ui_config_file:
        text, param = read_text(args.ui_config_file, "--ui-config-file"), "--ui-config-file"
    return json_object(text, param) if text else {}
