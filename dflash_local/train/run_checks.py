"""What is refused before a run has cost anything."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from dflash_local.bench import read_prompts
from dflash_local.convert.outtypes import find_outtype
from dflash_local.convert.writer import check_output
from dflash_local.errors import DFlashError, RequestError
from dflash_local.train.drafter_file import DrafterFile
from dflash_local.train.mtp_file import MtpFile
from dflash_local.train.train_settings import TrainSettings
from dflash_local.train.workspace import as_flag_value

_exists, _is_dir = os.path.exists, os.path.isdir  # pathlib raises where a folder above may not be read


def check_torch() -> None:
    """Raise DFlashError if torch is missing."""
    # Threads of torch that wait for each other spin for a millisecond by default, which costs most of the time where
    # something else needs a core. Read when it is loaded.
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")
    try:
        import torch  # noqa: F401
    except ImportError:
        raise DFlashError(
            "training needs torch", hint="pip install 'dflash-local[train]', or torch alone as its site says"
        ) from None


def check_settings(settings: TrainSettings) -> None:
    """What can be said before anything is read or loaded."""
    output = settings.output
    _check_file(output, output.absolute().parent, "-o")  # another file takes its place
    if report := settings.report:
        _check_file(report, report if report.exists() else report.absolute().parent, "--report")
    for path, what in ((settings.model, "the target"), (settings.init, "the drafter to go on from")):
        if path and output.resolve() == path.resolve():
            raise RequestError(f"{output} is {what}", param="-o", hint="give another file name to -o")
    if output.resolve() == settings.work.resolve():
        raise RequestError(
            f"{output} is the folder for what the stages leave", param="-o", hint="give another file name to -o"
        )
    for path in settings.checks:
        read_prompts(path)
    if settings.merge is not None:
        check_output(settings.merge, (settings.model, output))
    find_outtype(settings.outtype, settings.fc_type)


def _check_file(path: Path, changed: Path, param: str) -> None:
    """Raise RequestError if the file cannot be written; `changed`: what must be writable for it."""
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise RequestError(f"cannot write {path}: not a file in an existing folder", param=param)
    if not os.access(changed, os.W_OK):
        raise RequestError(f"cannot write {path}: you may not", param=param, hint=f"name another file: {param} FILE")


def check_hf(folder: Path, written: str | None) -> None:
    """Raise RequestError if the folder of --hf would lose something; `written` is one that this run wrote earlier."""
    if _exists(folder) and not _is_dir(folder):
        raise RequestError(f"{folder} is a file", param="--hf", hint="name a new folder")
    parent = next(path for path in (folder.absolute(), *folder.absolute().parents) if _exists(path))
    if not _is_dir(parent) or not os.access(parent, os.W_OK | os.X_OK):
        raise RequestError(
            f"cannot write {folder}: {parent} is not a folder in which you may write",
            param="--hf",
            hint="name another folder: --hf DIR",
        )
    if str(folder.resolve()) != written and _exists(folder) and any(folder.iterdir()):
        raise RequestError(f"{folder} is not empty", param="--hf", hint="name a new folder")


def check_init(settings: TrainSettings, init: DrafterFile | None) -> None:
    """Settings that depend on the drafter to go on from. Raises RequestError, ConvertError."""
    if init is None or isinstance(init, MtpFile):
        return
    if settings.hf:
        init.check_checkpoint()
    if settings.only == "heads" and init.kind == "dflash":
        raise RequestError(
            "a DFlash drafter has no heads of its own",
            param="--only",
            hint="--only fc or --only lora, or --kind dflash2, which gives it some",
        )
    known: dict[str, tuple[Any, Any]] = {
        "--kind": (settings.kind, init.kind),
        "--layers": (settings.layers, init.config.n_layer),
        "--block": (settings.block, init.config.block_size),
        "--feed-forward": (settings.feed_forward, init.config.n_ff),
        "--taps": (settings.taps, tuple(layer - 1 for layer in init.config.taps)),
    }
    for name, (asked, has) in known.items():
        if asked is not None and asked != has:
            raise RequestError(
                f"{name} {as_flag_value(asked)} disagrees with {settings.init}, which has {as_flag_value(has)}",
                param=name,
                hint=f"leave {name} out, or --init for a new drafter",
            )
