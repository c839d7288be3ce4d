"""Flags of `serve` for several models behind one endpoint."""

from __future__ import annotations

from pathlib import Path

from dflash_local.cli.flags.flag import SILENT, Flags, flag
from dflash_local.cli.flags.values import count

PRESET = "--models-preset"
TARGETS = frozenset({"model", "hf_repo", "embedding_model", "rerank_model"})  # flags that name one model


class RouterFlags(
    Flags,
    title="several models",
    text="without a model, those of the cache, the folder and the presets; a request's field chooses",
):
    """Which models there are, and how many are loaded."""

    models_dir: Path | None = flag(
        "--models-dir",
        "folder with GGUF models; each gets the drafter that fits it there, and the projector of its own folder",
        env="LLAMA_ARG_MODELS_DIR",
        metavar="DIR",
    )
    models_found: bool = flag("--models-found", "also the models that 'dflash-local models' lists, by these names")
    models_preset: Path | None = flag(
        PRESET, "INI file: a section for each model, with flags as keys; [*] is for all", env="LLAMA_ARG_MODELS_PRESET"
    )
    models_max: int = flag(
        "--models-max",
        "models loaded at once; the least recently used one makes room (default: 4; 0: no limit)",
        env="LLAMA_ARG_MODELS_MAX",
        type=count(),
        default=4,
    )
    models_autoload: bool = flag(
        "--models-autoload",
        "load a model when it is asked for (default)",
        env="LLAMA_ARG_MODELS_AUTOLOAD",
        off="--no-models-autoload",
        off_help="only POST /models/load loads them",
    )
    parent_pipes: bool = flag("--parent-pipes", SILENT)
