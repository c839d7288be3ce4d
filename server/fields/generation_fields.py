"""GenerationFields: the fields of every request that generates text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from dflash_local.call_arguments import no_constant
from dflash_local.errors import RequestError
from dflash_local.server.fields.derived import OptionFields, SamplingFields
from dflash_local.server.fields.fields import Fields, Mapped, Part, Policy, Refused
from dflash_local.server.fields.prediction import Prediction

MAX_CHOICES = 128
MAX_PING = 86_400


class StreamOptions(Fields):
    """OpenAI's `stream_options`."""

    include_usage: bool | None = Field(None, description="one more event at the end, with `usage`")

    POLICY: ClassVar = Policy(
        harmless={"include_obfuscation": "events are not padded"},
        refused={"continuous_usage_stats": "usage comes once, at the end: use include_usage"},
    )


# Fields that web forms send empty when nothing was entered.
_TEXTLESS = (
    "grammar", "grammar_type", "grammar_triggers", "preserved_tokens", "json_schema", "guided_json", "logit_bias",
    "dry_sequence_breakers",
)  # fmt: skip
_EMPTY = ("stop", "stream_options", "guided_choice", "structured_outputs", "options")


class GenerationFields(OptionFields, SamplingFields):
    """Choices and streaming of an answer, the options of a request, and how tokens are chosen."""

    model: str | None = Field(None, description="any name: there is one model, and answers have its name")
    stream: bool | None = Field(None, description="the answer as server-sent events")
    stream_options: StreamOptions | None = Field(None, description="of a stream")
    n: int | None = Field(
        None, ge=1, le=MAX_CHOICES, description="how many answers; with a seed, answer i has seed + i"
    )
    best_of: int | None = Field(None, description="more than n: refused")
    prediction: Prediction | None = Field(None, description="text expected in the answer: it is drafted")
    sse_ping_interval: int | None = Field(
        None, ge=-1, le=MAX_PING, description="seconds after which a silent stream is pinged; -1: never"
    )

    POLICY: ClassVar = Policy(
        # The first one counts, as in llama-server.
        names={
            "n": ("n_cmpl", "n"),
            "max_tokens": ("n_predict", "max_completion_tokens", "max_tokens", "num_predict"),
            "typical_p": ("typical_p", "typ_p", "typical"),
            "repeat_penalty": ("repeat_penalty", "repetition_penalty"),
            "reasoning_budget_tokens": ("reasoning_budget_tokens", "thinking_budget_tokens"),
        },
        must={"stop": "a string or a list of strings"},
        nothing=dict.fromkeys(_TEXTLESS, ("",)) | dict.fromkeys(_EMPTY, ("", [], {})) | {"prediction": ("", [])},
        mapped={
            "guided_json": Mapped("vLLM's: json_schema", lambda value: {"json_schema": _schema("guided_json", value)}),
            "guided_choice": Mapped("vLLM's: a grammar of these texts", lambda value: _choice("guided_choice", value)),
            "guided_grammar": Mapped("vLLM's: grammar, if it is GBNF", lambda value: {"grammar": value}),
            "structured_outputs": Mapped(
                "vLLM's: its json, choice and grammar", lambda value: _structured("structured_outputs", value)
            ),
            "format": Mapped('Ollama\'s: "json" or a JSON schema', lambda value: _ollama_format("format", value)),
            "options": Mapped("Ollama's: fields of this body", lambda value: _options(value)),
        },
        harmless={
            "user": "users are not distinguished",
            "safety_identifier": "users are not distinguished",
            "metadata": "nothing is stored",
            "store": "nothing is stored",
            "service_tier": "there is only one",
            "prompt_cache_key": "prompts are found in the cache by their tokens",
            "prompt_cache_retention": "prompts stay in the cache while there is room",
            "keep_alive": "the model stays loaded",
            "priority": "requests run in the order in which they come",
            "request_id": "answers have ids of their own",
            "guided_decoding_backend": "there is only one",
            "backend_sampling": "it changes no text",
            "n_keep": "the context is never shifted",
            "n_discard": "the context is never shifted",
            "n_cache_reuse": "what follows the first difference is read again",
            "t_max_prompt_ms": "a prompt is read to its end, as in llama-server",
            "logits_processor_args": "there are none",
            "spaces_between_special_tokens": "no text is joined with spaces",
        },
        refused={
            "prompt_logprobs": "use /v1/completions with echo and logprobs",
            "use_beam_search": "beam search is not supported",
            "length_penalty": Refused("beam search is not supported", unless=(1, "")),
            "early_stopping": "beam search is not supported",
            "lora": "LoRA adapters are not supported",
            "modalities": Refused('only ["text"] is supported', unless=(["text"], [], "")),
            "audio": "audio is not supported",
            "web_search_options": "there is no web search",
            "guided_regex": "regular expressions are not supported: use guided_json, guided_choice or grammar",
            "regex_pattern": "regular expressions are not supported: use json_schema or grammar",
            "guided_whitespace_pattern": "regular expressions are not supported",
            "min_tokens": "a least length is not supported",
            "stop_token_ids": "stopping at tokens is not supported: use stop",
            "bad_words": "use logit_bias",
            "banned_strings": "use logit_bias",
            "allowed_token_ids": "use logit_bias or grammar",
            "include_stop_str_in_output": "stop strings are never part of the answer",
            "skip_special_tokens": Refused("control tokens are never part of the answer", unless=(True, "")),
            "truncate_prompt_tokens": "prompts are never cut",
            "token_healing": "token healing is not supported",
        },
    )


