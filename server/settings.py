"""Settings: what the command line decides about the HTTP side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dflash_local.engine_options import DEFAULTS
from dflash_local.media.media_sources import MediaSources
from dflash_local.server.embeddings.options import ModelOptions
from dflash_local.server.fields.request import Defaults
from dflash_local.server.security.limits import Limits
from dflash_local.server.security.origins import Cors


@dataclass(frozen=True)
class Settings:
    """What the command line decides about the HTTP side."""

    alias: str = "dflash-local"  # the model's id
    aliases: tuple[str, ...] = ()  # all of its names
    tags: tuple[str, ...] = ()
    model_path: str = ""
    api_keys: tuple[str, ...] = ()
    behind_router: bool = False  # which says whose requests these are
    cors: Cors = field(default_factory=Cors)
    allowed_hosts: tuple[str, ...] | None = None  # besides names that nobody can register; None: any
    limits: Limits = field(default_factory=Limits)
    defaults: Defaults = field(default_factory=Defaults)
    api_prefix: str = ""
    webui: bool = True
    static: Path | None = None  # a folder whose files take the chat page's place
    ui_settings: Mapping[str, Any] = field(default_factory=dict)
    slots_endpoint: bool = True
    slot_save_path: Path | None = None  # folder of saved slots
    strict_fields: bool = False
    media: MediaSources = field(default_factory=MediaSources)  # where images and audio may come from
    media_marker: str = ""  # stands for media in prompts of /completion; empty: one that nobody can guess
    embedding: ModelOptions | None = None
    rerank: ModelOptions | None = None
    embd_normalize: int = 2
    max_queue: int = DEFAULTS["max_queue"]  # of each model beside the engine, which has its own
    metrics_endpoint: bool = True
    spm_infill: bool = False
    sleep_idle_seconds: float = -1  # negative: never
    n_batch: int = DEFAULTS["n_batch"]
