"""The bodies of completions of text and tokens: OpenAI's and llama-server's own."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field, WithJsonSchema

from dflash_local.server.fields.fields import Policy, Refused
from dflash_local.server.fields.generation import MAX_CHOICES, GenerationFields
from dflash_local.server.fields.probs import NativeProbFields, TextProbFields

_TOKENS = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
_ONE = {"anyOf": [{"type": "string"}, _TOKENS]}
_PROMPT = {"anyOf": [*_ONE["anyOf"], {"type": "array", "items": _ONE, "minItems": 1, "maxItems": MAX_CHOICES}]}


class CompletionFields(GenerationFields):
    """What both formats read."""

    prompt: Annotated[Any, WithJsonSchema(_PROMPT)] = Field(description="text, token ids, or a list of those")

    POLICY: ClassVar = Policy(
        refused={
            "response_format": Refused(
                "response_format needs a chat: use /v1/chat/completions, or json_schema or grammar here",
                unless=({"type": "text"},),
            ),
            "tools": "tools need a chat: use /v1/chat/completions, or json_schema or grammar here",
        },
    )


class CompletionRequest(TextProbFields, CompletionFields):
    """A completion in OpenAI's format."""

    suffix: str | None = Field(None, description="the text behind the completion, if the model has tokens for infill")


class NativeRequest(NativeProbFields, CompletionFields):
    """A completion in llama-server's own format."""

    POLICY: ClassVar = Policy(
        refused={"suffix": "use /infill, or /v1/completions"},
    )
