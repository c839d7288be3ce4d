"""Companions of models: GGUFs that lie beside them and are none, by their names."""

from __future__ import annotations

_COMPANIONS = {
    "mmproj": "a projector of images or audio, which are not supported",
    "imatrix": "statistics for quantizing",
    "eagle3-": "a drafter of a kind that is not supported",
}


def companion(name: str) -> str:
    """What the file of this name is; "" if its name does not say so."""
    for word, what in _COMPANIONS.items():
        if name.startswith(word) or (word == "mmproj" and word in name):
            return what
    return ""


def is_mtp_file(name: str) -> bool:
    """Whether the file of this name has the next-token (MTP) layers of a model, split off, as llama.cpp's converter
    names them. Its header does not show it."""
    return name.startswith("mtp-")
