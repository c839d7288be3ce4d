"""StreamsLookup: the body of a lookup of kept streams."""

from __future__ import annotations

from pydantic import Field

from dflash_local.server.fields.fields import Fields


class StreamsLookup(Fields):
    """Which streams to look for."""

    conversation_ids: list[str] = Field(description="their X-Conversation-Ids; each stands for its `ID::MODEL`, too")
