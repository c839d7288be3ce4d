"""`dflash-local pairs`: list the known drafters of targets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from dflash_local.cli.command import Commands, add_command
from dflash_local.cli.flags.flag import Flags, argument, flag

if TYPE_CHECKING:
    from dflash_local.hub.registry import KnownDrafter, KnownTarget

_DESCRIPTION = """\
List the drafters that are known for a target, best first; 'serve -hf' takes the first that can be used and fits, and
next-token (MTP) layers that the model's own file has.

The list is part of dflash-local; entries of your own go into pairs.json in the configuration folder (docs/models.md).
"""

_OWN_LAYERS = "(the model's own next-token layers)"


class PairsFlags(Flags):
    name: str | None = argument("only targets with this in their name", nargs="?", metavar="TARGET")
    json: bool = flag("--json", "print the list as JSON")


def add_parser(commands: Commands) -> None:
    add_command(commands, "pairs", PairsFlags, run, "list the drafters that are known for targets", _DESCRIPTION)


def run(args: PairsFlags) -> int:
    from dflash_local.diagnose.architectures import MTP_ARCHS, NO_ROLLBACK, TAPPED_ARCHS
    from dflash_local.hub.registry import known_targets

    wanted = (args.name or "").lower().rpartition("/")[2]
    found = [target for target in known_targets() if wanted in target.name.lower() or target.is_named(wanted)]
    drafted = TAPPED_ARCHS - NO_ROLLBACK
    if args.json:
        print(json.dumps([_entry(target, drafted) for target in found], indent=1))
        return 0
    for target in found:
        print(target.name)
        if why := _undrafted(target, drafted):
            print(f"  refused: {why}")
        if target.none:
            print(f"  none: {target.none}")
        for drafter in target.drafters:
            print("  " + "  ".join(_words(drafter)))
        if target.shape.get("architecture") in MTP_ARCHS:
            print(f"  {_OWN_LAYERS:<56}  MTP        in its file, unless a conversion left them out")
    if not found:
        print(f"no drafter is known for {args.name}")
    return 0 if found else 1


def _undrafted(target: KnownTarget, drafted: frozenset[str]) -> str | None:
    arch = target.shape.get("architecture")
    if arch is None or arch in drafted:
        return None
    return f"the engine cannot draft for models of the architecture {arch!r}"


def _words(drafter: KnownDrafter) -> Iterator[str]:
    yield f"{drafter.shown:<56}"
    yield f"{drafter.kind:<9}"
    if drafter.refused:
        yield f"refused: {drafter.refused}"
        return
    marks = ["gated"] * drafter.gated + ["unverified"] * drafter.unverified + [drafter.note or ""]
    yield "; ".join(filter(None, (drafter.format, *marks)))


def _entry(target: KnownTarget, drafted: frozenset[str]) -> dict[str, object]:
    return {
        "target": target.name,
        "repositories": target.repositories,
        "shape": target.shape,
        "refused": _undrafted(target, drafted),
        "none": target.none,
        "drafters": [{**asdict(one), "file": one.file and str(one.file)} for one in target.drafters],
    }
