"""SingleFields: the fields of formats that have a place for only one answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, PrivateAttr

from dflash_local.errors import MediaError, RequestError
from dflash_local.server.fields.fields import Fields, Policy, parted
from dflash_local.server.fields.generation_fields import GenerationFields

NO_DRAFTS = "false, as this format has no place for drafts: use /v1/chat/completions"
_NO_PLACE = "this format has no place for log-probabilities"


class OwnStreamOptions(Fields):
    """Options of a stream that has its usage in any case."""

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
        must={"return_drafts": NO_DRAFTS},
        refused={"logprobs": _NO_PLACE, "top_logprobs": _NO_PLACE, "n_probs": _NO_PLACE},
    )

    # A chat completion's names, or their beginnings -> this format's; `.parameters` are a tool's.
    OWN_NAMES: ClassVar[Mapping[str, str]] = {}

    # Whether the chat completion's messages are this format's own, one by one.
    OWN_MESSAGES: ClassVar[bool] = False

    # What an error about an image or audio says before the reason.
    MEDIA_WORDS: ClassVar[Mapping[str, str]] = {}

    _tool_places: list[str] = PrivateAttr([])  # of the chat completion's tools, in its order
    # Of its messages and their parts: those of this body. None: it has not become a chat completion yet.
    _places: dict[str, str] | None = PrivateAttr(None)

    def blame(self, error: RequestError) -> RequestError:
        """`error` with this format's name for what the chat completion calls otherwise."""
        if isinstance(error, MediaError) and (found := self._media_place(error.param or "")):
            place = self._media_param(*found)
            return error.at(place, f"{place}: {self.MEDIA_WORDS.get(error.kind, '')}{error.why}")
        return super().blame(error.at(self.own_name(error.param)) if error.param else error)

    def _media_place(self, param: str) -> tuple[str, str] | None:
        """The place in this body of the content part that `param` is in, and the rest of `param`; None if there is
        none."""
        part = re.match(r"messages\[\d+\]\.content\[\d+\]", param)
        place = (self._places or {}).get(part[0]) if part else None
        return (place, param[part.end() :]) if part and place else None

    def _media_param(self, place: str, rest: str) -> str:
        """What is to blame, for an image or audio at `place`."""
        return place

    def own_name(self, param: str) -> str:
        tool = re.match(r"tools\[(\d+)\]\.function", param)
        if tool and int(tool[1]) < len(self._tool_places):
            inner = param[tool.end() :]
            schema = ".parameters"
            if inner.startswith(schema):
                inner = self.OWN_NAMES.get(schema, schema) + inner.removeprefix(schema)
            return self._tool_places[int(tool[1])] + inner
        if found := self._media_place(param):
            return "".join(found)
        if not self.OWN_MESSAGES and self._places is not None and param.startswith("messages["):
            return self._conversation_name(param)
        if param in self.given():
            return self._sent_as.get(param, param)
        for name, own in self.OWN_NAMES.items():
            if param == name or param.startswith(f"{name}."):
                return own + param.removeprefix(name)
        root, rest = parted(param)
        return self._sent_as.get(root, root) + rest

    def _conversation_name(self, param: str) -> str:
        """What this format calls something in the chat completion's messages: the place of what became the message or
        its call, since their own indices mean nothing to the client."""
        for part in (r"messages\[\d+\]\.tool_calls\[\d+\]", r"messages\[\d+\]"):
            found = re.match(part, param)
            if found and (place := (self._places or {}).get(found[0])):
                is_content = param[found.end() :] == ".content" and place.endswith("]")
                return f"{place}.content" if is_content else place
        own = self.OWN_NAMES.get("messages", "messages")
        return own + param.removeprefix("messages") if param.startswith("messages[]") else own

    def passed_on(self, *more: str) -> dict[str, Any]:
        """The fields that a chat completion shares: those of every generation, and `more`."""
        chat = ({*GenerationFields.model_fields} | {*more}) - {"stream_options"}
        own = type(self).model_fields.keys() - chat
        return {name: value for name, value in self.given().items() if name not in own}
