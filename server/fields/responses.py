"""ResponsesRequest: the body of OpenAI's responses, and the chat completion that it asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import Field, PrivateAttr, SkipValidation, WithJsonSchema

from dflash_local.errors import RequestError
from dflash_local.server.fields.chat import ChatRequest
from dflash_local.server.fields.documents import Document
from dflash_local.server.fields.fields import Fields, Policy
from dflash_local.server.fields.item import Item, items
from dflash_local.server.fields.single import SingleFields
from dflash_local.server.fields.transcript import Transcript
from dflash_local.server.thoughts import unseal

_STORED = "nothing is stored: send the whole conversation in input"


class ToolName(NamedTuple):
    """What a client calls a function."""

    name: str
    namespace: str | None = None

    @property
    def chat(self) -> str:
        """Its name in a chat completion, which knows no namespaces."""
        if self.namespace is None:
            return self.name
        return f"{self.namespace.removesuffix('__')}__{self.name}"


class InputItem(Document):
    """A message, a thought, a call or its output."""

    type: str | None = None
    role: Literal["user", "assistant", "system", "developer"] | None = None
    content: str | list[dict[str, Any]] | None = None


class ResponseTool(Document):
    """A function, or a namespace of functions. Tools of other types are left out."""

    type: str
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = Field(None, description="JSON schema of the arguments")


class Reasoning(Fields):
    """How the model thinks."""

    effort: str | None = Field(None, description="a variable for the chat template; none: do not think")

    POLICY: ClassVar = Policy(
        harmless={
            "summary": "thoughts come whole, as content",
            "generate_summary": "thoughts come whole, as content",
            "context": "thoughts that are sent back are read",
        }
    )


class TextFormat(Fields):
    """The form of the answer's text."""

    type: Literal["text", "json_object", "json_schema"]
    schema_: dict[str, Any] | None = Field(None, alias="schema", description="for json_schema")
    name: str | None = Field(None, description="returned in the response")
    description: str | None = Field(None, description="returned in the response")
    strict: bool | None = Field(None, description="a schema always holds")


class TextConfig(Fields):
    """The wanted form of the answer's text."""

    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = Field(None, description="changes nothing")


