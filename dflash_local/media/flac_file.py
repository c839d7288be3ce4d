"""FLAC files: what their first block says (RFC 9639)."""

from __future__ import annotations

from dflash_local.media.id3_tag import behind_tag
from dflash_local.media.media_limits import MAX_CHANNELS, MAX_SECONDS

_NAME = b"fLaC"
_STREAMINFO = 34  # bytes


def is_flac(data: bytes) -> bool:
    """Whether a file begins as one, or does so behind an ID3 tag."""
    return data.startswith(_NAME, behind_tag(data))


def checked_flac(data: bytes) -> bytes:
    """The file, without a tag before it. Raises ValueError if it does not say how long it is, or is too long: silence
    takes almost no bytes."""
    data = data[behind_tag(data) :]
    if len(data) < 8 + _STREAMINFO or data[4] & 0x7F != 0 or int.from_bytes(data[5:8], "big") != _STREAMINFO:
        raise ValueError("its first block is not STREAMINFO")
    fields = int.from_bytes(data[18:26], "big")  # 20 bits: rate, 3: channels - 1, 5: bits - 1, 36: samples
    rate, channels, n_samples = fields >> 44, (fields >> 41 & 7) + 1, fields & (1 << 36) - 1
    if rate == 0 or channels > MAX_CHANNELS:
        raise ValueError(f"it has {channels} channels at {rate} Hz")
    if n_samples == 0:
        raise ValueError("it does not say how long it is")
    if n_samples > MAX_SECONDS * rate:
        raise ValueError(f"it is longer than {MAX_SECONDS} seconds")
    return data
