"""The bodies of Ollama's API: chats, texts, embeddings, and the name of a model."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import Field, SkipValidation, WithJsonSchema
from typing_extensions import Self

from dflash_local.errors import RequestError
from dflash_local.sampling import MAX_HISTORY
from dflash_local.server.fields.chat import ChatRequest
from dflash_local.server.fields.completion import CompletionRequest
from dflash_local.server.fields.derived import OptionFields, SamplingFields
from dflash_local.server.fields.documents import Document, Tool, ToolChoice
from dflash_local.server.fields.fields import Fields, Policy, Refused, parted
from dflash_local.server.fields.probs import MAX_TOP_LOGPROBS
from dflash_local.server.fields.single import NO_DRAFTS, SingleFields

_STARTED = "what the server was started with holds: it changes no text"
_DURATION = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)((ns|us|µs|ms|s|m|h)((\d+(\.\d*)?)(ns|us|µs|ms|s|m|h))*)?")
_DURATIONS = 'a number of seconds or a text such as "5m"'

F = TypeVar("F", bound=Fields)


class OllamaOptions(OptionFields, SamplingFields):
    """Ollama's `options`: how the answer's tokens are chosen and drafted, and what the model is loaded with."""

    max_tokens: int | None = Field(
        None, description="most tokens of the answer; 0 and less: as many as the context holds"
    )
    stop: str | list[str] | None = Field(None, description="texts that end the answer")
    repeat_last_n: int | None = Field(
        None, ge=-1, le=MAX_HISTORY, description="tokens that the penalties look back; 0: off, -1: the whole context"
    )
    num_ctx: int | None = Field(
        None, description="tokens of the context; the server's is fixed: more is listed as ignored"
    )
    return_drafts: Literal[False] | None = Field(None, description="this format has no place for drafts")

    POLICY: ClassVar = Policy(
        names={"max_tokens": ("num_predict", "max_tokens")},
        must={"stop": "a string or a list of strings", "return_drafts": NO_DRAFTS},
        nothing={"stop": ("", []), "num_ctx": (0,)},
        harmless={
            **dict.fromkeys(
                (
                    "embedding_only", "f16_kv", "logits_all", "low_vram", "main_gpu", "num_batch", "num_gpu",
                    "num_thread", "numa", "use_mlock", "use_mmap", "vocab_only",
                ),
                _STARTED,
            ),
            "num_keep": "the context is never shifted",
        },
        refused={
            "tfs_z": Refused("tail-free sampling is not supported", unless=(1, 0)),
            "penalize_newline": Refused("a line break is penalized as any other token is", unless=(True,)),
        },
    )  # fmt: skip

    @classmethod
    def of(cls, body: Mapping[str, Any], *, strict: bool = False) -> Self:
        """As for any body, but whole numbers may have a point (8192.0), as forms of programs write them."""
        return super().of({name: _whole(value) for name, value in body.items()}, strict=strict)


class OllamaFields(SingleFields):
    """What chats and texts have in common. Fields of the other APIs that are about sampling and drafts work, too."""

    model: str | None = Field(None, description="any name: there is one model; with several, the one that answers")
    stream: bool | None = Field(None, description="the answer as lines of JSON (default: true)")
    options: OllamaOptions | None = Field(None, description="how tokens are chosen and drafted")
    format: Annotated[Any, WithJsonSchema({"anyOf": [{"const": "json"}, {"type": "object"}]})] = Field(
        None, description='"json", or the JSON schema of the answer'
    )
    think: bool | Literal["low", "medium", "high", "max"] | None = Field(
        None, description="whether it thinks first, or how hard"
    )
    keep_alive: int | float | str | None = Field(
        None,
        description="0 frees the model after the answer, if the server sleeps (--sleep-idle-seconds); no other value "
        "has an effect",
    )
    logprobs: bool | None = Field(None, description="return each token's log-probability")
    top_logprobs: int | None = Field(
        None, ge=0, le=MAX_TOP_LOGPROBS, description="return this many of the likeliest, too; needs logprobs"
    )

    POLICY: ClassVar = Policy(
        # The last one is sent by ollama-ai-provider-v2.
        names={"max_tokens": ("n_predict", "max_completion_tokens", "max_tokens", "num_predict", "max_output_tokens")},
        must={
            "think": 'true, false, "low", "medium", "high" or "max"',
            "keep_alive": _DURATIONS,
        },
        nothing={"format": ("",), "think": ("",), "keep_alive": ("",), "options": ({},)},
        harmless={
            "shift": "the context is never shifted",
            "truncate": "a prompt that is too long is an error in any case",
        },
        refused={
            "template": Refused("the server's template is used: see --chat-template", unless=("",)),
            "n_probs": "use logprobs and top_logprobs",
        },
    )

    OWN_MESSAGES: ClassVar = True
    OWN_NAMES: ClassVar = {"max_tokens": "options.num_predict", "enable_thinking": "think", "reasoning_effort": "think"}

    def own_name(self, param: str) -> str:
        root, rest = parted(param)
        if self.options is not None and root in self.options.given():
            return f"options.{self.options._sent_as.get(root, root)}{rest}"
        return super().own_name(param)

    @property
    def streams(self) -> bool:
        """Ollama streams unless it is told not to."""
        return self.stream is not False

    @property
    def unloads(self) -> bool:
        """Whether the model is to be freed after the answer. Raises RequestError if that cannot be read."""
        return unloads(self.keep_alive)

    def blame(self, error: RequestError) -> RequestError:
        """`error` with the place of an option, or of a schema."""
        param = error.param or ""
        from_format = self.format is not None and "json_schema" not in self.given() | self._given_options()
        if from_format and re.match(r"json_schema\b", param):
            return error.at(f"format{param.removeprefix('json_schema')}")
        return super().blame(error)

    def _given_options(self) -> dict[str, Any]:
        return self.options.given() if self.options is not None else {}

    def _become(self, other: type[F], fields: Mapping[str, Any], *, strict: bool) -> F:
        """These fields as another body. What loses against another field there is ignored here."""
        became = other.of(fields)
        self.ignore([self.own_name(name) for name in became.ignored], strict=strict)
        return became

    def _show(self, message: dict[str, Any], images: Any, content: str, place: str) -> None:
        """Put images before a message's text. `content` is the place of its parts in the chat completion."""
        if not images:
            return
        if not isinstance(images, list) or not all(isinstance(image, str) for image in images):
            raise RequestError(f"{place} must be a list of base64 texts, got {images!r:.80}", param=place)
        text = message.get("content")
        parts = [{"type": "image_url", "image_url": {"url": image}} for image in images]
        places = {f"{content}[{index}]": f"{place}[{index}]" for index in range(len(images))}
        self._places = {**(self._places or {}), **places}
        message["content"] = [*parts, {"type": "text", "text": text}] if text else parts

    def _generation(self, n_ctx: int, *, strict: bool) -> dict[str, Any]:
        """The fields that it shares with the other APIs, by their names; what has no effect is added to `ignored`."""
        fields = self.passed_on() | {"stream": self.streams}
        options = self._given_options()
        too_long = options.pop("num_ctx", 0) > n_ctx
        if (limit := options.get("max_tokens")) is not None:
            options["max_tokens"] = limit if limit > 0 else -1  # as Ollama reads it
        if options.get("repeat_last_n") == -1:
            options["repeat_last_n"] = min(n_ctx, MAX_HISTORY)
        twice = [name for name, value in options.items() if fields.get(name, value) != value]
        ignored = [self._sent_as.get(name, name) for name in twice]
        self.ignore(ignored + ["options.num_ctx"] * too_long, strict=strict)
        more = {name: getattr(self, name) for name in ("format", "logprobs", "top_logprobs")}
        return fields | options | {name: value for name, value in more.items() if value is not None}


