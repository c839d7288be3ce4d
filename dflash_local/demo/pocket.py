"""The pocket pairs: a small real target with five drafters, a hybrid one with its own and an MTP layer, and one that
sees. The cache holds inflated copies."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from dflash_local.build.upstream import sha256
from dflash_local.cache_dir import cache_dir
from dflash_local.convert.gguf_metadata import read_model, string
from dflash_local.convert.writer import OutputTensor, write_gguf
from dflash_local.demo import inflate, quantizer, shapes
from dflash_local.demo.inflate import Progress, Quantizer
from dflash_local.demo.shapes import SHAPES, Pair, Shape
from dflash_local.errors import DFlashError
from dflash_local.scratch import scratch_in

_HERE = Path(__file__).parent
DRAFTERS = ("dflash", "dflash2", "dflash-small", "dspark", "dspark-first")
HYBRID = "hybrid"  # in place of a drafter's name: the hybrid target (Qwen3.5 form) with its DFlash drafter
PAIRS = (*DRAFTERS, HYBRID)
SHIPPED = ("dflash", "dspark")  # with every installation (pyproject.toml); the others with a checkout


def bundled_pair(drafter: str = "dflash") -> Pair:
    """One of `PAIRS` as trained (f16): the pocket target with that drafter, or the hybrid target with its own.

    Raises:
        DFlashError: this installation has no such pair.
    """
    names = ("hybrid-target", "hybrid-dflash") if drafter == HYBRID else ("target", drafter)
    pair = Pair(*(_HERE / f"pocket-{name}.gguf" for name in names))
    if not _complete(pair):
        raise DFlashError(
            f"the pocket pair {drafter!r} is only in a checkout of dflash-local, and this is not one",
            hint=f"take {' or '.join(SHIPPED)}, or run `make demo DEMO_ARGS='--drafter {drafter}'` in a checkout",
        )
    return pair


class SeeingPair(NamedTuple):
    """A target that reads images, its projector, and its drafter."""

    target: Path
    mmproj: Path
    drafter: Path


def seeing_pair() -> SeeingPair:
    """The pocket-VL, which was trained on drawn scenes (benchmarks/pocket_vl). Raises DFlashError: this installation
    has none."""
    pair = SeeingPair(*(_HERE / f"pocket-{name}.gguf" for name in ("vl", "vl-mmproj", "vl-dflash")))
    if not all(path.is_file() for path in pair):
        raise DFlashError("the pocket-VL is only in a checkout of dflash-local, and this is not one")
    return pair


def mtp_layer(drafter: str = HYBRID) -> Path:
    """The MTP layer of a pair's target, in a file of its own. Raises DFlashError: this installation has none."""
    path = _HERE / ("pocket-hybrid-mtp.gguf" if drafter == HYBRID else "pocket-mtp.gguf")
    if not path.is_file():
        raise DFlashError("the pocket targets' MTP layers are only in a checkout of dflash-local, and this is not one")
    return path


def with_mtp(drafter: str, out: Path) -> Path:
    """Write the target of a pair with its MTP layer. Raises DFlashError."""
    target = bundled_pair(drafter).target
    if drafter != HYBRID:
        target = as_hy_v3(target, out.with_suffix(".hy_v3.gguf"))
    return join_mtp(target, mtp_layer(drafter), out)


def as_hy_v3(target: Path, out: Path) -> Path:
    """Write the pocket target as one of the architecture hy_v3, which may have MTP layers: llama.cpp computes its dense
    layers as those of Qwen3.

    Raises:
        ModelError: the file is damaged.
    """
    metadata, tensors = read_model(target)
    old, new = "qwen3.", "hy_v3."
    keys = {new + key.removeprefix(old) if key.startswith(old) else key: value for key, value in metadata.items()}
    keys |= {
        "general.architecture": string("hy_v3"),
        f"{new}expert_feed_forward_length": keys[f"{new}feed_forward_length"],
    }
    write_gguf(out, keys, [OutputTensor.of(tensor) for tensor in tensors.values()])
    return out


def join_mtp(target: Path, mtp: Path, out: Path) -> Path:
    """Write a target with its MTP layers, from a file with them alone as llama.cpp's converter splits them off (--mtp):
    the file that it writes without that flag, but for the name.

    Raises:
        ModelError: a file is damaged.
    """
    metadata, tensors = read_model(target)
    mtp_metadata, mtp_tensors = read_model(mtp)
    arch = f"{metadata['general.architecture'].data.decode()}."
    metadata |= {key: value for key, value in mtp_metadata.items() if key.startswith(arch)}
    joined = [*tensors.values(), *(tensor for name, tensor in mtp_tensors.items() if name not in tensors)]
    write_gguf(out, metadata, [OutputTensor.of(tensor) for tensor in joined])
    return out


def shape_of(name: str, drafter: str) -> Shape:
    """One of `SHAPES` by its name; for the hybrid pair the hybrid one of that size, if there is one."""
    hybrid = f"{HYBRID}-{name}"
    return SHAPES[hybrid if drafter == HYBRID and hybrid in SHAPES else name]


def inflated_pair(
    shape: str,
    ftype: str,
    drafter: str = "dflash",
    *,
    quantize: Quantizer | None = None,
    progress: Progress = lambda name, n_bytes: None,
) -> Pair:
    """A bundled pair in the shape of `shape_of`, quantized. It is made once and kept in the cache, under a hash of
    everything that it depends on. It appears there complete or not at all, even if several processes make it.

    Raises:
        DFlashError: the cache folder cannot be read or written, or is full.
    """
    small = bundled_pair(drafter)
    folder = cache_dir() / "pocket" / f"{shape}-{ftype}-{drafter}-{_key(small)}"
    pair = Pair(folder / "target.gguf", folder / "drafter.gguf")

    def make(unfinished: Path) -> None:
        inflate.inflate(small, unfinished, shape_of(shape, drafter), ftype, quantize=quantize, progress=progress)

    try:
        if not _complete(pair):
            _publish(make, pair)
    except OSError as error:
        raise DFlashError(
            f"cannot keep the demo's models in {folder.parent}: {error.strerror or error}",
            hint="set DFLASH_CACHE to a folder that can be written and has room, or take --shape pocket, which writes "
            "no models",
        ) from None
    return pair


def _publish(make: Callable[[Path], None], pair: Pair) -> None:
    """Let `make` write a pair into a temporary folder beside its own, then move that into place."""
    folder = pair.target.parent
    folder.parent.mkdir(parents=True, exist_ok=True)
    with scratch_in(folder.parent) as scratch:
        unfinished = scratch / folder.name
        make(unfinished)
        try:
            unfinished.rename(folder)
        except OSError:
            # Another process was faster; its files are the same. Anything else is an error.
            if not _complete(pair):
                raise


def _complete(pair: Pair) -> bool:
    return pair.target.is_file() and pair.drafter.is_file()


def sources() -> list[Path]:
    """The source files that an inflated pair depends on."""
    return [*sorted(Path(inflate.__file__).parent.glob("*.py")), Path(shapes.__file__), Path(quantizer.__file__)]


def _key(small: Pair) -> str:
    """Changes with the small files and with the code that inflates them."""
    digest = hashlib.sha256()
    for path in (*small, *sources()):
        digest.update(sha256(path).encode())
    return digest.hexdigest()[:12]
