"""Includes between the folders of ggml_ops point down, and no two files share a name.

`python -m tests.ggml_ops.layers` lists what breaks that.

docs/architecture.md says what each folder is for. A folder's sub-folders belong to it. tests/ may include anything.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from .tidy import INCLUDE, SOURCES

# From the top down. Folders of one layer do not know each other.
LAYERS = (
    ("api",),
    ("engine", "tune"),
    ("cache",),
    ("mtp",),
    ("target",),
    ("accept",),
    ("budget", "draft", "grammar"),
    ("media",),
    ("files", "schema"),
    ("base",),
    ("llama", "modules"),
    ("rpc", "thin_common"),
    ("gdn", "gemm", "plan", "top_k", "transfers"),
    ("cpu",),
    ("glibc", "include"),
)
# C functions that one file alone may call, beside libllama itself (llama/).
OWNED = {re.compile(r"\bllama_(?:memory|state_seq)_\w+\("): "target/memory.cpp"}
# Includes that still run up: file -> header.
KNOWN: dict[str, str] = {}
SUFFIXES = {".c", ".comp", ".cpp", ".cu", ".cuh", ".h", ".metal"}


def faults(
    sources: Path = SOURCES, layers: Sequence[Sequence[str]] = LAYERS, known: Mapping[str, str] = KNOWN
) -> Iterator[str]:
    """One line for each include that runs up or aside, shared name, foreign call, and folder without a layer."""
    depths = {folder: depth for depth, layer in enumerate(layers) for folder in layer}
    here = {path.name for path in sources.iterdir() if path.is_dir()} - {"tests"}
    yield from (f"{folder}/ has no layer" for folder in sorted(here - depths.keys()))
    yield from (f"{folder}/ has a layer, but is not there" for folder in sorted(depths.keys() - here))
    unused = dict(known)
    files = sorted(path for folder in here & depths.keys() for path in (sources / folder).rglob("*.*"))
    yield from (f"{name}: {n} files" for name, n in Counter(file.name for file in files).items() if n > 1)
    for file in files:
        name = file.relative_to(sources).as_posix()
        for header in INCLUDE.findall(file.read_text()) if file.suffix in SUFFIXES else ():
            own, other = name.partition("/")[0], header.partition("/")[0]
            if other == own or other not in depths or depths[other] > depths[own]:
                continue
            if known.get(name) == header:
                unused.pop(name, None)
            else:
                yield f"{name} includes {header}, which is not below it"
    yield from foreign_calls(sources, files)
    yield from (f"{name} no longer includes {header}: take it out of KNOWN" for name, header in unused.items())


def foreign_calls(sources: Path, files: Sequence[Path]) -> Iterator[str]:
    """One line for each file of libdflash that calls what another one owns."""
    for file in files:
        name = file.relative_to(sources).as_posix()
        for call, owner in OWNED.items():
            if (
                name != owner
                and not name.startswith("llama/")
                and file.suffix == ".cpp"
                and call.search(file.read_text())
            ):
                yield f"{name} calls {call.pattern}, which is for {owner} alone"


def main() -> int:
    found = list(faults())
    print(*(f"ggml_ops: {line}" for line in found), sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
