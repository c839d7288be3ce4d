"""Ollama's models: manifests name the blobs of each.

    manifests/HOST/USER/NAME/TAG    JSON: layers, each with a mediaType, a digest and a size
    blobs/sha256-HASH               a layer's content; a download that is not complete has more behind HASH

Source: manifest/manifest.go, manifest/paths.go and types/model/name.go of Ollama.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dflash_local.hub.model_programs import OLLAMA, SETTINGS_BYTES
from dflash_local.hub.stored_file import StoredFile

_DIGEST = re.compile(r"sha256[:-][0-9a-fA-F]{64}")
_MEDIA = "application/vnd.ollama.image."
# Errors of reading what Ollama did not write so.
_DAMAGED = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)
_HOST, _USER = "registry.ollama.ai", "library"


def ollama_files(folder: Path) -> Iterator[StoredFile]:
    """One for each manifest. Raises OSError if the folder cannot be read."""
    for path in sorted((folder / "manifests").glob("*/*/*/*")):
        if path.is_dir() or path.name.startswith("."):
            continue
        names = _names(path)
        try:
            yield _file(folder, path, names, _json(path))
        except _DAMAGED:
            yield StoredFile(OLLAMA, path, names, refused="its manifest is damaged")


def _names(path: Path) -> tuple[str, ...]:
    """As Ollama shows it; without a tag it is latest."""
    host, user, name, tag = path.parts[-4:]
    prefix = "" if (host, user) == (_HOST, _USER) else f"{user}/" if host == _HOST else f"{host}/{user}/"
    return (f"{prefix}{name}:{tag}", *([f"{prefix}{name}"] if tag == "latest" else []))


def _json(path: Path) -> Mapping[str, Any]:
    """Raises OSError, or ValueError, TypeError or RecursionError if it is no object."""
    with path.open(encoding="utf-8") as file:
        return dict(json.loads(file.read(SETTINGS_BYTES)))


def _file(folder: Path, path: Path, names: tuple[str, ...], manifest: Mapping[str, Any]) -> StoredFile:
    """Raises ValueError, KeyError, TypeError or AttributeError if the manifest is damaged."""
    layers = manifest["layers"]
    models = [layer for layer in layers if layer["mediaType"] == _MEDIA + "model"]
    if not models:
        is_other = any(layer["mediaType"] == _MEDIA + "tensor" for layer in layers)
        why = "its weights are not in a GGUF" if is_other else "it has no weights on this disk"
        return StoredFile(OLLAMA, path, names, refused=why)
    refused = ""
    if len(models) > 1:
        refused = "its weights are in several blobs, which only Ollama joins"
    elif any(layer["mediaType"] == _MEDIA + "adapter" for layer in layers):
        refused = "it is another model with an adapter (LoRA), which is not supported"
    size = models[0].get("size")
    projectors = [_blob(folder, layer["digest"]) for layer in layers if layer["mediaType"] == _MEDIA + "projector"]
    return StoredFile(
        OLLAMA, _blob(folder, models[0]["digest"]), names,
        size=size if type(size) is int else None, quantization=_quantization(folder, manifest), refused=refused,
        projector=next(iter(projectors), None),
    )  # fmt: skip


def _blob(folder: Path, digest: str) -> Path:
    """Raises ValueError for anything but a digest, which could be a path out of the folder."""
    if not _DIGEST.fullmatch(digest):
        raise ValueError(digest)
    return folder / "blobs" / digest.replace(":", "-")


def _quantization(folder: Path, manifest: Mapping[str, Any]) -> str:
    """As Ollama noted it in the model's configuration; "" if it did not."""
    with suppress(*_DAMAGED):
        found = _json(_blob(folder, manifest["config"]["digest"]))["file_type"]
        return found if isinstance(found, str) and found != "unknown" else ""
    return ""
