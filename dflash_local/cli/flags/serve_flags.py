"""All flags of a server, for `serve` and for what starts one."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Mapping
from typing import Any

from dflash_local import __version__
from dflash_local.cli.flags.command_line import CommandLine
from dflash_local.cli.flags.embedding_flags import EmbeddingFlags
from dflash_local.cli.flags.flag import add_flags, flag, titled
from dflash_local.cli.flags.foreign import Foreign, add_foreign_flags
from dflash_local.cli.flags.http_flags import HttpFlags, RecordFlags
from dflash_local.cli.flags.logs import LogFlags
from dflash_local.cli.flags.model_flags import add_model_flags
from dflash_local.cli.flags.replica_flags import ReplicaFlags
from dflash_local.cli.flags.request_flags import RequestFlags
from dflash_local.cli.flags.router_flags import PRESET, TARGETS, RouterFlags
from dflash_local.errors import RequestError

log = logging.getLogger(__name__)

# llama-server's names for ways of drafting, and the options of an engine that each stands for.
_SPEC_TYPES: Mapping[str, Mapping[str, Any]] = {
    "none": {"draft": "off"},
    "draft-dflash": {},
    "draft-dspark": {},
    "draft-mtp": {"draft_kind": "mtp"},
}


def _spec_type(text: str) -> str:
    """llama-server's name for a way of drafting."""
    if text in _SPEC_TYPES:
        return text
    if text.startswith("ngram"):
        raise argparse.ArgumentTypeError(f"{text} is not supported: --lookup on, the default, drafts from the prompt")
    raise argparse.ArgumentTypeError(f"must be one of {', '.join(_SPEC_TYPES)}, got {text!r}: see docs/drafters.md")


class AppFlags(HttpFlags, RecordFlags, RequestFlags, EmbeddingFlags):
    """What the app of one model is made from, here or in another process."""

    spec_type: str | None = flag(
        "--spec-type",
        "llama-server's name for what drafts: draft-dflash or draft-dspark, as the file is; draft-mtp is "
        "--draft-kind mtp, none is --draft off",
        env="LLAMA_ARG_SPEC_TYPE",
        type=_spec_type,
        metavar="TYPE",
    )

    @property
    def drafting(self) -> dict[str, Any]:
        return {**super().drafting, **_SPEC_TYPES[self.spec_type or "draft-dflash"]}


class ServeFlags(AppFlags, RouterFlags, ReplicaFlags, LogFlags):
    """All of them, in the order of --help. `foreign_flags` are those of llama-server without effect here, each with a
    note."""

    line: CommandLine
    foreign_flags: Mapping[Foreign, str]


def is_router(args: ServeFlags) -> bool:
    """Whether this command line starts a router. Typed flags take precedence over variables, and among variables the
    one that names a single model does, as in llama-server: images preset the folder.

    Raises:
        RequestError: flags that were typed name both a single model and several models.
    """
    if not (args.model or args.hf_repo or args.embedding_model or args.rerank_model):
        return True
    if not (args.models_dir or args.models_found or args.models_preset):
        return False
    typed = args.typed
    several = not typed.keys().isdisjoint({"models_dir", "models_found", "models_preset"})
    if several and not typed.keys().isdisjoint(TARGETS):
        raise RequestError(
            "--models-dir, --models-found and --models-preset make a router of many models, and another flag names one",
            param="--models-dir",
            hint=f"leave one of them out; a separate model is a section of {PRESET}",
        )
    return several


def check_record_flags(args: ServeFlags) -> None:
    """Refuse flags about kept answers that have no effect. A router's models get all of its flags: there the log tells.

    Raises:
        RequestError: no answers are written, or none are kept.
    """
    if args.record and args.writes_no_text:
        idle, why = "--record", "the server writes no answers that could be kept"
    elif not args.record and "record_limit" in args.typed:
        idle, why = "--record-limit", "answers are kept by --record DIR"
    else:
        return
    if not args.parent_pipes:
        raise RequestError(f"{idle} has no effect: {why}", param=idle, hint=f"leave {idle} out")
    log.warning("%s has no effect: %s", idle, why)


def add_serve_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--usage", action="help", help=argparse.SUPPRESS)
    parser.add_argument("--version", action="version", version=f"dflash-local {__version__}")
    add_model_flags(parser, defaults={"n_slots": -1})
    add_flags(parser, AppFlags, *titled(ServeFlags))
    add_foreign_flags(parser)
