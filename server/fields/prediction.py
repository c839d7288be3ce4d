"""OpenAI's predicted outputs: text expected in the answer."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from dflash_local.server.fields.fields import Fields, Policy


class TextPart(Fields):
    """A part of the text."""

    type: Literal["text"] = Field(description="the only one")
    text: str = Field(description="some of the text")


class Prediction(Fields):
    """OpenAI's `prediction`."""

    type: Literal["content"] = Field(description="the only one")
    content: str | list[TextPart] = Field(description="the text, whole or in parts")

    POLICY: ClassVar = Policy(must={"content": "a string or a list of text parts"})

    @property
    def text(self) -> str:
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
