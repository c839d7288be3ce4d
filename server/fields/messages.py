"""MessagesRequest: the body of Anthropic's messages, and the chat completion that it asks for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, SkipValidation, WithJsonSchema

from dflash_local.errors import RequestError
from dflash_local.server.fields.chat import ChatRequest
from dflash_local.server.fields.documents import Document
from dflash_local.server.fields.fields import Fields, Policy
from dflash_local.server.fields.item import Item, items
from dflash_local.server.fields.single import SingleFields
from dflash_local.server.fields.transcript import Transcript
from dflash_local.server.thoughts import unseal

MAX_TOKENS = 4096  # of an answer if the client does not say, as in llama-server

# Claude Code's first block of instructions. It means nothing to a model, and differs in every request, so that no two
# prompts would share a prefix.
_BILLING_HEADER = re.compile(r"x-anthropic-billing-header:(?:[ \t]*[\w.-]+=[^;\n]*;)*\s*")
_EFFORTS = {"xhigh": "high", "max": "high"}  # templates know low, medium and high


class Turn(Document):
    """A turn of the conversation."""

    role: Literal["user", "assistant", "system"]
    content: str | list[dict[str, Any]] = Field(
        description="text, or blocks: text, image, thinking, redacted_thinking, tool_use, tool_result, search_result"
    )


class MessageTool(Document):
    """A tool of the client. Tools of Anthropic's own, which have another `type`, are left out."""

    name: str
    description: str | None = None
    input_schema: dict[str, Any] = Field(description="JSON schema of the input")
    type: Literal["custom"] | None = None


class MessageToolChoice(Fields):
    """Which tools the model may or must call."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = Field(None, description="of the one tool to call")
    disable_parallel_tool_use: bool | None = Field(None, description="at most one call in an answer")


class Thinking(Fields):
    """Whether the model thinks before it answers."""

    type: Literal["enabled", "disabled", "adaptive"] = Field(description="adaptive: as the model likes")
    budget_tokens: int | None = Field(None, ge=0, description="most tokens of thoughts")
    display: Literal["summarized", "omitted"] | None = Field(
        None, description="omitted: thoughts are not shown; the signature brings them back"
    )


class JsonFormat(Fields):
    """An answer that is JSON."""

    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class OutputConfig(Fields):
    """The wanted form and effort of the answer."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = Field(None, description="reasoning_effort")
    format: JsonFormat | None = None


class MessagesRequest(SingleFields):
    """A message in Anthropic's format."""

    messages: SkipValidation[list[Turn]] = Field(description="the conversation so far")
    system: Annotated[Any, WithJsonSchema({"type": ["string", "array"]})] = Field(
        None, description="instructions, as text or text blocks"
    )
    tools: SkipValidation[list[MessageTool] | None] = Field(None, description="tools that the model may call")
    tool_choice: MessageToolChoice | None = Field(None, description="whether it must call one, and which")
    thinking: Thinking | None = Field(None, description="whether it thinks first")
    output_config: OutputConfig | None = Field(None, description="effort, and a JSON format")
    output_format: JsonFormat | None = Field(None, description="older than output_config.format")
    context_management: Annotated[Any, WithJsonSchema({"type": "object"})] = Field(
        None, description="edits of the conversation, none of which are made"
    )
    chat_template_kwargs: dict[str, Any] | None = Field(None, description="more variables for the chat template")

    OWN_NAMES: ClassVar = {
        "enable_thinking": "thinking.type",
        "reasoning_budget_tokens": "thinking.budget_tokens",
        "reasoning_effort": "output_config.effort",
        ".parameters": ".input_schema",
        "response_format.json_schema.schema": "output_config.format.schema",
        "tool_choice.function.name": "tool_choice.name",
    }
    MEDIA_WORDS: ClassVar = {"image": "Could not process image: "}
    POLICY: ClassVar = Policy(
        names={"stop": ("stop_sequences", "stop")},
        harmless={
            "cache_control": "prompts are found in the cache by their tokens",
            "inference_geo": "it runs where this server runs",
            "speed": "there is only one",
            "betas": "nothing here needs any",
            "diagnostics": "nothing is stored",
            "user_profile_id": "users are not distinguished",
            "workspace_id": "users are not distinguished",
        },
        refused={
            "container": "there are no containers",
            "mcp_servers": "this server calls no other: put their tools into tools",
            "thread": "nothing is stored: send the whole conversation",
        },
    )

    @property
    def hides_thoughts(self) -> bool:
        """Whether the client wants thoughts back as a signature only."""
        return self.thinking is not None and self.thinking.display == "omitted"

    def own_name(self, param: str) -> str:
        own = super().own_name(param)
        if self.output_config is not None and self.output_config.format is not None:
            return own
        return re.sub(r"^output_config\.format\b", "output_format", own)

    def chat(self, *, strict: bool = False) -> ChatRequest:
        """The chat completion that it asks for; what a chat completion cannot express is added to `ignored`.

        Raises:
            RequestError: a turn, block or tool is malformed or cannot be read here.
        """
        ignored: list[str] = []
        chat = self.passed_on("chat_template_kwargs")
        chat.setdefault("max_tokens", MAX_TOKENS)
        transcript = _conversation(self, ignored)
        chat["messages"], self._places = transcript.messages, transcript.places
        chosen = _tools(self, ignored) | _thinking(self.thinking, ignored) | _output(self, ignored)
        ignored += [self._sent_as.get(name, name) for name, value in chosen.items() if chat.get(name, value) != value]
        chat |= chosen
        _note_edits(self.context_management, ignored)
        self.ignore(ignored, strict=strict)
        return ChatRequest.of(chat)


