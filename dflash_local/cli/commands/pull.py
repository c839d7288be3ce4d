"""`dflash-local pull`: download a model, its drafter and its projector, and print their paths."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dflash_local.cli.command import Commands, add_command
from dflash_local.cli.flags.flag import SILENT, add_flags, argument, flag
from dflash_local.cli.flags.idle_flags import refuse_idle
from dflash_local.cli.flags.model_flags import HubFlags
from dflash_local.cli.flags.named_models import hub_of
from dflash_local.convert import OUTTYPES

if TYPE_CHECKING:
    from dflash_local.hub.pairing import Pairing

_DESCRIPTION = """\
Download a GGUF model from the Hugging Face Hub, with the drafter and the projector that 'serve -hf' would take for it.

Files go into the cache that llama.cpp and huggingface_hub use. A drafter that is published as a checkpoint is converted
once and kept. Their headers show whether the two fit, before anything large is downloaded.
"""
EPILOG = """\
examples:
  dflash-local pull unsloth/Qwen3-8B-GGUF:Q4_K_M
  dflash-local pull -hfd z-lab/Qwen3-8B-DFlash-b16 --target Qwen3-8B-Q4_K_M.gguf
"""


class PullFlags(HubFlags):
    typed: Mapping[str, tuple[str, ...]]
    name: str | None = argument(
        "the target (default: Q4_K_M, then Q8_0)", nargs="?", metavar="USER/NAME[@REVISION][:QUANT]"
    )
    hf_repo: str | None = flag("-hf -hfr --hf-repo", SILENT)  # the name, as `serve` takes it
    hf_file: str | None = flag("-hff --hf-file", "the file of that repository, of any type", metavar="FILE")
    drafter: str | None = flag(
        "-hfd --spec-draft-hf",
        "the drafter (default: one beside the target, or one that is known for it)",
        metavar="USER/NAME[@REVISION][:QUANT]",
    )
    target: Path | None = flag("--target", "the target, if it is on this disk", metavar="TARGET.gguf")
    no_drafter: bool = flag("--no-drafter", "the target alone")
    no_projector: bool = flag("--no-mmproj --no-mmproj-auto", "without the projector that is beside the target")
    outtype: str | None = flag(
        "--outtype", "type of a converted drafter (default: that of a kept conversion, else f16)", choices=OUTTYPES
    )
    dry_run: bool = flag("--dry-run", "only say what would be downloaded")


def add_parser(commands: Commands) -> None:
    parser = add_command(
        commands,
        "pull",
        PullFlags,
        run,
        "download a model, its drafter and its projector from the Hugging Face Hub",
        _DESCRIPTION,
        epilog=EPILOG,
    )
    add_flags(parser, HubFlags)


def run(args: PullFlags) -> int:
    from dflash_local.cli.flags.auto_convert import auto_convert
    from dflash_local.errors import RequestError
    from dflash_local.hub.pairing import Pairing
    from dflash_local.hub.selection import Name

    named = [name for name in (args.name, args.hf_repo) if name is not None]
    if len(named) + (args.target is not None) != 1:
        raise RequestError("name one target", hint="give USER/NAME[:QUANT], or --target TARGET.gguf and -hfd USER/NAME")
    if args.target and not args.drafter:
        raise RequestError("--target is on this disk, and no drafter is named", hint="give -hfd USER/NAME")
    if args.target:
        refuse_idle(args.typed, ["hf_file"], "--target is on this disk")
    if args.drafter:
        refuse_idle(args.typed, ["no_drafter"], "-hfd names one")
    if args.no_drafter:
        refuse_idle(args.typed, ["outtype"], "no drafter is wanted")
    with hub_of(args.offline, args.hf_token) as hub, Pairing(hub, args.outtype) as pairing:
        if args.target:
            pairing.local_target(args.target)
        else:
            pairing.hub_target(Name.parse(named[0]), args.hf_file)
        if args.drafter:
            pairing.hub_drafter(Name.parse(args.drafter))
        elif not args.no_drafter:
            pairing.find_drafter()
        if not (pairing.drafter and pairing.drafter.is_checkpoint):
            found = f"{pairing.drafter} is a GGUF" if pairing.drafter else "there is no drafter"
            refuse_idle(args.typed, ["outtype"], f"{found}, and only checkpoints are converted")
        if named and not args.no_projector:
            pairing.find_projector()
        if args.dry_run:
            _tell(pairing)
            return 0
        target, drafter = pairing.fetch()
        projector = pairing.fetch_projector()
    print(f"target:  {target}")
    if drafter:
        print(f"drafter: {auto_convert(drafter, target)}")
    if projector:
        print(f"mmproj:  {projector}")
    return 0


def _tell(pairing: Pairing) -> None:
    from dflash_local.words import file_size_text

    print(f"target:  {pairing.target}")
    print(f"drafter: {pairing.drafter or 'none'}")
    if pairing.projector:
        print(f"mmproj:  {pairing.projector.repo}/{pairing.projector.path}")
    missing = pairing.missing()
    for file in missing:
        print(f"{file_size_text(file.size or 0):>10}  {file.repo}/{file.path}")
    print(f"{file_size_text(sum(file.size or 0 for file in missing)):>10}  to download")
