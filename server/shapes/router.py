"""A router's own answers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from typing_extensions import NotRequired

from dflash_local.server.shapes.answer import Answer, about
from dflash_local.server.shapes.facts import Architecture

Status = Literal["unloaded", "loading", "loaded", "sleeping"]
Source = Literal["cache", "models_dir", "preset"]


class Success(Answer):
    """It has begun."""

    success: Literal[True]


class ModelStatus(Answer):
    """The state of a model."""

    value: Status
    args: Annotated[list[str], about("command line of its process")]
    preset: NotRequired[Annotated[str, about("its section in the file of presets")]]
    progress: NotRequired[Annotated[float, about("of loading, 0 to 1")]]
    failed: NotRequired[Annotated[bool, about("its last process ended by itself")]]
    exit_code: NotRequired[Annotated[int, about("its exit status; negative: the signal that killed it")]]
    error: NotRequired[Annotated[str, about("its last lines")]]


class RouterModel(Answer):
    """A model that can be asked for."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    aliases: list[str]
    tags: list[str]
    status: ModelStatus
    architecture: Annotated[
        Architecture, about("what it reads and writes; until it is loaded, as far as its projector's file is known")
    ]
    source: Source
    can_remove: bool
    meta: NotRequired[Annotated[dict[str, Any], about("while it is loaded: what is known about it")]]


class RouterModels(Answer):
    """All models."""

    object: Literal["list"]
    data: list[RouterModel]


class RouterProps(Answer):
    """The router's properties, in llama-server's terms."""

    role: Literal["router"]
    max_instances: int
    models_autoload: bool
    model_alias: str
    model_path: str
    default_generation_settings: dict[str, Any]
    ui_settings: dict[str, Any]
    build_info: str
    cors_proxy_enabled: bool


class ModelEvent(Answer):
    """Something happened to a model."""

    model: Annotated[str, about("its name; * for all")]
    event: str
    data: NotRequired[dict[str, Any]]
