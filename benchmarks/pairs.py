"""Inflated pocket pairs, made once and kept, the pocket-VL with its projector, and a drafter with random weights.

Usage: python benchmarks/pairs.py SHAPE TYPE DRAFTER DIR    (makes one of them, unless it is there)
"""

from __future__ import annotations

import hashlib
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from gguf import GGMLQuantizationType as Type

from dflash_local.cache_dir import cache_dir
from dflash_local.convert.gguf_metadata import StoredGgufTensor, read_header, string
from dflash_local.convert.writer import OutputTensor, write_gguf
from dflash_local.demo import inflate
from dflash_local.demo.pocket import (
    HYBRID,
    SeeingPair,
    bundled_pair,
    mtp_layer,
    seeing_pair,
    shape_of,
    sources,
    with_mtp,
)
from dflash_local.demo.shapes import SHAPES, SIGLIP, Pair

HOSTILE = "hostile-"  # prefix of a bundled drafter's name: the same with random weights


def make(work: Path | None, shape: str | None, ftype: str, drafter: str) -> Pair:
    """The bundled pair of `drafter` in `shape`, quantized to `ftype` and kept in `work` (None: the cache); without a
    shape the pair as it is."""
    if shape is None:
        return bundled_pair(drafter)
    name = drafter.removeprefix(HOSTILE)
    small = bundled_pair(name)

    def write(folder: Path) -> None:
        noisy = hostile(small.drafter, folder.with_name("hostile.gguf")) if drafter != name else small.drafter
        inflate.inflate(Pair(small.target, noisy), folder, shape_of(shape, name), ftype)

    made_of = b"".join(path.read_bytes() for path in (*small, *sources(), Path(__file__)))
    folder = kept(work, f"{shape}-{ftype}-{drafter}", made_of, write)
    return Pair(folder / "target.gguf", folder / "drafter.gguf")


def make_with_mtp(work: Path | None, shape: str, ftype: str, drafter: str = HYBRID) -> Pair:
    """The pair of `drafter` in `shape`, whose target has its MTP layer; kept in `work` (None: the cache)."""
    small, layer = bundled_pair(drafter), mtp_layer(drafter)

    def write(folder: Path) -> None:
        target = with_mtp(drafter, folder.with_name("joined.gguf"))
        inflate.inflate(Pair(target, small.drafter), folder, shape_of(shape, drafter), ftype)

    made_of = b"".join(path.read_bytes() for path in (*small, layer, *sources(), Path(__file__)))
    folder = kept(work, f"{shape}-{ftype}-{drafter}-mtp", made_of, write)
    return Pair(folder / "target.gguf", folder / "drafter.gguf")


def make_seeing(work: Path | None, shape: str, ftype: str) -> SeeingPair:
    """The pocket-VL in `shape`, with a vision tower of SigLIP's size (f16); kept in `work` (None: the cache)."""
    small = seeing_pair()

    def write(folder: Path) -> None:
        inflate.inflate(Pair(small.target, small.drafter), folder, SHAPES[shape], ftype)
        inflate.inflate_projector(small.mmproj, folder / "mmproj.gguf", SIGLIP, SHAPES[shape])

    made_of = b"".join(path.read_bytes() for path in (*small, *sources(), Path(__file__)))
    folder = kept(work, f"{shape}-{ftype}-vl", made_of, write)
    return SeeingPair(folder / "target.gguf", folder / "mmproj.gguf", folder / "drafter.gguf")


def text_twin(work: Path | None, target: Path) -> Path:
    """A qwen3vl target of `make_seeing` as one of the architecture qwen3, which reads words alone; kept in `work`."""
    old, new = "qwen3vl.", "qwen3."

    def write(out: Path) -> None:
        metadata, tensors = read_header(target)
        for key in ("rope.dimension_sections", "n_deepstack_layers"):
            del metadata[old + key]
        keys = {new + key.removeprefix(old) if key.startswith(old) else key: value for key, value in metadata.items()}
        keys["general.architecture"] = string("qwen3")
        write_gguf(out, keys, [OutputTensor.of(tensor) for tensor in tensors.values()])

    return kept(work, f"{target.parent.name}-words", target.parent.name.encode(), write, ".gguf")


def kept(work: Path | None, name: str, made_of: bytes, write: Callable[[Path], None], suffix: str = "") -> Path:
    """A file or folder in `work` (None: the cache) whose name depends on what it is made of. It appears complete or not
    at all."""
    root = work or cache_dir() / "benchmarks"
    path = root / f"{name}-{hashlib.sha256(made_of).hexdigest()[:12]}{suffix}"
    if not path.exists():
        root.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=root) as scratch:
            write(Path(scratch) / path.name)
            (Path(scratch) / path.name).rename(path)
    return path


def hostile(drafter: Path, path: Path) -> Path:
    """Copy `drafter` with noise of the same scale in place of all matrices (norms stay): a valid file with random
    guesses."""

    def output(tensor: StoredGgufTensor) -> OutputTensor:
        if len(tensor.shape) == 1:
            return OutputTensor.of(tensor)
        rng = np.random.default_rng(zlib.crc32(tensor.name.encode()))
        noise = rng.standard_normal(tensor.shape) * tensor.numbers().std()
        kind = {Type.F32: np.float32, Type.F16: np.float16}[tensor.type]
        return OutputTensor(tensor.name, tensor.shape, tensor.type, lambda: [noise.astype(kind)])

    metadata, tensors = read_header(drafter)
    write_gguf(path, metadata, [output(tensor) for tensor in tensors.values()])
    return path


if __name__ == "__main__":
    made = make(Path(sys.argv[4]), *sys.argv[1:4])
    print(*made)
