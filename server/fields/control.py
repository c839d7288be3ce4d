"""ControlRequest: what may be done to an answer on its way."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from dflash_local.server.fields.fields import Fields, Policy


class ControlRequest(Fields):
    """Do something to a chat completion that runs."""

    id: str = Field(description="of the chat completion, as its events tell it")
    action: Literal["reasoning_end"] = Field(description="reasoning_end: go on with the answer itself")

    POLICY: ClassVar = Policy(harmless={"model": "there is one"})
