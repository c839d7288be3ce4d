"""The server as a process: its socket, its signals, its drain."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from dflash_local.errors import DFlashError
from dflash_local.server.service import Service

log = logging.getLogger(__name__)

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _Server(uvicorn.Server):
    """uvicorn, but a signal that was obeyed by draining does not kill the process afterwards."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket, opened before the model loads: who would wait a minute to hear that the port is taken?"""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family)
    try:
        if sys.platform != "win32":  # there it would let two servers share the port
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(2048)
    except (OSError, OverflowError) as error:
        sock.close()
        raise DFlashError(f"cannot listen on {host}:{port}: {error}", hint="choose another --port or --host") from None
    return sock


def serve(app: FastAPI, sock: socket.socket, *, drain_timeout: float, ssl_key: str | None = None, ssl_cert: str | None = None) -> None:
    """Serve until a signal comes, then finish what runs, for `drain_timeout` seconds at most.

    Raises:
        DFlashError: the model could not be loaded, or the engine died.
    """
    service: Service = app.state.service
    server = _Server(
        uvicorn.Config(
            app,
            access_log=False,
            log_level="warning",
            server_header=False,
            ssl_keyfile=ssl_key,
            ssl_certfile=ssl_cert,
            timeout_graceful_shutdown=max(int(drain_timeout), 1),
        )
    )

    def stop() -> None:
        server.should_exit = True

    service.stop = stop
    # The engine thread comes back from a step every few milliseconds and must not wait its turn for five.
    sys.setswitchinterval(0.0005)
    asyncio.run(server.serve(sockets=[sock]))
    if service.failure is not None:
        raise service.failure
