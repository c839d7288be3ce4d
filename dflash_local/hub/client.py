"""The Hub: list a repository, read a part of a file, download files into the cache.

Downloads do not use `hf_hub_download`, which neither resumes the download of another process nor compares hashes. While
`Hub.offline` is set, nothing that could open a socket is imported.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from dflash_local.errors import HubError
from dflash_local.hub import cache_space
from dflash_local.hub.blob_part import BlobPart
from dflash_local.hub.cache import COMMIT, Cache, HubFile, cache_root, commit_beginning_with, is_inside, is_oid
from dflash_local.hub.http_session import Unreachable
from dflash_local.hub.transport import MOST_REFUSALS, MOST_TIMEOUTS_IF_CACHED, Transport
from dflash_local.server_address import shown_address
from dflash_local.words import file_size_text

# file name, bytes so far, total bytes
Progress = Callable[[str, int, int], None]

_WORTH_A_LINE = 10**6  # bytes
_ON = ("1", "on", "yes", "true")
GO_ONLINE = "run it once without --offline and HF_HUB_OFFLINE"


def is_offline() -> bool:
    """Whether huggingface_hub's variables forbid the network."""
    return any(os.environ.get(name, "").lower() in _ON for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))


def hub_endpoint() -> str:
    """The Hub's address without a trailing slash, from llama.cpp's variable, then huggingface_hub's."""
    return (os.environ.get("MODEL_ENDPOINT") or os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def _silent(*_: object) -> None: ...


@dataclass
class Hub:
    """The Hub with a user's token and cache. `progress` is called for every chunk, `note` with messages to the user."""

    token: str | None = field(default=None, repr=False)
    offline: bool = False
    progress: Progress = _silent
    note: Callable[[str], None] = _silent
    cache: Cache = field(default_factory=lambda: Cache(cache_root()))
    endpoint: str = field(default_factory=hub_endpoint, repr=False)  # may have a user's name and password
    _unreachable: Unreachable | None = field(default=None, init=False, repr=False)
    _refs: dict[tuple[str, str], set[str]] = field(default_factory=dict, init=False, repr=False)  # branches and tags

    def __post_init__(self) -> None:
        self.offline = self.offline or is_offline()

    @property
    def address(self) -> str:
        """The endpoint as messages show it, without a user's name and password."""
        return shown_address(self.endpoint)

    def note_waiting(self, what: str) -> None:
        """Tell the user why a download of `what` does not begin."""
        self.note(f"another process downloads {what}: waiting for it")

    def files(self, repo: str, revision: str | None = None) -> list[HubFile]:
        """Every file of the repository at `revision`: a branch, a tag, or a commit or its beginning. None is main.

        The cached ones if the Hub cannot be reached.

        Raises:
            HubError: neither the Hub nor the cache has it; or the cache cannot be used.
        """
        if not self.offline:
            try:
                if self._unreachable:
                    raise self._unreachable.about(repo)
                return self._listed(repo, revision)
            except HubError as error:
                if isinstance(error, Unreachable):
                    self._unreachable = error  # so that the next repository does not wait again
                if not error.cache_may_serve or not (files := self._cached(repo, revision)):
                    raise
                self.note(f"{error.message}; using what the cache has of {repo}")
                return files
        if files := self._cached(repo, revision):
            return files
        name = repo + (f"@{revision}" if revision else "")
        raise HubError(f"{name} is not in the cache {self.cache.root}, and offline mode is on", hint=GO_ONLINE)

    def _cached(self, repo: str, revision: str | None) -> list[HubFile]:
        try:
            return self.cache.files(repo, revision)
        except OSError as error:
            raise cache_space.failed(self.cache.root, error) from None

    def _listed(self, repo: str, revision: str | None) -> list[HubFile]:
        most_timeouts = MOST_TIMEOUTS_IF_CACHED if self.cache.commit(repo, revision) else MOST_REFUSALS
        commit = self._commit(repo, revision, most_timeouts)
        entries = self._entries(repo, f"tree/{commit}?recursive=true", most_timeouts)
        files = [file for entry in entries if (file := _hub_file(repo, commit, entry))]
        if not files:
            raise HubError(f"{repo} is empty", hint=f"see {self.address}/{repo}")
        return files

    def _entries(self, repo: str, path: str, most_timeouts: int) -> Iterator[Any]:
        """The entries of a list on several pages, each of which is asked for at most `most_timeouts` times more if no
        connection comes about in time."""
        for page in self._transport.json(repo, path, most_timeouts):
            yield from page if isinstance(page, list) else ()

    def _commit(self, repo: str, revision: str | None, most_timeouts: int) -> str:
        """The commit of `revision`. A branch or tag that names it is remembered: `download` stores it in the cache, for
        llama.cpp and for later, where until then it leads to what is there."""
        if revision and COMMIT.fullmatch(revision):
            return revision.lower()
        is_proposed = (revision or "").startswith("refs/pr/")  # by a pull request, which is listed on demand only
        refs = next(self._transport.json(repo, "refs?include_prs=1" if is_proposed else "refs", most_timeouts))
        branches = _named_commits(refs, "branches")
        proposed = _named_commits(refs, "pullRequests", "ref")
        names = {**proposed, **_named_commits(refs, "tags"), **branches}
        name = revision or ("main" if "main" in branches else next(iter(branches), "main"))
        if commit := names.get(name):
            try:
                self.cache.keep_ref(repo, name, commit, dry=True)
            except OSError as error:
                fault = cache_space.failed(self.cache.root, error)
                fault.cache_may_serve = True  # one that can only be read serves without this commit
                raise fault from None
            self._refs.setdefault((repo, commit), set()).add(name)
            return commit
        entries = self._entries(repo, "commits/main", most_timeouts)
        commits = (str(entry.get("id")) for entry in entries if isinstance(entry, dict))
        if commit := commit_beginning_with(name, commits):
            return commit
        raise HubError(
            f"{repo} has no revision {name!r}", hint=f"its revisions: {self.address}/{repo}/commits/main", status=404,
            cache_may_serve=True,
        )  # fmt: skip

    def find(self, file: HubFile) -> Path | None:
        """The file's path if it is cached in full. Raises HubError."""
        try:
            return self.cache.find(file)
        except OSError as error:
            raise cache_space.failed(self.cache.root, error) from None

    def read(self, file: HubFile, start: int, stop: int) -> bytes:
        """The bytes of a file from `start` to `stop`, fewer if it ends before, from the cache or by a range request."""
        if path := self.find(file):
            with path.open("rb") as cached:
                cached.seek(start)
                return cached.read(stop - start)
        if self.offline:
            raise self._absent(file)
        data = bytearray()
        self._transport.read(file, start, min(stop, file.size or 0), data.extend)
        return bytes(data)

    def download(self, files: Sequence[HubFile], *, keeps_refs: bool = True) -> list[Path]:
        """Download the files that are not cached. Returns the paths of all in the snapshot.

        An interrupted download is resumed, also by a later process. If another process downloads a file, this one
        waits for it. Then the branches that were listed lead to these files' commits in the cache; without
        `keeps_refs` they do not, since more is needed of these than `files`.

        Raises:
            HubError: a file cannot be fetched, its hash is wrong, or the disk is full. Files in the cache stay whole.
        """
        missing = [file for file in files if not self.find(file)]
        if missing and self.offline:
            raise self._absent(missing[0])
        rest = sum(max((file.size or 0) - cache_space.size_of(self._part(file)), 0) for file in missing)
        cache_space.check_space(self.cache.root, rest)
        paths = [self.find(file) or self._fetch(file) for file in files]
        if keeps_refs:
            self._keep_refs(files)
        return paths

    def _keep_refs(self, files: Sequence[HubFile]) -> None:
        try:
            for repo, commit in {(file.repo, file.commit) for file in files}:
                for name in self._refs.get((repo, commit), ()):
                    self.cache.keep_ref(repo, name, commit)
        except OSError as error:
            raise cache_space.failed(self.cache.root, error) from None

    def _absent(self, file: HubFile) -> HubError:
        return HubError(
            f"{file.path} of {file.repo} is not in the cache {self.cache.root}, and offline mode is on", hint=GO_ONLINE
        )

    def _part(self, file: HubFile) -> Path:
        """The partial download. Its name differs from those of huggingface_hub and llama.cpp, which may be in use."""
        return self.cache.blob(file).with_name(f"{file.oid}.dflash.incomplete")

    def _fetch(self, file: HubFile) -> Path:
        lock = self.cache.lock(file)
        try:
            for folder in (lock.parent, self.cache.blob(file).parent):
                folder.mkdir(parents=True, exist_ok=True)
            with self._locked(lock, file):
                path = self.cache.find(file)  # another process may have downloaded it
                if path is None:
                    self._transfer(file)
                    path = self.cache.link(file, is_new=True)
                return path
        except OSError as error:
            raise cache_space.failed(self.cache.root, error, self._part(file)) from None

    @contextmanager
    def _locked(self, lock: Path, file: HubFile) -> Iterator[None]:
        """With huggingface_hub's lock, since its own downloads hold it.

        Unlike file_lock's, it can be taken by other users of the cache, and on file systems without flock.
        """
        from filelock import Timeout
        from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]

        with ExitStack() as held:
            try:
                held.enter_context(WeakFileLock(lock, timeout=0.5))
            except Timeout:
                self.note_waiting(file.name)
                held.enter_context(WeakFileLock(lock))
            yield

    def _transfer(self, file: HubFile) -> None:
        """Download the blob by way of its part. If a resumed part ends with a wrong hash, start over."""
        part = self._part(file)
        is_resumed = cache_space.size_of(part) > 0
        oid = self._grow(file, part)
        if is_resumed and oid != file.oid.lower():
            part.unlink()
            oid = self._grow(file, part)
        if oid != file.oid.lower():
            part.unlink()
            raise HubError(
                f"{file.path} of {file.repo} arrived with the hash {oid}, not {file.oid}",
                hint="a proxy or a mirror serves another file: try again, or check HF_ENDPOINT and MODEL_ENDPOINT",
            )
        part.replace(self.cache.blob(file))

    def _grow(self, file: HubFile, path: Path) -> str:
        """Append the missing bytes to the part at `path`. Returns the hash of all, of the kind that names the blob."""
        total = file.size or 0
        progress = self.progress if total >= _WORTH_A_LINE else _silent
        if (size := cache_space.size_of(path)) > total:
            path.unlink()
        elif size:  # now, because its hash takes a minute for 40 GB
            sizes = f"{file_size_text(size)} of {file_size_text(total)}"
            self.note(f"{file.name}: going on at {sizes}, once these are checked")
        with path.open("ab+") as out:
            part = BlobPart(out, file, report=lambda done: progress(file.name, done, total))
            progress(file.name, part.done, total)
            self._transport.read(file, part.done, total, part.take)
            out.flush()
            os.fsync(out.fileno())
        return part.oid

    @cached_property
    def _transport(self) -> Transport:
        assert not self.offline
        return Transport(self.endpoint, self.token, self.note)


