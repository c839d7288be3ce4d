"""Checks and unpacks a bundle of `dflash-local build --out` so that Python finds it.

Wheels are unpacked, not installed, so neither pip nor a virtual environment is needed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dflash_local.build.recipe import source_hashes

MANIFEST, FORMAT = "manifest.json", 1
# Would replace the bundle's library, and upstream's flags.
UNWANTED = ("DFLASH_LIBRARY", "LLAMA_ARG_")


class BundleError(Exception):
    """The bundle is missing, incomplete, or not for this machine."""


@dataclass(frozen=True)
class Unpacked:
    """An unpacked bundle."""

    home: Path
    key: str  # of the build
    flags: tuple[str, ...] = ()  # of the build
    native: str = ""  # whether its native code is this checkout's

    @property
    def site(self) -> Path:
        return self.home / "site"

    @property
    def libraries(self) -> Path:
        """The folder of our libraries."""
        return self.site / "llama_cpp" / "lib"

    def environment(self, device: str, libraries: Sequence[Path] = ()) -> dict[str, str]:
        """The environment of each part's process: these packages before all others, this bundle's cache and upstream
        server. `libraries` are folders with libraries that the device's backend needs.

        They must not include our own: upstream's server would load them instead of those beside it.
        """
        found = [*map(str, libraries), os.environ.get("LD_LIBRARY_PATH", "")]
        kept = {name: value for name, value in os.environ.items() if not name.startswith(UNWANTED)}
        return {
            **kept,
            "PYTHONPATH": str(self.site),
            "PYTHONUNBUFFERED": "1",
            "DFLASH_CACHE": str(self.home / "cache"),
            "DFLASH_PEER_BIN": str(self.home / "programs" / "upstream"),
            "GPU_PROOF_TESTS": str(self.home / "programs" / "tests"),
            "GPU_PROOF_DEVICE": device,
            "LD_LIBRARY_PATH": os.pathsep.join(filter(None, found)),
            "OMP_WAIT_POLICY": "passive",
            "HF_HUB_OFFLINE": "1",
        }


def unpack(source: Path, work: Path, repo: Path) -> Unpacked:
    """Unpack what is not unpacked yet. Raises BundleError."""
    manifest = read_manifest(source)
    home, recipe = work / manifest["key"], manifest.get("recipe", {})
    unpacked = Unpacked(home, manifest["key"], tuple(recipe.get("flags", ())), native_code(recipe, repo))
    mark, text = home / MANIFEST, json.dumps(manifest)
    if not (mark.is_file() and mark.read_text() == text):
        shutil.rmtree(home, ignore_errors=True)
        unpacked.site.mkdir(parents=True)
        for entry in manifest["files"]:
            _unpack_file(source, entry, home)
        mark.write_text(text)
    link_package(unpacked.site, repo)
    return unpacked


def read_manifest(source: Path) -> dict[str, Any]:
    """Raises BundleError."""
    try:
        manifest = json.loads((source / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        how = 'dflash-local build --backend cuda --cuda-arch "86;90" --out DIR, on a machine with nvcc'
        raise BundleError(f"there is no bundle in {source}: make one ({how}), bring it here, give --from DIR") from None
    except ValueError as error:
        raise BundleError(f"{source / MANIFEST} is damaged: {error}") from None
    if manifest.get("format") != FORMAT:
        raise BundleError(f"{source} is of another version of dflash-local: make it again")
    return dict(manifest)


def native_code(recipe: Mapping[str, Any], repo: Path) -> str:
    """Whether a bundle was built from the native code of the checkout, in words."""
    same = all(recipe.get(name) == value for name, value in source_hashes(repo).items())
    return "of this commit" if same else "of ANOTHER commit than this one"


def joined(source: Path, entry: Mapping[str, Any]) -> bytes:
    """The bytes of a file, from its pieces. Raises BundleError if one is missing or differs."""
    try:
        data = b"".join((source / name).read_bytes() for name in entry["pieces"])
    except OSError as error:
        raise BundleError(f"{source} is not complete: {error.filename}: {error.strerror}") from None
    if len(data) != entry["bytes"] or hashlib.sha256(data).hexdigest() != entry["sha256"]:
        raise BundleError(f"{source / entry['name']} is not what was packed (its hash differs): bring it here again")
    return data


def _unpack_file(source: Path, entry: Mapping[str, Any], home: Path) -> None:
    name = entry["name"]
    file = home / name
    file.write_bytes(joined(source, entry))
    if name.endswith(".whl"):
        _check_tag(name)
        with zipfile.ZipFile(file) as wheel:
            wheel.extractall(home / "site")
    elif name.endswith(".tar.xz"):
        with tarfile.open(file) as archive:
            archive.extractall(home / "programs")
    file.unlink()


def _check_tag(wheel: str) -> None:
    """A compiled package is for one version of Python. Raises BundleError."""
    tag, abi = wheel.removesuffix(".whl").split("-")[2:4]
    here = f"cp{sys.version_info.major}{sys.version_info.minor}"
    if tag.startswith("cp") and abi != "abi3" and here not in tag.split("."):
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise BundleError(f"{wheel} is for another Python than this one: pack the bundle with --python {version}")


def link_package(site: Path, repo: Path) -> None:
    """Link dflash_local as it is installed, with convert/ and server/ inside. It is imported at Python's start, because
    scripts put the checkout, whose dflash_local lacks both, before PYTHONPATH."""
    package = site / "dflash_local"
    shutil.rmtree(package, ignore_errors=True)
    package.mkdir()
    for entry in [*(repo / "dflash_local").iterdir(), repo / "convert", repo / "server"]:
        (package / entry.name).symlink_to(entry)
    (site / "sitecustomize.py").write_text("import dflash_local  # noqa: F401\n")
