"""The drafter that a run goes on from."""

from __future__ import annotations

from pathlib import Path

from dflash_local.convert.target import Target
from dflash_local.train.drafter_file import DrafterFile
from dflash_local.train.mtp_file import MtpFile
from dflash_local.train.train_settings import TrainSettings


def initial_file(settings: TrainSettings, target: Target, work: Path) -> DrafterFile | None:
    """None: there is none. A Hugging Face folder is converted in the folder `work`. Raises ConvertError, ModelError."""
    if settings.kind == "mtp":
        return MtpFile.of(settings.init or settings.model, target, settings.block)
    return None if settings.init is None else DrafterFile.read(settings.init, target, work)
