"""A router's own answers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from typing_extensions import NotRequired

from dflash_local.server.answers.answer import Answer, about

Status = Literal["unloaded", "loading", "loaded", "sleeping"]
Source = Literal["cache", "models_dir", "preset"]


class Success(Answer):
    """It was begun."""

    success: Literal[True]


class ModelStatus(Answer):
    """How it is with a model."""

    value: Status
    args: Annotated[list[str], about("command line of its process")]
    preset: NotRequired[Annotated[str, about("its section in the file of presets")]]
    progress: NotRequired[Annotated[float, about("of loading, 0 to 1")]]
    failed: NotRequired[Annotated[bool, about("its last process ended by itself")]]
    exit_code: NotRequired[Annotated[int, about("with which status; negative: by that signal")]]
    error: NotRequired[Annotated[str, about("and its last words")]]


class RouterModel(Answer):
    """A model that can be asked for."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    aliases: list[str]
    tags: list[str]
    status: ModelStatus
    architecture: Annotated[dict[str, list[str]], about("what it reads and writes")]
    source: Source
    can_remove: bool
    meta: NotRequired[Annotated[dict[str, Any], about("while it is loaded: what is known about it")]]


class RouterModels(Answer):
    """All models."""

    object: Literal["list"]
    data: list[RouterModel]


class RouterProps(Answer):
    """The router's properties, in llama-server's words."""

    role: Literal["router"]
    max_instances: int
    models_autoload: bool
    model_alias: str
    model_path: str
    default_generation_settings: dict[str, Any]
    ui_settings: dict[str, Any]
    build_info: str
    cors_proxy_enabled: bool
