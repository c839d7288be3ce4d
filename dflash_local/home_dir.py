"""The user's home folder."""

from __future__ import annotations

from pathlib import Path

from dflash_local.errors import DFlashError


def home_dir(*others: str) -> Path:
    """The home folder; `others` are variables that would do instead, for the hint.

    Raises:
        DFlashError: there is none: HOME is not set, and the system does not know the user, as in some containers.
    """
    try:
        return Path.home()
    except RuntimeError:
        hint = f"set {' or '.join(('HOME', *others))} to a folder"
        raise DFlashError("this user has no home folder, and HOME is not set", hint=hint) from None
