"""Command line flags that load an engine, with llama-server's names and its LLAMA_ARG_* environment variables.

Names and variables are those of llama.cpp's `common/arg.cpp`; a flag on the command line beats its variable.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, get_args

from dflash_local.cli.flags.flag import SILENT, Appended, FlagGroup, Flags, Joined, add_fields, add_flag, flag, gathered
from dflash_local.cli.flags.values import amount, count, on_off_auto, one_of, read_text, truth
from dflash_local.draft_options import MIN_DRAFT_VOCAB, Budget, Draft, DraftKind
from dflash_local.engine_options import DEFAULTS, FLAG_GROUPS, OPTIONS, EngineOption, Flag
from dflash_local.errors import RequestError


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
    """Prints the devices as llama-server does."""

    def __init__(self, option_strings: list[str], dest: str, **options: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, default=SILENT, **options)

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *_: object) -> None:
        from dflash_local.native import list_devices

        devices = list_devices(namespace.rpc)
        print("Available devices:")
        for name, text, total, free in devices:
            print(f"  {name}: {text} ({total >> 20} MiB, {free >> 20} MiB free)")
        parser.exit()


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
    "lookup_corpus": {"action": Appended},
    "override_tensor": {"action": Joined},
    "override_tensor_draft": {"action": Joined},
}


class EngineFlags(Flags):
    """What describes an engine beside its models. `options` are all EngineOptions that have flags, by name; the fields
    without a flag here are those of them that commands look at."""

    options: Mapping[str, Any] = gathered({name: name for name, option in OPTIONS.items() if option.flag})
    n_ctx: int
    n_batch: int
    n_threads: int | None
    n_threads_batch: int | None
    n_gpu_layers: int
    flash_attn: str
    device: str | None
    budget: Budget
    draft: Draft
    draft_kind: DraftKind
    chat_template: str | None
    auto_convert: bool = flag(
        "--auto-convert", "rewrite a drafter in another project's dialect of GGUF into the cache, once, and use that"
    )
    load_mode: str = flag(
        "-lm --load-mode",
        "auto, none, mmap, mlock, mmap+mlock or dio, which is none (default: auto, which is mmap)",
        env="LLAMA_ARG_LOAD_MODE",
        type=one_of("auto", "none", "mmap", "mlock", "mmap+mlock", "dio"),
        default="auto",
        metavar="MODE",
        also={
            "--mlock": {"action": "store_const", "const": "mmap+mlock", "help": SILENT},
            "--no-mmap": {"action": "store_const", "const": "none", "help": SILENT},
        },
    )
    chat_template_file: Path | None = flag(
        "--chat-template-file", "the same from a file", env="LLAMA_ARG_CHAT_TEMPLATE_FILE"
    )

    @property
    def drafting(self) -> dict[str, Any]:
        """`draft` and `draft_kind` of the engine."""
        return {"draft": self.draft, "draft_kind": self.draft_kind}

    @property
    def maps_files(self) -> bool:
        return self.load_mode in ("auto", "mmap", "mmap+mlock")


def add_engine_flags(
    parser: argparse.ArgumentParser, *, without: Collection[str] = (), defaults: Mapping[str, Any] | None = None
) -> dict[str, FlagGroup]:
    """Add EngineFlags, with those of all EngineOptions except `without`. `defaults` are the command's own. Returns the
    groups by title."""
    groups: dict[str, FlagGroup] = {title: parser.add_argument_group(title) for title in FLAG_GROUPS}
    models, _drafting, _context, machine, template = groups.values()
    for name, option in OPTIONS.items():
        if option.flag and name not in without:
            default = {**DEFAULTS, **(defaults or {})}.get(name)
            _add_option(groups[option.flag.group], name, option, option.flag, default)
    add_fields(models, EngineFlags, "auto_convert")
    add_fields(machine, EngineFlags, "load_mode")
    machine.add_argument(
        "--list-devices",
        action=_ListDevices,
        help="print the devices that --device may name, including those of an --rpc before it, and exit",
    )
    add_fields(template, EngineFlags, "chat_template_file")
    return groups


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


def chat_template(args: EngineFlags) -> str | None:
    """The template of --chat-template or --chat-template-file.

    Raises:
        RequestError: the file cannot be read, or is not a template that llama.cpp can parse.
    """
    flag, source = "--chat-template", args.chat_template
    if args.chat_template_file and source is not None:
        raise RequestError(
            "--chat-template and --chat-template-file both give the template", param=flag, hint="give one of them"
        )
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
