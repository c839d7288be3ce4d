"""The model cache, shared with llama.cpp and huggingface_hub: the same root and layout.

    models--USER--NAME/refs/BRANCH                 the commit, 40 hexadecimal digits
    models--USER--NAME/blobs/OID                   a file's content; OID is its sha256 (LFS) or its git sha1
    models--USER--NAME/snapshots/COMMIT/PATH       a relative symlink to the blob; where there are none, the file itself
    .locks/models--USER--NAME/OID.lock             held while a blob is downloaded

Sources: common/hf-cache.cpp of the pinned llama.cpp; `file_download.py` of huggingface_hub. Files of these programs are
read, never changed or removed.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from uuid import uuid4

from dflash_local.home_dir import home_dir
from dflash_local.hub.links import hard_link_or_copy

COMMIT = re.compile(r"[0-9a-fA-F]{40}")
# At least as many digits as git shows: fewer may be a word or a type, as `bad` and `f16`.
_COMMIT_START = re.compile(r"[0-9a-fA-F]{7,40}")
_OID = re.compile(r"[0-9a-fA-F]{40}|[0-9a-fA-F]{64}")
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)  # ENOSYS: of FUSE
_WINDOWS_NO_RIGHT = 1314  # ERROR_PRIVILEGE_NOT_HELD
# Letters, digits and _, with single / . - between them.
_REPOSITORY = re.compile(r"\w+(?:[.-]\w+)*/\w+(?:[.-]\w+)*", re.ASCII)


@dataclass(frozen=True)
class HubFile:
    """A file of a repository at a commit. `oid` is "" if known from the cache only."""

    repo: str
    commit: str
    path: str
    size: int | None = None
    oid: str = ""

    @property
    def name(self) -> str:
        """The name without folders."""
        return PurePosixPath(self.path).name


def cache_root() -> Path:
    """By llama.cpp's order of variables. ~ and $NAME are expanded in huggingface_hub's variables, as it does itself.
    Raises DFlashError for a user without a home."""
    if own := os.environ.get("LLAMA_CACHE"):
        return Path(own)
    for variable, below in (
        ("HF_HUB_CACHE", ""),
        ("HUGGINGFACE_HUB_CACHE", ""),
        ("HF_HOME", "hub"),
        ("XDG_CACHE_HOME", "huggingface/hub"),
    ):
        if value := os.environ.get(variable):
            return Path(os.path.expandvars(value)).expanduser() / below
    return home_dir("HF_HOME") / ".cache" / "huggingface" / "hub"


def is_repository(name: str) -> bool:
    """Whether `name` can be USER/NAME."""
    return len(name) <= 256 and _REPOSITORY.fullmatch(name) is not None


def is_oid(text: str) -> bool:
    return _OID.fullmatch(text) is not None


def commit_beginning_with(start: str, commits: Iterable[str]) -> str | None:
    """The first of `commits` that begins with `start`. None, without a look at them, if no commit may be named so."""
    if not _COMMIT_START.fullmatch(start):
        return None
    found = (commit for commit in commits if COMMIT.fullmatch(commit))
    return next((commit for commit in found if commit.lower().startswith(start.lower())), None)


def is_inside(path: str) -> bool:
    """Whether an untrusted relative path stays inside its folder."""
    parts = PurePosixPath(path).parts
    has_other_meaning = any(letter in path for letter in "\\:\0")  # on Windows: a folder, a drive or a stream
    return bool(parts) and not path.startswith("/") and ".." not in parts and not has_other_meaning


def _beside(path: Path, ending: str) -> Path:
    """A new name in the same folder: of no other thread, and left by no process that had the same number."""
    return path.with_name(f"{uuid4().hex}.{ending}")


def _has_no_links(error: Exception) -> bool:
    """Whether it says that this file system, or this user of Windows, makes no symlinks at all."""
    if isinstance(error, NotImplementedError) or getattr(error, "winerror", None) == _WINDOWS_NO_RIGHT:
        return True
    return isinstance(error, OSError) and error.errno in _NO_LINKS


@dataclass(frozen=True)
class Cache:
    """The cache below `root`, which need not exist."""

    root: Path

    def repository(self, repo: str) -> Path:
        return self.root / ("models--" + repo.replace("/", "--"))

    def blob(self, file: HubFile) -> Path:
        return self.repository(file.repo) / "blobs" / file.oid

    def snapshot(self, file: HubFile) -> Path:
        return self.repository(file.repo) / "snapshots" / file.commit / file.path

    def lock(self, file: HubFile) -> Path:
        return self.root / ".locks" / self.repository(file.repo).name / f"{file.oid}.lock"

    def commit(self, repo: str, revision: str | None = None) -> str | None:
        """The commit of `revision` (a branch, a tag, or the beginning of a commit) at its last look-up. None means
        main, else any branch."""
        refs = self.repository(repo) / "refs"
        if revision:
            if is_inside(revision) and (commit := _read_ref(refs / revision)):
                return commit
            return commit_beginning_with(revision, _names(self.repository(repo) / "snapshots"))
        others = (_read_ref(refs / name) for name in _names(refs))
        return _read_ref(refs / "main") or next(filter(None, others), None)

    def files(self, repo: str, revision: str | None = None) -> list[HubFile]:
        """The cached files of a repository at the commit of `revision`. Raises OSError."""
        commit = self.commit(repo, revision)
        if commit is None:
            return []
        folder = self.repository(repo) / "snapshots" / commit
        paths = (path for path in sorted(folder.rglob("*")) if path.is_file())  # no broken links
        return [HubFile(repo, commit, path.relative_to(folder).as_posix(), path.stat().st_size) for path in paths]

    def find(self, file: HubFile) -> Path | None:
        """The file's path if it is cached in full. A blob of another commit is linked.

        Raises:
            OSError: a folder cannot be searched, or the link cannot be made.
        """
        path = self.snapshot(file)
        if path.is_file() and (file.size is None or path.stat().st_size == file.size):
            return path
        if file.oid and (blob := self.blob(file)).is_file() and (file.size is None or blob.stat().st_size == file.size):
            return self.link(file)
        return None

    def link(self, file: HubFile, *, is_new: bool = False) -> Path:
        """Make the snapshot's entry for a cached blob. Where there are no symlinks, one that `is_new` is moved, as
        huggingface_hub does, since no other snapshot can have links to it. Raises OSError."""
        blob, path = self.blob(file), self.snapshot(file)
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = _beside(path, "link")
        try:
            beside.symlink_to(os.path.relpath(blob, path.parent))
        except (OSError, NotImplementedError) as error:
            if not _has_no_links(error):
                raise
            if is_new:
                blob.replace(path)
                return path
            hard_link_or_copy(blob, beside)
        beside.replace(path)  # two processes may do this at once
        return path

    def keep_ref(self, repo: str, name: str, commit: str, *, dry: bool = False) -> None:
        """Store the commit of a branch or tag; if `dry`, only try whether it can be stored. Raises OSError."""
        path = self.repository(repo) / "refs" / name
        if _read_ref(path) == commit:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = _beside(path, "tmp")
        beside.write_text(commit, encoding="ascii")
        if dry:
            beside.unlink()
        else:
            beside.replace(path)


def _read_ref(path: Path) -> str | None:
    with suppress(OSError, UnicodeDecodeError):
        text = path.read_text(encoding="ascii").strip()
        return text if COMMIT.fullmatch(text) else None
    return None


def _names(folder: Path) -> Iterator[str]:
    with suppress(OSError):
        yield from sorted(path.name for path in folder.iterdir())
