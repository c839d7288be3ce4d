"""dflash-local: DFlash speculative decoding for llama.cpp on your own machine.

from dflash_local import Engine
with Engine("target.gguf", "drafter.gguf") as engine:
    print(engine.generate("What is 48 plus 24?", max_tokens=64).text)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from dflash_local.engine import (
        ChatCompletion,
        ChatDelta,
        Chunk,
        Completion,
        Engine,
        Generation,
        SamplingParams,
        Stream,
    )
    from dflash_local.errors import (
        BuildError,
        ComputeError,
        ContextLengthError,
        ConvertError,
        DFlashError,
        EngineDeadError,
        EngineLostError,
        HubError,
        MediaError,
        ModelError,
        NativeLibraryError,
        PairError,
        QueueFullError,
        RequestError,
        ResultTimeoutError,
        RPCError,
        ServerError,
    )

__all__ = [
    "BuildError", "ChatCompletion", "ChatDelta", "Chunk", "Completion", "ComputeError", "ContextLengthError",
    "ConvertError", "DFlashError", "Engine", "EngineDeadError", "EngineLostError", "Generation", "HubError",
    "MediaError", "ModelError", "NativeLibraryError", "PairError", "QueueFullError", "RPCError", "RequestError",
    "ResultTimeoutError", "SamplingParams", "ServerError", "Stream", "__version__",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    # Imported on first use: the engine loads numpy and the native library.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"dflash_local.{'errors' if name.endswith('Error') else 'engine'}"), name)


def __dir__() -> list[str]:
    return __all__
