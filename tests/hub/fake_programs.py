"""Fake homes: GGUFs with real headers and no weights, and what programs write beside them."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

from gguf import GGUFValueType

from dflash_local.convert.gguf_metadata import Value, array, pack_metadata, string, u32

QWEN3_8B = {"qwen3.embedding_length": 4096, "qwen3.block_count": 36}
MODEL, PROJECTOR = "application/vnd.ollama.image.model", "application/vnd.ollama.image.projector"


def value(data: Any) -> Value:
    return data if isinstance(data, Value) else string(data) if isinstance(data, str) else u32(data)


def header(arch: str = "llama", n_vocab: int = 8, n_tensors: int = 3, **more: Any) -> bytes:
    """The beginning of a GGUF. `more` are keys, with __ for dots."""
    keys = {"general.architecture": value(arch), "general.file_type": u32(15)}
    keys |= {key.replace("__", "."): value(data) for key, data in more.items()}
    if n_vocab:
        keys["tokenizer.ggml.pre"] = string("default")
        keys["tokenizer.ggml.tokens"] = array(GGUFValueType.STRING, [f"t{number}" for number in range(n_vocab)])
    return b"GGUF" + struct.pack("<IQQ", 3, n_tensors, len(keys)) + pack_metadata(keys)


def gguf(path: Path, data: bytes | None = None, size: int = 4096) -> Path:
    """Write a header, by default that of a model, padded to `size` bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((header() if data is None else data).ljust(size, b"\0"))
    return path


def qwen3(**more: Any) -> bytes:
    """The header of a Qwen3-8B."""
    return header("qwen3", 151936, **{"general__name": "Qwen3 8B", **QWEN3_8B, **more})


def hub_model(root: Path, repo: str, file: str, data: bytes | None = None) -> Path:
    """A file in the Hub's cache."""
    folder = root / ("models--" + repo.replace("/", "--"))
    commit = "0" * 40
    (folder / "refs").mkdir(parents=True, exist_ok=True)
    (folder / "refs/main").write_text(commit)
    return gguf(folder / "snapshots" / commit / file, data)


def ollama_model(root: Path, name: str, blob: bytes | Path | None = None, **changes: Any) -> Path:
    """A model as Ollama keeps it; `name` is HOST/USER/NAME:TAG, or NAME:TAG of its own registry. Returns the blob.

    Args:
        blob: its content, or a file to link.
        changes: of the manifest: `layers` (more of them), `size`.
    """
    where, _, tag = name.rpartition(":")
    manifest = root / "manifests" / (where if "/" in where else f"registry.ollama.ai/library/{where}") / tag
    data = (header() if blob is None else blob) if not isinstance(blob, Path) else b""
    digest = hashlib.sha256(data or str(blob).encode()).hexdigest()
    path = root / "blobs" / f"sha256-{digest}"
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(blob, Path):
        path.symlink_to(blob)
    else:
        path.write_bytes(data)
    config = json.dumps({"model_format": "gguf", "file_type": "Q4_0"}).encode()
    config_digest = hashlib.sha256(config).hexdigest()
    (root / "blobs" / f"sha256-{config_digest}").write_bytes(config)
    size = changes.get("size", path.stat().st_size)
    model = {"mediaType": MODEL, "digest": f"sha256:{digest}", "size": size}
    license_ = {"mediaType": "application/vnd.ollama.image.license", "digest": "sha256:" + "1" * 64, "size": 9}
    manifest.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_text(json.dumps({
        "schemaVersion": 2,
        "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
        "config": {
            "mediaType": "application/vnd.docker.container.image.v1+json",
            "digest": f"sha256:{config_digest}",
            "size": len(config),
        },
        "layers": [model, license_, *changes.get("layers", ())],
    }))  # fmt: skip
    return path


def jan_model(data: Path, name: str, /, file: str | None = None, **more: Any) -> Path:
    """A model of Jan's data folder; `more` are lines of its model.yml. Returns the path of its file."""
    folder = data / "llamacpp/models" / name
    where = file or f"llamacpp/models/{name}/model.gguf"
    path = gguf(data / where)
    folder.mkdir(parents=True, exist_ok=True)
    lines = {"embedding": "false", "model_path": where, "name": name, "size_bytes": path.stat().st_size, **more}
    (folder / "model.yml").write_text("".join(f"{key}: {line}\n" for key, line in lines.items() if line is not None))
    return path
