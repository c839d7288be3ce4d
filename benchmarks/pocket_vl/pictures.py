"""Pictures as requests have them, and as the vision tower reads them: patches in the order in which it merges them."""

from __future__ import annotations

import base64
import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image

PATCH, MERGE, FRAMES = 16, 2, 2
UNIT = PATCH * MERGE


def data_url(picture: NDArray[np.uint8]) -> str:
    """An RGB picture [height, width, 3] as PNG in a data URL."""
    return "data:image/png;base64," + base64.b64encode(png(picture)).decode()


def png(picture: NDArray[np.uint8]) -> bytes:
    """An RGB picture [height, width, 3] as a PNG file."""
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "PNG")
    return file.getvalue()


def patches(picture: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The patches of an RGB picture [height, width, 3] whose sides are multiples of `UNIT`.

    Levels become -1..1. The four patches that are merged follow each other; a picture is two equal frames.

    Returns:
        [patches, 3 * FRAMES * PATCH * PATCH]
    """
    height, width, _ = picture.shape
    levels = picture.astype(np.float32) / 127.5 - 1
    x = levels.reshape(height // UNIT, MERGE, PATCH, width // UNIT, MERGE, PATCH, 3)
    x = x.transpose(0, 3, 1, 4, 6, 2, 5)  # row and column of the unit, of the patch, the channel, those of the pixel
    x = x.reshape(-1, 3, 1, PATCH, PATCH)
    return np.repeat(x, FRAMES, axis=2).reshape(len(x), -1)


def grid(picture: NDArray[np.uint8]) -> tuple[int, int, int]:
    """Frames (as one), rows and columns of a picture's patches."""
    return 1, picture.shape[0] // PATCH, picture.shape[1] // PATCH


def rows(picture: NDArray[np.uint8]) -> int:
    """How many rows of the target a picture takes."""
    return picture.shape[0] // UNIT * (picture.shape[1] // UNIT)
