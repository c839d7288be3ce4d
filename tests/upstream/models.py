"""The models that the tests name, as a cache of the Hub that both servers read: each of them is the pocket target.

The one that sees has a projector with random weights. So answers of both servers can be compared, and nothing is
downloaded. What the tests need of a model beyond its being
one is in its metadata: tokens for infill, several files, a kind of pooling, an answer that does not end before its
limit.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from dflash_local.convert.gguf_metadata import read_header, u32
from tests.convert import samples
from tests.gguf_files import rewritten
from tests.projector_files import projector_file
from tests.upstream.names import POCKET, SEEING, TARGET

# Control tokens that the pocket target has, but never writes. llama.cpp ends a text at its other tokens for infill.
_FIM = {"fim_pre_token_id": 8, "fim_suf_token_id": 9, "fim_mid_token_id": 3}
_MEAN_POOLING = 1
# The tests were written for a model that tells stories and never stops.
_END, _NO_END = b"<|im_end|>", b"<|im_stop|>"
_COMMIT = "0" * 40


def write_hub(root: Path) -> None:
    """Write the cache below `root`."""
    made = root / "made"
    made.mkdir(parents=True)
    stories, infill, embedding, parts = (made / f"{name}.gguf" for name in ("stories", "infill", "embedding", "part"))
    _copy(stories, ends=False)
    write_infill(infill, ends=False)
    _copy(embedding, numbers={"qwen3.pooling_type": _MEAN_POOLING})
    _copy(parts, parts=3)
    _add(root, "ggml-org/test-model-stories260K", {"stories260K-F32.gguf": stories})
    _add(root, "ggml-org/test-model-stories260K-infill", {"stories260K-infill-F32.gguf": infill})
    _add(root, POCKET, {"pocket-F16.gguf": TARGET})
    _add(root, "ggml-org/stories15M_MOE", {"stories15M_MOE-F16.gguf": stories})
    projector = projector_file(made / "projector.gguf")
    _add(root, SEEING, {"tinygemma3-Q8_0.gguf": TARGET, "mmproj-tinygemma3-f16.gguf": projector})
    names = [f"{{}}-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    split = {f"tinyllamas/split/{name.format('stories15M-q8_0')}": made / name.format("part") for name in names}
    folders = ("bert-bge-small", "jina-reranker-v1-tiny-en")
    one = {f"{folder}/ggml-model-f16.gguf": embedding for folder in folders}
    _add(root, "ggml-org/models", {**split, **one, "tinyllamas/stories260K.gguf": stories})


def write_infill(path: Path, *, ends: bool = True) -> Path:
    """The pocket target at `path`, with tokens for infill."""
    _copy(path, numbers={f"tokenizer.ggml.{name}": token for name, token in _FIM.items()}, ends=ends)
    return path


def _add(root: Path, repo: str, files: dict[str, Path]) -> None:
    home = root / f"models--{repo.replace('/', '--')}"
    (home / "refs").mkdir(parents=True)
    (home / "refs" / "main").write_text(_COMMIT)
    (home / "blobs").mkdir()
    for name, source in files.items():
        blob = home / "blobs" / hashlib.sha256(name.encode()).hexdigest()
        blob.symlink_to(source)
        link = home / "snapshots" / _COMMIT / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(blob, link.parent))


def _copy(path: Path, *, numbers: dict[str, int] | None = None, ends: bool = True, parts: int = 1) -> None:
    """The pocket target at `path`, with more `numbers` in its metadata, or in `parts` files beside `path`. Unless it
    `ends`, its token for the end of an answer is one like others."""
    metadata, tensors = read_header(TARGET)
    keys: dict[str, Any] = {name: u32(number) for name, number in (numbers or {}).items()}
    if not ends:
        keys |= {name: _without_end(name, value.data) for name, value in metadata.items()}
    whole = path if parts == 1 else path.with_name("whole.gguf")
    rewritten(TARGET, whole, keys)
    if parts > 1:
        places = {name: place * parts // len(tensors) for place, name in enumerate(tensors)}
        samples.write_split(whole, path.with_suffix(""), places.__getitem__, n_parts=parts)


def _without_end(name: str, value: Any) -> Any:
    if name == "tokenizer.ggml.eos_token_id":
        return 0
    if name == "tokenizer.ggml.tokens":
        return [_NO_END if token == _END else token for token in value]
    return value.replace(_END, _NO_END) if isinstance(value, bytes) else value
