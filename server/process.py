"""The server as a process: its signals, its drain."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import FrameType

from dflash_local.server.children.parent import Parent
from dflash_local.server.documented_app import DocumentedApp
from dflash_local.server.security.connections import Connections, connections_possible
from dflash_local.server.served import Served
from dflash_local.server.signals import ENDING
from dflash_local.server.sockets import listen
from dflash_local.server.tls import Tls
from dflash_local.server.uvicorn_parts import Config
from dflash_local.server.uvicorn_parts import Server as UvicornServer
from dflash_local.thread_priority import hand_over_gil_soon

log = logging.getLogger(__name__)

# Seconds that a connection may idle between two requests. A POST that arrives while it is being closed gets no answer,
# so it stays open longer than clients keep theirs: nginx 60 seconds, Go 90. Some of them read `Keep-Alive`.
KEEP_ALIVE = 120

# Seconds after the drain's limit in which clients may read the error that they get then.
LAST_WORDS = 3


class Server(UvicornServer):
    """uvicorn with a drain: requests that do not finish in time end with a proper error, and the signal that began the
    drain does not kill the process afterwards.

    A second signal ends the drain, also properly: uvicorn would tear down all tasks, with a traceback for each. A third
    one does not wait for the running step either.
    """

    def __init__(self, config: Config, service: Served, connections: Connections, drain_timeout: float) -> None:
        super().__init__(config)
        self._service, self._connections, self._drain_timeout = service, connections, drain_timeout
        self._n_signals = 0
        self._hurry = asyncio.Event()
        service.stop = self.stop

    def stop(self) -> None:
        self.should_exit = True

    def hurry(self) -> None:
        """End the drain."""
        self.stop()
        self._hurry.set()  # the loop looks every 0.1 s while it drains

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        watcher = asyncio.create_task(self._connections.watch())
        try:
            await super().serve(sockets)
        finally:
            watcher.cancel()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        limit = asyncio.create_task(self._cut_off())
        self._service.drain()
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
            self.hurry()
        elif self._n_signals > 2:
            os._exit(128 + sig)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        previous_handlers = {number: signal.signal(number, self.handle_exit) for number in ENDING}
        try:
            yield
        finally:
            for number, handler in previous_handlers.items():
                signal.signal(number, handler)


def make_server(app: DocumentedApp, *, drain_timeout: float, tls: Tls | None = None) -> Server:
    """A server that a signal, or its app's Service, stops; running requests then have `drain_timeout` seconds to
    finish."""
    service: Served = app.state.service
    limits = service.settings.limits
    connections = Connections(replace(limits, connections=connections_possible(limits.connections)))
    config = Config(
        app,
        http=connections.protocol,  # type: ignore[arg-type]  # uvicorn only calls it
        ws="none",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE,
        headers=[("Keep-Alive", f"timeout={KEEP_ALIVE}")],
        ssl_keyfile=tls.key if tls else None,
        ssl_certfile=tls.cert if tls else None,
        timeout_graceful_shutdown=math.ceil(drain_timeout) + LAST_WORDS,
    )
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    return Server(config, service, connections, drain_timeout)


def serve(
    app: DocumentedApp,
    sockets: Sequence[socket.socket],
    *,
    drain_timeout: float,
    tls: Tls | None = None,
    on_ready: Callable[[], None] = lambda: None,
    parent: Parent | None = None,
) -> None:
    """Serve at bound sockets until a signal comes, or `parent` says so, and running requests have finished. `on_ready`
    is called once signals are handled and the sockets listen, before the first request.

    Raises:
        DFlashError: an address is taken, the model could not be loaded, or the engine died.
    """
    server = make_server(app, drain_timeout=drain_timeout, tls=tls)
    hand_over_gil_soon()
    # Before the loop exists, too: uvicorn captures signals only inside it, and Ctrl-C would interrupt asyncio while it
    # makes the loop.
    with server.capture_signals():
        if parent is not None:
            parent.on_stop, parent.on_hurry = server.stop, server.hurry
        listen(sockets)
        on_ready()
        asyncio.run(server.serve(sockets=[*sockets]))
    failure = app.state.service.failure
    if failure is not None:
        raise failure
