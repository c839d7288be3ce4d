"""Drawn pictures for tests of the chat page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw


def scene(width: int = 640, height: int = 400) -> Image.Image:
    """A hill, a house and the sun."""
    image = Image.new("RGB", (width, height), "#a9d6f5")
    pen = ImageDraw.Draw(image)
    pen.ellipse((width * 0.72, height * 0.1, width * 0.72 + height * 0.25, height * 0.35), fill="#ffd34d")
    pen.ellipse((-width * 0.3, height * 0.6, width * 1.3, height * 1.7), fill="#6dab5c")
    pen.rectangle((width * 0.25, height * 0.42, width * 0.45, height * 0.72), fill="#c8553d")
    roof = ((0.22, 0.42), (0.48, 0.42), (0.35, 0.22))
    pen.polygon([(width * x, height * y) for x, y in roof], fill="#5b3a2e")
    return image


def saved(image: Image.Image, path: Path, **options: Any) -> Path:
    """The image as a file of the type that the path's suffix says."""
    image.save(path, **options)
    return path
