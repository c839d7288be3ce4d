"""AnyModelFields: what bodies share that name a model, and mean whichever answers."""

from __future__ import annotations

from typing import ClassVar

from dflash_local.server.fields.fields import Fields, Policy


class AnyModelFields(Fields):
    """`model` chooses the instance that a router asks, and nothing there."""

    POLICY: ClassVar = Policy(harmless={"model": "there is one model; with several, the one that answers"})