class OllamaFunction(Document):
    """Which function is called, with what."""

    name: str
    arguments: dict[str, Any] = Field(description="as they are, not as text")


class OllamaCall(Document):
    """A call that the model made."""

    id: str | None = None
    function: OllamaFunction


class OllamaMessage(Document):
    """A message of the conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | None = None
    thinking: str | None = Field(None, description="an assistant's thoughts")
    tool_calls: list[OllamaCall] | None = Field(None, description="an assistant's calls")
    tool_name: str | None = Field(None, description="whose result a tool's message is")
    tool_call_id: str | None = Field(None, description="the call that a tool's message answers")
    images: list[str] | None = Field(None, description="image files as base64, which are shown before the content")


class OllamaChatRequest(OllamaFields):
    """A chat in Ollama's format."""

    messages: SkipValidation[list[OllamaMessage] | None] = Field(
        None, description="the conversation so far; empty: the model is loaded, or freed with keep_alive: 0"
    )
    tools: SkipValidation[list[Tool] | None] = Field(None, description="functions that the model may call")
    tool_choice: SkipValidation[Literal["auto", "none", "required"] | ToolChoice | None] = Field(
        None, description="whether it must call one, and which; not in Ollama, but sent by programs"
    )

    POLICY: ClassVar = Policy(nothing={"tools": ("", [], {})})

    def chat(self, n_ctx: int, *, strict: bool = False) -> ChatRequest:
        """The chat completion that it asks for, in a context of `n_ctx` tokens.

        Raises:
            RequestError: a message is malformed or cannot be read here.
        """
        messages = [] if self.messages is None else _conversation(self.messages)
        for place, message in enumerate(messages):
            shown = message.pop("images", None)
            self._show(message, shown, f"messages[{place}].content", f"messages[{place}].images")
        chat = self._generation(n_ctx, strict=strict) | {"messages": messages}
        if self.think is not None:
            chat["think"] = self.think
        if self.tools is not None:
            chat["tools"] = _tools(self.tools)
        choice: Any = self.tool_choice
        if isinstance(choice, Mapping) and "name" in choice:  # as OpenAI's responses have it
            rest = {key: value for key, value in choice.items() if key != "name"}
            choice = {"type": "function", "function": {"name": choice["name"]}, **rest}
        if choice is not None:
            chat["tool_choice"] = choice
        return self._become(ChatRequest, chat, strict=strict)


