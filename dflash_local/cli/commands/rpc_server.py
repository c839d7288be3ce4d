"""`dflash-local rpc-server`: this machine's devices, for a target on another machine that does not fit there."""

from __future__ import annotations

import ipaddress
import logging
import os
import signal
import socket
import sys
from pathlib import Path

from dflash_local.cli.command import Commands, add_command
from dflash_local.cli.flags.flag import add_flags, flag
from dflash_local.cli.flags.logs import LogFlags, set_up_logs
from dflash_local.cli.flags.values import count
from dflash_local.errors import RequestError

PORT = 50052

_DESCRIPTION = """\
Lends this machine's devices to a program on another one: serve, chat or bench with --rpc HOST:PORT, or llama.cpp's own
programs of the same version. One program at a time; its layers lie here until it ends.

There is no protection: whoever reaches the port can read and write this process's memory. Keep it inside a network that
you trust, or forward the port (ssh -L).
"""

log = logging.getLogger(__name__)


class RpcServerFlags(LogFlags):
    host: str = flag(
        "-H --host", "IPv4 address to listen on (default: 127.0.0.1)", default="127.0.0.1", metavar="ADDRESS"
    )
    port: int = flag("-p --port", f"port to listen on (default: {PORT})", type=count(1), default=PORT)
    device: str | None = flag(
        "-d --device", "devices to lend (default: all GPUs; without one, the CPU)", metavar="NAME,..."
    )
    threads: int | None = flag("-t --threads", "threads of a CPU (default: physical cores)", type=count(1))
    cache: bool = flag(
        "-c --cache", "keep large tensors on disk (in the cache folder, rpc/), so that they need not be sent again"
    )


def add_parser(commands: Commands) -> None:
    parser = add_command(
        commands,
        "rpc-server",
        RpcServerFlags,
        run,
        "lend this machine's devices to another one",
        _DESCRIPTION,
    )
    add_flags(parser, LogFlags)


def run(args: RpcServerFlags) -> int:
    """Serve until a signal ends the process."""
    from dflash_local.cache_dir import cache_dir
    from dflash_local.machine.hardware import core_limit
    from dflash_local.native import load, rpc_serve, set_log_level
    from dflash_local.server.signals import ENDING

    native_level = set_up_logs(args)
    address = _address(args.host)
    load()
    set_log_level(native_level)
    _check_free(args.host, args.port)
    if not address.is_loopback:
        _warn(args.host)
    cache = cache_dir() / "rpc"
    if args.cache:
        _make(cache)
    # It waits in native code, where Python does not handle signals.
    for number in ENDING:
        signal.signal(number, signal.SIG_DFL)
    print(f"RPC server on {args.host}:{args.port}, for one program at a time", flush=True)
    rpc_serve(
        {
            "host": args.host,
            "port": args.port,
            "devices": args.device,
            "n_threads": args.threads or core_limit() or 0,
            "cache": os.fspath(cache) if args.cache else None,
        }
    )
    return 0


def _address(host: str) -> ipaddress.IPv4Address:
    try:
        return ipaddress.IPv4Address(host)
    except ValueError:
        raise RequestError(
            f"--host is {host!r}, must be an IPv4 address", param="--host", hint="0.0.0.0 listens on all interfaces"
        ) from None


def _make(cache: Path) -> None:
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(
            f"cannot keep tensors in {cache}: {error.strerror}",
            param="--cache",
            hint="set DFLASH_CACHE to a folder that can be written, or leave --cache out",
        ) from None


def _check_free(host: str, port: int) -> None:
    try:
        with socket.socket() as probe:
            if sys.platform != "win32":  # there it would find every port free
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise RequestError(
            f"cannot listen on {host}:{port}: {why}", param="--port", hint="choose another --port"
        ) from None


def _warn(host: str) -> None:
    log.warning(
        "%s is not this machine alone: WHOEVER REACHES THIS PORT CAN READ AND WRITE THE MEMORY OF THIS PROCESS. "
        "llama.cpp's RPC protocol has no protection at all; let only a network that you trust reach it.",
        host,
    )
    sys.stderr.flush()