# ---- mapped fields ----


def _object(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise RequestError(f"{name} must be an object, got {value!r:.80}", param=name)
    return value


def _options(value: Any) -> Mapping[str, Part]:
    return {name: Part(name, inner) for name, inner in _object("options", value).items()}


def _schema(name: str, value: Any) -> Any:
    """A JSON schema, which vLLM takes as text too."""
    if isinstance(value, str):
        try:
            read = json.loads(value, parse_constant=no_constant)
            json.dumps(read, ensure_ascii=False).encode()  # a lone surrogate cannot be encoded
            return read
        except (ValueError, RecursionError) as error:
            raise RequestError(f"{name} is not valid JSON: {error}", param=name) from None
    return value


def _choice(name: str, value: Any) -> Mapping[str, Any]:
    """A grammar of literal texts, since vLLM answers with the bare text, not a JSON string."""
    if not isinstance(value, list) or not value or not all(isinstance(text, str) and text for text in value):
        raise RequestError(f"{name} must be a list of texts, got {value!r:.80}", param=name)
    escapes = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})
    return {"grammar": "root ::= " + " | ".join(f'"{text.translate(escapes)}"' for text in value)}


def _structured(name: str, value: Any) -> Mapping[str, Any]:
    fields: dict[str, Any] = {}
    items = _object(name, value).items()
    given = {key: inner for key, inner in items if not (inner is None or inner is False or inner in ("", []))}
    if len(forms := [key for key in given if key in ("json", "json_object", "choice", "grammar")]) > 1:
        raise RequestError(f"{name} asks for {forms[0]} and {forms[1]}: leave one out", param=f"{name}.{forms[1]}")
    for key, inner in given.items():
        if key == "json":
            fields["json_schema"] = Part(key, _schema(f"{name}.json", inner))
        elif key == "json_object":
            fields["json_schema"] = Part(key, {"type": "object"})
        elif key == "choice":
            fields["grammar"] = Part(key, _choice(f"{name}.choice", inner)["grammar"])
        elif key == "grammar":
            fields["grammar"] = Part(key, inner)
        elif key in ("regex", "structural_tag", "whitespace_pattern"):
            raise RequestError(f"{name}.{key} is not supported: use json, choice or grammar", param=name)
        else:
            fields[f".{key}"] = inner
    return fields


def _ollama_format(name: str, value: Any) -> Mapping[str, Any]:
    if value == "":
        return {}
    if value != "json" and not isinstance(value, Mapping):
        raise RequestError(f'{name} must be "json" or a JSON schema, got {value!r:.80}', param=name)
    return {"json_schema": {"type": "object"} if value == "json" else value}


class VerboseFields(Fields):
    """Fields for more in an answer of OpenAI's format."""

    verbose: bool | None = Field(
        None, description="add llama-server's own answer, as `__verbose` of the last event (default: -v)"
    )
