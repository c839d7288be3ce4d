"""The server as a process: its socket, its signals, its drain."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import uvicorn
from fastapi import FastAPI

from dflash_local.errors import DFlashError
from dflash_local.server.service import Service

log = logging.getLogger(__name__)

SIGNALS = (signal.SIGINT, signal.SIGTERM)


# Seconds after the drain's limit for clients to read the error that they get then.
LAST_WORDS = 3


class Server(uvicorn.Server):
    """uvicorn with a drain: requests that do not finish in time end with a proper error, and the signal that began it
    does not kill the process afterwards.

    A second signal ends the drain, also properly: uvicorn would tear all tasks down, with a traceback for each. A third
    one does not wait for the running step either.
    """

    def __init__(self, config: uvicorn.Config, service: Service, drain_timeout: float) -> None:
        super().__init__(config)
        self._service, self._drain_timeout = service, drain_timeout
        self._n_signals = 0
        self._hurry = asyncio.Event()
        service.stop = self.stop

    def stop(self) -> None:
        """Begin to drain."""
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        limit = asyncio.create_task(self._cut_off())
        try:
            await super().shutdown(sockets)
        finally:
            limit.cancel()

    async def _cut_off(self) -> None:
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._hurry.wait(), self._drain_timeout)
        why = "told to hurry" if self._hurry.is_set() else f"the drain took longer than {self._drain_timeout:g} s"
        log.warning("%s: what still runs is cut off", why)
        await self._service.close()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._n_signals += 1
        self.stop()
        if self._n_signals == 2:
            self._hurry.set()  # the loop looks up every 0.1 s while it drains
        elif self._n_signals > 2:
            os._exit(128 + sig)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        previous_handlers = {number: signal.signal(number, self.handle_exit) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in previous_handlers.items():
                signal.signal(number, handler)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. It is opened before the model loads, so that a port that is taken is reported at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's algorithm off only where the protocol is named; with it a kept connection waits 40 ms per
    # answer.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if sys.platform != "win32":  # there it would let two servers share the port
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(2048)
    except (OSError, OverflowError) as error:
        sock.close()
        raise DFlashError(f"cannot listen on {host}:{port}: {error}", hint="choose another --port or --host") from None
    return sock


def make_server(
    app: FastAPI, *, drain_timeout: float, ssl_key: str | None = None, ssl_cert: str | None = None
) -> Server:
    """A server that a signal, or its app's Service, stops; running requests then have `drain_timeout` seconds to
    finish."""
    config = uvicorn.Config(
        app,
        access_log=False,
        log_level="warning",
        server_header=False,
        ssl_keyfile=ssl_key,
        ssl_certfile=ssl_cert,
        timeout_graceful_shutdown=math.ceil(drain_timeout) + LAST_WORDS,
    )
    return Server(config, app.state.service, drain_timeout)


def serve(
    app: FastAPI,
    sock: socket.socket,
    *,
    drain_timeout: float,
    ssl_key: str | None = None,
    ssl_cert: str | None = None,
    on_ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve until a signal comes and what runs has finished. `on_ready` is called once signals are obeyed, before the
    first request.

    Raises:
        DFlashError: the model could not be loaded, or the engine died.
    """
    server = make_server(app, drain_timeout=drain_timeout, ssl_key=ssl_key, ssl_cert=ssl_cert)
    # The engine thread needs the GIL after every step, every few milliseconds; Python's default lets it wait for five.
    sys.setswitchinterval(0.0005)
    # Set before the loop exists too: uvicorn captures signals only inside of it, and Ctrl-C while asyncio makes its
    # loop would break that off half-way.
    with server.capture_signals():
        on_ready()
        asyncio.run(server.serve(sockets=[sock]))
    failure = app.state.service.failure
    if failure is not None:
        raise failure
