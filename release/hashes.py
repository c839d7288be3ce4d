"""`make hashes`: SHA256SUMS of the files in dist/, in the format of `sha256sum -c`."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

NAME = "SHA256SUMS"


def write(folder: Path) -> Path:
    """Write the file. Exits if there is nothing to hash."""
    files = sorted(file for file in folder.glob("*") if file.is_file() and file.name != NAME)
    if not files:
        sys.exit(f"error: {folder} holds no files\n  fix: make dist, make wheel")
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    path = folder / NAME
    path.write_text("".join(lines), encoding="utf-8")
    return path


if __name__ == "__main__":
    print(write(Path(sys.argv[1] if len(sys.argv) > 1 else "dist")).read_text(encoding="utf-8"), end="")
