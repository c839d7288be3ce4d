"""`dflash-local convert`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dflash_local.cli.command import Commands, add_command
from dflash_local.cli.flags.flag import add_flags, argument, flag
from dflash_local.cli.flags.model_flags import HubFlags
from dflash_local.cli.flags.named_models import local_header, local_target
from dflash_local.cli.flags.values import count, numbers
from dflash_local.cli.terminal.notes import note
from dflash_local.cli.terminal.progress import Progress
from dflash_local.cli.typed_path import is_file
from dflash_local.convert import FC_TYPES, OUTTYPES
from dflash_local.errors import RequestError

if TYPE_CHECKING:
    from dflash_local.convert.conversion import Conversion

_OUTTYPE = "f16"
_DESCRIPTION = """\
Turn a DFlash drafter or an assistant of Gemma 4 from Hugging Face into a GGUF that dflash-local and llama.cpp load.

The tokenizer comes from the target's GGUF; no Hugging Face copy of the target is needed. The drafter works with every
quantization of that target, so one conversion serves them all.

A drafter's GGUF in the dialect of another project (buun, BeeLlama, ik_llama.cpp, lucebox, qvac, PrismML) is rewritten
as llama.cpp's: names and keys change, weights do not.
"""


class ConvertFlags(HubFlags):
    drafter: Path = argument(
        "directory with the drafter's config.json and weights, or a GGUF of another dialect",
        metavar="DRAFTER",
    )
    target: str = flag(
        "--target",
        "GGUF of the model that the drafter was trained for, or its name on the Hub, USER/NAME[:QUANT], of which "
        "only the header is downloaded",
        required=True,
        metavar="TARGET.gguf",
    )
    output: Path | None = flag(
        "-o --output",
        "file to write (default: here, the directory's name and the type, or the GGUF's name and 'dflash')",
        metavar="OUT",
    )
    outtype: str | None = flag("--outtype", f"type of the matrices (default: {_OUTTYPE})", choices=OUTTYPES)
    fc_type: str | None = flag(
        "--fc-type",
        "type of the projection that reads the hidden states (default: bf16, or f32 as the matrices)",
        choices=FC_TYPES,
    )
    target_layer_ids: tuple[int, ...] | None = flag(
        "--target-layer-ids",
        "the target's layers that a GGUF's drafter reads, as its config.json has them; only for one that names none",
        type=numbers(int),
        metavar="ID,...",
    )
    non_causal: bool = flag(
        "--non-causal",
        "in a GGUF's sliding layers, too, the rows of a block see later ones; for dialects that cannot say so",
    )
    draft_vocab: int | None = flag(
        "--draft-vocab",
        "let the drafter propose only the N most frequent tokens of --corpus: less to read in each of its passes, "
        "the same answers",
        type=count(8),
    )
    corpus: Path | None = flag("--corpus", "text whose tokens --draft-vocab counts")
    quiet: bool = flag("-q --quiet", "show no progress")


def add_parser(commands: Commands) -> None:
    parser = add_command(
        commands,
        "convert",
        ConvertFlags,
        run,
        "turn a DFlash drafter from Hugging Face, or another project's GGUF, into a GGUF",
        _DESCRIPTION,
    )
    add_flags(parser, HubFlags)


def run(args: ConvertFlags) -> int:
    return _rewrite_gguf(args) if is_file(args.drafter) else _convert_checkpoint(args)


# ---- a checkpoint ----


def _convert_checkpoint(args: ConvertFlags) -> int:
    from dflash_local.convert.conversion import convert
    from dflash_local.convert.outtypes import RowQuantizer, find_outtype

    if args.target_layer_ids or args.non_causal:
        raise RequestError(
            "--target-layer-ids and --non-causal are for GGUFs: a checkpoint's config.json says both",
            param="--target-layer-ids" if args.target_layer_ids else "--non-causal",
            hint="leave it out, or edit config.json",
        )
    if bool(args.draft_vocab) != bool(args.corpus):
        raise RequestError("--draft-vocab and --corpus need each other", param="--draft-vocab")
    outtype = args.outtype or _OUTTYPE
    ggml: RowQuantizer | None = None
    if find_outtype(outtype, args.fc_type).needs_ggml:
        from dflash_local.native import quantize_rows

        ggml = quantize_rows
    output = args.output or Path(f"{args.drafter.resolve().name}-{outtype}.gguf")
    with Progress(quiet=args.quiet) as progress, _target(args) as target:
        write = partial(
            convert, args.drafter, target, outtype=outtype, fc_type=args.fc_type, ggml=ggml, progress=progress
        )
        conversion = _reduced(args, target, output, write) if args.draft_vocab else write(output)
    _print(conversion, outtype)
    return 0


def _print(conversion: Conversion, outtype: str) -> None:
    config = conversion.config
    size = f"{conversion.n_tensors} tensors, {conversion.n_bytes / 1e6:.1f} MB as {outtype}"
    print(f"{conversion.path}: {config.title}, {size}")
    print(f"  {config.details}")
    for warning in config.warnings:
        print(f"warning: {warning}", file=sys.stderr)


def _target(args: ConvertFlags) -> AbstractContextManager[Path]:
    """The target's file; of one on the Hub the header is enough, unless rows of its head are needed."""
    return nullcontext(local_target(args.target, args)) if args.draft_vocab else local_header(args.target, args)


