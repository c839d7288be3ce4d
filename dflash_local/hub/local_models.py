"""Models on this disk: in the cache of `-hf`, in the folders of other programs, and in this folder.

Only Ollama's small manifests are opened; elsewhere, file names are enough for a greeting. Missing or unreadable folders
have no models.

Sources: `fs_get_cache_directory` of llama.cpp's common/common.cpp, from before it adopted the Hub's layout; LM Studio's
~/.lmstudio/models/USER/NAME/FILE; Ollama's manifests, which name the blob of each model.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dflash_local.convert.gguf_parts import is_gguf, part_paths
from dflash_local.hub import inventory, selection
from dflash_local.hub.cache import Cache, HubFile, cache_root

_OLLAMA_MODEL = "application/vnd.ollama.image.model"
_MANIFEST_BYTES = 1 << 20  # limit for a manifest; real ones have some hundred bytes


@dataclass(frozen=True)
class LocalModel:
    """A target on this disk. `name` is USER/NAME:QUANT if `-hf` finds it, else the name of its file or in its program;
    `size` is in bytes, all parts together."""

    place: str
    name: str
    path: Path
    size: int

    @property
    def is_named(self) -> bool:
        """Does `-hf` accept its name?"""
        return self.place == HUB


HUB, LLAMA, LM_STUDIO, OLLAMA, HERE = "Hugging Face cache", "llama.cpp", "LM Studio", "Ollama", "this folder"


def local_models() -> list[LocalModel]:
    """All targets found, each file once, without drafters."""
    found: dict[Path, LocalModel] = {}
    for model in _all():
        with suppress(OSError):
            found.setdefault(model.path.resolve(), model)
    return list(found.values())


def _all() -> Iterator[LocalModel]:
    for entry in inventory.entries(Cache(cache_root())):
        yield LocalModel(HUB, entry.name, entry.path, _size(entry.path))
    yield from _files(HERE, Path(), "*.gguf")
    home = Path.home()
    for folder in _folders("LLAMA_CACHE", _caches() / "llama.cpp"):
        yield from _files(LLAMA, folder, "*.gguf")
    for folder in (home / ".lmstudio" / "models", home / ".cache" / "lm-studio" / "models"):  # new and old versions
        yield from _files(LM_STUDIO, folder, "*/*/*.gguf")
    service = Path("/usr/share/ollama/.ollama/models")
    for folder in _folders("OLLAMA_MODELS", home / ".ollama" / "models", service):
        yield from _ollama(folder)


def _folders(variable: str, *usual: Path) -> Iterator[Path]:
    """The folder that a variable names, if it is set, and the usual ones."""
    if own := os.environ.get(variable):
        yield Path(own)
    yield from usual


def _caches() -> Path:
    """The system's folder of caches."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if sys.platform == "win32" and (local := os.environ.get("LOCALAPPDATA")):
        return Path(local)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _files(place: str, folder: Path, pattern: str) -> Iterator[LocalModel]:
    """The models of a folder; of split ones the first part."""
    with suppress(OSError):
        files = [HubFile("", "", path.relative_to(folder).as_posix()) for path in sorted(folder.glob(pattern))]
        for file in selection.models(files):
            path = folder / file.path
            with suppress(OSError):
                yield LocalModel(place, path.stem, path, _size(path))


def _ollama(folder: Path) -> Iterator[LocalModel]:
    """Ollama's models whose blobs are GGUFs: manifests/HOST/USER/NAME/TAG."""
    manifests = folder / "manifests"
    for file in sorted(manifests.glob("*/*/*/*")) if manifests.is_dir() else ():
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            if file.stat().st_size > _MANIFEST_BYTES:
                continue
            layers = json.loads(file.read_text(encoding="utf-8"))["layers"]
            digest = next((layer["digest"] for layer in layers if layer["mediaType"] == _OLLAMA_MODEL), None)
            blob = folder / "blobs" / Path(str(digest).replace(":", "-")).name
            if is_gguf(blob):
                yield LocalModel(OLLAMA, f"{file.parent.name}:{file.name}", blob, blob.stat().st_size)


def _size(path: Path) -> int:
    """Bytes of all parts of a model. Raises OSError."""
    return sum(part.stat().st_size for part in part_paths(path))
