"""Prompts of a completion, in all the shapes that llama-server reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dflash_local.errors import RequestError
from dflash_local.server.fields.generation_fields import MAX_CHOICES


@dataclass(frozen=True)
class MarkedText:
    """Text with markers for media, and these, as base64."""

    text: str
    files: tuple[str, ...]


Prompt = str | list[str | int] | MarkedText  # text, token ids and texts in order, or text with media

_TOKENS = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
_PARTS = {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "integer"}]}, "minItems": 1}
_OBJECT = {
    "type": "object",
    "properties": {
        "prompt_string": {"anyOf": [{"type": "string"}, _PARTS]},
        "multimodal_data": {
            "type": "array",
            "items": {"type": "string"},
            "description": "images and audio as base64, one for each of the text's markers (media_marker of /props)",
        },
    },
    "required": ["prompt_string"],
}
_ONE = [{"type": "string"}, _TOKENS, _PARTS, _OBJECT]
PROMPT_SCHEMA: dict[str, Any] = {
    "anyOf": [*_ONE, {"type": "array", "items": {"anyOf": _ONE}, "minItems": 1, "maxItems": MAX_CHOICES}]
}


def parse_prompts(value: Any) -> list[Prompt]:
    """The prompts of a completion: text, a list of token ids and texts, an object that holds one of these, or a list of
    several prompts."""
    several = isinstance(value, list) and not any(type(item) is int for item in value)
    prompts = [_parse(item) for item in (value if several else [value])]
    if not prompts:
        raise _wrong()
    if len(prompts) > MAX_CHOICES:
        raise RequestError(f"prompt holds {len(prompts)} prompts, at most {MAX_CHOICES} are allowed", param="prompt")
    return prompts


def parse_parts(value: Any) -> str | list[str | int]:
    """What /tokenize reads: text, or a list of token ids and texts; null is empty."""
    if value is not None and not isinstance(value, str) and not _is_parts(value):
        raise RequestError("content must be a string, or a list of strings and token ids", param="content")
    return value or ""


def _is_parts(value: object) -> bool:
    """Whether it is a list of token ids and texts."""
    return isinstance(value, list) and {str, int}.issuperset(map(type, value))


def _parse(value: Any) -> Prompt:
    if isinstance(value, Mapping):
        return _parse_object(value)
    if isinstance(value, str) or (value and _is_parts(value)):
        prompt: Prompt = value
        return prompt
    raise _wrong()


def _parse_object(value: Mapping[str, Any]) -> Prompt:
    if unknown := sorted(value.keys() - {"prompt_string", "multimodal_data"}):
        raise RequestError(f"prompt: {unknown[0]!r:.80} is unknown, prompt_string is what it may hold", param="prompt")
    text, files = value.get("prompt_string"), value.get("multimodal_data")
    if not files and not isinstance(files, str):
        if isinstance(text, Mapping):  # which would be read as deep as a client likes
            raise RequestError("prompt.prompt_string must be a text, or a list of texts and token ids", param="prompt")
        return _parse(text)
    if not isinstance(files, list) or not all(isinstance(file, str) for file in files):
        raise RequestError(f"prompt.multimodal_data must be a list of base64 texts, got {files!r:.80}", param="prompt")
    if not isinstance(text, str):
        raise RequestError("prompt.prompt_string must be a text where there are multimodal_data", param="prompt")
    return MarkedText(text, tuple(files))


def _wrong() -> RequestError:
    return RequestError("prompt must be a string, a list of token ids and texts, or a list of those", param="prompt")
