"""`make upload`: copy the files of dist/ that a package index accepts into build/upload.

An index refuses local versions (0.3.36+dflash.X, 0.2.0+cpu): those wheels are for a release's own page, and installed
with --find-links. The sdist and the wheel that builds llama.cpp on the user's machine remain.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path


def choose(dist: Path, out: Path) -> list[Path]:
    """Copy the files that may be uploaded. Exits if there are none."""
    files = [file for file in sorted(dist.glob("dflash_local-*")) if "+" not in file.name]
    if not files:
        sys.exit(f"error: {dist} holds nothing that a package index takes\n  fix: make dist")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    return [Path(shutil.copy(file, out)) for file in files]


if __name__ == "__main__":
    print(*(file.name for file in choose(Path("dist"), Path("build/upload"))), sep="\n")
