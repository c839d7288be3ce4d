"""Command line flags that load an engine, with llama-server's names and its LLAMA_ARG_* environment variables.

Names and variables are those of llama.cpp's `common/arg.cpp`; a flag on the command line beats its variable.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import Field, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from dflash_local.cli.flags.flag import SILENT, FlagGroup, add_flag
from dflash_local.cli.flags.model_flags import Models, add_hub_flags, suggest
from dflash_local.cli.flags.spec_type import drafting_options
from dflash_local.cli.flags.values import amount, count, on_off_auto, one_of, read_text, truth
from dflash_local.drafting import MIN_DRAFT_VOCAB, Draft
from dflash_local.engine_options import DEFAULTS, FLAG_GROUPS, OPTIONS, EngineOption, Flag
from dflash_local.errors import RequestError
from dflash_local.sampling import SamplingParams

if TYPE_CHECKING:
    from dflash_local.engine import Engine

# llama-server's other spellings of sampling flags, and its variables for them.
_SAMPLING_ALIASES = {
    "seed": ("-s",),
    "temperature": ("--temp",),
    "top_n_sigma": ("--top-nsigma",),
    "typical_p": ("--typical",),
    "dynatemp_exponent": ("--dynatemp-exp",),
    "mirostat_tau": ("--mirostat-ent",),
    "mirostat_eta": ("--mirostat-lr",),
    "reasoning_budget_tokens": ("--reasoning-budget",),
}
_SAMPLING_ENV = {
    **{name: f"LLAMA_ARG_{name.upper()}" for name in ("temperature", "top_k", "top_p", "min_p")},
    **{name: f"LLAMA_ARG_{name.upper()}" for name in ("repeat_penalty", "presence_penalty", "frequency_penalty")},
    "reasoning_budget_tokens": "LLAMA_ARG_THINK_BUDGET",
}


def _layers(text: str) -> int:
    return -1 if text in ("all", "auto") else count(-1)(text)


def _slots(text: str) -> int:
    return count(-1)(text) or 1


def _threads(text: str) -> int | None:
    return max(count(-1)(text), 0) or None


def _budget(text: str) -> int | str:
    return "auto" if text == "auto" else count(1)(text)


def _draft_vocab(text: str) -> int | str:
    return text if text in ("auto", "all") else count(MIN_DRAFT_VOCAB)(text)


def _draft(text: str) -> str:
    if text.isdigit():  # older llama.cpp had --draft N
        raise argparse.ArgumentTypeError(
            f"takes off, chain or tree; the most draft tokens are --spec-draft-n-max {text}"
        )
    return one_of(*get_args(Draft))(text)


class _ListDevices(argparse.Action):
    """Prints devices like llama-server."""

    def __init__(self, option_strings: list[str], dest: str, **options: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, default=SILENT, **options)

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *_: object) -> None:
        from dflash_local.native import list_devices

        devices = list_devices(getattr(namespace, "rpc", None))
        print("Available devices:")
        for name, text, total, free in devices:
            print(f"  {name}: {text} ({total >> 20} MiB, {free >> 20} MiB free)")
        parser.exit()


class _Joined(argparse.Action):
    """A list joined with commas, to which each use of the flag appends; the first use replaces the default."""

    repeats = True

    def __call__(self, _parser: object, namespace: argparse.Namespace, values: Any, _name: str | None = None) -> None:
        held = getattr(namespace, self.dest)
        setattr(namespace, self.dest, values if held is self.default else f"{held},{values}")


class _Appended(argparse.Action):
    """A tuple to which each use of the flag appends."""

    repeats = True

    def __call__(self, _parser: object, namespace: argparse.Namespace, values: Any, _name: str | None = None) -> None:
        setattr(namespace, self.dest, (*getattr(namespace, self.dest), values))


# Options whose values are spelled differently in llama-server and in Python.
_SPELLINGS: dict[str, dict[str, Any]] = {
    "n_slots": {"type": _slots},
    "n_threads": {"type": _threads},
    "n_threads_batch": {"type": _threads},
    "n_gpu_layers": {"type": _layers},
    "n_gpu_layers_draft": {"type": _layers},
    "main_gpu": {"type": count()},
    "flash_attn": {"type": on_off_auto, "nargs": "?", "const": "on"},
    "draft_n_max": {"type": count()},
    "budget": {"type": _budget},
    "draft_vocab": {"type": _draft_vocab},
    "draft": {"type": _draft},
    "slot_similarity": {"type": amount(1)},
    "lookup_corpus": {"action": _Appended},
    "override_tensor": {"action": _Joined},
    "override_tensor_draft": {"action": _Joined},
}


def add_engine_flags(
    parser: argparse.ArgumentParser, *, without: Collection[str] = (), defaults: Mapping[str, Any] | None = None
) -> None:
    """Add the flags of all EngineOptions, which `engine_options` reads, and those of models by name, except `without`.
    `defaults` are the command's own."""
    groups = {title: parser.add_argument_group(title) for title in FLAG_GROUPS}
    models, _drafting, _context, machine, template = groups.values()
    for name, option in OPTIONS.items():
        if option.flag and name not in without:
            default = {**DEFAULTS, **(defaults or {})}.get(name)
            _add_option(groups[option.flag.group], name, option, option.flag, default)
    models.add_argument(
        "--auto-convert",
        action="store_true",
        help="rewrite a drafter in another project's dialect of GGUF into the cache, once, and use that",
    )
    if "model" not in without:
        add_hub_flags(partial(add_flag, models))
    # One flag for two options.
    add_flag(
        machine,
        "-lm",
        "--load-mode",
        env="LLAMA_ARG_LOAD_MODE",
        type=one_of("auto", "none", "mmap", "mlock", "mmap+mlock"),
        default="auto",
        metavar="MODE",
        help="auto, none, mmap, mlock or mmap+mlock (default: auto, which is mmap)",
    )
    machine.add_argument(
        "--list-devices",
        action=_ListDevices,
        help="print the devices that --device may name, after --rpc its servers' too, and exit",
    )
    for name, mode in (("--mlock", "mmap+mlock"), ("--no-mmap", "none")):
        machine.add_argument(name, dest="load_mode", action="store_const", const=mode, help=argparse.SUPPRESS)
    add_flag(
        template,
        "--chat-template-file",
        env="LLAMA_ARG_CHAT_TEMPLATE_FILE",
        type=Path,
        metavar="FILE",
        help="the same from a file",
    )


