"""Live servers on free ports: `live` in this process, uvicorn in a thread; `serving`, the command in a process of its
own."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai

from dflash_local.engine import Engine
from dflash_local.generation import Generation
from dflash_local.server.app import create_app
from dflash_local.server.documented_app import DocumentedApp
from dflash_local.server.process import make_server
from dflash_local.server.service import Service
from dflash_local.server.settings import Settings
from dflash_local.server.sockets import bound, listen
from tests.patience import PATIENCE, wait_until

# What no server's log has: errors that nobody foresaw, and what sanitizers find.
FAULTS = (
    b"Traceback",
    b"ERROR: AddressSanitizer",
    b"ERROR: LeakSanitizer",
    b": ThreadSanitizer:",
    b": runtime error: ",
)
LAST_WORDS = 20_000  # characters of a log that are shown


@dataclass
class Live:
    """A running server and its usual clients."""

    url: str
    app: DocumentedApp
    service: Service
    http: httpx.Client
    openai: openai.OpenAI

    @property
    def engine(self) -> Engine:
        return self.service.engine


@contextmanager
def live(
    load: Callable[[Callable[[float], bool]], Engine] | None,
    settings: Settings | None = None,
    *,
    wait: bool = True,
    hosts: Sequence[str] = ("127.0.0.1",),
    port: int = 0,
) -> Iterator[Live]:
    """Serve; `wait` until the model is loaded. `url` is that of the first host."""
    with live_app(create_app(load, settings), settings, wait=wait, hosts=hosts, port=port) as server:
        yield server


@contextmanager
def live_pair(
    target: Path, drafter: Path | None = None, settings: Settings | None = None, **options: Any
) -> Iterator[Live]:
    """Serve an engine of one thread that measures nothing first; `options` are the engine's."""

    def load(progress: Callable[[float], bool]) -> Engine:
        return Engine(target, drafter, n_threads=1, warmup=False, progress=progress, **options)

    with live(load, settings) as server:
        yield server


@contextmanager
def live_app(
    app: DocumentedApp,
    settings: Settings | None = None,
    *,
    wait: bool = True,
    hosts: Sequence[str] = ("127.0.0.1",),
    port: int = 0,
) -> Iterator[Live]:
    """Serve an app that was made with the settings; as `live`."""
    key = settings.api_keys[0] if settings and settings.api_keys else "none"
    with bound(hosts, port) as sockets:
        listen(sockets)
        server = make_server(app, drain_timeout=5)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[*sockets])))
        thread.start()
        url = f"http://127.0.0.1:{sockets[0].getsockname()[1]}"
        try:
            with (
                httpx.Client(base_url=url, timeout=PATIENCE) as http,
                openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, timeout=PATIENCE) as client,
            ):
                health = (settings.api_prefix if settings else "") + "/health"
                if wait:
                    wait_until(lambda: http.get(health).status_code == 200)
                yield Live(url, app, app.state.service, http, client)
        finally:
            server.should_exit = True
            thread.join(PATIENCE)
            assert not thread.is_alive(), "the server does not stop"


def raw_request(
    server: Live, method: str, path: str, body: dict[str, Any] | None = None, headers: Mapping[str, str] | None = None
) -> socket.socket:
    """A request on a socket of our own, to be closed at will."""
    host, port = server.url.removeprefix("http://").split(":")
    client = socket.create_connection((host, int(port)), timeout=PATIENCE)
    data = b"" if body is None else json.dumps(body).encode()
    more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\n{more}Content-Length: {len(data)}\r\n\r\n"
    client.sendall(head.encode() + data)
    return client


def cancels(server: Live) -> threading.Event:
    """Set once a generation of those to come is told to end: its client left, and the server saw it."""
    told, scheduler = threading.Event(), server.engine._scheduler
    cancel = scheduler.cancel

    def tell(generation: Generation) -> None:
        cancel(generation)
        told.set()

    scheduler.cancel = tell  # type: ignore[method-assign]
    return told


@contextmanager
def serving(
    flags: Sequence[object], env: Mapping[str, str] | None = None, *, wait: bool = True, seconds: float = PATIENCE
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """`dflash-local serve`, a process group of its own, and its URL; `wait` until the model is loaded, at most so many
    `seconds`. Its log must have none of `FAULTS`, and its end is printed where the block raises."""
    command = [sys.executable, "-m", "dflash_local.cli", "serve", *map(str, flags)]
    with tempfile.TemporaryFile() as log:
        environment = {**os.environ, "LLAMA_ARG_PORT": "0", **(env or {})}
        process = subprocess.Popen(command, stderr=log, env=environment, start_new_session=True)

        def url() -> str | None:
            log.seek(0)
            said = log.read().decode()
            assert process.poll() is None, f"the server ended: {said}"
            found = re.search(r"listening on (\S+),", said)
            return found[1] if found else None

        try:
            wait_until(lambda: url() is not None)
            address = str(url())
            if wait:
                wait_until(lambda: httpx.get(address + "/health").status_code == 200, seconds)
            yield process, address
            log.seek(0)
            said = log.read()
            assert not any(fault in said for fault in FAULTS), said.decode()
        except Exception:
            log.seek(0)
            print(log.read().decode(errors="replace")[-LAST_WORDS:])
            raise
        finally:
            process.kill()
            process.wait()
