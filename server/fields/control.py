"""ControlRequest: an action on a running answer."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from dflash_local.server.fields.fields import Fields, Policy


class ControlRequest(Fields):
    """Do something to a running chat completion."""

    id: str = Field(description="the chat completion's id, from its events")
    action: Literal["reasoning_end"] = Field(description="reasoning_end: stop thinking and go on with the answer")

    POLICY: ClassVar = Policy(harmless={"model": "there is only one"})
