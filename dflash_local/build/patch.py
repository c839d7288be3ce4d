"""Strict application of unified diffs, in Python: slim images and Windows have no `patch`, and `git apply` silently
skips files in a tree inside another repository. Context must match exactly (no fuzz), but a hunk may have moved up or
down, since an earlier patch may have been deleted."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Literal

from dflash_local.errors import BuildError

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_UNSUPPORTED = ("rename ", "copy ", "GIT binary patch", "Binary files ")


State = Literal["applies", "moved", "applied", "fails"]


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


@dataclass(frozen=True)
class Placement:
    """How one hunk fits a source: in place, `moved` lines down (negative: up), already applied, or not at all."""

    file: str
    line: int  # where the patch expects it in the unchanged file, from 1
    state: State
    moved: int = 0
    reason: str = ""  # why it does not apply

    @property
    def fits(self) -> bool:
        return self.state in ("applies", "moved")


def parse(text: str, name: str) -> list[FilePatch]:
    """The file patches of a unified diff, first path component stripped (`-p1`). Raises BuildError with `name` and the
    line."""
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

    Raises BuildError with the patch, file and line that do not fit.
    """
    contents: dict[str, str | None] = {}
    for placement in place(patch, contents, lambda path: read_file(root / path)):
        if not placement.fits:
            line = f":{placement.line}:" if placement.reason not in (MISSING, EXISTS) else ""
            raise BuildError(
                f"{patch.name} does not apply: {placement.file}{line} {placement.reason}",
                hint="the patch was made against another source: renew it (docs/building.md, 'Working on the patches')",
            )
    write_files(root, contents)
    return list(contents)


def place(patch: Path, contents: dict[str, str | None], read: Callable[[str], str | None]) -> list[Placement]:
    """The placement of each hunk of a patch file; those that fit are applied to `contents` (text by path, None: no such
    file). Files that `contents` lacks come from `read`. Raises BuildError if the file is not a patch."""
    placements = []
    for file in parse(_read(patch), patch.name):
        path = file.target or file.source
        if path is None or PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
            raise BuildError(f"{patch.name}: bad path '{path}'")
        if path not in contents:
            contents[path] = read(path)
        placed, contents[path] = _place(file, path, contents[path])
        placements += placed
    return placements


def read_file(path: Path) -> str | None:
    """A source file's text in any encoding; None if there is no such file."""
    return _read(path) if path.is_file() else None


def write_files(root: Path, contents: dict[str, str | None]) -> None:
    """Write `contents` of `place` below `root`; None deletes a file."""
    for path, text in contents.items():
        if text is None:
            (root / path).unlink(missing_ok=True)
        else:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(text.encode("utf-8", "surrogateescape"))


MISSING = "is not there"
EXISTS = "exists already"
DIFFERS = "the lines there differ from the patch"
APPLIED = "the source has this change already"


def _place(file: FilePatch, path: str, text: str | None) -> tuple[list[Placement], str | None]:
    if text is None and file.source is not None:
        gone = file.target is None
        state: State = "applied" if gone else "fails"
        return [Placement(path, hunk.start, state, reason=MISSING) for hunk in file.hunks], None
    if text is not None and file.source is None:
        same = text == "".join(line for hunk in file.hunks for line in hunk.new)
        state = "applied" if same else "fails"
        return [Placement(path, hunk.start, state, reason=EXISTS) for hunk in file.hunks], text

    lines = _lines(text or "")
    placements = []
    grown = offset = done = 0  # lines added by earlier hunks; the same plus their move; where they ended
    for hunk in file.hunks:
        # "-5,0" means "after line 5"; with old lines, "-5,3" means "from line 5 on".
        expected = hunk.start - (1 if hunk.old else 0)
        old_at = _nearest(lines, hunk.old, expected + offset, done)
        new_at = _nearest(lines, hunk.new, expected + offset, done) if _has_context(hunk) else None
        if new_at is not None and (old_at is None or _is_applied(hunk, old_at, new_at, expected + offset)):
            at = new_at
            placements.append(Placement(path, hunk.start, "applied", reason=APPLIED))
        elif old_at is not None:
            at = old_at
            moved = at - expected - grown
            placements.append(Placement(path, hunk.start, "moved" if moved else "applies", moved))
            lines[at : at + len(hunk.old)] = hunk.new
        else:
            reason = f"{DIFFERS}{_difference(lines, hunk.old, expected + offset)}"
            placements.append(Placement(path, hunk.start, "fails", reason=reason))
            continue
        done = at + len(hunk.new)
        offset = done - expected - len(hunk.old)
        grown += len(hunk.new) - len(hunk.old)
    whole = file.target is None and all(placement.fits for placement in placements)
    return placements, None if whole else "".join(lines)


def _has_context(hunk: Hunk) -> bool:
    """Without context, the place of an applied change is unknown."""
    return bool(hunk.old and hunk.new) and (hunk.old[0] == hunk.new[0] or hunk.old[-1] == hunk.new[-1])


def _is_applied(hunk: Hunk, old_at: int, new_at: int, expected: int) -> bool:
    """If both sides of a hunk are in the file, the nearer one counts, at the same distance the longer one."""
    old, new = abs(old_at - expected), abs(new_at - expected)
    return (new, -len(hunk.new)) < (old, -len(hunk.old))


def _difference(lines: list[str], old: list[str], expected: int) -> str:
    """The first line that differs, at the place with the most lines of `old` in common (the closest to `expected`)."""
    if not lines or not old:
        return ""
    places = range(max(1, len(lines) - len(old) + 1))
    at = max(places, key=lambda i: (sum(map(str.__eq__, old, lines[i : i + len(old)])), -abs(i - expected)))
    for i, line in enumerate(old, at):
        if i >= len(lines) or lines[i] != line:
            return f" (line {i + 1} should be '{line.strip()}')"
    return ""


def _nearest(lines: list[str], wanted: list[str], expected: int, start: int) -> int | None:
    """The index of `wanted` at or after `start` that is closest to `expected`; if empty, it fits only there."""
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
        if kind == "\\":  # "\ No newline at end of file" is about the line before it
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
