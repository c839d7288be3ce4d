"""A pytest plugin inside the run of upstream's tests: no downloads, free ports, limits in time, and a record.

Upstream's `utils` is changed before its tests import it.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import signal
import socket
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.upstream import pictures

# A request that takes longer, and a test that takes longer, hang.
REQUEST_SECONDS = 120
TEST_SECONDS = 600
# A server that has not started by then does not start; other processes may have the machine for a while.
START_SECONDS = 240

_now: dict[str, Any] = {"test": "", "count": itertools.count()}
_lock = threading.Lock()


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Change `utils` before the conftest imports it. Each worker of xdist does this for itself."""
    sys.path.insert(0, str(Path.cwd()))
    sys.modules.setdefault("wget", types.ModuleType("wget"))  # only download_file() calls it
    utils: Any = importlib.import_module("utils")
    utils.ServerPreset.load_all = staticmethod(lambda: None)
    utils.download_file = lambda url, output_file_path=None: f"/not/downloaded/{url.rsplit('/', 1)[-1]}"
    # What the stories model says is not what the pocket model says.
    utils.match_regex = lambda regex, text: isinstance(text, str)
    _start_patiently(utils.ServerProcess)
    _read_headers(utils.ServerProcess)
    _ask_with_pictures(utils.ServerProcess)
    if path := os.environ.get("UPSTREAM_RECORD"):
        worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
        _record(utils, Path(path) / f"{worker}.jsonl")


def _start_patiently(process: Any) -> None:
    init = process.__init__

    def free_port(self: Any) -> None:
        init(self)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.server_port = probe.getsockname()[1]

    start = process.start

    def patient_start(self: Any, timeout_seconds: int = 0) -> None:
        start(self, max(timeout_seconds, START_SECONDS))

    process.__init__, process.start = free_port, patient_start


def _read_headers(process: Any) -> None:
    """By names in any case, as HTTP has it; llama-server writes them as the tests read them."""
    make_request = process.make_request

    def request(*args: Any, **kwargs: Any) -> Any:
        result = make_request(*args, **kwargs)
        result.headers = requests.structures.CaseInsensitiveDict(result.headers)
        return result

    process.make_request = request


def _ask_with_pictures(process: Any) -> None:
    """Pictures come from this process, and no request takes forever."""
    address = pictures.serve()
    request, make_request = requests.Session.request, process.make_request

    def limited(self: Any, method: str, url: str, *args: Any, **kwargs: Any) -> Any:
        kwargs["timeout"] = min(kwargs.get("timeout") or REQUEST_SECONDS, REQUEST_SECONDS)
        return request(self, method, pictures.moved(url, address), *args, **kwargs)

    def moved(self: Any, method: str, path: str, data: Any = None, *args: Any, **kwargs: Any) -> Any:
        return make_request(self, method, path, pictures.moved(data, address), *args, **kwargs)

    requests.Session.request = limited  # type: ignore[method-assign]
    process.make_request = moved


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not asked for."""
    if path := os.environ.get("UPSTREAM_ONLY"):
        names = set(Path(path).read_text().splitlines())
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in names])
        items[:] = [item for item in items if item.nodeid in names]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    """Remember which test runs, and end it if it hangs."""
    _now.update(test=item.nodeid, count=itertools.count())

    def end(*_: Any) -> None:
        raise TimeoutError(f"the test took more than {TEST_SECONDS} s")

    signal.signal(signal.SIGALRM, end)
    signal.alarm(TEST_SECONDS)
    try:
        return (yield)
    finally:
        signal.alarm(0)


def _record(utils: Any, path: Path) -> None:
    process = utils.ServerProcess
    make_request, make_stream_request = process.make_request, process.make_stream_request

    def write(entry: dict[str, Any]) -> None:
        with _lock, path.open("a") as file:
            file.write(json.dumps(entry, default=str) + "\n")

    def asked(method: str, url: str, data: Any) -> dict[str, Any]:
        return {"test": _now["test"], "n": next(_now["count"]), "method": method, "path": url, "request": data}

    def request(self: Any, method: str, path: str, data: Any = None, *args: Any, **kwargs: Any) -> Any:
        if path == "/health" and not getattr(self, "ready", False):
            return make_request(self, method, path, data, *args, **kwargs)  # the wait for the start
        entry = asked(method, path, data)
        result = make_request(self, method, path, data, *args, **kwargs)
        write({**entry, "status": result.status_code, "body": result.body})
        return result

    def stream(self: Any, method: str, path: str, data: Any = None, *args: Any, **kwargs: Any) -> Iterator[Any]:
        entry, events = asked(method, path, data), []
        try:
            for event in make_stream_request(self, method, path, data, *args, **kwargs):
                events.append(event)
                yield event
        except utils.ServerError as error:
            write({**entry, "status": error.code, "body": error.body})
            raise
        finally:
            if events:
                write({**entry, "status": 200, "events": events})

    process.make_request, process.make_stream_request = request, stream


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """One line for each phase that decides; the process that gathers xdist's reports writes them."""
    if "PYTEST_XDIST_WORKER" in os.environ or (report.when != "call" and report.outcome == "passed"):
        return
    line = {"test": report.nodeid, "outcome": report.outcome, "seconds": round(report.duration, 2), "why": _why(report)}
    with Path(os.environ["UPSTREAM_RESULTS"]).open("a") as file:
        file.write(json.dumps(line) + "\n")


def _why(report: pytest.TestReport) -> str:
    """The first line of the failure, and where it is."""
    if report.outcome == "passed":
        return ""
    if report.outcome == "skipped":
        return str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is None:
        return str(report.longrepr).splitlines()[-1]
    where = f"{Path(crash.path).name}:{crash.lineno}"
    source = getattr(report.longrepr, "reprtraceback", None)
    lines = [line for entry in getattr(source, "reprentries", []) for line in getattr(entry, "lines", [])]
    asserted = next((line[1:].strip() for line in reversed(lines) if line.startswith(">")), "")
    return f"{where}: {crash.message.splitlines()[0]}" + (f"  [{asserted}]" if asserted else "")
