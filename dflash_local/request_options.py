# ruff: noqa: RUF009  _option() makes a dataclasses.field()
"""RequestOptions: a prompt, and everything that can be chosen for its answer.

An option is one field, and everything else is derived from it:

* the keyword argument of `Engine.submit`, `generate`, `stream`, `chat` and `submit_chat` (engine.py),
* the field of dflash_request_params (native/; the fields stand in the header's order),
* the field of a body over HTTP, its check, and its text in the OpenAPI document and docs/fields.md
  (server/fields/derived.py),
* its row in docs/options.md.

So a new option is a field of dflash_request_params in dflash.h, a field here, and the C++ that reads it. keywords.py
tells type checkers of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from ctypes import c_bool, c_char_p, c_int32
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, get_args

from dflash_local.arguments import check_fields
from dflash_local.draft_options import (
    MAX_NODES,
    Accept,
    Budget,
    Draft,
    accept_rule,
    budget_nodes,
    draft_mode,
    draft_tokens,
)
from dflash_local.errors import RequestError
from dflash_local.media.media_prompt import MediaPrompt
from dflash_local.option import TOKENS, Option, defaults_of, native_params, options_of, with_arguments
from dflash_local.sampling import SamplingParams

MAX_STOP = 1024  # characters of a stop string, which bounds the text that is held back
MAX_STOPS = 64  # stop strings of a request over HTTP

ENGINES = "the engine's setting"
_INT32_MAX = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class BodyField:
    """An option's field in a request's body; null or absent means the server's setting, or the option's default.

    Attributes:
        name: its name there; None: the option's own.
        help: its description there; None: the option's own.
        schema: JSON schema of its values, if the engine checks them; None: the server checks type and bounds.
        low, high: bounds of its integers; `low` defaults to the option's.
        none: the integer that means None.
        streams_only: it has an effect only in a stream.
    """

    name: str | None = None
    help: str | None = None
    schema: Mapping[str, Any] | None = None
    low: int | None = None
    high: int | None = None
    none: int | None = None
    streams_only: bool = False


@dataclass(frozen=True, kw_only=True)
class RequestOption(Option):
    """An option of a request; `body` is None if there is no such field over HTTP, or one of another shape."""

    body: BodyField | None = None


def _option(default: Any = None, **facts: Any) -> Any:
    return field(default=default, metadata={"option": RequestOption(**facts)})


def _or_engines(native_value: Callable[[Any], int]) -> Callable[[Any], int]:
    """Converts a value; None becomes -1, the engine's setting."""
    return lambda value: -1 if value is None else native_value(value)


def _at_most_int32(number: int) -> int:
    return min(number, _INT32_MAX)


def _sampling_json(sampling: SamplingParams | None) -> str:
    return (sampling or SamplingParams()).to_json()


def _token_ids(tokens: Sequence[int]) -> Sequence[int]:
    return tokens.tokens if isinstance(tokens, MediaPrompt) else tokens


def _names(of: Any) -> dict[str, Any]:
    """The JSON schema of a Literal's strings, or null."""
    return {"enum": [*get_args(of), None]}


