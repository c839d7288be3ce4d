"""The engine that flags describe."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflash_local.cli.flags.engine_flags import EngineFlags, chat_template
from dflash_local.cli.flags.named_models import Models, suggest
from dflash_local.engine_options import EngineOptions

if TYPE_CHECKING:
    from dflash_local.engine import Engine
    from dflash_local.engine_loader import LoadedEngine


def engine_options(args: EngineFlags, models: Models) -> dict[str, Any]:
    """Arguments of `Engine` from parsed flags and the models that they name.

    Raises:
        RequestError: the chat template cannot be read.
        ConvertError, ModelError: with --auto-convert the drafter cannot be rewritten, or the target cannot be read.
    """
    options = {**args.options, **args.drafting}
    options |= {"model": models.target, "drafter": models.drafter, "mmproj": models.projector}
    options |= {"mmap": args.maps_files, "mlock": "mlock" in args.load_mode}
    if models.auto_convert and models.drafter:
        from dflash_local.cli.flags.auto_convert import auto_convert

        options["drafter"] = str(auto_convert(Path(models.drafter), Path(models.target)))
    options["chat_template"] = chat_template(args)
    return options


def load_native(
    args: EngineFlags, models: Models, progress: Callable[[float], bool] | None = None, **overrides: Any
) -> LoadedEngine:
    """Load the engine that the flags describe; `overrides` are fields of EngineOptions."""
    from dflash_local.engine_loader import LoadedEngine

    return LoadedEngine.load(EngineOptions(**{**engine_options(args, models), "progress": progress, **overrides}))


def attach_engine(loaded: LoadedEngine) -> Engine:
    """The engine of what was loaded."""
    from dflash_local.engine import Engine

    return Engine.of(loaded)


def load_engine(args: EngineFlags, models: Models) -> Engine:
    """Both at once. A drafter is suggested if one is known for a target without one."""
    engine = attach_engine(load_native(args, models))
    suggest(models, engine.info["target"])
    return engine
