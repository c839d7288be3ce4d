"""A router's own answers."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from dflash_local.server.answers.answer import Answer


class Success(Answer):
    """It was begun."""

    success: Literal[True]


class ModelStatus(Answer):
    """How it is with a model."""

    value: Literal["unloaded", "loading", "loaded", "sleeping"]
    args: list[str] = Field(description="command line of its process")
    preset: str | None = Field(None, description="its section in the file of presets")
    progress: float | None = Field(None, description="of loading, 0 to 1")
    failed: bool = Field(False, description="its last process ended by itself")
    exit_code: int | None = Field(None, description="with which status; negative: by that signal")
    error: str | None = Field(None, description="and its last words")


class RouterModel(Answer):
    """A model that can be asked for."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    aliases: list[str]
    tags: list[str]
    status: ModelStatus
    architecture: dict[str, list[str]] = Field(description="what it reads and writes")
    source: Literal["cache", "models_dir", "preset"]
    can_remove: bool
    meta: dict[str, Any] | None = Field(None, description="while it is loaded: what is known about it")


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


class ModelEvent(Answer):
    """Something happened to a model."""

    model: str = Field(description="its name; * for all")
    event: str
    data: dict[str, Any] | None = None
