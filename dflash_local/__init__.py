"""dflash-local: DFlash speculative decoding for llama.cpp on your own machine.

from dflash_local import Engine
with Engine("target.gguf", "drafter.gguf") as engine:
    print(engine.generate("What is 48 plus 24?", max_tokens=64).text)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from dflash_local.engine import Engine, SamplingParams
    from dflash_local.errors import (
        BuildError,
        ComputeError,
        ContextLengthError,
        ConvertError,
        DFlashError,
        EngineDeadError,
        EngineLostError,
        HubError,
        ModelError,
        NativeLibraryError,
        PairError,
        QueueFullError,
        RequestError,
        RPCError,
    )

__all__ = [
    "BuildError", "ComputeError", "ContextLengthError", "ConvertError", "DFlashError", "Engine", "EngineDeadError",
    "EngineLostError", "HubError", "ModelError", "NativeLibraryError", "PairError", "QueueFullError", "RPCError",
    "RequestError", "SamplingParams", "__version__",
]  # fmt: skip

_ENGINE_NAMES = {"Engine", "SamplingParams"}


def __getattr__(name: str) -> Any:
    # Imported on first use: the engine loads numpy and the native library.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module("dflash_local.engine" if name in _ENGINE_NAMES else "dflash_local.errors"), name)


def __dir__() -> list[str]:
    return __all__