# ---- the conversation ----

# Blocks about a server's own work, besides its tools.
_FOREIGN = ("fallback", "tool_addition", "tool_removal")


def _conversation(body: MessagesRequest, ignored: list[str]) -> Transcript:
    transcript = Transcript()
    transcript.at = "system"
    for text in _texts(body.system, "system", ignored):
        if text := _BILLING_HEADER.sub("", text, count=1) if text.startswith("x-anthropic-billing-header:") else text:
            transcript.instruct(text)
    if not isinstance(body.messages, list) or not body.messages:
        raise RequestError("messages must be a list of at least one turn", param="messages")
    for turn in items(body.messages, "messages", ignored):
        _read_turn(turn, transcript, ignored)
    return transcript


def _read_turn(turn: Item, transcript: Transcript, ignored: list[str]) -> None:
    role = turn.need("role", str)
    content = turn.need_texts("content")
    turn.finish()
    transcript.at = turn.place
    if role == "system":
        for text in _texts(content, f"{turn.place}.content", ignored):
            if text:
                transcript.instruct(text)
    elif role == "user":
        if isinstance(content, str):
            transcript.ask(content)
        for block in items(content if isinstance(content, list) else [], f"{turn.place}.content", ignored):
            _read_user_block(block, transcript)
        transcript.heard()
    elif role == "assistant":
        if isinstance(content, str) and content:
            transcript.answer(content)
        for block in items(content if isinstance(content, list) else [], f"{turn.place}.content", ignored):
            _read_assistant_block(block, transcript)
    else:
        raise turn.refusal("role", f"must be user, assistant or system, got {role!r:.40}")


def _read_user_block(block: Item, transcript: Transcript) -> None:
    kind = block.need("type", str)
    if kind == "tool_result":
        # In the order of the blocks: a call's result comes before what the user says to it.
        transcript.result(block.need("tool_use_id", str), _result(block))
        block.finish("cache_control", "toolset_name")
    elif kind == "image":
        transcript.show(_image(block), _block_place(block, kind))
    elif text := _text(block):
        transcript.ask(text)


def _read_assistant_block(block: Item, transcript: Transcript) -> None:
    kind = block.need("type", str)
    if kind == "thinking":
        if thoughts := block.text("thinking") or unseal(block.text("signature")):
            transcript.think(thoughts)
        elif block.text("signature"):
            block.ignore("thinking")  # Anthropic's, of which only the signature was shown
        block.finish("signature", "cache_control")
    elif kind == "redacted_thinking":
        if thoughts := unseal(block.text("data")):
            transcript.think(thoughts)
        else:
            block.ignore("redacted_thinking")  # Anthropic encrypted it
        block.finish("cache_control")
    elif kind == "tool_use":
        call_id, name = block.need("id", str), block.need("name", str)
        transcript.call(call_id, name, block.get("input", dict) or {}, block.place)
        block.finish("cache_control", "caller", "toolset_name")
    elif text := _text(block):
        transcript.answer(text)


