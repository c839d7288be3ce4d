"""What lies at a path that a user typed. pathlib raises an error where it may not look or the name is too long, in most
versions of Python; here nothing lies there then."""

from __future__ import annotations

import os
from pathlib import Path


def exists(path: Path) -> bool:
    return os.path.exists(path)  # noqa: PTH110


def is_file(path: Path) -> bool:
    return os.path.isfile(path)  # noqa: PTH113


def is_folder(path: Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112