class OllamaGenerateRequest(OllamaFields):
    """A text in Ollama's format."""

    prompt: str | None = Field(
        None, description="what the user says; empty: the model is loaded, or freed with keep_alive: 0"
    )
    system: str | None = Field(None, description="instructions")
    suffix: str | None = Field(None, description="the text behind the answer, if the model has tokens for infill")
    raw: bool | None = Field(None, description="the prompt as it is, without the chat template")
    context: list[int] | None = Field(None, description="that of an earlier answer: its tokens come before the prompt")

    images: list[str] | None = Field(None, description="image files as base64, which are shown before the prompt")

    POLICY: ClassVar = Policy(
        must={"context": "a list of token ids", "images": "a list of base64 texts"},
        nothing={"images": ([],)},
        refused=dict.fromkeys(("width", "height", "steps"), "images are not generated"),
    )

    @property
    def is_plain(self) -> bool:
        """Whether the model gets the prompt without the chat template."""
        return bool(self.raw or self.suffix)

    def chat(self, n_ctx: int, *, strict: bool = False) -> ChatRequest:
        """The same as a chat completion. Raises RequestError if a field cannot be granted."""
        chat = self._generation(n_ctx, strict=strict)
        messages: list[dict[str, Any]] = [{"role": "user", "content": self.prompt or ""}]
        self._show(messages[0], self.images, f"messages[{1 if self.system else 0}].content", "images")
        if self.system:
            messages.insert(0, {"role": "system", "content": self.system})
        if self.think is not None:
            chat["think"] = self.think
        return self._become(ChatRequest, chat | {"messages": messages}, strict=strict)

    def completion(self, n_ctx: int, *, strict: bool = False) -> CompletionRequest:
        """The same without a chat template. Raises RequestError if a field cannot be granted."""
        if self.images:
            raise RequestError("images: they need the chat template: leave raw and suffix out", param="images")
        unused = ("system", "think", "context") if self.suffix else ("system", "think")
        self.ignore([name for name in unused if getattr(self, name)], strict=strict)
        fields = self._generation(n_ctx, strict=strict)
        wanted, n_top = fields.pop("logprobs", False), fields.pop("top_logprobs", 0)
        if n_top and not wanted:
            raise RequestError("top_logprobs needs logprobs: true", param="top_logprobs")
        if wanted:
            fields["logprobs"] = n_top
        return self._become(CompletionRequest, fields | {"prompt": self.prompt or ""}, strict=strict)


