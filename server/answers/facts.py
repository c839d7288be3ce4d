"""Facts about the server and its model."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from dflash_local.server.answers.answer import Answer


class Health(Answer):
    """All is well."""

    status: Literal["ok"]


class ModelMeta(Answer):
    """What is known about a model."""

    vocab_type: int | None = Field(None, description="llama.cpp's number")
    ftype: str | None = Field(None, description="how most of its tensors are quantized")
    n_params: int | None
    size: int | None = Field(description="bytes of its tensors")
    n_vocab: int | None
    n_embd: int | None
    n_ctx_train: int | None
    n_ctx: int | None = Field(description="context of a slot, or the longest text")
    pooling: str | None = Field(None, description="of a model for embeddings or scores")


class Model(Answer):
    """A model that is served."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    aliases: list[str] = Field(description="all of its names")
    tags: list[str]
    meta: ModelMeta


class Models(Answer):
    """All models."""

    object: Literal["list"]
    data: list[Model]
    models: list[dict[str, Any]] = Field(description="the same as Ollama lists them")


class DefaultSettings(Answer):
    """What holds for requests that do not say."""

    params: dict[str, Any]
    n_ctx: int


class Props(Answer):
    """llama-server's properties."""

    default_generation_settings: DefaultSettings
    total_slots: int
    model_alias: str
    model_ftype: str | None = Field(description="how most of its tensors are quantized")
    model_path: str
    modalities: dict[str, bool]
    media_marker: str
    endpoint_slots: bool
    endpoint_props: bool
    endpoint_metrics: bool
    ui: bool
    ui_settings: dict[str, Any] = Field(description="those of --ui-config")
    chat_template: str
    chat_template_caps: dict[str, bool] = Field(description="what the template can")
    bos_token: str
    eos_token: str
    build_info: str
    is_sleeping: bool
    cors_proxy_enabled: bool
    dflash: dict[str, Any] = Field(description="target, drafter, context and memory")


class NextToken(Answer):
    """What a slot generates."""

    has_next_token: bool
    n_remain: int = Field(description="tokens that may still come; -1: no limit, or it has ended")
    n_decoded: int


class Slot(Answer):
    """A slot."""

    id: int
    n_ctx: int
    speculative: bool
    is_processing: bool
    id_task: int | None = Field(None, description="absent, as all below, until a request has run on the slot")
    n_prompt_tokens: int | None = Field(None, description="tokens that it holds")
    n_prompt_tokens_processed: int | None = Field(None, description="of the prompt, those that were read")
    n_prompt_tokens_cache: int | None = Field(None, description="of the prompt, those that were in the cache")
    params: dict[str, Any] | None = Field(None, description="what the request wanted")
    next_token: list[NextToken] | None = Field(None)
