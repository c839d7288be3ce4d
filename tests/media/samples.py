"""Small media files, made here."""

from __future__ import annotations

import base64
import io
import struct
import zlib
from typing import Any

from PIL import Image

RED = (255, 0, 0)


def picture(width: int = 4, height: int = 3, color: Any = RED, mode: str = "RGB") -> Image.Image:
    """A picture of one color."""
    return Image.new(mode, (width, height), color)


def saved(image: Image.Image, form: str = "PNG", **options: Any) -> bytes:
    """The picture as a file."""
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def png(width: int = 4, height: int = 3, color: Any = RED) -> bytes:
    """A picture as a PNG file."""
    return saved(picture(width, height, color))


def data_url(data: bytes, kind: str = "image/png") -> str:
    """The file in a data URL."""
    return f"data:{kind};base64,{text_of(data)}"


def text_of(data: bytes) -> str:
    """The file as base64."""
    return base64.b64encode(data).decode()


def png_of(width: int, height: int, *, bits: int = 8, color: int = 2, rows: bytes = b"") -> bytes:
    """A PNG file whose header says what it likes; `rows` are its filtered rows."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    head = struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def wav(
    n_samples: int = 160,
    *,
    rate: int = 16_000,
    channels: int = 1,
    bits: int = 16,
    kind: int = 1,
    said: int | None = None,
    frame: int | None = None,
    samples: bytes = b"",
) -> bytes:
    """A WAV file of silence, or of `samples`; `said` is the size that its header tells of them."""
    frame = channels * bits // 8 if frame is None else frame
    samples = samples or bytes(n_samples * channels * bits // 8)
    head = struct.pack("<HHIIHH", kind, channels, rate, rate * frame & 0xFFFF_FFFF, frame, bits)
    size = len(samples) if said is None else said
    chunks = b"fmt " + struct.pack("<I", 16) + head + b"data" + struct.pack("<I", size) + samples
    return b"RIFF" + struct.pack("<I", 4 + len(chunks) & 0xFFFF_FFFF) + b"WAVE" + chunks


def mp3(n_frames: int = 4, *, header: bytes = b"\xff\xfb\x90\x00") -> bytes:
    """An MP3 file of empty frames: 128 kbit/s at 44,100 Hz, 417 bytes each."""
    return (header + bytes(413)) * n_frames


def flac(n_samples: int = 4410, rate: int = 44_100, channels: int = 1) -> bytes:
    """The beginning of a FLAC file."""
    fields = rate << 44 | (channels - 1) << 41 | 15 << 36 | n_samples
    info = struct.pack(">HH", 4096, 4096) + bytes(6) + fields.to_bytes(8, "big") + bytes(16)
    return b"fLaC" + b"\x80" + len(info).to_bytes(3, "big") + info + b"\xff\xf8" + bytes(64)
