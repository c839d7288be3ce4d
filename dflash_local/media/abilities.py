"""Abilities: which media a model reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from dflash_local.errors import MediaError
from dflash_local.media.medium import Kind


class Abilities(NamedTuple):
    """What a model's projector reads, and what stands for a medium in a prompt's text."""

    vision: bool = False
    audio: bool = False
    marker: str = ""

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> Abilities:
        """Those of an engine (dflash_engine_info)."""
        found = info.get("media") or {}
        return cls(bool(found.get("vision")), bool(found.get("audio")), str(found.get("marker", "")))

    def reads(self, kind: Kind) -> bool:
        """Whether the model takes media of this kind."""
        return self.vision if kind == "image" else self.audio

    def check(self, kind: Kind, param: str, words: str = "") -> None:
        """Raise MediaError, in llama-server's wording behind `words`, if the model takes no media of this kind."""
        if not self.reads(kind):
            why = f"{kind} input is not supported - hint: if this is unexpected, you may need to provide the mmproj"
            raise MediaError(f"{param}: {words}{why}", param=param, kind=kind, why=why)


NO_MEDIA = Abilities()
"""Those of a model without a projector."""
