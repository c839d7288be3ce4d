"""Flags that name a target, its drafter and its projector."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from dflash_local.cli.flags.engine_flags import EngineFlags, add_engine_flags
from dflash_local.cli.flags.flag import Flags, add_fields, flag


class HubFlags(Flags):
    """How the Hub is reached."""

    hf_token: str | None = flag(
        "-hft --hf-token",
        "token for gated and private repositories (default: that of 'hf auth login')",
        env="HF_TOKEN",
        metavar="TOKEN",
    )
    offline: bool = flag("--offline", "use only the cache, never the network", env="LLAMA_ARG_OFFLINE")


class HubModelFlags(HubFlags):
    """Which models of the Hub."""

    hf_repo: str | None = flag(
        "-hf -hfr --hf-repo",
        "the target from the Hugging Face Hub, its drafter, if one is beside it or known ('dflash-local pairs'), and "
        "its projector, if one is beside it; downloaded once",
        env="LLAMA_ARG_HF_REPO",
        metavar="USER/NAME[:QUANT]",
    )
    hf_file: str | None = flag(
        "-hff --hf-file",
        "the file of that repository, whatever the quantization",
        env="LLAMA_ARG_HF_FILE",
        metavar="FILE",
    )
    hf_repo_draft: str | None = flag(
        "-hfd -hfrd --spec-draft-hf --hf-repo-draft",
        "its drafter from the Hub: a GGUF, or a checkpoint to convert; -md then names a file in it",
        env="LLAMA_ARG_SPEC_DRAFT_HF_REPO",
        metavar="USER/NAME[:QUANT]",
    )
    mmproj_url: str | None = flag(
        "-mmu --mmproj-url",
        "its projector from this address; downloaded once",
        env="LLAMA_ARG_MMPROJ_URL",
        metavar="URL",
    )
    mmproj_auto: bool = flag(
        "--mmproj-auto",
        "use the projector that a target named by -hf, or kept by another program, comes with (default)",
        env="LLAMA_ARG_MMPROJ_AUTO",
        off="--no-mmproj --no-mmproj-auto",
        off_help="use only one that --mmproj or --mmproj-url names",
    )


class ModelFlags(EngineFlags, HubModelFlags):
    """A target, its drafter and its projector, as files or by name, and the engine that runs them. `typed` has the
    words of each flag that comes from the command line, not from its variable, by its place."""

    typed: Mapping[str, tuple[str, ...]]
    model: str | None
    drafter: str | None
    mmproj: str | None


def add_model_flags(parser: argparse.ArgumentParser, defaults: Mapping[str, Any] | None = None) -> None:
    """Add ModelFlags; `defaults` are the command's own for options of the engine."""
    models = add_engine_flags(parser, defaults=defaults)["models"]
    add_fields(models, HubModelFlags)
    add_fields(models, HubFlags)