class ResponsesRequest(SingleFields):
    """A response in OpenAI's newer format."""

    input: SkipValidation[str | list[InputItem] | None] = Field(None, description="the conversation so far")
    instructions: str | None = Field(None, description="instructions before the conversation")
    tools: SkipValidation[list[ResponseTool] | None] = Field(None, description="functions that the model may call")
    tool_choice: Annotated[Any, WithJsonSchema({"type": ["string", "object"]})] = Field(
        None, description="auto, none, required, one function, or allowed_tools"
    )
    parallel_tool_calls: bool | None = Field(None, description="several calls in one answer")
    max_tool_calls: int | None = Field(None, ge=1, description="of tools that this server runs: there are none")
    reasoning: Reasoning | None = Field(None, description="how the model thinks")
    text: TextConfig | None = Field(None, description="text or JSON")
    include: list[str] | None = Field(None, description="thoughts always come with encrypted_content")
    truncation: Literal["auto", "disabled"] | None = Field(None, description="prompts are never cut")
    store: bool | None = Field(None, description="nothing is stored")
    metadata: dict[str, Any] | None = Field(None, description="returned in the response")
    prompt_cache_key: str | None = Field(None, description="returned in the response")
    safety_identifier: str | None = Field(None, description="returned in the response")
    user: str | None = Field(None, description="returned in the response")
    chat_template_kwargs: dict[str, Any] | None = Field(None, description="more variables for the chat template")
    enable_thinking: bool | None = Field(None, description="a variable for the chat template")

    # OpenAI's wording, by which Codex knows to leave images out.
    MEDIA_WORDS: ClassVar = {"image": "The image data you provided does not represent a valid image for this model: "}
    OWN_NAMES: ClassVar = {
        "messages": "input",
        "reasoning_effort": "reasoning.effort",
        "response_format.json_schema.schema": "text.format.schema",
        "tool_choice.allowed_tools": "tool_choice",
    }
    POLICY: ClassVar = Policy(
        names={"max_tokens": ("max_output_tokens", "max_tokens", "n_predict")},
        harmless={
            "prompt_cache_options": "prompts are found in the cache by their tokens",
            "client_metadata": "nothing is stored",
        },
        refused={
            "previous_response_id": _STORED,
            "conversation": _STORED,
            "prompt": "no prompts are stored: send instructions and input",
            "background": "nothing runs without its client: leave background out",
        },
    )

    _names: dict[str, ToolName] = PrivateAttr({})
    _used_tools: list[dict[str, Any]] = PrivateAttr([])

    @property
    def names(self) -> dict[str, ToolName]:
        """What the client calls the functions of the chat completion, once `chat` was called."""
        return self._names

    @property
    def used_tools(self) -> list[dict[str, Any]]:
        """The tools that the model may call, once `chat` was called."""
        return self._used_tools

    def chat(self, *, strict: bool = False) -> ChatRequest:
        """The chat completion that it asks for; what a chat completion cannot express is added to `ignored`.

        Raises:
            RequestError: an item or tool is malformed or cannot be read here.
        """
        ignored: list[str] = []
        chat = self.passed_on("chat_template_kwargs", "enable_thinking")
        transcript = _conversation(self, ignored)
        chat["messages"], self._places = transcript.messages, transcript.places
        last = transcript.messages[-1]
        if last["role"] == "assistant" and "tool_calls" not in last:
            chat["continue_final_message"] = False  # OpenAI's answer begins anew; calls without results are refused
        chat |= self._tools(ignored)
        if self.reasoning is not None and self.reasoning.effort is not None:
            chat["reasoning_effort"] = self.reasoning.effort
        if self.text is not None and self.text.format is not None:
            chat["response_format"] = _response_format(self.text.format)
        ignored += ["store"] * (self.store is True) + ["truncation"] * (self.truncation == "auto")
        ignored += _not_included(self.include or [])
        self.ignore(ignored, strict=strict)
        return ChatRequest.of(chat)

    def _media_param(self, place: str, rest: str) -> str:
        return place + rest.removesuffix(".url")

    def _tools(self, ignored: list[str]) -> dict[str, Any]:
        functions = _functions(self, ignored)
        self._names = {name.chat: name for name, _, _ in functions}
        sent: list[Any] = list(self.tools or ())
        self._used_tools = [{**_TOOLS[tool["type"]], **tool} for tool in sent if tool["type"] in _TOOLS]
        choice = _choice(self.tool_choice, {name.chat for name, _, _ in functions}, ignored)
        chosen: dict[str, Any] = {
            name: value
            for name, value in (("tool_choice", choice), ("parallel_tool_calls", self.parallel_tool_calls))
            if value is not None
        }
        self._tool_places += [place for _, _, place in functions]
        return chosen | ({"tools": [function for _, function, _ in functions]} if functions else {})


# ---- the conversation ----


def _conversation(body: ResponsesRequest, ignored: list[str]) -> Transcript:
    transcript = Transcript()
    if body.instructions:
        transcript.at = "instructions"
        transcript.instruct(body.instructions)
    transcript.at = "input"
    if isinstance(body.input, str):
        transcript.ask(body.input)
    elif isinstance(body.input, list):
        for item in items(body.input, "input", ignored):
            _read_item(item, transcript)
    elif body.input is not None:
        raise RequestError("input must be a string or a list of items", param="input")
    if not transcript.messages:
        raise RequestError("input is empty: at least one item is needed", param="input")
    return transcript


def _read_item(item: Item, transcript: Transcript) -> None:
    kind = item.text("type") or ("message" if item.get("role", str) else "item_reference")
    transcript.at = item.place
    if kind == "message":
        _read_message(item, transcript)
    elif kind == "reasoning":
        _read_reasoning(item, transcript)
    elif kind in _CALLS:
        name, arguments = _CALLS[kind](item)
        transcript.call(item.get("call_id", str) or item.need("id", str), name, arguments, item.place)
        item.finish("id", "status", "caller", "environment", "async")
    elif kind.endswith("_call_output") and f"{kind.removesuffix('_output')}" in _CALLS:
        call_id = item.get("call_id", str) or item.need("id", str)
        transcript.result(call_id, _output(item))
        item.finish("id", "status", "caller", "name", "namespace", "max_output_length", "success")
    elif kind == "item_reference":
        raise item.refusal("type", f"'item_reference' is not supported: {_STORED}")
    elif kind == "compaction":
        raise item.refusal("type", "'compaction' is not supported: only the server that made it can read it")
    elif kind.endswith(_OTHERS):
        item.ignore(kind)  # what another server's own tools did
    else:
        raise item.refusal("type", f"'{kind:.40}' is not known here")


