"""Parts of a conversation, declared for the docs alone: libdflash reads and checks them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Document(BaseModel):
    """A part of a conversation."""

    model_config = ConfigDict(extra="allow", defer_build=True)


class ImageUrl(Document):
    """An image, which `Engine.apply_chat` reads."""

    url: str = Field(description="a data URL; others only with --media-hosts and --media-path")


class InputAudio(Document):
    """Audio, which `Engine.apply_chat` reads."""

    data: str = Field(description="a file as base64")
    format: Literal["wav", "mp3", "flac"] | None = Field(None, description="the file's own")


class ContentPart(Document):
    """A part of a message's content."""

    type: Literal["text", "image_url", "input_audio"] = Field(description="video and files are refused")
    text: str | None = None
    image_url: ImageUrl | None = None
    input_audio: InputAudio | None = None


class FunctionCall(Document):
    """Which function is called, with what."""

    name: str
    arguments: str | dict[str, Any] = Field(description="JSON, as text or as it is")


class ToolCall(Document):
    """A call that the model made."""

    id: str | None = None
    type: Literal["function"] = "function"
    function: FunctionCall


class Message(Document):
    """A message of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[ContentPart] | None = Field(None, description="the text, whole or in parts")
    name: str | None = None
    reasoning_content: str | None = Field(None, description="an assistant's thoughts")
    tool_calls: list[ToolCall] | None = Field(None, description="an assistant's calls")
    tool_call_id: str | None = Field(None, description="the call that a tool's message answers")


class Function(Document):
    """What a tool is called and takes."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = Field(None, description="JSON schema of the arguments")
    strict: bool | None = None


class Tool(Document):
    """A function that the model may call."""

    type: Literal["function"] = "function"
    function: Function


class ToolChoice(Document):
    """The one function to call."""

    type: Literal["function"] = "function"
    function: dict[Literal["name"], str]


class AllowedTools(Document):
    """The functions that may be called: the model is shown the others, too."""

    mode: Literal["auto", "required"] = Field("auto", description="whether it must call one")
    tools: list[ToolChoice]


class AllowedToolsChoice(Document):
    """Some of the functions."""

    type: Literal["allowed_tools"] = "allowed_tools"
    allowed_tools: AllowedTools


class ResponseFormat(Document):
    """The form of the answer's text."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: dict[str, Any] | None = Field(None, description="its `schema`, for json_schema")
    schema_: dict[str, Any] | None = Field(None, alias="schema", description="for json_object")


# The types of fields (documented.py).
Messages = list[Message]
Tools = list[Tool] | None
AnyToolChoice = Literal["auto", "none", "required"] | ToolChoice | AllowedToolsChoice | None
AnyResponseFormat = ResponseFormat | None
