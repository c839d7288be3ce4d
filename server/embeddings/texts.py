"""The texts of an embedding request's `input`: a text, token ids, both mixed, or a list of these."""

from __future__ import annotations

from typing import Any

from dflash_local.errors import RequestError

Tokens = list[int]
Text = str | list[int | str]  # token ids, or texts and ids in turn

SHAPES = "a string, a list of token ids, or a list of those"


def parse_texts(value: Any, param: str) -> list[Text]:
    """The texts of a request's `param`.

    Raises:
        RequestError: it holds anything else; images, audio and video are named.
    """
    if isinstance(value, list) and not any(type(item) is int for item in value):
        texts = [_text(item, f"{param}[{index}]", param) for index, item in enumerate(value)]
    else:
        texts = [_text(value, param, param)]
    if not texts:
        raise RequestError(f"{param} must not be empty", param=param)
    return texts


def _text(item: Any, name: str, param: str) -> Text:
    if isinstance(item, str):
        return item
    if isinstance(item, list) and item and all(type(part) is int or isinstance(part, str) for part in item):
        return item
    if isinstance(item, dict) and (key := _other_key(item, "role", "content", "prompt_string", "multimodal_data")):
        raise RequestError(f"{name}.{key:.40} is not known here", param=param, hint="leave it out")
    if isinstance(item, dict) and "content" in item:
        return _content(item["content"], f"{name}.content", param)
    if isinstance(item, dict) and "prompt_string" in item and not item.get("multimodal_data"):
        name, item = f"{name}.prompt_string", item["prompt_string"]
        if not isinstance(item, dict):  # which would be read as deep as a client likes
            return _text(item, name, param)
    raise RequestError(f"{name} must be {SHAPES}", param=param)


def _other_key(item: dict[str, Any], *known: str) -> str | None:
    return next((str(key) for key in item if key not in known), None)


def _content(parts: Any, name: str, param: str) -> str:
    """OpenAI's content parts."""
    if not isinstance(parts, list):
        raise RequestError(f"{name} must be a list of parts", param=param)
    texts = []
    for index, part in enumerate(parts):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind != "text" or not isinstance(part.get("text"), str):
            raise RequestError(f"{name}[{index}] must be of type text: this model reads nothing else", param=param)
        if key := _other_key(part, "type", "text"):
            raise RequestError(f"{name}[{index}].{key:.40} is not known here", param=param, hint="leave it out")
        texts.append(part["text"])
    return "".join(texts)
