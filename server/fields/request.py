"""RequestFields: what a checked body asks for, with the command line's defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dflash_local.conversation import CHAT_FIELDS
from dflash_local.errors import RequestError
from dflash_local.keywords import SubmitKeywords
from dflash_local.request_options import MAX_STOPS
from dflash_local.sampling import SAMPLING_FIELDS, SamplingParams
from dflash_local.server.fields.chat import ConversationFields
from dflash_local.server.fields.derived import chosen_options
from dflash_local.server.fields.generation_fields import GenerationFields, VerboseFields
from dflash_local.server.fields.probs import ProbFields, Probs


@dataclass(frozen=True, slots=True)
class RequestFields:
    """What a client asks for, except the prompt: already checked."""

    stream: bool
    include_usage: bool
    ping_interval: float
    n: int
    sampling: SamplingParams
    probs: Probs
    prediction: str
    options: SubmitKeywords
    verbose: bool  # an answer in another format carries the details of llama-server's own


@dataclass(frozen=True, slots=True)
class Defaults:
    """What the command line sets for requests that leave it out."""

    sampling: SamplingParams = field(default_factory=SamplingParams)
    max_tokens: int = -1
    chat: Mapping[str, Any] = field(default_factory=dict)  # CHAT_FIELDS
    ping_interval: float = 30
    stop: tuple[str, ...] = ()
    special: bool = False  # show control tokens
    verbose: bool = False
    cache_prompt: bool = True

    @property
    def options(self) -> SubmitKeywords:
        """Chats show the control tokens that their parser needs, unless all are shown."""
        special: SubmitKeywords = {"special": True} if self.special else {}
        return {"max_tokens": self.max_tokens, "stop": self.stop, "cache_prompt": self.cache_prompt, **special}


def parse_fields(body: GenerationFields, defaults: Defaults) -> RequestFields:
    """Everything except the prompt. In a chat, grammar and schema belong to the conversation: see parse_chat()."""
    if body.best_of not in (None, 1, body.n or 1):
        raise RequestError("best_of: choosing among more answers than n is not supported", param="best_of")
    probs = body.probs() if isinstance(body, ProbFields) else Probs()
    given = body.given()
    chat = isinstance(body, ConversationFields)
    known = SAMPLING_FIELDS - CHAT_FIELDS if chat else SAMPLING_FIELDS
    sampling = defaults.sampling
    if chat or {"grammar", "json_schema"} & given.keys():  # one of them at most
        sampling = replace(sampling, grammar=None, json_schema=None)
    return RequestFields(
        stream=bool(body.stream),
        include_usage=body.stream_options is not None and bool(body.stream_options.include_usage),
        ping_interval=defaults.ping_interval if body.sse_ping_interval is None else body.sse_ping_interval,
        n=body.n or 1,
        sampling=replace(sampling, **{name: given[name] for name in known & given.keys()}),
        probs=probs,
        prediction=body.prediction.text if body.prediction else "",
        options=_options(body, probs, defaults),
        verbose=isinstance(body, VerboseFields) and (defaults.verbose if body.verbose is None else body.verbose),
    )


def _options(body: GenerationFields, probs: Probs, defaults: Defaults) -> SubmitKeywords:
    stream = bool(body.stream)
    options = chosen_options(body, defaults.options, stream=stream)
    drafts = options["return_drafts"]
    return {
        **options,
        **probs.options,
        "stop": _stops(body.given().get("stop", ())) or defaults.stop,
        "trace": drafts and not stream,
        "timings": options["timings"] or (drafts and stream),
    }


def parse_chat(body: ConversationFields, defaults: Defaults) -> dict[str, Any]:
    """The fields for Engine.apply_chat(), which checks them: those of the body over those of the command line."""
    given = body.given()
    chat = {**defaults.chat, **{name: given[name] for name in CHAT_FIELDS & given.keys()}}
    if not {"grammar", "json_schema", "response_format", "tools"} & given.keys():
        constraints = {name: getattr(defaults.sampling, name) for name in ("grammar", "json_schema")}
        chat |= {name: value for name, value in constraints.items() if value is not None}
    kwargs = {**defaults.chat.get("chat_template_kwargs", {}), **(body.chat_template_kwargs or {})}
    chat.pop("chat_template_kwargs", None)
    effort = body.reasoning_effort
    if effort == "none":
        chat["enable_thinking"] = False
        kwargs.pop("reasoning_effort", None)
    elif effort:
        kwargs["reasoning_effort"] = effort
    return chat | {"chat_template_kwargs": kwargs} if kwargs else chat


def overruled_thinking(body: ConversationFields) -> list[str]:
    """Fields about thoughts that lose against another one, in `parse_chat` or in libdflash: by ChatRequest's names."""
    no_thoughts, kwargs = body.reasoning_effort == "none", body.chat_template_kwargs or {}
    winners = {
        "enable_thinking": False if no_thoughts else body.enable_thinking,
        "reasoning_effort": body.reasoning_effort or None,
    }
    losers = ["enable_thinking"] if body.enable_thinking not in (None, winners["enable_thinking"]) else []
    for name, value in winners.items():
        if value is not None and kwargs.get(name) not in (None, value):
            losers.append(f"chat_template_kwargs.{name}")
    return losers


def _stops(stop: str | Sequence[str]) -> tuple[str, ...]:
    stops = [word for word in ([stop] if isinstance(stop, str) else stop) if word]
    if len(stops) > MAX_STOPS:
        raise RequestError(f"stop holds {len(stops)} strings, at most {MAX_STOPS} are allowed", param="stop")
    return tuple(stops)
