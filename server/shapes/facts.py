"""Facts about the server and its model."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from typing_extensions import NotRequired

from dflash_local.server.shapes.answer import Answer, about


class Health(Answer):
    """All is well."""

    status: Literal["ok"]


class ModelMeta(Answer):
    """What is known about a model."""

    vocab_type: NotRequired[Annotated[int, about("llama.cpp's number")]]
    ftype: NotRequired[Annotated[str, about("how most of its tensors are quantized")]]
    n_params: int | None
    size: Annotated[int | None, about("bytes of its tensors")]
    n_vocab: int | None
    n_embd: int | None
    n_ctx_train: int | None
    n_ctx: Annotated[int | None, about("context of a slot, or the longest text")]
    pooling: NotRequired[Annotated[str, about("of a model for embeddings or scores")]]


class Architecture(Answer):
    """What a model reads and writes, as llama-server's router tells it."""

    input_modalities: list[Literal["text", "image", "audio"]]
    output_modalities: list[Literal["text"]]


class Model(Answer):
    """A model that is served."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    aliases: Annotated[list[str], about("all of its names")]
    tags: list[str]
    architecture: NotRequired[Annotated[Architecture, about("of a model that writes")]]
    meta: ModelMeta


class Models(Answer):
    """All models."""

    object: Literal["list"]
    data: list[Model]
    models: Annotated[list[dict[str, Any]], about("the same as Ollama lists them")]


class DefaultSettings(Answer):
    """Defaults of requests."""

    params: dict[str, Any]
    n_ctx: int


class CommonProps(Answer):
    """Properties of every server of one or a few models."""

    modalities: dict[str, bool]
    media_marker: str
    endpoint_slots: bool
    endpoint_props: bool
    endpoint_metrics: bool
    ui: bool
    ui_settings: Annotated[dict[str, Any], about("those of --ui-config")]
    build_info: str
    is_sleeping: bool
    cors_proxy_enabled: bool


class Props(CommonProps):
    """llama-server's properties."""

    total_slots: int
    model_alias: str
    model_path: str
    default_generation_settings: NotRequired[
        Annotated[DefaultSettings, about("absent without an engine, as all below")]
    ]
    model_ftype: NotRequired[Annotated[str | None, about("how most of its tensors are quantized")]]
    chat_template: NotRequired[str]
    chat_template_caps: NotRequired[Annotated[dict[str, bool], about("what the template can do")]]
    bos_token: NotRequired[str]
    eos_token: NotRequired[str]
    dflash: NotRequired[Annotated[dict[str, Any], about("target, drafter, context and memory")]]


class NextToken(Answer):
    """What a slot generates."""

    has_next_token: bool
    n_remain: Annotated[int, about("tokens that may still come; -1: no limit, or it has ended")]
    n_decoded: int


class Slot(Answer):
    """A slot."""

    id: int
    n_ctx: int
    speculative: bool
    is_processing: bool
    id_task: NotRequired[Annotated[int, about("absent, as all below, until a request has run on the slot")]]
    n_prompt_tokens: NotRequired[Annotated[int, about("tokens that it holds")]]
    n_prompt_tokens_processed: NotRequired[Annotated[int, about("of the prompt, those that were read")]]
    n_prompt_tokens_cache: NotRequired[Annotated[int, about("of the prompt, those that were in the cache")]]
    params: NotRequired[Annotated[dict[str, Any], about("what the request asked for")]]
    next_token: NotRequired[list[NextToken]]
