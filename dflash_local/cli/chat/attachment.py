"""Attachment: an image or audio file of a chat in the terminal, and the paths that users type or drop."""

from __future__ import annotations

import base64
import io
import os
import shlex
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import url2pathname

from dflash_local.errors import MediaError
from dflash_local.media.audio_file import audio_format, read_audio
from dflash_local.media.image_file import FORMATS, read_image
from dflash_local.media.local_file import read_path
from dflash_local.media.medium import Kind


class Attachment(NamedTuple):
    """A file of the next message: its name, what to tell of it, and its content part in OpenAI's shape."""

    name: str
    facts: str
    part: dict[str, Any]

    @classmethod
    def of(cls, path: Path, kind: Kind) -> Attachment:
        """Read and check a file. Raises MediaError, a sentence that begins with the file's name."""
        try:
            data = read_path(path.expanduser().resolve())
        except (ValueError, OSError, RuntimeError) as error:
            raise MediaError.of(path.name or str(path), kind, str(error)) from None
        return cls._image(path.name, data) if kind == "image" else cls._audio(path.name, data)

    @classmethod
    def _image(cls, name: str, data: bytes) -> Attachment:
        image = read_image(data, name)
        url = f"data:{_type_of(data)};base64,{_text_of(data)}"
        return cls(name, f"{image.width} x {image.height}", {"type": "image_url", "image_url": {"url": url}})

    @classmethod
    def _audio(cls, name: str, data: bytes) -> Attachment:
        read_audio(data, name)
        audio = {"data": _text_of(data), "format": audio_format(data)}
        return cls(name, str(audio["format"]), {"type": "input_audio", "input_audio": audio})


def paths_of(text: str) -> list[Path]:
    """The paths in what was typed, or put there by a terminal on which files were dropped: quoted, with escapes, or as
    file:// URLs. A text that is a path as it stands is one, whatever is in it."""
    if _exists(text):
        return [Path(text)]
    try:
        words = (
            shlex.split(text) if os.name == "posix" else [word.strip("\"'") for word in shlex.split(text, posix=False)]
        )
    except ValueError:  # a quote is left open
        words = [text]
    return [_path(word) for word in words]


def _path(word: str) -> Path:
    if word.startswith("file://"):
        with suppress(ValueError):  # it is no URL after all
            return Path(url2pathname(urlsplit(word).path))
    return Path(word)


def _exists(text: str) -> bool:
    with suppress(OSError, RuntimeError, ValueError):  # too long, no such home, a null byte
        return Path(text).expanduser().exists()
    return False


def _type_of(data: bytes) -> str:
    """The media type of an image that can be read."""
    from PIL import Image

    with Image.open(io.BytesIO(data), formats=FORMATS) as image:
        return str(image.get_format_mimetype())


def _text_of(data: bytes) -> str:
    return base64.b64encode(data).decode()
