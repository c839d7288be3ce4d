"""A second name for a file. Windows does not allow symbolic links to ordinary users."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path


def link_or_copy(source: Path, path: Path) -> None:
    """Make `path`, which must not exist, a link to `source`; on a file system without links, a copy. Raises OSError."""
    with suppress(OSError, NotImplementedError):
        path.symlink_to(source)
        return
    hard_link_or_copy(source, path)


def hard_link_or_copy(source: Path, path: Path) -> None:
    """The same without a symbolic link. Raises OSError, and then leaves nothing at `path`."""
    with suppress(OSError):
        os.link(source, path)  # works on the same disk only; to readers it is the same
        return
    try:
        shutil.copyfile(source, path)
    except OSError:
        path.unlink(missing_ok=True)
        raise
