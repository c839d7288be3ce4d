"""Checks a target, its drafter and its projector: are the files sound, do they fit each other and this machine?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dflash_local import native
from dflash_local.convert.target import Target
from dflash_local.diagnose.drafting_finding import look_at_drafting
from dflash_local.diagnose.finding import Finding, fail, ok
from dflash_local.diagnose.kernels import look_at_kernels
from dflash_local.diagnose.machine_findings import look_at_acceptance, look_at_costs
from dflash_local.diagnose.memory import look_at_memory
from dflash_local.diagnose.mtp_layers import unused_layers
from dflash_local.diagnose.pair import block_refusal, compare_files, read_drafter, refuse_foreign
from dflash_local.diagnose.projector import refuse_swapped
from dflash_local.diagnose.projector_findings import look_at_projector
from dflash_local.engine_options import EngineOptions
from dflash_local.errors import ModelError
from dflash_local.machine.hardware import Machine
from dflash_local.machine.model_size import model_size
from dflash_local.words import file_size_text


def look_at_models(
    options: EngineOptions, machine: Machine, info: dict[str, Any], *, is_here: bool = True
) -> Iterator[Finding]:
    """The findings about the target, its drafter and its projector, if any. `is_here`: the files are the models
    themselves, by whose paths earlier runs are known, not their headers alone."""
    drafter_file = options.drafter if options.draft_kind != "lookup" else None
    target_path, drafter_path = Path(options.model), Path(drafter_file) if drafter_file else None
    try:
        if options.mmproj is not None:
            refuse_swapped(target_path, Path(options.mmproj))
        for path in filter(None, (target_path, drafter_path)):
            size = model_size(path)
            if path == drafter_path:
                refuse_foreign(path, target_path)
            if info:  # the strict check of every tensor needs the library
                native.check_gguf(path)
            yield ok("file", f"{path.name}, {file_size_text(size)}")
    except ModelError as error:
        yield fail("file", error.message, error.hint or "download or convert the file again", error.field)
        return
    try:
        target, drafter = Target.read(target_path), None
        yield look_at_drafting(options, target, drafter_path)
        if drafter_path:
            drafter = read_drafter(drafter_path, target)
            yield from compare_files(target, drafter)
        if options.accept == "block" and (why := block_refusal(drafter)):
            yield fail("accept", why, "leave --accept out")
        yield from look_at_projector(options, info)
        yield from look_at_memory(options, target_path, drafter_path, machine, info)
        yield from look_at_kernels(options, target_path, info)
        if not (info and is_here):
            return
        if drafter_path or (options.draft_kind in ("auto", "mtp") and not unused_layers(target)):
            yield look_at_costs(options)
            yield from look_at_acceptance(options)
    except ModelError as error:
        yield fail("pair", error.message, error.hint or "see docs/doctor.md", error.field)
