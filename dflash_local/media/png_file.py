"""PNG files: what is not needed for their pixels (ISO/IEC 15948)."""

from __future__ import annotations

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_HEAD = 8  # bytes of a chunk's length and name
_CHECKSUM = 4
_LEFT_OUT = (b"tEXt", b"zTXt", b"iTXt", b"iCCP")
# Texts by which Pillow may turn the picture.
_READ = (b"XML:com.adobe.xmp\0", b"Raw profile type exif\0")


def without_texts(data: bytes) -> bytes:
    """A PNG file without texts and colour profiles, for which Pillow would refuse it if they are long; any other file
    as it is."""
    if not data.startswith(_SIGNATURE):
        return data
    parts: list[bytes] = []
    kept, at = 0, len(_SIGNATURE)  # bytes up to `kept` are in `parts`, or left out
    while at + _HEAD <= len(data):
        size, name, begin = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + _HEAD], at
        at += _HEAD + size + _CHECKSUM
        if name in _LEFT_OUT and not data.startswith(_READ, begin + _HEAD):
            parts.append(data[kept:begin])
            kept = at
        elif name == b"IEND":
            break
    return b"".join((*parts, data[kept:])) if parts else data
