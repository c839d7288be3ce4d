"""Strict application of unified diffs, in Python: slim images and Windows have no `patch`, and `git apply` skips files
silently in a tree below another repository. Context must match exactly (no fuzz), but a hunk may have moved up or down,
since an earlier patch may have been deleted."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from dflash_local.errors import BuildError

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_UNSUPPORTED = ("rename ", "copy ", "GIT binary patch", "Binary files ")


@dataclass
class Hunk:
    """The `old` lines, expected at 1-based line `start`, become the `new` lines (each with its line end)."""

    start: int
    old: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)


@dataclass
class FilePatch:
    """All hunks of one file; `source` is None for a file that is created, `target` for one that is deleted."""

    source: str | None
    target: str | None
    hunks: list[Hunk] = field(default_factory=list)


def parse(text: str, name: str) -> list[FilePatch]:
    """The file patches of a unified diff, first path component stripped (`-p1`). Raises BuildError naming `name` and
    the line."""
    files: list[FilePatch] = []
    source: str | None = None
    lines = _lines(text)
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if line.startswith(_UNSUPPORTED):
            raise BuildError(f"{name}:{at}: '{line.strip()}' is not supported", hint="write the change as plain hunks")
        if line.startswith("--- "):
            source = _path(line)
        elif line.startswith("+++ "):
            files.append(FilePatch(source, _path(line)))
        elif match := _HUNK.match(line):
            if not files:
                raise BuildError(f"{name}:{at}: a hunk before any '+++' line")
            hunk = Hunk(int(match[1]))
            at = _read_hunk(hunk, lines, at, int(match[2] or 1), int(match[3] or 1), name)
            files[-1].hunks.append(hunk)
    if not files:
        raise BuildError(f"{name}: holds no unified diff")
    return files


def apply(patch: Path, root: Path) -> list[str]:
    """Apply a patch file below `root`, all of it or nothing. Returns the paths touched.

    Raises BuildError naming patch, file and line where it does not fit.
    """
    contents: dict[str, str | None] = {}
    for file in parse(_read(patch), patch.name):
        path = file.target or file.source
        if path is None or PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
            raise BuildError(f"{patch.name}: bad path '{path}'")
        if path not in contents:
            contents[path] = _read(root / path) if (root / path).is_file() else None
        contents[path] = _patched(contents[path], file, f"{patch.name} does not apply: {path}")
    for path, text in contents.items():
        if text is None:
            (root / path).unlink()
        else:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(text.encode("utf-8", "surrogateescape"))
    return list(contents)


def _patched(text: str | None, file: FilePatch, what: str) -> str | None:
    hint = "the patch was made against another source: renew it (docs/building.md, 'Working on the patches')"
    if (text is None) != (file.source is None):
        raise BuildError(f"{what} {'is not there' if text is None else 'exists already'}", hint=hint)
    lines = _lines(text or "")
    offset = done = 0
    for hunk in file.hunks:
        # "-5,0" means "after line 5"; with old lines, "-5,3" means "from line 5 on".
        expected = hunk.start - (1 if hunk.old else 0)
        at = _nearest(lines, hunk.old, expected + offset, done)
        if at is None:
            raise BuildError(f"{what}:{hunk.start}: the lines there differ from the patch", hint=hint)
        lines[at : at + len(hunk.old)] = hunk.new
        done = at + len(hunk.new)
        offset = done - expected - len(hunk.old)
    return "".join(lines) if file.target else None


def _nearest(lines: list[str], wanted: list[str], expected: int, start: int) -> int | None:
    """Index at or after `start` where `wanted` stands, the one closest to `expected`; an empty `wanted` fits only
    there."""
    if not wanted:
        return expected if start <= expected <= len(lines) else None
    places = [
        i
        for i in range(start, len(lines) - len(wanted) + 1)
        if lines[i] == wanted[0] and lines[i : i + len(wanted)] == wanted
    ]
    return min(places, key=lambda i: abs(i - expected), default=None)


def _read_hunk(hunk: Hunk, lines: list[str], at: int, n_old: int, n_new: int, name: str) -> int:
    """Fill `hunk` from `lines[at:]`; returns the index of the first line after it."""
    while len(hunk.old) < n_old or len(hunk.new) < n_new or (at < len(lines) and lines[at].startswith("\\")):
        kind, rest = (lines[at][0], lines[at][1:]) if at < len(lines) else ("", "")
        if kind == "\\":  # "\ No newline at end of file" speaks of the line before it
            for side in {" ": (hunk.old, hunk.new), "-": (hunk.old,), "+": (hunk.new,)}[lines[at - 1][0]]:
                side[-1] = side[-1].removesuffix("\n")
        elif kind in (" ", "\n"):  # mailers and editors strip the blank of an empty context line
            hunk.old.append(rest or "\n")
            hunk.new.append(rest or "\n")
        elif kind == "-":
            hunk.old.append(rest)
        elif kind == "+":
            hunk.new.append(rest)
        else:
            raise BuildError(f"{name}:{at + 1}: the hunk at line {hunk.start} ends too early")
        at += 1
    return at


def _path(line: str) -> str | None:
    path = line[4:].split("\t")[0].strip()
    return None if path == "/dev/null" else path.split("/", 1)[-1]


def _lines(text: str) -> list[str]:
    # str.splitlines would also split at form feeds and Unicode separators.
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _read(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "surrogateescape")
