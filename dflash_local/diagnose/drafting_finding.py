"""Which way drafts with an engine's options: a drafter, next-token (MTP) layers, prompt lookup alone, or none."""

from __future__ import annotations

from pathlib import Path

from dflash_local.convert.target import Target
from dflash_local.diagnose.architectures import NO_LOOKUP
from dflash_local.diagnose.finding import Finding, fail, ok, warn
from dflash_local.diagnose.mtp_layers import is_split_off, unused_layers
from dflash_local.diagnose.pair import kind_refusal
from dflash_local.engine_options import EngineOptions

_GIVE_ONE = (
    "give the drafter of this target: -md DRAFTER.gguf; 'dflash-local pairs' lists published ones, and "
    "'dflash-local train' makes one for any target (docs/training.md)"
)


def look_at_drafting(options: EngineOptions, target: Target, drafter: Path | None) -> Finding:
    """`drafter`: the file that the engine will load. Raises ModelError."""
    by_lookup = "prompt lookup" if options.lookup else ""
    if options.draft == "off":
        return ok("drafting", "off: decoding is plain")
    if target.arch in NO_LOOKUP:
        advice = "take a model of another architecture if it is too slow"
        return warn("drafting", f"none: the recurrent state of {target.arch!r} cannot be rolled back", advice)
    if drafter:
        is_mtp = is_split_off(drafter, target.arch)
        if why := kind_refusal(options.draft_kind, drafter, is_mtp):
            return fail("drafting", why, "leave it out, or leave --draft-kind at auto")
        own = not is_mtp and options.draft_kind == "auto" and not unused_layers(target)
        by_file = f"by {'the MTP layers of ' * is_mtp}{drafter.name}"
        return ok("drafting", _and(f"{by_file}{', by the own next-token (MTP) layers of the model' * own}", by_lookup))
    if options.draft_kind == "dflash":
        return fail("drafting", "--draft-kind dflash, but there is no drafter", "give one, or leave it at auto")
    if options.draft_kind == "lookup":
        return ok("drafting", "by prompt lookup alone (--draft-kind lookup)")
    why = unused_layers(target)
    if not why:
        return ok("drafting", _and("by the file's own next-token (MTP) layers", by_lookup))
    if options.draft_kind == "mtp":
        advice = "give a file with MTP layers (-md), or leave --draft-kind at auto"
        return fail("drafting", f"--draft-kind mtp, but {why}", advice)
    unused = f", and MTP layers are not used: {why}" if target.n_next_token_layers else ""
    alone = "drafting by prompt lookup alone" if by_lookup else "decoding is plain"
    return warn("drafting", f"{alone}: no drafter{unused}", _GIVE_ONE)


def _and(way: str, lookup: str) -> str:
    return f"{way} and by {lookup}" if lookup else way
