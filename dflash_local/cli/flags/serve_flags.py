"""All flags of a server, for `serve` and for what starts one."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Mapping
from typing import Any

from dflash_local import __version__
from dflash_local.cli.flags.command_line import CommandLine
from dflash_local.cli.flags.embedding_flags import EmbeddingFlags
from dflash_local.cli.flags.flag import Joined, add_flags, flag, titled
from dflash_local.cli.flags.foreign import Foreign, add_foreign_flags
from dflash_local.cli.flags.http_flags import HttpFlags, RecordFlags
from dflash_local.cli.flags.logs import LogFlags
from dflash_local.cli.flags.model_flags import add_model_flags
from dflash_local.cli.flags.replica_flags import ReplicaFlags
from dflash_local.cli.flags.request_flags import RequestFlags
from dflash_local.cli.flags.router_flags import PRESET, TARGETS, RouterFlags
from dflash_local.errors import RequestError

log = logging.getLogger(__name__)

# llama-server's names for what drafts. All kinds of n-grams are prompt lookup here.
_SPEC_TYPES = (
    "none", "draft-dflash", "draft-dspark", "draft-mtp",
    "ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache",
)  # fmt: skip
_OTHER_SPEC_TYPES = ("draft-simple", "draft-eagle3")


def _spec_types(text: str) -> str:
    """A list of llama-server's names for what drafts."""
    names = text.split(",")
    for name in names:
        if name in _OTHER_SPEC_TYPES:
            raise argparse.ArgumentTypeError(f"{name} is not supported: docs/drafters.md says which drafters are")
        if name not in _SPEC_TYPES:
            raise argparse.ArgumentTypeError(f"must be names of {', '.join(_SPEC_TYPES)}, got {name!r}")
    return text


def _drafting(names: set[str]) -> dict[str, Any]:
    """The options of an engine that such names stand for. Prompt lookup also drafts beside the others."""
    if "none" in names and len(names) > 1:
        raise RequestError("none means that nothing drafts", param="--spec-type", hint="leave none or the others out")
    if not names.isdisjoint({"draft-dflash", "draft-dspark"}):
        return {}
    if "draft-mtp" in names:
        return {"draft_kind": "mtp"}
    return {"draft": "off"} if names == {"none"} else {"draft_kind": "lookup"}


class AppFlags(HttpFlags, RecordFlags, RequestFlags, EmbeddingFlags):
    """What the app of one model is made from, here or in another process."""

    spec_type: str | None = flag(
        "--spec-type",
        "llama-server's names for what drafts: draft-dflash or draft-dspark, as the file is; draft-mtp is "
        "--draft-kind mtp, ngram-mod and the like alone --draft-kind lookup, none is --draft off",
        env="LLAMA_ARG_SPEC_TYPE",
        action=Joined,
        type=_spec_types,
        metavar="TYPE[,TYPE]",
    )

    @property
    def drafting(self) -> dict[str, Any]:
        named = _drafting(set(self.spec_type.split(","))) if self.spec_type else {}
        return {**super().drafting, **named}


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
    elif not (args.record or args.adapt) and "record_limit" in args.typed:
        idle, why = "--record-limit", "answers are kept by --record DIR, or by --adapt DIR"
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