_OTHERS = ("_call", "_call_output", "_tools", "_request", "_response", "_trigger", "_output", "_update")


def _read_message(item: Item, transcript: Transcript) -> None:
    role = item.need("role", str)
    say = {"user": transcript.ask, "assistant": transcript.answer}.get(role, transcript.instruct)
    if role not in ("user", "assistant", "system", "developer"):
        raise item.refusal("role", f"must be user, assistant, system or developer, got {role!r:.40}")
    content = item.need_texts("content")
    if isinstance(content, str) and (content or role == "user"):
        say(content)
    for part in [] if isinstance(content, str) else item.items("content"):
        if part.text("type") in _MEDIA and role == "user":
            transcript.show(_medium(part), part.place)
        elif (text := _text(part)) or role == "user":
            say(text)
    if role == "user":
        transcript.heard()
    item.finish("id", "status", "phase")


def _read_reasoning(item: Item, transcript: Transcript) -> None:
    thoughts = "".join(map(_thought, item.items("content")))
    thoughts = thoughts or unseal(item.text("encrypted_content")) or ""
    if thoughts:
        transcript.think(thoughts)
    elif item.text("encrypted_content") or bool(item.get("summary", list)):
        item.ignore("reasoning")  # another server's
    item.finish("id", "summary", "status", "encrypted_content", "internal_chat_message_metadata_passthrough")


def _thought(part: Item) -> str:
    text = part.text("text")
    part.finish("type")
    return text


def _text(part: Item) -> str:
    kind = part.need("type", str)
    if kind in ("input_text", "output_text", "text", "summary_text"):
        text = part.need("text", str)
    elif kind == "refusal":
        text = part.need("refusal", str)
    elif kind in _MEDIA:
        raise part.refusal("type", f"'{kind}' belongs to what a user says and to the outputs of tools")
    elif kind == "input_file":
        raise part.refusal("type", "'input_file' is not supported: send the file's text as input_text")
    else:
        raise part.refusal("type", f"'{kind:.40}' is not known here")
    part.finish("annotations", "logprobs", "prompt_cache_breakpoint")
    return text


_MEDIA = ("input_image", "computer_screenshot", "input_audio")


def _medium(part: Item) -> dict[str, Any]:
    """A chat completion's content part for an image or audio."""
    kind = part.need("type", str)
    if kind == "input_audio":
        content: dict[str, Any] = {"type": kind, kind: part.need(kind, dict)}
    else:
        if part.text("file_id"):
            raise part.refusal("file_id", f"is not known: {_STORED}")
        content = {"type": "image_url", "image_url": {"url": part.need("image_url", str)}}
        if part.text("detail") not in ("", "auto"):
            part.ignore("detail")
    part.finish("prompt_cache_breakpoint")
    return content


def _output(item: Item) -> str | list[tuple[Mapping[str, Any], str]]:
    """What a tool returned: text, text parts, or objects of its own kind; with images or audio among them content parts
    with their places."""
    output = item.texts("output")
    if isinstance(output, str):
        return output
    parts: list[tuple[Mapping[str, Any], str]] = []
    for part in item.items("output"):
        if part.text("type") in _MEDIA:
            parts.append((_medium(part), part.place))
        else:
            text = _text(part) if part.text("type") else part.dump()
            parts.append(({"type": "text", "text": text}, part.place))
    if all(part["type"] == "text" for part, _ in parts):
        return "\n".join(part["text"] for part, _ in parts)
    return parts


def _function_call(item: Item) -> tuple[str, str]:
    name = ToolName(item.need("name", str), item.get("namespace", str))
    return name.chat, item.need("arguments", str) or "{}"


def _custom_call(item: Item) -> tuple[str, dict[str, Any]]:
    return item.need("name", str), {"input": item.need("input", str)}


def _call_of(name: str, key: str) -> Callable[[Item], tuple[str, dict[str, Any]]]:
    return lambda item: (name, item.need(key, dict))


