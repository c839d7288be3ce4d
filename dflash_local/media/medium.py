"""Medium: one image or one piece of audio of a prompt."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal

Kind = Literal["image", "audio"]


@dataclass(frozen=True, slots=True)
class Medium:
    """What the projector is given.

    Attributes:
        data: of an image RGB, 8 bits each, [height, width, 3]; of audio a sound wav, mp3 or flac file.
        width, height: in pixels; 0 for audio.
        hash: sha256 of the kind and the original bytes, by which caches know it.
    """

    kind: Kind
    data: bytes = field(repr=False)
    width: int
    height: int
    hash: bytes


def hash_of(kind: Kind, original: bytes) -> bytes:
    """The `hash` of a medium that was read from these bytes."""
    return sha256(kind.encode() + b":" + original).digest()
