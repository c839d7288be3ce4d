"""Recognizes GGUF files and the parts of a split model, which are found by the name of the first, as in llama.cpp."""

from __future__ import annotations

import re
from pathlib import Path

# A name without its suffix: the common stem, the part's number from 1, and the number of parts.
SPLIT_NAME = re.compile(r"(.+)-(\d{5})-of-(\d{5})")

MAGIC = b"GGUF"


def is_gguf(path: Path) -> bool:
    """Whether a file begins like a GGUF. Raises OSError."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def part_paths(path: Path) -> list[Path]:
    """All parts of the model whose first part is `path`, existing or not; for any other name just that file."""
    match = SPLIT_NAME.fullmatch(path.stem)
    if path.suffix != ".gguf" or not match or int(match[2]) != 1:
        return [path]
    return [path.with_name(f"{match[1]}-{index:05}-of-{match[3]}.gguf") for index in range(1, int(match[3]) + 1)]