class OllamaEmbedFields(Fields):
    """What both requests for embeddings read."""

    model: str | None = Field(None, description="any name: there is one model for embeddings")

    POLICY: ClassVar = Policy(
        nothing={"options": ("", [], {})},
        harmless={
            "keep_alive": "the model stays loaded",
            "options": "texts are embedded with what the server was started with",
            "truncate": "a text that is too long is an error in any case",
        },
    )


class OllamaEmbedRequest(OllamaEmbedFields):
    """Embeddings of texts."""

    input: str | list[str] = Field(description="a text, or several")
    dimensions: int | None = Field(None, description="only the model's own number is accepted")

    POLICY: ClassVar = Policy(must={"input": "a text or a list of texts"}, nothing={"dimensions": (0,)})


class OllamaEmbeddingsRequest(OllamaEmbedFields):
    """The embedding of one text, as older programs ask for it."""

    prompt: str = Field(description="the text")


class OllamaShowRequest(Fields):
    """The name of a model."""

    model: str | None = Field(None, description="its name")

    POLICY: ClassVar = Policy(
        names={"model": ("model", "name")},
        nothing={"model": ("",)},
        refused={
            "verbose": "lists, such as the vocabulary, are not told",
            **dict.fromkeys(("options", "system", "template"), "a model is shown as it is served"),
        },
    )


def unloads(keep_alive: Any) -> bool:
    """Whether this `keep_alive` means that the model is freed at once. Raises RequestError if it is malformed."""
    if keep_alive is None or isinstance(keep_alive, (int, float)):
        return keep_alive == 0
    if not isinstance(keep_alive, str) or not _DURATION.fullmatch(keep_alive):
        raise RequestError(f"keep_alive must be {_DURATIONS}, got {keep_alive!r:.80}", param="keep_alive")
    return not re.search("[1-9]", keep_alive)


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


# ---- the conversation ----


def _tools(tools: Any) -> Any:
    """OpenAI's tools: all are functions, which Ollama does not need to be told."""
    if not isinstance(tools, list):
        return tools  # libdflash says what is wrong with it
    return [{"type": "function", **tool} if isinstance(tool, Mapping) else tool for tool in tools]


def _conversation(messages: Any) -> list[Any]:
    """OpenAI's messages. Ollama's calls and results may have no ids: a result belongs to the first call of its tool
    that has none yet, among the latest calls."""
    if not isinstance(messages, list):
        raise RequestError(f"messages must be a list, got {messages!r:.80}", param="messages")
    waiting: deque[tuple[str, str]] = deque()  # names and ids of calls without a result
    read: list[Any] = []
    for place, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise RequestError(f"messages[{place}] must be an object, got {message!r:.80}", param=f"messages[{place}]")
        message = {"content": "", **{name: value for name, value in message.items() if value is not None}}
        if message.get("role") == "tool" and "name" not in message and "tool_name" in message:
            message["name"] = message.pop("tool_name")
        if isinstance(calls := message.get("tool_calls"), list):
            message["tool_calls"] = [_call(call, f"call_{place}_{index}") for index, call in enumerate(calls)]
            if calls and read and read[-1].get("role") != "assistant":  # whose turn may come in several messages
                waiting.clear()
            waiting.extend(_names(message["tool_calls"]))
        if message.get("role") == "tool":
            message |= _answered(waiting, message)
        read.append(message)
    return read


def _call(call: Any, call_id: str) -> Any:
    """A call with an id, and without its `index`: its place in the list says the same."""
    if not isinstance(call, Mapping) or not isinstance(call.get("function"), Mapping):
        return call  # libdflash says what is wrong with it
    function = {name: value for name, value in call["function"].items() if name != "index"}
    return {"id": call_id, "type": "function", **call, "function": function}


def _names(calls: Sequence[Any]) -> list[tuple[str, str]]:
    return [
        (str(call["function"].get("name")), str(call["id"]))
        for call in calls
        if isinstance(call, Mapping) and isinstance(call.get("function"), Mapping)
    ]


def _answered(waiting: deque[tuple[str, str]], result: Mapping[str, Any]) -> dict[str, Any]:
    """The id of the call that a result belongs to, which then waits no longer; nothing if there is none."""
    named, wanted = result.get("name"), result.get("tool_call_id")
    for name, call_id in waiting:
        belongs = named in (None, name) if wanted is None else wanted == call_id
        if belongs:
            waiting.remove((name, call_id))
            return {"tool_call_id": call_id}
    return {}
