"""What `doctor` says of a target's projector: what it reads, whether it fits, and where it computes."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dflash_local.diagnose.companions import projector_beside
from dflash_local.diagnose.finding import Finding, Level, fail, ok
from dflash_local.diagnose.projector import Projector, check_projector, compare_projector
from dflash_local.engine_options import EngineOptions
from dflash_local.errors import DFlashError, ModelError
from dflash_local.machine.devices import gpus
from dflash_local.machine.model_size import model_size
from dflash_local.words import file_size_text


def look_at_projector(options: EngineOptions, info: dict[str, Any]) -> Iterator[Finding]:
    """The findings about the projector; without one, about that beside the model."""
    if options.mmproj is None:
        yield from _look_beside(Path(options.model))
        return
    path = Path(options.mmproj)
    try:
        yield ok("file", f"{path.name}, {file_size_text(model_size(path))}")
        yield from compare_projector(Path(options.model), Projector.read(path))
        yield ok("projector", f"computed on {_device(options, info)}")
    except ModelError as error:
        yield fail("projector", error.message, error.hint or "download the file again", error.field)


def _look_beside(model: Path) -> Iterator[Finding]:
    """Says that a projector lies beside the model, if one does and fits."""
    path = projector_beside(model)
    if path is None:
        return
    try:
        reads = " and ".join(check_projector(model, path).reads)
    except DFlashError:
        return
    text = f"none is used, so the model reads text alone; with {path.name} beside it, {reads}, too"
    yield Finding(Level.OK, "projector", text, f"add --mmproj {shlex.quote(str(path))}")


def _device(options: EngineOptions, info: dict[str, Any]) -> str:
    """The first device of this machine that the target may use, as far as the library's list shows it."""
    if not options.mmproj_offload or options.device == "none":
        return "the CPU"
    names = options.device.split(",") if options.device else [str(device["name"]) for device in gpus(info)]
    return next((name for name in names if not name.startswith("RPC")), "the CPU")
