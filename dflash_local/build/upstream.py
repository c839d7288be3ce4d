"""The pinned llama-cpp-python source: fetch it with pip, verify it, unpack it, apply `patches/`.

Also used by benchmarks that build upstream's own programs from the unpatched source.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from dflash_local.build import patch
from dflash_local.build.log import BuildLog
from dflash_local.cache_dir import cache_dir
from dflash_local.errors import BuildError

_PACKAGE = Path(__file__).resolve().parent.parent
_NO_MATCH = "DO NOT MATCH THE HASHES"


def native_source() -> Path:
    """The folder that holds `patches/` and `ggml_ops/`: the checkout, or their copy inside an installed wheel."""
    for root in (_PACKAGE.parent, _PACKAGE / "_native"):
        if (root / "patches" / "UPSTREAM").is_file():
            return root
    raise BuildError("patches/ and ggml_ops/ are missing from this installation", hint="reinstall dflash-local")


@dataclass(frozen=True)
class Upstream:
    """The source that `patches/UPSTREAM` pins."""

    package: str
    version: str
    sha256: str
    commit: str

    @classmethod
    def read(cls, path: Path) -> Upstream:
        """Parse `patches/UPSTREAM` (`key value` lines, # comments). Raises BuildError for a missing key."""
        lines = [
            line.split()
            for line in path.read_text(encoding="utf-8").splitlines()
            if line.strip() and not line.startswith("#")
        ]
        values = {words[0]: words[-1] for words in lines}
        for key in ("package", "sha256", "llama.cpp"):
            if key not in values:
                raise BuildError(f"{path}: no line for '{key}'")
        package, _, version = values["package"].partition("==")
        return cls(package, version, values["sha256"], values["llama.cpp"])

    @property
    def archive_name(self) -> str:
        return f"{self.package.replace('-', '_')}-{self.version}.tar.gz"

    def fetch(self, log: BuildLog) -> Path:
        """The verified source distribution, downloaded unless cached. Raises BuildError: wrong hash, no network."""
        archive = cache_dir() / "sdist" / self.archive_name
        if archive.is_file() and sha256(archive) == self.sha256:
            return archive
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
            # pip checks the hash before it opens the archive, so nothing unverified ever runs. It then reads the
            # package's metadata, for which it compiles nothing.
            requirement = Path(scratch) / "requirement.txt"
            requirement.write_text(f"{self.package}=={self.version} --hash=sha256:{self.sha256}\n", encoding="utf-8")
            command = [*pip(), "download", "--no-deps", "--no-binary", self.package, "--require-hashes"]
            more = ["--no-cache-dir", "--retries", "2", "-d", scratch, "-r", str(requirement)]
            status, lines = log.run([*command, *more])
            found = Path(scratch) / self.archive_name
            if status != 0 and not any(_NO_MATCH in line for line in lines):
                raise BuildError(
                    f"pip could not download {self.package}=={self.version} (log: {log.path})\n" + log.excerpt(lines),
                    hint=f"check the network and pip's index settings, or put {self.archive_name} into "
                    f"{archive.parent} yourself",
                )
            if status != 0 or not found.is_file() or sha256(found) != self.sha256:
                raise BuildError(
                    f"the downloaded {self.archive_name} does not have the pinned sha256 "
                    f"{self.sha256}\n{log.excerpt(lines)}",
                    hint="a proxy or mirror serves another file: use another index, or correct patches/UPSTREAM if the "
                    "pin was changed",
                )
            found.replace(archive)
        return archive

    def unpack(self, archive: Path, tree: Path) -> None:
        """Unpack the source distribution as `tree` (must not exist), and check that it holds the pinned llama.cpp."""
        tree.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=tree.parent) as scratch:
            with tarfile.open(archive) as tar:
                # Trusted, since its hash was checked. (`filter=` came with 3.10.12; older versions ignore this
                # attribute.)
                tar.extraction_filter = tarfile.data_filter if hasattr(tarfile, "data_filter") else None
                tar.extractall(scratch)
            source = Path(scratch) / self.archive_name.removesuffix(".tar.gz")
            head = source / ".git" / "modules" / "vendor" / "llama.cpp" / "HEAD"
            commit = head.read_text(encoding="utf-8").strip() if head.is_file() else "unknown"
            if commit != self.commit:
                what = f"{archive.name} holds llama.cpp {commit}, not {self.commit}"
                raise BuildError(what, hint="correct 'llama.cpp' in patches/UPSTREAM")
            source.replace(tree)


def apply_patches(patches: Path, tree: Path) -> list[str]:
    """Apply `patches/*.patch` to `tree` in the order of their names. Returns their names. Raises BuildError."""
    files = sorted(patches.glob("*.patch"))
    for file in files:
        patch.apply(file, tree)
    return [file.name for file in files]


def pip() -> list[str]:
    """The command of this interpreter's own pip."""
    if importlib.util.find_spec("pip") is None:
        raise BuildError(f"{sys.executable} has no pip", hint=f"run {sys.executable} -m ensurepip")
    return [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
