"""Image files: sound ones of every form that is read, and broken or odd ones, each with what is to come of it."""

from __future__ import annotations

import io
import random
import struct
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from PIL import Image

from tests.media.samples import mp3, png_of, saved, wav

ANY = None  # what is to come of a file: read or refused, as long as it is one of both
EXIF_ORIENTATION = 0x0112


class File(NamedTuple):
    """A file, and whether it is an image that the server must read (True), must refuse (False), or may."""

    name: str
    data: bytes
    reads: bool | None


def noise(width: int, height: int, mode: str = "RGB", seed: int = 0) -> Image.Image:
    """A picture that no decoder and no cache can tell from another by chance."""
    bands = len(Image.new(mode, (1, 1)).getbands())
    rows = np.random.default_rng([seed, width, height]).integers(0, 256, (height, width, bands), np.uint8)
    return Image.fromarray(rows if bands > 1 else rows[:, :, 0], mode)


def sound() -> list[File]:
    """One file of each form, of which a server's answer is known."""
    return [File(name, data, True) for name, data in _sound().items()]


def _sound() -> dict[str, bytes]:
    turned = Image.Exif()
    turned[EXIF_ORIENTATION] = 6
    frames = [noise(16, 12, seed=seed) for seed in range(3)]
    wide = Image.fromarray(np.random.default_rng(1).integers(0, 65536, (9, 7), np.uint16))
    clear = noise(9, 9, "P")
    clear.info["transparency"] = 3
    return {
        "png": saved(noise(40, 30)),
        "png-1x1": saved(noise(1, 1)),
        "png-16-bit": saved(wide),
        "png-grey-alpha": saved(noise(11, 5, "LA")),
        "png-alpha": saved(noise(5, 11, "RGBA")),
        "png-palette": saved(clear, transparency=3),
        "png-1-bit": saved(noise(13, 13, "L").convert("1")),
        "png-long": saved(noise(400, 2)),
        "png-animated": saved(frames[0], save_all=True, append_images=frames[1:]),
        "jpeg": saved(noise(33, 21), "JPEG"),
        "jpeg-turned": saved(noise(30, 14), "JPEG", exif=turned.tobytes()),
        "jpeg-cmyk": saved(noise(16, 16, "CMYK"), "JPEG"),
        "jpeg-progressive": saved(noise(31, 17), "JPEG", progressive=True),
        "webp": saved(noise(20, 20), "WEBP"),
        "webp-animated": saved(frames[0], "WEBP", save_all=True, append_images=frames[1:]),
        "gif-animated": saved(frames[0], "GIF", save_all=True, append_images=frames[1:]),
        "bmp": saved(noise(10, 10), "BMP"),
        "tiff": saved(noise(12, 8), "TIFF"),
        "ppm": saved(noise(8, 12), "PPM"),
    }


def odd(rng: random.Random, whole: list[File]) -> File:
    """A file that is broken in one way, or that only looks broken."""
    return rng.choice(_ODD)(rng, rng.choice(whole))


def _truncated(rng: random.Random, file: File) -> File:
    at = rng.randrange(len(file.data))
    return File(f"{file.name} cut at {at}", file.data[:at], False if at < 8 else ANY)


def _flipped(rng: random.Random, file: File) -> File:
    data = bytearray(file.data)
    for _ in range(rng.choice([1, 3, 20])):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return File(f"{file.name} with flipped bits", bytes(data), ANY)


def _spliced(rng: random.Random, file: File) -> File:
    at, length = rng.randrange(len(file.data)), rng.choice([1, 4, 300])
    data = file.data[:at] + rng.randbytes(length) + file.data[at + rng.choice([0, length]) :]
    return File(f"{file.name} with {length} bytes at {at}", data, ANY)


def _trailing(rng: random.Random, file: File) -> File:
    return File(f"{file.name} and more", file.data + rng.randbytes(100), ANY)


def _huge(rng: random.Random, _: File) -> File:
    """More pixels than are read, by a header that may be true."""
    side = rng.choice([(1 << 31) - 1, 100_000, 65_535, 40_000, 9_000])
    other = rng.choice([side, 1]) if side > 32_768 else side
    rows = b"\0" * rng.choice([0, 10, 100_000])
    return File(f"a PNG file of {side} x {other} pixels", png_of(side, other, rows=rows), False)


def _bomb(rng: random.Random, _: File) -> File:
    """Far fewer bytes than pixels: a megabyte of zeros, which a header cuts off or asks more of."""
    side = rng.choice([2, 500, 3000])
    data = png_of(side, side, bits=1, color=0, rows=bytes(1 << 20))
    return File(f"1 MiB for {side} x {side} pixels", data, ANY)


def _empty_header(rng: random.Random, _: File) -> File:
    width, height = rng.choice([(0, 0), (0, 5), (5, 0)])
    return File(f"{width} x {height} pixels", png_of(width, height), False)


def _wrong_depth(rng: random.Random, _: File) -> File:
    bits, color = rng.choice([3, 5, 32, 255]), rng.choice([1, 5, 7, 99])
    return File(f"depth {bits}, color {color}", png_of(4, 4, bits=bits, color=color, rows=bytes(64)), False)


def _bitmap_header(rng: random.Random, _: File) -> File:
    width, height = rng.choice([(2**31 - 1, 1), (-5, 5), (30_000, 30_000), (70_000, -70_000)])
    head = struct.pack("<IiiHHIIiiII", 40, width, height, 1, rng.choice([1, 24, 32, 7]), rng.choice([0, 1, 3]), *[0] * 5)
    data = b"BM" + struct.pack("<IHHI", 54 + 100, 0, 0, 54) + head + bytes(100)
    return File(f"a bitmap of {width} x {height} pixels", data, False)


def _other(rng: random.Random, _: File) -> File:
    name, data = rng.choice(list(_OTHERS.items()))
    return File(name, data, False)


def _container(data: bytes, form: str) -> bytes:
    file = io.BytesIO()
    Image.open(io.BytesIO(data)).save(file, form)
    return file.getvalue()


_OTHERS = {
    "nothing": b"",
    "a byte": b"\x89",
    "a signature": b"\x89PNG\r\n\x1a\n",
    "a page": b"<!doctype html><title>no image</title>",
    "a drawing": b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>',
    "a document": b"%PDF-1.7\n1 0 obj<</Type/Catalog>>endobj",
    "a program for printers": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(/etc/passwd) run",
    "an archive": b"PK\x05\x06" + bytes(18),
    "a wave": wav(),
    "a song": mp3(),
    "an icon": _container(saved(noise(16, 16)), "ICO"),
    "a targa": _container(saved(noise(16, 16)), "TGA"),
    "zeros": bytes(5000),
}
_ODD: list[Callable[[random.Random, File], File]] = [
    _truncated, _truncated, _flipped, _flipped, _spliced, _trailing, _huge, _bomb, _empty_header, _wrong_depth,
    _bitmap_header, _other, _other,
]  # fmt: skip
