"""The user's text files that lookup may quote (--lookup-corpus): which of them are read, and their tokens."""

from __future__ import annotations

import logging
import os
import stat
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from dflash_local.errors import RequestError

log = logging.getLogger(__name__)

MAX_FILE = 4 << 20  # bytes; larger text files are data
MAX_TOKENS = 16 << 20  # of all files: 128 MiB of memory
END = -1  # after each file's tokens
_CHUNK = 1 << 16  # characters that are tokenized at once
_PARAM = "lookup_corpus"
# Folders that hold no text of the user's own.
_SKIPPED = frozenset({"node_modules", "__pycache__"})
_TOLD_EVERY = 5.0  # seconds


class _SkippedFileError(Exception):
    """A file of a folder that is no text to quote; says why."""


def read_corpus(paths: Sequence[str | os.PathLike[str]], tokenize: Callable[[str], Sequence[int]]) -> array[int]:
    """The tokens of all files, END after each.

    Files of a folder that are no text, or larger than MAX_FILE, are skipped, and a line of the log says how many; so
    are hidden ones, and folders of other people's code. Links to folders are not followed.

    Raises:
        RequestError: a path does not exist or cannot be read, a file that was named is no text, nothing was found, or
            it has more than MAX_TOKENS.
    """
    began = told = time.monotonic()
    tokens, n_files = array("i"), 0
    for path in map(Path, paths):
        skipped: dict[str, list[Path]] = {}
        n_before = n_files
        for file in _files(path):
            try:
                text = _read(file)
            except _SkippedFileError as why:
                if file == path:
                    raise RequestError(f"{file} {why}", param=_PARAM, hint="name text files in UTF-8") from None
                skipped.setdefault(str(why), []).append(file)
                continue
            for chunk in _chunks(text):
                tokens.extend(tokenize(chunk))
            tokens.append(END)
            n_files += 1
            if len(tokens) > MAX_TOKENS:
                raise RequestError(
                    f"the files up to {file} have more than {MAX_TOKENS} tokens", param=_PARAM, hint="name fewer files"
                )
            if time.monotonic() > told + _TOLD_EVERY:
                told = time.monotonic()
                log.info("reading texts to quote: %d files, %d tokens so far", n_files, len(tokens))
        for reason, files in skipped.items():
            more = f", and {len(files) - 1} more like it" if len(files) > 1 else ""
            log.warning("%s: skipped %s, which %s%s", path, files[0], reason, more)
        if n_files == n_before:
            raise RequestError(f"{path} has no text file", param=_PARAM, hint="name text files in UTF-8, or a folder")
    if n_files:
        log.info("texts to quote: %d files, %d tokens, read in %.1f s", n_files, len(tokens), time.monotonic() - began)
    return tokens


def _files(path: Path) -> Iterator[Path]:
    """The file, or the regular files below the folder, in a fixed order."""
    if not path.is_dir():
        yield path
        return

    def fail(error: OSError) -> None:
        if error.filename == str(path):
            raise RequestError(f"cannot read {path}: {error.strerror}", param=_PARAM) from None
        log.warning("%s: skipped a folder that cannot be read: %s", path, error)

    for folder, folders, names in os.walk(path, onerror=fail):  # which does not follow links
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _SKIPPED)
        for name in sorted(names):
            if not name.startswith("."):
                yield Path(folder) / name


def _read(file: Path) -> str:
    """The text of a file. Raises _SkippedFileError."""
    try:
        # A pipe or a device would wait or never end.
        found = file.stat()
        if not stat.S_ISREG(found.st_mode):
            raise _SkippedFileError("is no regular file")
        if found.st_size > MAX_FILE:
            raise _SkippedFileError(f"is larger than {MAX_FILE >> 20} MiB")
        with file.open("rb") as opened:
            data = opened.read(MAX_FILE)
    except (OSError, ValueError) as error:
        raise _SkippedFileError(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if b"\0" in data:
        raise _SkippedFileError("is binary")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _SkippedFileError("is not UTF-8") from None


def _chunks(text: str) -> Iterator[str]:
    """Parts of a text that end at line ends where they can, since tokenizers are slow on very long texts."""
    at = 0
    while at < len(text):
        end = at + _CHUNK
        if end < len(text):
            end = text.rfind("\n", at, end) + 1 or end
        yield text[at:end]
        at = end
