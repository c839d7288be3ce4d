"""Files of this machine, below one folder."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from urllib.parse import unquote

from dflash_local.media.media_limits import MAX_BYTES
from dflash_local.words import MIB


def read_file_url(url: str, folder: Path) -> bytes:
    """The file of a `file://` URL: an absolute path below `folder`, or a path from there on, also with slashes before
    it, as llama-server reads it.

    Raises:
        ValueError: it is not below the folder, there is none, or it is too large.
    """
    path = unquote(url[len("file://") :])
    if path.startswith("localhost/"):
        path = path.removeprefix("localhost")
    root = Path(folder).resolve()
    if "\0" in path:
        raise ValueError("is no path")
    try:
        found = (root / path).resolve()
        if path.startswith("/") and not found.is_relative_to(root):
            found = (root / path.lstrip("/")).resolve()
    except (OSError, RuntimeError):  # links that lead in a circle
        raise ValueError("cannot be opened") from None
    if not found.is_relative_to(root):
        raise ValueError("is not in the folder of --media-path")
    return read_path(found)


def read_path(path: Path) -> bytes:
    """A file that may be read. Raises ValueError if there is none, or it is too large."""
    try:
        # Nothing that a link names, if one took the file's place meanwhile; and no waiting for a pipe's other end.
        number = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | _BINARY)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise ValueError(f"cannot be opened: {why}") from None
    try:
        status = os.fstat(number)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("is no file")
        if status.st_size > MAX_BYTES:
            raise ValueError(f"has {status.st_size} bytes, at most {MAX_BYTES // MIB} MiB are read")
        with os.fdopen(number, "rb", closefd=False) as file:
            return file.read(MAX_BYTES + 1)
    finally:
        os.close(number)


_BINARY = getattr(os, "O_BINARY", 0)  # Windows
