"""Companions of models: GGUFs that lie beside them and are none, by their names; projectors by their headers, too."""

from __future__ import annotations

from pathlib import Path

from dflash_local.convert.gguf_glance import Glance
from dflash_local.convert.gguf_parts import Parts

PROJECTOR_ARCH = "clip"
ENCODERS = {"vision": "images", "audio": "audio"}  # as a projector's keys call them, and what they read
PROJECTOR = "a projector, with which its model reads images or audio (--mmproj)"
_COMPANIONS = {
    "imatrix": "statistics for quantizing",
    "eagle3-": "a drafter of a kind that is not supported",
}


def companion(name: str) -> str:
    """What the file of this name is; "" if its name does not say so."""
    for word, what in _COMPANIONS.items():
        if name.startswith(word):
            return what
    return PROJECTOR if is_projector_file(name) else ""


def is_projector_file(name: str) -> bool:
    """Whether the file of this name is a projector, as llama.cpp's router finds them."""
    return "mmproj" in name


def is_projector(glance: Glance) -> bool:
    """Whether a header is that of a projector."""
    return glance.architecture in (PROJECTOR_ARCH, "mmproj") or glance.text("general.type") == "mmproj"


def media_of(projector: Glance) -> tuple[str, ...]:
    """Of "images" and "audio", what a projector says that it reads."""
    return tuple(what for name, what in ENCODERS.items() if projector.keys.get(f"clip.has_{name}_encoder") is True)


def projector_beside(model: Path) -> Path | None:
    """The projector in the folder of a model, by its name; of several the nearest to the model in bits, as for models
    of the Hub. None if there is none, or the folder cannot be read."""
    try:
        found = [path for path in sorted(model.parent.glob("*.gguf")) if is_projector_file(path.name)]
    except OSError:
        return None
    bits = Parts.of(model.name).bits
    return min(found, key=lambda path: abs(Parts.of(path.name).bits - bits), default=None)


def is_mtp_file(name: str) -> bool:
    """Whether the file of this name has the next-token (MTP) layers of a model, split off, as llama.cpp's converter
    names them. Its header does not show it."""
    return name.startswith("mtp-")