# Calls that a client ran, by type of item: the function's name and its arguments.
_CALLS: dict[str, Callable[[Item], tuple[str, str | dict[str, Any]]]] = {
    "function_call": _function_call,
    "custom_tool_call": _custom_call,
    "local_shell_call": _call_of("local_shell", "action"),
    "shell_call": _call_of("shell", "action"),
    "apply_patch_call": _call_of("apply_patch", "operation"),
}


def _not_included(wanted: list[str]) -> list[str]:
    """What `include` asks for and an answer will not have: most of it is about tools that do not run here."""
    if "message.output_text.logprobs" in wanted:
        raise RequestError("include: log-probabilities are not supported here", param="include")
    known = ("reasoning.", "file_search_call.", "web_search_call.", "computer_call_output.", "code_interpreter_call.")
    return [f"include.{name}" for name in wanted if not name.startswith(known)]


# ---- tools ----

# What a response shows for keys of a tool that the request left out.
_TOOLS: dict[str, dict[str, Any]] = {"function": {"parameters": None, "strict": None}, "namespace": {"description": ""}}


def _functions(body: ResponsesRequest, ignored: list[str]) -> list[tuple[ToolName, dict[str, Any], str]]:
    """The functions among the tools, with their places. All other tools are listed as ignored: models call them by
    means that only their servers have."""
    if body.tools is not None and not isinstance(body.tools, list):
        raise RequestError("tools must be a list", param="tools")
    functions: list[tuple[ToolName, dict[str, Any], str]] = []
    for tool in items(body.tools or [], "tools", ignored):
        kind = tool.need("type", str)
        if kind == "function":
            functions.append(_function(tool, None))
        elif kind == "namespace":
            namespace = tool.need("name", str)
            for inner in tool.items("tools"):
                if inner.text("type") in ("", "function"):
                    functions.append(_function(inner, namespace))
                else:
                    inner.ignore(inner.text("type"))
            tool.finish("description")
        else:
            tool.ignore(f"{kind}.{tool.text('name')}" if tool.text("name") else kind)
    return functions


def _function(tool: Item, namespace: str | None) -> tuple[ToolName, dict[str, Any], str]:
    name = ToolName(tool.need("name", str), namespace)
    function: dict[str, Any] = {"name": name.chat, "description": tool.text("description")}
    function["parameters"] = tool.get("parameters", dict) or {}
    tool.finish("type", "strict", "defer_loading", "output_schema", "allowed_callers", "async")
    return name, {"type": "function", "function": function}, tool.place


_CHOICES = (
    'auto, none, required, {"type": "function", "name": ...} or {"type": "allowed_tools", "mode": ..., "tools": [...]}'
)


def _choice(choice: Any, names: set[str], ignored: list[str]) -> Any:
    """A chat completion's `tool_choice`."""
    if choice in (None, "auto", "none", "required"):
        return choice
    if not isinstance(choice, dict):
        raise RequestError(f"tool_choice must be {_CHOICES}, got {choice!r:.80}", param="tool_choice")
    item = Item(choice, "tool_choice", ignored)
    if item.need("type", str) != "allowed_tools":
        return _chosen(item, names)
    allowed = {"mode": item.text("mode") or "auto", "tools": [_chosen(tool, names) for tool in item.items("tools")]}
    item.finish()
    return {"type": "allowed_tools", "allowed_tools": allowed}


def _chosen(item: Item, names: set[str]) -> dict[str, Any]:
    """One of the functions, as a chat completion's `tool_choice` names it."""
    if (kind := item.need("type", str)) != "function":
        raise item.refusal("type", f"must be function, got {kind!r:.40}: there are no tools of other types")
    name = ToolName(item.need("name", str), item.get("namespace", str)).chat
    if name not in names:
        raise item.refusal("name", f"{name!r:.80} is not among the tools")
    item.finish()
    return {"type": "function", "function": {"name": name}}


def _response_format(wanted: TextFormat) -> dict[str, Any]:
    if wanted.type != "json_schema":
        return {"type": wanted.type}
    if wanted.schema_ is None:
        raise RequestError("text.format.schema is missing", param="text.format.schema")
    return {"type": "json_schema", "json_schema": {"schema": wanted.schema_}}
