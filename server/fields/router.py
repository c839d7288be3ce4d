"""The bodies of a router's own endpoints."""

from __future__ import annotations

from pydantic import Field

from dflash_local.server.fields.fields import Fields


class ModelRequest(Fields):
    """Which model is meant."""

    model: str = Field(description="its name, or one of its aliases")
