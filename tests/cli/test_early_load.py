"""An engine that loads while the server is still imported."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from dflash_local.cli.serving.early_load import EarlyLoad
from dflash_local.errors import ModelError


class Engine:
    is_closed = False

    def close(self) -> None:
        self.is_closed = True


def loads(engine: Any, *, after: threading.Event | None = None) -> Callable[[Callable[[float], bool]], Any]:
    """A loader that reports half of its work once `after` is set, and then whether it may go on."""

    def load(progress: Callable[[float], bool]) -> Any:
        if after is not None:
            assert after.wait(10)
        if not progress(0.5):
            raise ModelError("stopped")
        return engine

    return load


def test_it_loads_before_it_is_asked_for() -> None:
    loaded = threading.Event()
    engine: Any = Engine()

    def load(_progress: Callable[[float], bool]) -> Any:
        loaded.set()
        return engine

    with EarlyLoad(load) as early:
        assert loaded.wait(10)
        assert early(lambda _share: True) == engine
    assert not engine.is_closed  # it is the caller's


def test_progress_goes_to_who_takes_it() -> None:
    go, shares = threading.Event(), []

    def progress(share: float) -> bool:
        shares.append(share)
        return True

    engine: Any = Engine()
    with EarlyLoad(loads(engine, after=go)) as early:
        threading.Timer(0.05, go.set).start()
        assert early(progress) is engine
    assert shares == [0.5]


def test_who_takes_it_stops_it() -> None:
    go = threading.Event()
    with EarlyLoad(loads(Engine(), after=go)) as early:
        threading.Timer(0.05, go.set).start()
        with pytest.raises(ModelError, match="stopped"):
            early(lambda _share: False)


def test_later_engines_load_when_they_are_asked_for() -> None:
    engines: Any = iter([Engine(), Engine()])
    with EarlyLoad(lambda _progress: next(engines)) as early:
        first, second = early(lambda _: True), early(lambda _: True)
    assert first is not second


def test_it_loads_wholly_before_it_is_asked_for() -> None:
    shares: list[float] = []

    def load(progress: Callable[[float], bool]) -> Any:
        shares.extend(share for share in (0.5, 1.0) if progress(share))
        loaded.set()
        return Engine()

    loaded = threading.Event()
    with EarlyLoad(load):
        assert loaded.wait(10)
        assert shares == [0.5, 1.0]


def test_what_was_loaded_before_is_told_at_once() -> None:
    shares: list[float] = []

    def progress(share: float) -> bool:
        shares.append(share)
        return True

    early = EarlyLoad(loads(Engine()))
    early._thread.join(10)
    with early:
        early(progress)
    assert shares == [0.5]


def test_what_nobody_took_is_closed() -> None:
    engine: Any = Engine()
    with EarlyLoad(lambda _progress: engine):
        pass
    assert engine.is_closed


def test_what_nobody_took_stops_loading() -> None:
    go = threading.Event()
    engine: Any = Engine()
    with EarlyLoad(loads(engine, after=go)):
        threading.Timer(0.05, go.set).start()
    assert not engine.is_closed and not any(thread.name == "early-load" for thread in threading.enumerate())


def test_a_fault_comes_when_it_is_taken() -> None:
    def load(_progress: Callable[[float], bool]) -> Any:
        raise ModelError("damaged")

    with EarlyLoad(load) as early, pytest.raises(ModelError, match="damaged"):
        early(lambda _share: True)
    with EarlyLoad(load):  # or never: the block's own error says why
        pass