def _hub_file(repo: str, commit: str, entry: Any) -> HubFile | None:
    """The file of a listing's entry. None for folders, and for names that are not safe in the cache."""
    if not isinstance(entry, dict) or entry.get("type") != "file":
        return None
    lfs = entry.get("lfs")
    path, size, oid = entry.get("path"), entry.get("size"), (lfs if isinstance(lfs, dict) else entry).get("oid")
    if isinstance(lfs, dict):
        size = lfs.get("size", size)
    if not (isinstance(path, str) and isinstance(size, int) and size >= 0 and isinstance(oid, str)):
        return None
    return HubFile(repo, commit, path, size, oid) if is_inside(path) and is_oid(oid) else None


def _named_commits(refs: Any, kind: str, name: str = "name") -> dict[str, str]:
    """Branches, tags or pull requests, by the key that has their `name`, and their commits."""
    found = refs.get(kind) if isinstance(refs, dict) else None
    pairs = [
        (entry.get(name), entry.get("targetCommit"))
        for entry in (found if isinstance(found, list) else ())
        if isinstance(entry, dict)
    ]
    return {
        ref: commit
        for ref, commit in pairs
        if isinstance(ref, str) and is_inside(ref) and isinstance(commit, str) and COMMIT.fullmatch(commit)
    }
