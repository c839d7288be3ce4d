"""`dflash-local pull`: download a model and its drafter, and print their paths."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dflash_local.cli.flags.model_flags import add_access_flags, hub_of
from dflash_local.cli.usage import Commands, add_command
from dflash_local.convert import OUTTYPES

if TYPE_CHECKING:
    from dflash_local.hub.pairing import Pairing

_DESCRIPTION = """\
Download a GGUF model from the Hugging Face Hub, and the drafter that 'serve -hf' would take for it.

Files go into the cache that llama.cpp and huggingface_hub use. A drafter that is published as a checkpoint is converted
once and kept. Their headers show whether the two fit, before anything large is downloaded.
"""
EPILOG = """\
examples:
  dflash-local pull unsloth/Qwen3-8B-GGUF:Q4_K_M
  dflash-local pull -hfd z-lab/Qwen3-8B-DFlash-b16 --target Qwen3-8B-Q4_K_M.gguf
"""


def add_parser(commands: Commands) -> None:
    from dflash_local.cli.flags.flag import add_flag

    parser = add_command(
        commands,
        "pull",
        run,
        "download a model and its drafter from the Hugging Face Hub",
        _DESCRIPTION,
        epilog=EPILOG,
        allow_abbrev=False,
    )
    parser.add_argument(
        "name", nargs="?", metavar="USER/NAME[@REVISION][:QUANT]", help="the target (default: Q4_K_M, then Q8_0)"
    )
    parser.add_argument("-hff", "--hf-file", metavar="FILE", help="the file of that repository, of any type")
    parser.add_argument(
        "-hfd",
        "--spec-draft-hf",
        dest="drafter",
        metavar="USER/NAME[@REVISION][:QUANT]",
        help="the drafter (default: one beside the target, or one that is known for it)",
    )
    parser.add_argument("--target", type=Path, metavar="TARGET.gguf", help="the target, if it is on this disk")
    parser.add_argument("--no-drafter", action="store_true", help="the target alone")
    parser.add_argument(
        "--outtype", choices=OUTTYPES, help="type of a converted drafter (default: that of a kept conversion, else f16)"
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what would be downloaded")
    add_access_flags(partial(add_flag, parser))


def run(args: argparse.Namespace) -> int:
    from dflash_local.cli.flags.auto_convert import auto_convert
    from dflash_local.errors import RequestError
    from dflash_local.hub.pairing import Pairing
    from dflash_local.hub.selection import Name

    if (args.name is None) == (args.target is None):
        raise RequestError("name one target", hint="give USER/NAME[:QUANT], or --target TARGET.gguf and -hfd USER/NAME")
    if args.target and not args.drafter:
        raise RequestError("--target is on this disk, and no drafter is named", hint="give -hfd USER/NAME")
    with hub_of(args) as hub, Pairing(hub, args.outtype) as pairing:
        if args.target:
            pairing.local_target(args.target)
        else:
            pairing.hub_target(Name.parse(args.name), args.hf_file)
        if args.drafter:
            pairing.hub_drafter(Name.parse(args.drafter))
        elif not args.no_drafter:
            pairing.find_drafter()
        if args.dry_run:
            _tell(pairing)
            return 0
        target, drafter = pairing.fetch()
    print(f"target:  {target}")
    if drafter:
        print(f"drafter: {auto_convert(drafter, target)}")
    return 0


def _tell(pairing: Pairing) -> None:
    from dflash_local.words import file_size_text

    print(f"target:  {pairing.target}")
    print(f"drafter: {pairing.drafter or 'none'}")
    missing = pairing.missing()
    for file in missing:
        print(f"{file_size_text(file.size or 0):>10}  {file.repo}/{file.path}")
    print(f"{file_size_text(sum(file.size or 0 for file in missing)):>10}  to download")
