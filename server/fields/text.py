"""The bodies of the endpoints that turn text into tokens and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field, WithJsonSchema
from typing_extensions import Self

from dflash_local.server.fields.any_model import AnyModelFields
from dflash_local.server.fields.fields import Policy
from dflash_local.server.fields.prompt import parse_parts

_PARTS = {
    "anyOf": [
        {"type": "string"},
        {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "integer"}]}},
        {"type": "null"},
    ]
}


class TokenizeRequest(AnyModelFields):
    """Text to tokens."""

    content: Annotated[Any, WithJsonSchema(_PARTS)] = Field(None, description="the text, or texts and token ids")
    add_special: bool | None = Field(None, description="add BOS and EOS as the model wants (default: false)")
    parse_special: bool | None = Field(None, description="read control tokens in the text (default: true)")
    with_pieces: bool | None = Field(None, description="return each token's text too")
    prompt: str | None = Field(None, description="vLLM's name of `content`; BOS and EOS are added by default")

    POLICY: ClassVar = Policy(
        names={"add_special": ("add_special", "add_special_tokens")},
        refused={
            "messages": "it takes texts: /apply-template makes one of a chat, its input_tokens endpoints count it"
        },
    )

    @classmethod
    def of(cls, body: Mapping[str, Any], *, strict: bool = False) -> Self:
        """As for any body; `content` comes before `prompt`."""
        read = super().of(body, strict=strict)
        if read.content is not None and read.prompt not in (None, read.content):
            read.ignore(["prompt"], strict=strict)
        return read

    @property
    def is_vllm(self) -> bool:
        return self.content is None and self.prompt is not None

    @property
    def text(self) -> str | list[str | int]:
        return (self.prompt or "") if self.is_vllm else parse_parts(self.content)

    @property
    def flags(self) -> dict[str, bool]:
        """How the tokenizer reads the text."""
        return {
            "add_special": self.is_vllm if self.add_special is None else self.add_special,
            "parse_special": self.parse_special is not False,
        }


class DetokenizeRequest(AnyModelFields):
    """Tokens to text."""

    tokens: list[int] | None = Field(None, description="token ids")

    POLICY: ClassVar = Policy(must={"tokens": "a list of token ids"})
