"""ChatRequest: the body of a chat completion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, SkipValidation

from dflash_local.errors import RequestError
from dflash_local.server.fields.documented import Documented
from dflash_local.server.fields.fields import Fields, Mapped, Part, Policy
from dflash_local.server.fields.generation_fields import GenerationFields, VerboseFields
from dflash_local.server.fields.probs import ChatProbFields


class ConversationFields(Fields):
    """What the chat template turns into a prompt."""

    messages: Annotated[Any, Documented("Messages")] = Field(description="the conversation so far")
    tools: Annotated[Any, Documented("Tools")] = Field(None, description="functions that the model may call")
    tool_choice: Annotated[Any, Documented("AnyToolChoice")] = Field(
        None, description="auto, none, required, one function, or allowed_tools"
    )
    parallel_tool_calls: SkipValidation[bool | None] = Field(None, description="several calls in one answer")
    response_format: Annotated[Any, Documented("AnyResponseFormat")] = Field(None, description="text or JSON")
    chat_template_kwargs: dict[str, Any] | None = Field(None, description="more variables for the chat template")
    reasoning_format: SkipValidation[Literal["none", "auto", "deepseek", "deepseek-legacy"] | None] = Field(
        None, description="where thoughts go; none leaves them in the text"
    )
    reasoning_effort: str | None = Field(None, description="a variable for the chat template; none: do not think")
    enable_thinking: SkipValidation[bool | None] = Field(None, description="a variable for the chat template")
    add_generation_prompt: SkipValidation[bool | None] = Field(None, description="begin an answer (default: true)")
    continue_final_message: SkipValidation[bool | None] = Field(None, description="go on with the last message")

    POLICY: ClassVar = Policy(
        nothing=dict.fromkeys(
            ("tools", "response_format", "chat_template_kwargs", "thinking", "reasoning"), ("", [], {})
        ),
        mapped={
            "think": Mapped("Ollama's: enable_thinking, or reasoning_effort", lambda value: _think(value)),
            "thinking": Mapped("Anthropic's: enable_thinking and a budget", lambda value: _thinking(value)),
            "reasoning": Mapped("OpenRouter's: reasoning_effort or a budget", lambda value: _reasoning(value)),
        },
        refused={
            "functions": "functions are deprecated: use tools",
            "function_call": "functions are deprecated: use tool_choice",
            "documents": "documents are not supported: put them into a message",
            "chat_template": "the server's template is used: see --chat-template",
        },
    )


class ChatRequest(ConversationFields, ChatProbFields, VerboseFields, GenerationFields):
    """A chat completion."""

    POLICY: ClassVar = Policy(
        harmless={"reasoning_control": "thoughts can always be ended by /v1/chat/completions/control"},
        refused={
            "echo": "the prompt is repeated by /v1/completions only",
            "suffix": "insertion is not supported: use /v1/completions",
        },
    )


# ---- mapped fields ----


def _think(value: Any) -> Mapping[str, Any]:
    return {"reasoning_effort": value} if isinstance(value, str) else {"enable_thinking": value}


def _thinking(value: Any) -> Mapping[str, Any]:
    if isinstance(value, bool):
        return {"enable_thinking": value}
    if not isinstance(value, Mapping) or value.get("type") not in ("enabled", "disabled", "adaptive", "auto"):
        raise RequestError(f"thinking must be an object whose type is enabled or disabled, got {value!r:.80}")
    read = ("type", "budget_tokens") if value["type"] == "enabled" else ("type",)
    rest = {f".{name}": inner for name, inner in value.items() if name not in read}
    chosen: dict[str, Part] = {}
    if value["type"] in ("enabled", "disabled"):
        chosen["enable_thinking"] = Part("type", value["type"] == "enabled")
    if value["type"] == "enabled":
        chosen["reasoning_budget_tokens"] = Part("budget_tokens", value.get("budget_tokens"))
    return {**rest, **chosen}


def _reasoning(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise RequestError(f"reasoning must be an object, got {value!r:.80}")
    names = {"effort": "reasoning_effort", "max_tokens": "reasoning_budget_tokens", "enabled": "enable_thinking"}
    return {names.get(name, f".{name}"): Part(name, inner) for name, inner in value.items()}
