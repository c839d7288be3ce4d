"""An engine that loads while the server is still imported."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from dflash_local.cli.serving import early_load
from dflash_local.cli.serving.early_load import EarlyLoad
from dflash_local.errors import ModelError

Progress = Callable[[float], bool]


class Native:
    is_closed = False

    def close(self) -> None:
        self.is_closed = True


class Engine(NamedTuple):
    native: Native


def early(load: Callable[[Progress], Native]) -> EarlyLoad[Native]:
    attach: Any = Engine
    return EarlyLoad(load, attach)


def taken(loader: EarlyLoad[Native], progress: Progress) -> Any:
    return loader(progress)


def loads(native: Native, *, after: threading.Event | None = None) -> Callable[[Progress], Native]:
    """A loader that reports half of its work once `after` is set, and then whether it may go on."""

    def load(progress: Progress) -> Native:
        if after is not None:
            assert after.wait(10)
        if not progress(0.5):
            raise ModelError("stopped")
        return native

    return load


def test_it_loads_before_it_is_asked_for() -> None:
    loaded = threading.Event()
    native = Native()

    def load(_progress: Progress) -> Native:
        loaded.set()
        return native

    with early(load) as loader:
        assert loaded.wait(10)
        assert taken(loader, lambda _share: True) == Engine(native)
    assert not native.is_closed  # it is the caller's


def test_progress_goes_to_who_takes_it() -> None:
    go, shares = threading.Event(), []

    def progress(share: float) -> bool:
        shares.append(share)
        return True

    native = Native()
    with early(loads(native, after=go)) as loader:
        threading.Timer(0.05, go.set).start()
        assert taken(loader, progress) == Engine(native)
    assert shares == [0.5]


def test_who_takes_it_stops_it() -> None:
    go = threading.Event()
    with early(loads(Native(), after=go)) as loader:
        threading.Timer(0.05, go.set).start()
        with pytest.raises(ModelError, match="stopped"):
            loader(lambda _share: False)


def test_later_engines_load_when_they_are_asked_for() -> None:
    first, second = Native(), Native()
    natives = iter([first, second])
    with early(lambda _progress: next(natives)) as loader:
        assert [taken(loader, lambda _: True) for _ in range(2)] == [Engine(first), Engine(second)]


def test_it_loads_wholly_before_it_is_asked_for() -> None:
    shares: list[float] = []

    def load(progress: Progress) -> Native:
        shares.extend(share for share in (0.5, 1.0) if progress(share))
        loaded.set()
        return Native()

    loaded = threading.Event()
    with early(load):
        assert loaded.wait(10)
        assert shares == [0.5, 1.0]


def test_what_was_loaded_before_is_told_at_once() -> None:
    shares: list[float] = []

    def progress(share: float) -> bool:
        shares.append(share)
        return True

    loader = early(loads(Native()))
    loader._thread.join(10)
    with loader:
        loader(progress)
    assert shares == [0.5]


def test_what_needs_python_of_a_load_is_waited_for() -> None:
    needs_python, go = [], threading.Event()

    def load(progress: Progress) -> Native:
        time.sleep(0.02)
        needs_python.append(True)
        progress(0.0)
        assert go.wait(10)
        return Native()

    with early(load):
        assert needs_python == [True]
        go.set()


def test_a_load_that_does_not_begin_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early_load, "PATIENCE", 0.01)
    go = threading.Event()
    with early(loads(Native(), after=go)):
        go.set()


def test_what_nobody_took_is_closed() -> None:
    native = Native()
    with early(lambda _progress: native):
        pass
    assert native.is_closed


def test_what_nobody_took_stops_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early_load, "PATIENCE", 0.01)
    go = threading.Event()
    native = Native()
    with early(loads(native, after=go)):
        threading.Timer(0.05, go.set).start()
    assert not native.is_closed and not any(thread.name == "early-load" for thread in threading.enumerate())


def test_an_interrupt_before_it_begins_stops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    native, answers = Native(), list[bool]()

    def load(progress: Progress) -> Native:
        for _ in range(10_000):  # until it is told to stop
            if not progress(0.0):
                answers.append(False)
                break
            time.sleep(0.001)
        return native

    def interrupted(_loader: EarlyLoad[Native]) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(EarlyLoad, "_wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        early(load)
    assert (answers, native.is_closed) == ([False], True)


def test_a_fault_comes_when_it_is_taken() -> None:
    def load(_progress: Progress) -> Native:
        raise ModelError("damaged")

    with early(load) as loader, pytest.raises(ModelError, match="damaged"):
        loader(lambda _share: True)
    with early(load):  # or never: the block's own error says why
        pass
