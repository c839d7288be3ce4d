"""EarlyLoad: an engine that loads while Python still imports the server."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

from dflash_local.thread_priority import hand_over_gil_soon

if TYPE_CHECKING:
    from types import TracebackType

    from dflash_local.engine import Engine
    from dflash_local.server.engine_life import Loader


class EarlyLoad:
    """A loader whose first engine loads from now on, in a thread: a small model loads in the time that the server
    takes to import. Later engines load when they are asked for.

    Inside a `with` block: at its end an engine that nobody has taken is closed, and one that still loads is stopped.
    """

    def __init__(self, load: Loader) -> None:
        self._load = load
        self._progress: Callable[[float], bool] = lambda _share: True
        self._share = 0.0
        self._first: Future[Engine] | None = Future()
        hand_over_gil_soon()  # imports hold it
        self._thread = threading.Thread(target=self._run, args=(self._first,), name="early-load")
        self._thread.start()

    def __call__(self, progress: Callable[[float], bool]) -> Engine:
        """An engine; `progress` gets the share (0..1) that is loaded, and returns False to stop."""
        first, self._first = self._first, None
        if first is None:
            return self._load(progress)
        self._progress = progress
        if self._share:
            progress(self._share)
        return first.result()

    def __enter__(self) -> EarlyLoad:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._first is None:
            return
        self._progress = lambda _share: False
        self._thread.join()
        if self._first.exception() is None:
            self._first.result().close()

    def _on_progress(self, share: float) -> bool:
        self._share = share
        return self._progress(share)

    def _run(self, future: Future[Engine]) -> None:
        try:
            engine = self._load(self._on_progress)
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(engine)
