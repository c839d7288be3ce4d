"""The parts of uvicorn that serve, without its command line: `import uvicorn` imports click and multiprocessing too,
which takes as long as everything else in it."""

from __future__ import annotations

import sys
import threading
from importlib.util import find_spec, module_from_spec
from typing import Any

__all__ = ["Config", "H11Protocol", "Server"]


def run_when_asked(name: str) -> None:
    """Make a package known whose submodules can be imported. It runs itself when it is asked for a name of its own."""
    spec = find_spec(name)
    assert spec is not None and spec.loader is not None
    package, run = module_from_spec(spec), spec.loader.exec_module
    lock = threading.RLock()
    running: list[bool] = []

    def missing(attribute: str) -> Any:
        with lock:  # others wait, as for any import
            if "__getattr__" in vars(package) and not running:
                running.append(True)
                try:
                    run(package)
                    del package.__getattr__
                finally:
                    running.clear()
        if attribute in vars(package):
            return vars(package)[attribute]
        raise AttributeError(f"module {name!r} has no attribute {attribute!r}")

    package.__getattr__ = missing  # type: ignore[method-assign]  # of a module: PEP 562
    sys.modules[name] = package


if "uvicorn" not in sys.modules:
    run_when_asked("uvicorn")

from uvicorn.config import Config  # noqa: E402
from uvicorn.protocols.http.h11_impl import H11Protocol  # noqa: E402
from uvicorn.server import Server  # noqa: E402

sys.modules["uvicorn"].Config = Config  # type: ignore[attr-defined]  # where uvicorn.lifespan looks for it
