"""The drafter that a run goes on from, and the form of a new one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dflash_local.convert.gguf_metadata import read_metadata
from dflash_local.convert.target import Target
from dflash_local.errors import RequestError
from dflash_local.train.drafter_file import DrafterFile, new_settings, spread_taps
from dflash_local.train.mtp_file import MtpFile
from dflash_local.train.train_settings import TrainSettings

_LAYERS = 3  # of a new drafter
_BLOCK = 16


def initial_file(settings: TrainSettings, target: Target, work: Path) -> DrafterFile | None:
    """None: there is none. A Hugging Face folder is converted in the folder `work`; wider feed-forward parts than asked
    for become narrower, and a DFlash drafter becomes the kind that is asked for. Raises RequestError, ConvertError,
    ModelError."""
    if settings.kind == "mtp":
        return MtpFile.of(settings.init or settings.model, target, settings.block)
    if settings.init is None:
        return None
    file, n_ff = DrafterFile.read(settings.init, target, work), settings.feed_forward
    if n_ff is not None and n_ff < file.config.n_ff:
        file = file.narrowed(n_ff, target)
    if file.kind == "dflash" and settings.kind in ("dflash2", "dspark"):
        if settings.only in ("fc", "lora"):
            raise RequestError(
                f"--only {settings.only} does not train the new parts of --kind {settings.kind}",
                param="--only",
                hint="--only heads trains them alone; without --only all is trained",
            )
        file = file.grown(settings.kind, target, settings.seed)
    return file


def new_form(settings: TrainSettings, target: Target, mask_token: int) -> dict[str, Any]:
    """The authors' config.json of the new drafter that is asked for."""
    return new_settings(
        target,
        read_metadata(settings.model),
        settings.kind or "dflash",
        layers=settings.layers or _LAYERS,
        block=settings.block or _BLOCK,
        taps=settings.taps or spread_taps(target.n_layer),
        mask_token=mask_token,
        feed_forward=settings.feed_forward,
    )
