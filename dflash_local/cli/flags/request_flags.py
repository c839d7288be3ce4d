"""Flags of `serve` with the defaults of requests."""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflash_local.cli.flags.flag import Appended, flag
from dflash_local.cli.flags.logs import LogFlags
from dflash_local.cli.flags.sampling_flags import SamplingFlags
from dflash_local.cli.flags.values import count, json_object, on_off_auto, one_of, read_text
from dflash_local.errors import RequestError

if TYPE_CHECKING:
    from dflash_local.server.fields.request import Defaults

_ESCAPE = re.compile(r"""\\([nrt'"\\]|x[0-9a-fA-F]{2})""")
REASONING_FORMATS = ("none", "auto", "deepseek", "deepseek-legacy")


def _predict(text: str) -> int:
    return max(count(-2)(text), -1)  # -2 is llama.cpp's other name for "until the context is full"


def _samplers(text: str) -> list[str]:
    return [name for name in text.split(";") if name]


def _bias(text: str) -> tuple[int, float]:
    for sign in ("+", "-"):
        token, found, bias = text.partition(sign)
        if found and token.isdecimal():
            try:
                return int(token), float(sign + bias)
            except ValueError:
                break
    raise argparse.ArgumentTypeError(f"must be a token id, + or -, and a number, such as 15043+1; got {text!r}")


class RequestFlags(SamplingFlags, LogFlags, title="requests", text="defaults for requests that do not say"):
    """All that `request_defaults` reads."""

    sse_ping_interval: int
    predict: int = flag(
        "-n --predict --n-predict",
        "most new tokens (default: until the context is full)",
        env="LLAMA_ARG_N_PREDICT",
        type=_predict,
        default=-1,
    )
    reverse_prompt: tuple[str, ...] = flag(
        "-r --reverse-prompt",
        "an answer ends before this text; may be given several times",
        action=Appended,
        metavar="TEXT",
    )
    cache_prompt: bool = flag(
        "--cache-prompt",
        "reuse the cached beginning of a prompt (default)",
        env="LLAMA_ARG_CACHE_PROMPT",
        off="--no-cache-prompt",
        off_help="read it all again",
    )
    special: bool = flag("-sp --special", "show control tokens in the text")
    reasoning_format: str = flag(
        "--reasoning-format",
        "format of the reasoning; none leaves it in the text (default: auto)",
        env="LLAMA_ARG_THINK",
        type=one_of(*REASONING_FORMATS),
        default="auto",
        metavar="none|auto|deepseek",
    )
    reasoning: str = flag(
        "-rea --reasoning",
        "let the model reason before it answers (default: auto, the template's)",
        env="LLAMA_ARG_REASONING",
        type=on_off_auto,
        default="auto",
        metavar="on|off|auto",
    )
    reasoning_effort: str = flag(
        "--reasoning-effort",
        "reasoning effort, in the template's words: low, medium, high, ... (default: the template's)",
        env="LLAMA_ARG_REASONING_EFFORT",
        default="default",
        metavar="LEVEL",
    )
    reasoning_budget_message: str | None = flag(
        "--reasoning-budget-message",
        "text that it writes before its reasoning is cut off (default: nothing)",
        env="LLAMA_ARG_THINK_BUDGET_MESSAGE",
        metavar="TEXT",
    )
    reasoning_preserve: bool | None = flag(
        "--reasoning-preserve",
        "keep the reasoning of earlier turns, if the template can (default: the template's)",
        env="LLAMA_ARG_REASONING_PRESERVE",
        off="--no-reasoning-preserve",
        off_help="leave it out",
        default=None,
    )
    skip_chat_parsing: bool = flag(
        "--skip-chat-parsing",
        "the whole answer is content, with reasoning and tool calls, as the model writes it",
        env="LLAMA_ARG_SKIP_CHAT_PARSING",
        off="--no-skip-chat-parsing",
        off_help="parse them (default)",
        default=False,
    )
    chat_template_kwargs: str | None = flag(
        "--chat-template-kwargs",
        """more variables for the chat template, such as '{"key": "value"}'""",
        env="LLAMA_ARG_CHAT_TEMPLATE_KWARGS",
        metavar="JSON",
    )
    prefill_assistant: bool = flag(
        "--prefill-assistant",
        "continue a conversation's last message if it is the assistant's (default)",
        env="LLAMA_ARG_PREFILL_ASSISTANT",
        off="--no-prefill-assistant",
        off_help="answer it",
    )
    grammar: str | None = flag("--grammar", "grammar that answers follow", metavar="GBNF")
    grammar_file: Path | None = flag("--grammar-file", "the same from a file")
    json_schema: str | None = flag("-j --json-schema", "JSON schema that answers follow", metavar="JSON")
    json_schema_file: Path | None = flag("-jf --json-schema-file", "the same from a file")
    samplers: list[str] | str | None = flag(
        "--samplers",
        "the samplers, in order (default: llama.cpp's)",
        type=_samplers,
        metavar="NAME;NAME",
        also={"--sampler-seq --sampling-seq": {"metavar": "LETTERS", "help": "the same by their initials"}},
    )
    ignore_eos: bool = flag("--ignore-eos", "never end the answer by an end-of-generation token")
    logit_bias: tuple[tuple[int, float], ...] = flag(
        "-l --logit-bias",
        "make a token likelier or less likely; may be given several times",
        type=_bias,
        action=Appended,
        metavar="TOKEN(+|-)BIAS",
    )
    dry_sequence_breaker: tuple[str, ...] = flag(
        "--dry-sequence-breaker",
        "text across which DRY sees no repetition, in place of the default ones; none: no such text",
        action=Appended,
        metavar="TEXT",
    )
    escape: bool = flag(
        "-e --escape",
        "read escapes such as \\n in -r and --dry-sequence-breaker (default)",
        off="--no-escape",
        off_help="do not",
    )


