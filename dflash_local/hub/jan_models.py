"""Jan's models: a folder with a model.yml for each, or, from before that, files below models/.

    llamacpp/models/NAME/model.yml      model_path, mmproj_path, size_bytes, embedding and more; NAME may have slashes
    llamacpp/models/NAME/model.gguf     where model_path says; an imported file lies anywhere

Source: extensions/llamacpp-extension/src/index.ts and src-tauri/src/core/app/commands.rs of Jan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dflash_local.convert.gguf_parts import SPLIT_NAME
from dflash_local.hub.model_programs import JAN, SETTINGS_BYTES
from dflash_local.hub.stored_file import StoredFile

_EMBEDDING = "a model that gives embeddings: dflash-local serve --embedding-model FILE"


def jan_files(folder: Path) -> Iterator[StoredFile]:
    """One for each model of Jan's data folder. Raises OSError if it cannot be read."""
    root = folder / "llamacpp" / "models"
    for path in sorted(root.rglob("model.yml")):
        yield _file(folder, path.parent.relative_to(root).as_posix(), path)
    old = folder / "models"
    for path in sorted(old.rglob("*.gguf")):
        part = SPLIT_NAME.fullmatch(path.stem)
        if not part or int(part[2]) == 1:
            yield StoredFile(JAN, path, (path.relative_to(old).with_suffix("").as_posix(),))


def _file(folder: Path, name: str, path: Path) -> StoredFile:
    try:
        keys = _read(path)
    except (OSError, ValueError):
        return StoredFile(JAN, path, (name,), refused="its model.yml cannot be read")
    where, size = keys.get("model_path"), keys.get("model_size_bytes")
    if not isinstance(where, str) or not where:
        return StoredFile(JAN, path, (name,), refused="its model.yml names no file (model_path)")
    if size is None and "mmproj_path" not in keys:  # else it counts both files
        size = keys.get("size_bytes")
    refused = _EMBEDDING if keys.get("embedding") is True else ""
    projector = keys.get("mmproj_path")
    # An absolute path stays itself.
    return StoredFile(
        JAN, folder / where, (name,), size=size if type(size) is int else None, refused=refused,
        projector=folder / projector if isinstance(projector, str) and projector else None,
    )  # fmt: skip


def _read(path: Path) -> Mapping[str, Any]:
    """Raises OSError, or ValueError if it is no YAML with keys."""
    import yaml  # takes about ten milliseconds: only users of Jan pay them

    with path.open(encoding="utf-8") as file:
        text = file.read(SETTINGS_BYTES)
    try:
        return dict(yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except (yaml.YAMLError, TypeError, RecursionError) as error:
        raise ValueError(str(error)) from None
