"""From a request body to checked RequestFields: every refusal that needs no model happens here, and names the
parameter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dflash_local.conversation import CHAT_FIELDS
from dflash_local.drafting import draft_tokens
from dflash_local.errors import RequestError
from dflash_local.sampling import SAMPLING_FIELDS, SamplingParams

MAX_CHOICES = 128
MAX_STOPS = 64
N_MAX = "speculative.n_max"  # llama-server's name for draft_n_max

# What clients may ask for and we cannot do; leaving it out silently would be a wrong answer.
UNSUPPORTED = {
    "logprobs": "log-probabilities are not supported",
    "top_logprobs": "log-probabilities are not supported",
    "n_probs": "log-probabilities are not supported",
    "echo": "echoing the prompt is not supported",
    "suffix": "insertion is not supported",
    "audio": "audio is not supported",
    "functions": "functions are deprecated: use tools",
    "function_call": "functions are deprecated: use tool_choice",
    "lora": "LoRA adapters are not supported",
}


@dataclass(frozen=True, slots=True)
class RequestFields:
    """What a client asks for, but for the prompt: already checked."""

    model: str | None
    stream: bool
    include_usage: bool
    n: int
    sampling: SamplingParams
    options: dict[str, Any]  # of Engine.submit


@dataclass(frozen=True, slots=True)
class Defaults:
    """What the command line sets for requests that are silent about it."""

    sampling: SamplingParams = field(default_factory=SamplingParams)
    max_tokens: int = -1
    chat: Mapping[str, Any] = field(default_factory=dict)  # CHAT_FIELDS


def parse_fields(body: Mapping[str, Any], defaults: Defaults, *, chat: bool = False) -> RequestFields:
    """Check everything but the prompt. In a chat, grammar and schema belong to the conversation: parse_chat() has
    them."""
    for name, why in UNSUPPORTED.items():
        if body.get(name) not in (None, False, 0, "", [], {}):
            raise RequestError(f"{name}: {why}", param=name)
    if _take(body, "best_of", int, 1) not in (1, _take(body, "n", int, 1)):
        raise RequestError("best_of: choosing among more answers than n is not supported", param="best_of")
    if body.get("modalities") not in (None, ["text"]):
        raise RequestError('modalities: only ["text"] is supported', param="modalities")

    n = _take(body, "n", int, _take(body, "n_cmpl", int, 1))
    if not 1 <= n <= MAX_CHOICES:
        raise RequestError(f"n must be between 1 and {MAX_CHOICES}, got {n}", param="n")
    max_tokens = defaults.max_tokens
    for name in ("max_tokens", "max_completion_tokens", "n_predict"):  # the last one given counts, as in llama-server
        if (given := _take(body, name, int, None)) is not None:
            max_tokens = given
            if given < -1:
                raise RequestError(f"{name} must be at least -1, got {given}", param=name)
    known = SAMPLING_FIELDS - CHAT_FIELDS if chat else SAMPLING_FIELDS
    return RequestFields(
        model=_take(body, "model", str, None),
        stream=_take(body, "stream", bool, False),
        include_usage=_take(_take(body, "stream_options", dict, {}), "include_usage", bool, False),
        n=n,
        sampling=replace(
            defaults.sampling, **{name: body[name] for name in known & body.keys() if body[name] is not None}
        ),
        options={
            "max_tokens": max_tokens,
            "stop": _stops(body.get("stop")),
            "budget": "auto" if body.get("budget") is None else body["budget"],
            "draft": body.get("draft"),
            "accept": body.get("accept"),
            "draft_n_max": draft_tokens(_take(body, N_MAX, int, 0), N_MAX),
            "cache_prompt": _take(body, "cache_prompt", bool, True),
        },
    )


def parse_chat(body: Mapping[str, Any], defaults: Defaults) -> dict[str, Any]:
    """The fields for Engine.apply_chat(), which checks them: those of the body over those of the command line."""
    chat = {**defaults.chat, **{name: body[name] for name in CHAT_FIELDS & body.keys() if body[name] is not None}}
    kwargs = {**defaults.chat.get("chat_template_kwargs", {}), **_take(chat, "chat_template_kwargs", dict, {})}
    effort = _take(body, "reasoning_effort", str, None)
    if effort == "none":
        chat["enable_thinking"] = False
    elif effort:
        kwargs["reasoning_effort"] = effort
    return chat | {"chat_template_kwargs": kwargs} if kwargs else chat


def parse_prompts(body: Mapping[str, Any]) -> list[str | list[int]]:
    """The prompts of a completion: a string, token ids, or a list of either."""
    for name in ("response_format", "tools"):
        if body.get(name) not in (None, [], {"type": "text"}):
            raise RequestError(
                f"{name} needs a chat: use /v1/chat/completions, or json_schema or grammar here", param=name
            )
    prompt = body.get("prompt")
    if isinstance(prompt, str) or _is_tokens(prompt):
        return [prompt]  # type: ignore[list-item]
    if isinstance(prompt, list) and prompt and all(isinstance(item, str) or _is_tokens(item) for item in prompt):
        if len(prompt) > MAX_CHOICES:
            raise RequestError(f"prompt holds {len(prompt)} prompts, at most {MAX_CHOICES} are allowed", param="prompt")
        return prompt
    raise RequestError("prompt must be a string, a list of token ids, or a list of those", param="prompt")


def _is_tokens(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(type(token) is int for token in value)


def _stops(value: object) -> tuple[str, ...]:
    stops = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        raise RequestError("stop must be a string or a list of strings", param="stop")
    if len(stops) > MAX_STOPS:
        raise RequestError(f"stop holds {len(stops)} strings, at most {MAX_STOPS} are allowed", param="stop")
    return tuple(stops)


def _take(body: Mapping[str, Any], name: str, kind: type, default: Any) -> Any:
    """body[name] if it is there and of type `kind`; null counts as absent."""
    value = body.get(name)
    if value is None:
        return default
    if type(value) is not kind:
        names = {int: "an integer", str: "a string", bool: "true or false", dict: "an object", list: "a list"}
        raise RequestError(f"{name} must be {names[kind]}, got {value!r:.80}", param=name)
    return value
