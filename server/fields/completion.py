"""The bodies of completions of text and tokens: OpenAI's and llama-server's own."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field, WithJsonSchema

from dflash_local.server.fields.fields import Policy, Refused
from dflash_local.server.fields.generation_fields import GenerationFields, VerboseFields
from dflash_local.server.fields.probs import NativeProbFields, TextProbFields
from dflash_local.server.fields.prompt import PROMPT_SCHEMA


class CompletionFields(GenerationFields):
    """What both formats read."""

    prompt: Annotated[Any, WithJsonSchema(PROMPT_SCHEMA)] = Field(
        description="text, a list of token ids and texts, an object with one of these, or a list of prompts"
    )

    POLICY: ClassVar = Policy(
        refused={
            "response_format": Refused(
                "response_format needs a chat: use /v1/chat/completions, or json_schema or grammar here",
                unless=({"type": "text"}, {"type": ""}, {}, [], ""),
            ),
            "tools": "tools need a chat: use /v1/chat/completions, or json_schema or grammar here",
        }
    )


class CompletionRequest(TextProbFields, VerboseFields, CompletionFields):
    """A completion in OpenAI's format."""

    suffix: str | None = Field(None, description="the text behind the completion, if the model has tokens for infill")


class NativeFields(NativeProbFields, GenerationFields):
    """What an answer in llama-server's own format contains."""

    return_tokens: bool | None = Field(None, description="the answer's token ids in `tokens`")
    response_fields: list[str] | None = Field(
        None, description="only these fields of the answer; a/b is b in a, by that name"
    )

    POLICY: ClassVar = Policy(
        must={"response_fields": "a list of texts"},
        nothing={"response_fields": ("",)},
        harmless={"verbose": "this format always has all of it"},
    )


class NativeRequest(CompletionFields, NativeFields):
    """A completion in llama-server's own format."""

    POLICY: ClassVar = Policy(refused={"suffix": "use /infill, or /v1/completions"})