def _reduced(args: ConvertFlags, target: Path, output: Path, write: Callable[[Path], Conversion]) -> Conversion:
    """Write the drafter with a reduced vocabulary as `output`, from a whole one beside it. A file that is there stays
    until the new one is complete."""
    from dflash_local.convert.conversion import check
    from dflash_local.convert.gguf_metadata import read_header
    from dflash_local.convert.gguf_parts import part_paths
    from dflash_local.convert.requantize import ReducedHead, check_source, requantize
    from dflash_local.convert.writer import check_output, scratch_folder
    from dflash_local.vocabulary import frequent_tokens

    assert args.corpus and args.draft_vocab
    check_output(output, [*part_paths(target), args.corpus, *args.drafter.glob("*")])
    check_source(args.drafter, check(args.drafter, target), reduces=True)
    head = ReducedHead.of(frequent_tokens(target, args.corpus, args.draft_vocab), target)
    with scratch_folder(output, ".dflash-convert-") as folder:
        whole = write(folder / output.name)
        n_bytes = requantize(whole.path, output, None, head=head)
    return replace(whole, path=output, n_tensors=len(read_header(output)[1]), n_bytes=n_bytes)


# ---- a GGUF ----


def _rewrite_gguf(args: ConvertFlags) -> int:
    from dflash_local.convert.relabel import relabel

    for name in ("outtype", "fc_type", "draft_vocab", "corpus"):
        if getattr(args, name) is not None:
            flag_name = "--" + name.replace("_", "-")
            raise RequestError(
                f"{flag_name} is for checkpoints: a GGUF keeps its weights as they are",
                param=flag_name,
                hint="leave it out, and "
                + ("convert the checkpoint" if name == "fc_type" else "use 'dflash-local quantize' afterwards"),
            )
    with local_header(args.target, args) as target:
        relabelling = relabel(args.drafter, target, args.target_layer_ids, non_causal=args.non_causal)
    for text in relabelling.notes:
        note(text)
    if not relabelling.is_needed:
        print(f"{args.drafter} is already in llama.cpp's dialect: give it to -md unchanged")
        return 0
    output = args.output or Path(f"{args.drafter.stem}-dflash.gguf")
    with Progress(quiet=args.quiet) as progress:
        relabelling.write(output, progress)
    dialect = f"dialect {relabelling.dialect.name} ({relabelling.dialect.writers})"
    print(f"{output}: from {dialect}, {len(relabelling.tensors)} tensors, {relabelling.n_bytes / 1e6:.1f} MB")
    return 0
