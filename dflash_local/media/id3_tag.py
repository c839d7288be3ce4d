"""ID3 tags, which programs put before sound of any format (ID3v2)."""

from __future__ import annotations

_NAME = b"ID3"
_HEAD = 10  # bytes


def has_tag(data: bytes) -> bool:
    """Whether a file begins with one."""
    return data.startswith(_NAME)


def behind_tag(data: bytes) -> int:
    """Where a tag at the beginning ends: its size has 7 bits a byte. 0 if there is none."""
    if not has_tag(data) or len(data) < _HEAD:
        return 0
    size = 0
    for byte in data[6:_HEAD]:
        size = size << 7 | byte & 0x7F
    return _HEAD + size
