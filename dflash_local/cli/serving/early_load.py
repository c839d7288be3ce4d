"""EarlyLoad: an engine that loads while Python still imports the server."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from dflash_local.thread_priority import hand_over_gil_soon

if TYPE_CHECKING:
    from types import TracebackType

    from dflash_local.engine import Engine


PATIENCE = 0.1  # seconds for a load to begin


class Closeable(Protocol):
    def close(self) -> None: ...


Loaded = TypeVar("Loaded", bound=Closeable)


class EarlyLoad(Generic[Loaded]):
    """A loader of engines in two parts: `load` does what takes long, and needs little of Python; `attach` makes an
    engine of that. The first load begins now, in a thread: a small model loads in the time that the server takes to
    import. Later ones begin when they are asked for.

    `load` reports progress once its work needs no Python any more: until then the caller waits, since its imports and
    that thread would only take turns.

    Inside a `with` block: at its end what was loaded and nobody has taken is closed, and a running load is stopped.
    """

    def __init__(self, load: Callable[[Callable[[float], bool]], Loaded], attach: Callable[[Loaded], Engine]) -> None:
        self._load, self._attach = load, attach
        self._progress: Callable[[float], bool] = lambda _share: True
        self._share = 0.0
        self._first: Future[Loaded] | None = Future()
        self._begun = threading.Event()
        hand_over_gil_soon()  # imports hold it
        self._thread = threading.Thread(target=self._run, args=(self._first,), name="early-load")
        self._thread.start()
        try:
            self._wait()
        except BaseException:  # Ctrl-C: `with` has not entered it yet
            self._end()
            raise

    def __call__(self, progress: Callable[[float], bool]) -> Engine:
        """An engine; `progress` gets the share (0..1) that is loaded, and returns False to stop."""
        first, self._first = self._first, None
        if first is None:
            return self._attach(self._load(progress))
        self._progress = progress
        if self._share:
            progress(self._share)
        return self._attach(first.result())

    def __enter__(self) -> EarlyLoad[Loaded]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._first is not None:
            self._end()

    def _wait(self) -> None:
        self._begun.wait(PATIENCE)

    def _end(self) -> None:
        """Stop the first load, or close what it loaded."""
        assert self._first is not None
        self._progress = lambda _share: False
        self._thread.join()
        if self._first.exception() is None:
            self._first.result().close()

    def _on_progress(self, share: float) -> bool:
        self._begun.set()
        self._share = share
        return self._progress(share)

    def _run(self, future: Future[Loaded]) -> None:
        try:
            loaded = self._load(self._on_progress)
        except BaseException as error:
            self._begun.set()
            future.set_exception(error)
        else:
            future.set_result(loaded)
