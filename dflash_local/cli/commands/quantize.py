"""`dflash-local quantize`: write the drafter in several types, and measure each on this machine."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dflash_local.cli.command import Commands, add_command
from dflash_local.cli.flags.engine_arguments import load_engine
from dflash_local.cli.flags.engine_flags import EngineFlags, add_engine_flags
from dflash_local.cli.flags.flag import add_flags, argument, flag
from dflash_local.cli.flags.model_flags import HubFlags
from dflash_local.cli.flags.named_models import Models, local_target
from dflash_local.cli.flags.prompts import PromptFlags, prompts_of, steady_sampling
from dflash_local.cli.flags.sampling_flags import SamplingFlags
from dflash_local.cli.flags.values import count
from dflash_local.cli.typed_path import is_folder
from dflash_local.convert import OUTTYPES
from dflash_local.errors import RequestError

if TYPE_CHECKING:
    from dflash_local.engine import Engine

_DESCRIPTION = """\
Writes the drafter in several types, from small to large, answers the same prompts with each in turns, and prints size,
acceptance length (AL) and tokens per second on this machine, with intervals in which they lie 95 times of 100.
It recommends the smallest drafter that is not measurably slower than the fastest, and writes it to -o.

The drafter is a GGUF in f32, f16 or bf16, or the directory of a Hugging Face checkpoint. Answers are the same with
every drafter. With --draft-vocab the drafter can propose only the most frequent tokens of --corpus: a smaller output
projection is read in each of its passes.
"""


class QuantizeFlags(EngineFlags, HubFlags, PromptFlags):
    drafter: Path = argument("GGUF or checkpoint directory of the drafter", metavar="DRAFTER")
    target: str = flag(
        "--target", "GGUF of the target, or USER/NAME[:QUANT] on the Hugging Face Hub", required=True, metavar="TARGET"
    )
    types: list[str] = flag(
        "--types",
        f"types to try, of {', '.join(OUTTYPES)} (default: q4_0 q4_k q5_k q6_k q8_0 bf16)",
        nargs="+",
        choices=OUTTYPES,
        default=["q4_0", "q4_k", "q5_k", "q6_k", "q8_0", "bf16"],
        metavar="TYPE",
    )
    draft_vocabs: list[int] = flag(
        "--draft-vocab", "also try these numbers of tokens", nargs="+", type=count(8), default=[], metavar="N"
    )
    corpus: Path | None = flag("--corpus", "text whose most frequent tokens --draft-vocab keeps")
    repeat: int = flag("--repeat", "rounds (default: 3)", type=count(1), default=3)
    output: Path | None = flag("-o --output", "write the recommended drafter there", metavar="OUT.gguf")


def add_parser(commands: Commands) -> None:
    parser = add_command(
        commands,
        "quantize",
        QuantizeFlags,
        run,
        "find the drafter's best type on this machine",
        _DESCRIPTION,
    )
    add_flags(parser, HubFlags, PromptFlags)
    media = ("mmproj", "mmproj_offload", "image_min_tokens", "image_max_tokens")
    add_engine_flags(parser, without=("model", "drafter", "draft_vocab", *media))
    add_flags(parser, SamplingFlags)


def run(args: QuantizeFlags) -> int:
    from dflash_local.convert.gguf_parts import part_paths
    from dflash_local.convert.writer import check_output, scratch_folder
    from dflash_local.trials import recommended, run_trials, table

    if args.draft_vocabs and not args.corpus:
        raise RequestError("--draft-vocab needs a text to count tokens in", param="--corpus", hint="give --corpus FILE")
    if args.n_predict < 2:
        what = "must be at least 2: speed is that of the tokens after the first"
        raise RequestError(f"--predict {what}, got {args.n_predict}", param="--predict")
    target = local_target(args.target, args)
    if args.output:
        check_output(args.output, [*part_paths(target), *part_paths(args.drafter), *args.drafter.glob("*")])
    prompts, sampling = prompts_of(args), steady_sampling(args)

    def load(drafter: Path | None) -> Engine:
        return load_engine(args, Models(str(target), None if drafter is None else str(drafter)))

    with scratch_folder(args.output, ".dflash-quantize-") as folder:
        drafters = _write_candidates(args, target, folder)
        plain, trials = run_trials(
            drafters,
            load,
            prompts,
            sampling,
            args.n_predict,
            args.repeat,
            report=lambda text: print(text, file=sys.stderr),
        )
        ordered = sorted(trials.values(), key=lambda trial: trial.n_bytes)
        sys.stdout.write(table(plain, ordered))
        best = recommended(ordered)
        print(f"\nrecommended: {best.name}, {best.n_bytes / 1e6:.1f} MB")
        if args.output:
            shutil.move(best.path, args.output)
            print(f"{args.output}: written")
    return 0


def _write_candidates(args: QuantizeFlags, target: Path, folder: Path) -> dict[str, Path]:
    """Write the drafter in each type and vocabulary into `folder`. Returns the files by name."""
    from dflash_local.convert.outtypes import find_outtype
    from dflash_local.convert.requantize import ReducedHead, requantize
    from dflash_local.native import quantize_rows
    from dflash_local.vocabulary import first_tokens, token_order

    is_checkpoint = is_folder(args.drafter)
    source = _converted(args, target, folder / "source.gguf") if is_checkpoint else args.drafter
    drafters: dict[str, Path] = {}
    order = token_order(target, args.corpus) if args.corpus and args.draft_vocabs else []
    for n_tokens in [0, *args.draft_vocabs]:
        head = ReducedHead.of(first_tokens(order, n_tokens), target) if n_tokens else None
        for outtype in args.types:
            path = folder / f"{outtype}-{n_tokens}.gguf"
            requantize(source, path, find_outtype(outtype), ggml=quantize_rows, head=head, fuses_anew=is_checkpoint)
            drafters[f"{outtype}, {n_tokens} tokens" if n_tokens else outtype] = path
    return drafters


def _converted(args: QuantizeFlags, target: Path, output: Path) -> Path:
    """The checkpoint as a GGUF that has all of its numbers."""
    from dflash_local.convert.conversion import check, convert, exact_types
    from dflash_local.convert.requantize import check_source

    check_source(args.drafter, check(args.drafter, target), reduces=bool(args.draft_vocabs))
    outtype, fc_type = exact_types(args.drafter, target)
    conversion = convert(args.drafter, target, output, outtype=outtype, fc_type=fc_type)
    for warning in conversion.config.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    return output
