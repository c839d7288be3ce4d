"""Identities of files and of builds of the native libraries, since a measurement holds for one of each."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from dflash_local import native
from dflash_local.build.installed_build import installed_stamp
from dflash_local.convert.gguf_parts import part_paths


def file_identity(path: Path) -> list[Any]:
    """A file's path, size and modification time; only the path if it cannot be read, since loading reports that."""
    try:
        stat = path.stat()
    except OSError:
        return [str(path)]
    return [str(path.resolve()), stat.st_size, stat.st_mtime_ns]


def model_identity(path: Path) -> list[Any]:
    """`file_identity` of a model's file, or of all its parts if `path` is the first."""
    return [item for part in part_paths(path) for item in file_identity(part)]


def build_identity() -> list[Any]:
    """Versions of the library and of llama.cpp, and the libraries' files. Raises NativeLibraryError."""
    library = native.library_info()
    return [library.get("version"), library.get("llama"), *map(file_identity, _libraries(native.library_path()))]


def build_key() -> str:
    """The key of the installed build, or a hash of the libraries that DFLASH_LIBRARY names; "" without a build. Loads
    nothing."""
    if override := os.environ.get("DFLASH_LIBRARY"):
        digest = hashlib.sha256()
        for file in _libraries(Path(override)):
            digest.update(file.read_bytes())
        return f"libraries {digest.hexdigest()[:12]}"
    return str((installed_stamp() or {}).get("key", ""))


def _libraries(library: Path) -> list[Path]:
    """The native library and those beside it."""
    return sorted(library.resolve().parent.glob("*.[sd][oyl]*"))