def _add_option(group: FlagGroup, name: str, option: EngineOption, flag: Flag, default: Any) -> None:
    text = SILENT if flag.silent else _help(option, flag, default)
    if flag.metavar or flag.choices:
        kind: Callable[[str], Any] = str
        if flag.choices:
            kind = one_of(*flag.choices)
        elif isinstance(default, bool):
            kind = truth
        elif option.low is not None:
            kind = count(option.low)
        arguments = {
            "type": kind,
            "metavar": flag.metavar or "|".join(flag.choices),
            "help": text,
            **_SPELLINGS.get(name, {}),
        }
        add_flag(group, *flag.names, env=flag.env, dest=name, default=default, **arguments)
        return
    if flag.names:
        switch = {"dest": name, "default": default, "action": "store_true", "help": text}
        add_flag(group, *flag.names, env=flag.env, off=flag.off_names, off_help=flag.off_help or "", **switch)
    elif flag.off_names:
        group.add_argument(*flag.off_names, dest=name, action="store_false", default=default, help=flag.off_help)


def _help(option: EngineOption, flag: Flag, default: Any) -> str:
    """An option's help, with flags in place of option names, and its default."""
    text = re.sub(r"`(\w+)`", lambda name: OPTIONS[name[1]].flag.names[-1], option.help)  # type: ignore[union-attr]
    shown = flag.default_text or option.default_text
    if shown is None and isinstance(default, bool) and not flag.metavar:
        return f"{text} (default)" if default else text
    if shown is None and default is not None:
        shown = str(default) if not isinstance(default, bool) else "on" if default else "off"
    return f"{text} (default: {shown})" if shown else text


def engine_options(args: argparse.Namespace, models: Models) -> dict[str, Any]:
    """Arguments of `Engine` from parsed flags and the models that they name.

    Raises:
        RequestError: the chat template cannot be read.
        ConvertError, ModelError: with --auto-convert the drafter cannot be rewritten, or the target cannot be read.
    """
    options = {name: getattr(args, name) for name, option in OPTIONS.items() if option.flag}
    options |= {"model": models.target, "drafter": models.drafter, **drafting_options(args)}
    options["mmap"] = args.load_mode in ("auto", "mmap", "mmap+mlock")
    options["mlock"] = "mlock" in args.load_mode
    if models.auto_convert and models.drafter:
        from dflash_local.cli.flags.auto_convert import auto_convert

        options["drafter"] = str(auto_convert(Path(models.drafter), Path(models.target)))
    options["chat_template"] = chat_template(args)
    return options


def chat_template(args: argparse.Namespace) -> str | None:
    """The template of --chat-template or --chat-template-file.

    Raises:
        RequestError: the file cannot be read, or is not a template that llama.cpp can parse.
    """
    flag, source = "--chat-template", args.chat_template
    if args.chat_template_file:
        flag = "--chat-template-file"
        source = read_text(args.chat_template_file, flag)
    if source is not None:
        from dflash_local.native import check_chat_template

        try:
            check_chat_template(source)
        except RequestError as error:
            why = error.message.removeprefix("field 'chat_template': ")
            raise RequestError(f"{flag} {why}", param=flag) from None
    return source


def load_engine(
    args: argparse.Namespace, models: Models, *, progress: Callable[[float], bool] | None = None, **overrides: Any
) -> Engine:
    """The engine that the flags describe; `overrides` are arguments of `Engine`. Once it is loaded, a drafter is
    suggested if one is known for a target without one."""
    from dflash_local.engine import Engine

    engine = Engine(**{**engine_options(args, models), "progress": progress, **overrides})
    suggest(models, engine.info["target"])
    return engine


def add_sampling_flags(parser: argparse.ArgumentParser) -> None:
    """One flag for every numeric field of SamplingParams."""
    group = parser.add_argument_group("sampling", "defaults of requests; 0 temperature is greedy")
    for name, spec in _sampling_numbers().items():
        add_flag(
            group,
            *_SAMPLING_ALIASES.get(name, ()),
            "--" + name.replace("_", "-"),
            env=_SAMPLING_ENV.get(name),
            dest=f"sampling_{name}",
            type=spec.metadata["range"]["type"],
            metavar="N",
            help=f"{spec.metadata['help']} (default: {'random' if spec.default is None else f'{spec.default:g}'})",
        )


def sampling_options(args: argparse.Namespace) -> SamplingParams:
    """The SamplingParams that the flags describe.

    Raises:
        RequestError: a value is out of range.
    """
    values = {name: getattr(args, f"sampling_{name}") for name in _sampling_numbers()}
    return SamplingParams(**{name: value for name, value in values.items() if value is not None})


def _sampling_numbers() -> dict[str, Field[Any]]:
    return {spec.name: spec for spec in fields(SamplingParams) if "range" in spec.metadata}