def _text(block: Item) -> str:
    """The text of a block that holds nothing else; empty if it is about another server's work."""
    kind = block.need("type", str)
    if kind in _READERS:
        return _READERS[kind](block)
    if kind in _UNREADABLE:
        raise _no_media(block, kind)
    if kind in _FOREIGN or kind.startswith(("server_tool_", "mcp_")) or kind.endswith("_tool_result"):
        block.ignore(kind)
        return ""
    raise block.refusal("type", f"'{kind:.40}' is not known here")


def _search_result(block: Item) -> str:
    return _joined(block, block.text("title"), block.text("source"), *(_plain(part) for part in block.items("content")))


def _plain(part: Item) -> str:
    """The text of a part that holds no other blocks, which could go on as deep as a client likes."""
    if (kind := part.need("type", str)) in _HOLDERS:
        raise part.refusal("type", f"'{kind}' does not belong inside another block")
    return _text(part)


def _summary(block: Item) -> str:
    block.finish("content", "cache_control", "encrypted_content")
    return block.text("content")


def _document(block: Item) -> str:
    source = block.inner("source")
    if source is None or source.text("type") not in ("text", "content"):
        raise _no_media(block, "document")
    return _joined(block, block.text("title"), block.text("context"), _source_text(source))


def _source_text(source: Item) -> str:
    if source.text("type") == "text":
        text = source.need("data", str)
        source.finish("media_type")
        return text
    content = source.texts("content")
    source.finish()
    return content if isinstance(content, str) else "\n".join(_plain(part) for part in source.items("content"))


def _joined(block: Item, *parts: str) -> str:
    if block.says("citations", {"enabled": True}):
        block.ignore("citations")
    block.finish("cache_control")
    return "\n".join(part for part in parts if part)


# Blocks that hold text, by type.
_READERS: dict[str, Callable[[Item], str]] = {
    "text": lambda block: _joined(block, block.need("text", str)),
    "search_result": _search_result,
    "tool_reference": lambda block: _joined(block, block.need("tool_name", str)),  # all tools are in the prompt anyway
    "compaction": _summary,  # of what came before
    "document": _document,
}
_HOLDERS = ("search_result", "document")  # of other blocks
# What cannot be read, or not here, in the wording by which Anthropic's clients know to leave it out.
_UNREADABLE = {
    "image": "Could not process image",
    "document": "Could not process PDF",
    "container_upload": "Could not read the file",
}


_WHY = {
    "image": "images belong to what a user says and to the results of tools",
    "document": "documents are not read here: send their text",
    "container_upload": "there are no containers",
}


def _block_place(block: Item, kind: str) -> str:
    """The block's place as Anthropic names it, since clients find it by that."""
    return re.sub(r"(\.content\[\d+\])(\.content\[\d+\])$", r"\1.tool_result\2", block.place) + f".{kind}"


def _no_media(block: Item, kind: str) -> RequestError:
    place = _block_place(block, kind)
    return RequestError(f"{place}: {_UNREADABLE[kind]}: {_WHY[kind]}", param=place)


def _image(block: Item) -> dict[str, Any]:
    """A content part of OpenAI's for an image block."""
    source = block.inner("source")
    kind = "" if source is None else source.text("type")
    if source is None or kind not in ("base64", "url"):
        place = _block_place(block, "image")
        why = f"files are not stored here, got a source of type {kind!r:.40}" if kind else "its source is missing"
        raise RequestError(f"{place}: {_UNREADABLE['image']}: {why}", param=place)
    if kind == "base64":
        url = f"data:{source.need('media_type', str)};base64,{source.need('data', str)}"
    else:
        url = source.need("url", str)
    source.finish()
    block.finish("cache_control")
    return {"type": "image_url", "image_url": {"url": url}}


def _texts(value: Any, place: str, ignored: list[str]) -> Iterator[str]:
    """The texts of a string or of text blocks."""
    if value is None:
        return
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for block in items(value, place, ignored):
            yield _text(block)
    else:
        raise RequestError(f"{place} must be a string or a list of text blocks", param=place)