def request_defaults(args: RequestFlags) -> Defaults:
    """The defaults of requests.

    Raises:
        RequestError: a file cannot be read, or a value is out of range or malformed.
    """
    from dflash_local.server.fields.request import Defaults

    chosen: dict[str, Any] = {
        "samplers": args.samplers,
        "logit_bias": [*args.logit_bias] or None,
        "dry_sequence_breakers": _breakers(args),
        "reasoning_budget_message": args.reasoning_budget_message,
    }
    sampling = replace(args.sampling_params(), ignore_eos=args.ignore_eos, **chosen, **_constraint(args))
    stop = tuple(_unescaped(text, args) for text in args.reverse_prompt)
    return Defaults(
        sampling=sampling,
        max_tokens=args.predict,
        chat=_chat(args),
        ping_interval=args.sse_ping_interval,
        stop=stop,
        special=args.special,
        verbose=args.is_verbose,
        cache_prompt=args.cache_prompt,
    )


def _chat(args: RequestFlags) -> dict[str, Any]:
    """Fields of a chat body."""
    chat: dict[str, Any] = {"reasoning_format": args.reasoning_format}
    kwargs = json_object(args.chat_template_kwargs, "--chat-template-kwargs") if args.chat_template_kwargs else {}
    if args.reasoning_effort != "default":
        kwargs["reasoning_effort"] = args.reasoning_effort
    if args.reasoning_preserve is not None:
        kwargs["preserve_reasoning"] = args.reasoning_preserve
    if args.reasoning != "auto":
        kwargs["enable_thinking"] = args.reasoning == "on"
    if not isinstance(kwargs.get("enable_thinking", True), bool):
        raise RequestError("enable_thinking must be true or false", param="--chat-template-kwargs")
    if kwargs:
        chat["chat_template_kwargs"] = kwargs
    if args.skip_chat_parsing:
        chat["force_pure_content"] = True
    if not args.prefill_assistant:
        chat["continue_final_message"] = False
    return chat


def _constraint(args: RequestFlags) -> dict[str, Any]:
    """The grammar or the schema."""
    given = {
        "--grammar": args.grammar,
        "--grammar-file": args.grammar_file and read_text(args.grammar_file, "--grammar-file"),
        "--json-schema": args.json_schema,
        "--json-schema-file": args.json_schema_file and read_text(args.json_schema_file, "--json-schema-file"),
    }
    texts = {param: text for param, text in given.items() if text}
    if len(texts) > 1:
        raise RequestError(f"{' and '.join(texts)} exclude each other", param=[*texts][1], hint="give one of them")
    for param, text in texts.items():
        return {"grammar": text} if "grammar" in param else {"json_schema": json_object(text, param)}
    return {}


def _breakers(args: RequestFlags) -> list[str] | None:
    if not args.dry_sequence_breaker:
        return None
    last_none = max((at for at, text in enumerate(args.dry_sequence_breaker) if text == "none"), default=-1)
    return [_unescaped(text, args) for text in args.dry_sequence_breaker[last_none + 1 :]]


def _unescaped(text: str, args: RequestFlags) -> str:
    """`text` with llama.cpp's escapes replaced; others stay."""
    return _ESCAPE.sub(_character, text) if args.escape else text


def _character(escape: re.Match[str]) -> str:
    name = escape[1]
    return chr(int(name[1:], 16)) if name[0] == "x" else {"n": "\n", "r": "\r", "t": "\t"}.get(name, name)
