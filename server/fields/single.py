"""SingleFields: what requests may say whose format has a place for one answer."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from dflash_local.server.fields.fields import Fields, Policy
from dflash_local.server.fields.generation import GenerationFields

_NO_PLACE = "this format has no place for log-probabilities"


class OwnStreamOptions(Fields):
    """Of a stream that tells its usage in any case."""

    POLICY: ClassVar = Policy(
        harmless={
            "include_obfuscation": "events are not padded",
            "include_usage": "the last event always has it",
        }
    )


class SingleFields(GenerationFields):
    """One answer, and how its tokens are chosen."""

    n: int | None = Field(None, ge=1, le=1, description="there is one answer")
    best_of: int | None = Field(None, ge=1, le=1, description="there is one answer")
    stream_options: OwnStreamOptions | None = Field(None, description="of a stream")  # type: ignore[assignment]
    return_drafts: Literal[False] | None = Field(None, description="this format has no place for drafts")

    POLICY: ClassVar = Policy(
        must={"return_drafts": "false, as this format has no place for drafts: use /v1/chat/completions"},
        refused={"logprobs": _NO_PLACE, "top_logprobs": _NO_PLACE, "n_probs": _NO_PLACE},
    )

    def passed_on(self, *more: str) -> dict[str, Any]:
        """What a chat completion says with the same fields: those of every generation, and `more`."""
        chat = ({*GenerationFields.model_fields} | {*more}) - {"stream_options"}
        own = type(self).model_fields.keys() - chat
        return {name: value for name, value in self.given().items() if name not in own}