@dataclass(frozen=True)
class RequestOptions:
    """The arguments of `Engine.submit`; docs/options.md lists them with the fields of HTTP.

    Raises:
        RequestError: a value is of a wrong type or out of range; `param` names the field. Values that only the engine
            can check are refused by `native_params` and `Engine.submit`.
    """

    prompt_tokens: Sequence[int] = field(
        metadata={
            "option": RequestOption(
                native_type=TOKENS,
                native_name="tokens",
                native_value=_token_ids,
                help="at least one token id; with media what `tokenize_prompt` made of them",
            )
        }
    )
    # Second, as in dflash_request_params, but keyword-only.
    max_tokens: int = field(
        default=-1,
        kw_only=True,
        metadata={
            "option": RequestOption(
                native_type=c_int32,
                native_name="n_predict",
                native_value=_at_most_int32,
                low=-1,
                help="most new tokens; -1: until the context is full",
                body=BodyField(),
            )
        },
    )
    sampling: SamplingParams | None = _option(
        native_type=c_char_p,
        native_value=_sampling_json,
        help="how the next token is chosen (SamplingParams)",
        default_text="llama.cpp's defaults",
    )
    _: KW_ONLY
    cache_prompt: bool = _option(
        True,
        native_type=c_bool,
        help="reuse the beginning of the prompt from a slot or the host cache, and keep the slot for reuse",
        body=BodyField(help="reuse the beginning of the prompt from the cache (default: the server's)"),
    )
    budget: Budget = _option(
        "auto",
        native_type=c_int32,
        native_value=budget_nodes,
        help="nodes of a draft tree, the anchor counted; 1: no draft",
        default_text=ENGINES,
        body=BodyField(
            schema={"anyOf": [{"type": "integer", "minimum": 1, "maximum": MAX_NODES}, {"enum": ["auto", None]}]},
            help="nodes of a draft tree, the anchor counted; auto: what pays, 1: no draft",
        ),
    )
    draft: Draft | None = _option(
        native_type=c_int32,
        native_value=_or_engines(draft_mode),
        help="the shape that drafts may have",
        default_text=ENGINES,
        body=BodyField(schema=_names(Draft)),
    )
    accept: Accept | None = _option(
        native_type=c_int32,
        native_value=_or_engines(accept_rule),
        help="how drafts are accepted",
        default_text=ENGINES,
        body=BodyField(schema=_names(Accept)),
    )
    draft_n_max: int = _option(
        0,
        native_type=c_int32,
        native_value=draft_tokens,
        help="most draft tokens on a path, never more than the engine's setting",
        default_text="that",
        body=BodyField(
            name="speculative.n_max", low=0, high=MAX_NODES - 1, help="most draft tokens on a path; 0: the server's"
        ),
    )
    lookup: bool | None = _option(
        native_type=c_int32,
        native_value=_or_engines(int),
        help="also draft what followed earlier occurrences of the last tokens",
        default_text=ENGINES,
        body=BodyField(help="also draft what followed earlier occurrences of the last tokens (default: the server's)"),
    )
    lookup_owner: int = _option(
        0,
        native_type=c_int32,
        low=0,
        help="a number for whoever asks: with `lookup_answers`, lookup quotes earlier answers to the same number",
    )
    prediction: Sequence[int] = _option(
        (),
        native_type=TOKENS,
        help="tokens that the answer is expected to have, in part or with changes, and that are drafted, even without "
        "a drafter. The answer is the same with any prediction",
    )
    return_drafts: bool = _option(
        False,
        native_type=c_bool,
        help="each chunk of text has its pass in `Chunk.step`, with the verified tree",
        body=BodyField(help="what each pass verified and kept, in `dflash` (and `timings`) of all events of a stream"),
    )
    n_probs: int = _option(
        0,
        native_type=c_int32,
        help="the probability of each new token, and this many of the likeliest at its place, in `Chunk.probs` and "
        "`Completion.probs`; 0: none",
    )
    post_sampling_probs: bool = _option(
        False, native_type=c_bool, help="probabilities after the samplers, not by the model's raw logits"
    )
    probs_from: int = _option(
        0,
        native_type=c_int32,
        help="probabilities of the prompt's tokens from this index on, in `Completion.prompt_probs`; 0: none. That "
        "part of the prompt is read even if cached. The first token has no probability",
    )
    stop: str | Sequence[str] = _option(
        (),
        help=f"the answer ends before the first of these strings, of at most {MAX_STOP} characters",
        body=BodyField(help=f"up to {MAX_STOPS} strings, before which the answer ends"),
    )
    special: bool | frozenset[int] = _option(
        False, help="show control tokens in the text: all of them, or the given ones"
    )
    trace: bool = _option(
        False, help="record the controller's choices at each step, in `Generation.steps` and `Completion.steps`"
    )
    progress: bool = _option(
        False,
        help="chunks with the progress of the prompt, at the start and after each of its passes",
        body=BodyField(
            name="return_progress", streams_only=True, help="events of a stream with the progress of the prompt"
        ),
    )
    timings: bool = _option(
        False,
        help="each chunk of text has the timings so far",
        body=BodyField(name="timings_per_token", streams_only=True, help="`timings` in all events of a stream"),
    )
    time_limit_ms: int = _option(
        -1,
        help="after this time from its first token, the answer ends at the next line end; 0 or less: never",
        body=BodyField(name="t_max_predict_ms", low=-1),
    )
    n_indent: int = _option(
        0,
        low=0,
        help="the answer ends at the first line, after its first one, that begins with fewer spaces and tabs; 0: never",
        body=BodyField(),
    )
    id_slot: int | None = _option(
        help="the slot to run it, waiting until it is idle",
        default_text="any",
        body=BodyField(low=-1, none=-1, help="the slot to run it, waiting until it is idle; -1: any"),
    )

    def __post_init__(self) -> None:
        check_fields(self, REQUEST_OPTIONS, deep=True)
        for name, option in REQUEST_OPTIONS.items():
            if option.low is not None and (value := getattr(self, name)) < option.low:
                raise RequestError(f"{name} must be an integer of at least {option.low}, got {value!r}", param=name)
        object.__setattr__(self, "stop", stop_strings(self.stop))

    @property
    def n_prompt(self) -> int:
        """Tokens of the prompt."""
        return len(self.prompt_tokens)

    def native_params(self) -> dict[str, Any]:
        """Fields of dflash_request_params by their names there, as str, numbers or sequences of tokens.

        Raises:
            RequestError: a value is out of range; `param` names the field.
        """
        return native_params(self, REQUEST_OPTIONS)


REQUEST_OPTIONS: Mapping[str, RequestOption] = options_of(RequestOptions)

REQUEST_DEFAULTS: Mapping[str, Any] = defaults_of(RequestOptions)


RequestOptions.__doc__ = with_arguments(RequestOptions.__doc__, RequestOptions)


def stop_strings(stop: str | Sequence[str]) -> tuple[str, ...]:
    """The stop strings that are not empty. Raises RequestError: one is too long."""
    stops = (stop,) if isinstance(stop, str) else tuple(stop)
    for index, text in enumerate(stops):
        if len(text) > MAX_STOP:
            raise RequestError(
                f"stop[{index}] has {len(text)} characters, at most {MAX_STOP} are allowed", param="stop"
            )
    return tuple(text for text in stops if text)
