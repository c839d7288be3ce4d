"""Answer: what all documents of answers share."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Answer(BaseModel):
    """A part of an answer. It has no fields but those listed; those that may be absent have a default."""

    model_config = ConfigDict(extra="forbid")
