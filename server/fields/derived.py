"""Fields of bodies that are made of SamplingParams' and RequestOptions' fields."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, cast

from pydantic import Field, WithJsonSchema, create_model

from dflash_local.keywords import SubmitKeywords
from dflash_local.request_options import REQUEST_DEFAULTS, REQUEST_OPTIONS, BodyField, RequestOption, RequestOptions
from dflash_local.sampling import SamplingParams
from dflash_local.server.fields.fields import Fields

_TYPES = {int: "integer", float: "number"}

BODY_OPTIONS: Mapping[str, BodyField] = {
    name: option.body for name, option in REQUEST_OPTIONS.items() if option.body is not None
}
"""The options of a request that a body may set, by Python's names."""


def _sampling_schema(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON schema of a sampling field's values."""
    if "range" not in metadata:
        return {"anyOf": [metadata["schema"], {"type": "null"}]}
    limits = metadata["range"]
    number = {"type": _TYPES[limits["type"]], "minimum": limits["low"], "maximum": limits["high"]}
    return {"anyOf": [number, {"type": "null"}]}


def _sampling_field(spec: dataclasses.Field[Any]) -> Any:
    """Untyped: SamplingParams and libdflash check the values."""
    text = spec.metadata["help"]
    if "range" in spec.metadata and spec.default is not None:
        text += f" (default: {spec.default:g})"
    # Texts are checked here: a chat sets some of them itself, so nothing else would look at what was sent.
    kind = str | None if spec.metadata.get("schema") == {"type": "string"} else Any
    return Annotated[kind, WithJsonSchema(_sampling_schema(spec.metadata))], Field(None, description=text)


def _option_field(option: RequestOption, body: BodyField, kind: Any) -> Any:
    """Untyped where the engine checks the values."""
    kind = kind | None if body.schema is None else Annotated[Any, WithJsonSchema(dict(body.schema))]
    low = option.low if body.low is None else body.low
    return kind, Field(None, alias=body.name, ge=low, le=body.high, description=body.help or option.help)


if TYPE_CHECKING:

    class SamplingFields(Fields):
        """Made at runtime, see below."""

    class OptionFields(Fields):
        """Made at runtime, see below."""
else:
    SamplingFields = create_model(
        "SamplingFields",
        __base__=Fields,
        __doc__="How the next token is chosen.",
        **{spec.name: _sampling_field(spec) for spec in dataclasses.fields(SamplingParams)},
    )
    _kinds = typing.get_type_hints(RequestOptions)
    OptionFields = create_model(
        "OptionFields",
        __base__=Fields,
        __doc__="The options of a request.",
        **{name: _option_field(REQUEST_OPTIONS[name], body, _kinds[name]) for name, body in BODY_OPTIONS.items()},
    )


def chosen_options(body: OptionFields, defaults: SubmitKeywords, *, stream: bool) -> SubmitKeywords:
    """All options that a body may set, by Python's names: from the body, from `defaults`, or RequestOptions' own."""
    options: dict[str, Any] = {name: REQUEST_DEFAULTS[name] for name in BODY_OPTIONS} | dict(defaults)
    for name, field in BODY_OPTIONS.items():
        value = getattr(body, name)
        if value is not None and (stream or not field.streams_only):
            options[name] = None if value == field.none else value
    return cast(SubmitKeywords, options)  # the values that a body's schema leaves open are checked by Engine.submit