def _result(block: Item) -> str | list[tuple[Mapping[str, Any], str]]:
    """What a tool returned: text, or content parts with their places if it has images. Chat templates have no mark for
    a failure, so the text has to say it."""
    content = block.texts("content")
    parts: list[tuple[Mapping[str, Any], str]] = [({"type": "text", "text": content}, "")]
    if not isinstance(content, str):
        parts = _result_parts(block)
    text = "\n".join(part["text"] for part, _ in parts if part["type"] == "text")
    failed = "Error: " if block.get("is_error", bool) and "error" not in text.lower() else ""
    if all(part["type"] == "text" for part, _ in parts):
        return failed + text
    return [({"type": "text", "text": failed.strip()}, ""), *parts] if failed else parts


def _result_parts(block: Item) -> list[tuple[Mapping[str, Any], str]]:
    parts: list[tuple[Mapping[str, Any], str]] = []
    for part in block.items("content"):
        if part.need("type", str) == "image":
            parts.append((_image(part), _block_place(part, "image")))
        else:
            parts.append(({"type": "text", "text": _text(part)}, part.place))
    return parts


# ---- the rest ----


def _tools(body: MessagesRequest, ignored: list[str]) -> dict[str, Any]:
    if body.tools is not None and not isinstance(body.tools, list):
        raise RequestError("tools must be a list", param="tools")
    functions = []
    for tool in items(body.tools or [], "tools", ignored):
        if (kind := tool.text("type")) not in ("", "custom"):
            tool.ignore(kind)  # a tool of Anthropic's servers, or one that only their models know
            continue
        function: dict[str, Any] = {"name": tool.need("name", str), "description": tool.text("description")}
        function["parameters"] = tool.get("input_schema", dict) or {}
        functions.append({"type": "function", "function": function})
        body._tool_places.append(tool.place)
        tool.finish("cache_control", "strict", "eager_input_streaming", "defer_loading", "allowed_callers")
    if body.tools and not functions:
        raise RequestError(
            "tools has only tools that run on Anthropic's servers: there is none of them here", param="tools"
        )
    chosen: dict[str, Any] = {"tools": functions} if functions else {}
    choice = body.tool_choice
    if choice is None:
        return chosen
    if choice.type in ("any", "tool") and not functions:
        raise RequestError(f'tool_choice is "{choice.type}", but there are no tools', param="tool_choice")
    if choice.type == "tool":
        if choice.name is None:
            raise RequestError("tool_choice.name is missing", param="tool_choice.name")
        chosen["tool_choice"] = {"type": "function", "function": {"name": choice.name}}
    else:
        chosen["tool_choice"] = {"any": "required"}.get(choice.type, choice.type)
        ignored += ["tool_choice.name"] * (choice.name is not None)
    if choice.disable_parallel_tool_use is not None:
        chosen["parallel_tool_calls"] = not choice.disable_parallel_tool_use
    return chosen


def _thinking(thinking: Thinking | None, ignored: list[str]) -> dict[str, Any]:
    """Without thinking fields the server's own setting holds, and the model decides."""
    if thinking is None:
        return {}
    chosen: dict[str, Any] = {} if thinking.type == "adaptive" else {"enable_thinking": thinking.type == "enabled"}
    if thinking.budget_tokens is not None:
        if thinking.type == "enabled":
            chosen["reasoning_budget_tokens"] = thinking.budget_tokens
        else:
            ignored.append("thinking.budget_tokens")
    return chosen


def _output(body: MessagesRequest, ignored: list[str]) -> dict[str, Any]:
    config, wanted = body.output_config, body.output_format
    chosen: dict[str, Any] = {}
    if config is not None:
        if config.format is not None and wanted not in (None, config.format):
            ignored.append("output_format")
        wanted = config.format or wanted
        if config.effort is not None:
            chosen["reasoning_effort"] = _EFFORTS.get(config.effort, config.effort)
    if wanted is not None:
        chosen["response_format"] = {"type": "json_schema", "json_schema": {"schema": wanted.schema_}}
    return chosen


def _note_edits(management: Any, ignored: list[str]) -> None:
    """List the edits that would have changed the conversation."""
    if management is None:
        return
    item = Item(management, "context_management", ignored)
    for edit in item.items("edits"):
        kind = edit.need("type", str)
        if not (kind.startswith("clear_thinking_") and edit.says("keep", "all")):
            edit.ignore(kind)
    item.finish()
