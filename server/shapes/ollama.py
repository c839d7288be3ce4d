"""Ollama's answers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from typing_extensions import NotRequired

from dflash_local.server.shapes.answer import Answer, about
from dflash_local.server.shapes.probs import TokenAnswer
from dflash_local.server.shapes.timings import DraftingAnswer, ProgressAnswer, TimingsAnswer

Capability = Literal["completion", "tools", "thinking", "insert", "embedding", "vision", "audio"]


class OllamaError(Answer):
    """What went wrong; in the middle of a stream its last line."""

    error: str


class OllamaFacts(Answer):
    """What is known at the end; durations are nanoseconds."""

    done_reason: NotRequired[Literal["stop", "length", "load", "unload", "cancelled"]]
    total_duration: NotRequired[int]
    load_duration: NotRequired[Annotated[int, about("until the request was read, and the model awake")]]
    prompt_eval_count: NotRequired[Annotated[int, about("tokens of the prompt")]]
    prompt_eval_duration: NotRequired[int]
    eval_count: NotRequired[Annotated[int, about("tokens of the answer")]]
    eval_duration: NotRequired[int]


class OllamaPart(OllamaFacts):
    """A whole answer, or a part of one."""

    model: str
    created_at: str
    done: Annotated[bool, about("whether this is the last part")]
    logprobs: NotRequired[Annotated[list[TokenAnswer], about("with logprobs")]]
    timings: NotRequired[Annotated[TimingsAnswer, about("with timings_per_token")]]
    dflash: NotRequired[Annotated[DraftingAnswer, about("beside `timings`")]]
    prompt_progress: NotRequired[Annotated[ProgressAnswer, about("with return_progress, before any text")]]


class OllamaCalledFunction(Answer):
    """The function and its arguments."""

    index: int
    name: str
    arguments: dict[str, Any]


class OllamaCallAnswer(Answer):
    """A call of a tool."""

    id: str
    function: OllamaCalledFunction


class OllamaAssistant(Answer):
    """What the model says; of a stream what is new."""

    role: Literal["assistant"]
    content: str
    thinking: NotRequired[str]
    tool_calls: NotRequired[list[OllamaCallAnswer]]


class OllamaChat(OllamaPart):
    """The answer of a chat."""

    message: OllamaAssistant


class OllamaText(OllamaPart):
    """The answer to a prompt."""

    response: str
    thinking: NotRequired[str]
    context: NotRequired[Annotated[list[int], about("tokens of the prompt and the answer")]]


class OllamaEmbeddings(Answer):
    """The vectors of texts."""

    model: str
    embeddings: list[list[float]]
    total_duration: int
    load_duration: int
    prompt_eval_count: int


class OllamaEmbedding(Answer):
    """The vector of one text."""

    embedding: list[float]


class OllamaVersion(Answer):
    """The version of Ollama whose API this is."""

    version: str


class OllamaDetails(Answer):
    """What kind of model it is."""

    parent_model: str
    format: Literal["gguf"]
    family: Annotated[str, about("the architecture")]
    families: list[str]
    parameter_size: str
    quantization_level: str


class OllamaTag(Answer):
    """A model that may be asked for."""

    name: str
    model: str
    modified_at: str
    size: Annotated[int, about("bytes of its files")]
    digest: Annotated[str, about("the cache's hash of its file, or one of its size and of parts of it")]
    details: OllamaDetails


class OllamaTags(Answer):
    """All models."""

    models: list[OllamaTag]


class OllamaLoaded(Answer):
    """A model in memory."""

    name: str
    model: str
    size: Annotated[int, about("bytes of memory")]
    size_vram: Annotated[int, about("those of them on devices; a router does not know them, and says 0")]
    digest: str
    details: OllamaDetails
    expires_at: Annotated[str, about("when it sleeps unless it is asked; far away if never")]
    context_length: int


class OllamaProcesses(Answer):
    """The models in memory."""

    models: list[OllamaLoaded]


class OllamaModel(Answer):
    """A model."""

    license: NotRequired[str]
    modelfile: str
    parameters: str
    template: str
    details: OllamaDetails
    model_info: Annotated[dict[str, Any], about("the keys of its GGUF; context_length is what a request may use here")]
    capabilities: list[Capability]
    modified_at: str
