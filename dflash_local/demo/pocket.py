"""The pocket pairs that ship with the package: a small real target with five drafters, and a hybrid one with its own.
Inflated copies are in the cache."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

from dflash_local.build.upstream import cache_dir, sha256
from dflash_local.demo import inflate, quantizer, shapes
from dflash_local.demo.inflate import Progress, Quantizer
from dflash_local.demo.shapes import SHAPES, Pair, Shape

_HERE = Path(__file__).parent
DRAFTERS = ("dflash", "dflash2", "dflash-small", "dspark", "dspark-first")
HYBRID = "hybrid"  # in place of a drafter's name: the hybrid target (Qwen3.5 form) with its DFlash drafter
PAIRS = (*DRAFTERS, HYBRID)


def bundled_pair(drafter: str = "dflash") -> Pair:
    """One of `PAIRS` as shipped (f16): the pocket target with that drafter, or the hybrid target with its own."""
    if drafter == HYBRID:
        return Pair(_HERE / "pocket-hybrid-target.gguf", _HERE / "pocket-hybrid-dflash.gguf")
    return Pair(_HERE / "pocket-target.gguf", _HERE / f"pocket-{drafter}.gguf")


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
    """A bundled pair in the shape that `shape_of` gives, quantized; made once and then found in the cache by everything
    that it depends on.

    A pair appears in the cache complete or not at all, however many processes make it.
    """
    small = bundled_pair(drafter)
    folder = cache_dir() / "pocket" / f"{shape}-{ftype}-{drafter}-{_key(small)}"
    pair = Pair(folder / "target.gguf", folder / "drafter.gguf")
    if pair.target.is_file() and pair.drafter.is_file():
        return pair
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        unfinished = Path(scratch) / folder.name
        inflate.inflate(small, unfinished, shape_of(shape, drafter), ftype, quantize=quantize, progress=progress)
        try:
            unfinished.rename(folder)
        except OSError:
            # Another process was faster; its files are the same. Anything else in the way is an error.
            if not (pair.target.is_file() and pair.drafter.is_file()):
                raise
    return pair


def sources() -> list[Path]:
    """The code that an inflated pair depends on."""
    return [*sorted(Path(inflate.__file__).parent.glob("*.py")), Path(shapes.__file__), Path(quantizer.__file__)]


def _key(small: Pair) -> str:
    """Changes with the small files and with the code that inflates them."""
    digest = hashlib.sha256()
    for path in (*small, *sources()):
        digest.update(sha256(path).encode())
    return digest.hexdigest()[:12]
