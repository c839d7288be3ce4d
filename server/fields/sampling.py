"""SamplingFields: every field of SamplingParams, as a part of a request's body."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, WithJsonSchema, create_model

from dflash_local.sampling import SamplingParams
from dflash_local.server.fields.fields import Fields

_TYPES = {int: "integer", float: "number"}


def _schema(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON schema of a sampling field's values."""
    if "range" not in metadata:
        return {"anyOf": [metadata["schema"], {"type": "null"}]}
    limits = metadata["range"]
    number = {"type": _TYPES[limits["type"]], "minimum": limits["low"], "maximum": limits["high"]}
    return {"anyOf": [number, {"type": "null"}]}


def _field(spec: dataclasses.Field[Any]) -> Any:
    """Without a type: SamplingParams and libdflash check the values."""
    text = spec.metadata["help"]
    if "range" in spec.metadata and spec.default is not None:
        text += f" (default: {spec.default:g})"
    # Texts have a type: a chat has some of its own and never looks at what was sent.
    kind = str | None if spec.metadata.get("schema") == {"type": "string"} else Any
    return Annotated[kind, WithJsonSchema(_schema(spec.metadata))], Field(None, description=text)


if TYPE_CHECKING:

    class SamplingFields(Fields):
        """Made at runtime, see below."""
else:
    SamplingFields = create_model(
        "SamplingFields",
        __base__=Fields,
        __doc__="How the next token is chosen.",
        **{spec.name: _field(spec) for spec in dataclasses.fields(SamplingParams)},
    )
