"""Which files are GGUFs, and which belong to a split model: llama.cpp finds its parts by the name of the first, and so
does everything here."""

from __future__ import annotations

import re
from pathlib import Path

# A name without its ending: what all parts share, the part's number from 1, how many there are.
SPLIT_NAME = re.compile(r"(.+)-(\d{5})-of-(\d{5})")

MAGIC = b"GGUF"  # what every GGUF file begins with


def is_gguf(path: Path) -> bool:
    """Whether a file begins as a GGUF does. Raises OSError."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def part_paths(path: Path) -> list[Path]:
    """Every part of the model whose first part is called so, whether they are there or not; of any other name that file
    alone."""
    match = SPLIT_NAME.fullmatch(path.stem)
    if path.suffix != ".gguf" or not match or int(match[2]) != 1:
        return [path]
    return [path.with_name(f"{match[1]}-{index:05}-of-{match[3]}.gguf") for index in range(1, int(match[3]) + 1)]
