"""The commit of the running code, since measurements hold for one commit only."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
# The code that measures or is measured.
_SOURCES = ("benchmarks", "convert", "dflash_local", "ggml_ops", "patches", "pyproject.toml", "server")
_RECORDS, _RESULTS = (".json", ".md", ".part", ".log"), "benchmarks/results/"
_SKIPPED = {"__pycache__", "node_modules"}


@cache
def running_commit() -> str:
    """The hash of the checkout, with "+" and a hash of its sources if they have changed since. Without git, as in a
    wheel: "sources " and a hash of them."""
    root = PACKAGE.parent
    head = _git(root, "rev-parse", "HEAD") if (root / ".git").exists() else None
    if not head:
        return f"sources {_digest(root)}"
    changed = _git(root, "status", "--porcelain", "--untracked-files=all", "--no-renames", "--", *_SOURCES)
    if changed is not None and all(line.endswith(_RECORDS) and _RESULTS in line for line in changed.splitlines()):
        return head
    return f"{head}+{_digest(root)}"


def _git(root: Path, *words: str) -> str | None:
    """The output of git; None if it is missing or fails."""
    try:
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _digest(root: Path) -> str:
    """A hash of names and contents: of a checkout's sources, or of the installed package."""
    digest = hashlib.sha256()
    for file in sorted(_files(root)):
        digest.update(f"{file.relative_to(root).as_posix()}\0{file.stat().st_size}\0".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def _files(root: Path) -> Iterator[Path]:
    names = _SOURCES if (root / "pyproject.toml").is_file() else (PACKAGE.name,)
    for name in names:
        for file in [root / name, *(root / name).rglob("*")]:
            is_record = file.suffix in _RECORDS and _RESULTS in file.as_posix()
            if file.is_file() and not is_record and not _SKIPPED.intersection(file.parts):
                yield file
