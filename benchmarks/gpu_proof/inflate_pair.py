"""Make an inflated pair unless it exists: `inflate_pair.py SHAPE TYPE DRAFTER --work DIR`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # for the package `benchmarks`

from benchmarks import pairs, record


def main() -> int:
    ap = argparse.ArgumentParser()
    for name in ("shape", "ftype", "drafter"):
        ap.add_argument(name)
    ap.add_argument("--work", type=Path, required=True)
    args = ap.parse_args()
    print(*pairs.make(args.work, args.shape, args.ftype, args.drafter))
    return 0


if __name__ == "__main__":
    record.run(main)
