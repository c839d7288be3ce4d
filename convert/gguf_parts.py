"""Recognizes GGUF files, the parts of their names, and the parts of a split model, which are found by the name of the
first, as in llama.cpp."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

# A name without its suffix: the common stem, the part's number from 1, and the number of parts.
SPLIT_NAME = re.compile(r"(.+)-(\d{5})-of-(\d{5})")

MAGIC = b"GGUF"
_TAG = re.compile(r"[-.]([A-Za-z0-9_]+)$")


@dataclass(frozen=True)
class Parts:
    """The parts of a GGUF's name; `prefix` includes the tag but not the number of the part."""

    prefix: str = ""
    tag: str = ""
    index: int = 0
    count: int = 0

    @classmethod
    def of(cls, path: str) -> Parts:
        """Empty for a path that is not a GGUF."""
        if not path.endswith(".gguf"):
            return cls()
        prefix, index, count = path.removesuffix(".gguf"), 1, 1
        if match := SPLIT_NAME.fullmatch(prefix):
            prefix, index, count = match[1], int(match[2]), int(match[3])
        tag = _TAG.search(prefix)
        return cls(prefix, tag[1].upper() if tag else "", index, count)

    @property
    def bits(self) -> int:
        return bits_of(self.tag)


def bits_of(tag: str) -> int:
    """The first number in a tag: Q4_0 -> 4, BF16 -> 16; 0 if there is none."""
    number = re.search(r"\d+", tag)
    return int(number[0]) if number else 0


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
