"""Loads the model while the server's packages are imported."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dflash_local.engine import Engine
    from dflash_local.server.service import Loader


class EarlyLoad:
    """A `Loader` whose first call waits for a load that has begun already; later calls load anew.

    Native code loads without the GIL, and importing the server takes about as long as loading a small model. If the
    main thread ends before the first call, so does the load.
    """

    def __init__(self, load: Loader) -> None:
        self._load = load
        self._begun: Future[Engine] | None = Future()
        self._progress: Callable[[float], bool] = lambda _done: True
        threading.Thread(target=self._run, args=(self._begun,), name="early load").start()

    def __call__(self, progress: Callable[[float], bool]) -> Engine:
        begun, self._begun = self._begun, None
        if begun is None:
            return self._load(progress)
        self._progress = progress
        return begun.result()

    def _run(self, begun: Future[Engine]) -> None:
        try:
            engine = self._load(lambda done: threading.main_thread().is_alive() and self._progress(done))
        except BaseException as error:  # whoever waits for the model gets it
            begun.set_exception(error)
        else:
            begun.set_result(engine)
