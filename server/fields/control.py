"""ControlRequest: an action on a running answer."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dflash_local.server.fields.any_model import AnyModelFields


class ControlRequest(AnyModelFields):
    """Do something to a running chat completion."""

    id: str = Field(description="the chat completion's id, from its events")
    action: Literal["reasoning_end"] = Field(description="reasoning_end: stop thinking and go on with the answer")
