"""Write an inflated pair: python benchmarks/inflate.py --shape 0.6b --type q4_0 [--drafter
dflash|dflash2|dflash-small|hybrid] OUTDIR

`--target F --drafter F` inflates a pair of your own instead of a bundled one. See dflash_local/demo/inflate/ for how.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from dflash_local.cli.commands.demo import Written
from dflash_local.demo.inflate import inflate
from dflash_local.demo.pocket import PAIRS, bundled_pair, shape_of
from dflash_local.demo.shapes import SHAPES, TYPES, Pair
from dflash_local.errors import DFlashError


def main(argv: Sequence[str] | None = None) -> int:
    ap = argparse.ArgumentParser(description="Widen and deepen a small pair without changing the function it computes.")
    ap.add_argument("outdir", type=Path, metavar="OUTDIR", help="gets target.gguf and drafter.gguf")
    ap.add_argument("--shape", choices=SHAPES, default="0.6b", help="the shape of a real model (default: %(default)s)")
    ap.add_argument("--type", choices=TYPES, default="f16", dest="ftype", help="quantization (default: %(default)s)")
    ap.add_argument("--drafter-type", choices=TYPES, help="quantization of the drafter (default: as --type)")
    ap.add_argument(
        "--drafter", default="dflash", metavar="NAME|FILE", help=f"bundled: {', '.join(PAIRS)}; with --target a file"
    )
    ap.add_argument(
        "--target", type=Path, metavar="FILE", help="a small qwen3 target of your own, or qwen35 for a hybrid shape"
    )
    args = ap.parse_args(argv)
    if args.target is None and args.drafter not in PAIRS:
        ap.error(f"--drafter {args.drafter}: not one of {', '.join(PAIRS)}; a drafter file needs --target too")
    small = Pair(args.target, Path(args.drafter)) if args.target else bundled_pair(args.drafter)
    progress = Written(f"inflating {args.drafter} to {args.shape}")
    shape = SHAPES[args.shape] if args.target else shape_of(args.shape, args.drafter)
    pair = inflate(small, args.outdir, shape, args.ftype, drafter_type=args.drafter_type, progress=progress)
    progress.end()
    for path in pair:
        print(f"{path}  {path.stat().st_size / 2**20:.1f} MiB")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except DFlashError as error:
        sys.exit(f"error: {error}")
