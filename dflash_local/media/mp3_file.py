"""MP3 files: how long they are, by the headers of their frames (ISO/IEC 11172-3, 13818-3)."""

from __future__ import annotations

from typing import NamedTuple

from dflash_local.media.id3_tag import behind_tag, has_tag
from dflash_local.media.media_limits import MAX_SECONDS

_RATES = {3: (44_100, 48_000, 32_000), 2: (22_050, 24_000, 16_000), 0: (11_025, 12_000, 8_000)}  # by version
# Kilobits a second, by the header's number: of layer 3 of MPEG 1, and of the versions with half the sampling rates.
_MPEG1 = (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)
_MPEG2 = (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)
_LAYER_3 = 1
_SEARCH = 64 << 10  # bytes between two frames that are looked through


class _Frame(NamedTuple):
    size: int
    seconds: float


def is_mp3(data: bytes) -> bool:
    """Whether a file begins with an ID3 tag or a frame."""
    return has_tag(data) or _frame_at(data, 0) is not None


def checked_mp3(data: bytes) -> bytes:
    """The file. Raises ValueError if it has no frames, or is too long."""
    seconds, at, n_frames = 0.0, behind_tag(data), 0
    while (found := _next_frame(data, at)) is not None:
        at, frame = found
        at += frame.size
        seconds += frame.seconds
        n_frames += 1
        if seconds > MAX_SECONDS:
            raise ValueError(f"it is longer than {MAX_SECONDS} seconds")
    if n_frames == 0:
        raise ValueError("it has no sound")
    return data


def _next_frame(data: bytes, at: int) -> tuple[int, _Frame] | None:
    """The next frame and its place, at `at` or not far behind."""
    end = min(at + _SEARCH, len(data))
    while (at := data.find(b"\xff", at, end)) >= 0:
        if (frame := _frame_at(data, at)) is not None:
            return at, frame
        at += 1
    return None


def _frame_at(data: bytes, at: int) -> _Frame | None:
    """The frame whose header is there; None if it is none of layer 3."""
    if at + 4 > len(data) or data[at] != 0xFF or data[at + 1] & 0xE0 != 0xE0:
        return None
    version, layer = data[at + 1] >> 3 & 3, data[at + 1] >> 1 & 3
    bit_rate, rate = data[at + 2] >> 4, data[at + 2] >> 2 & 3
    if version not in _RATES or layer != _LAYER_3 or not 1 <= bit_rate <= 14 or rate == 3:
        return None
    half = version != 3
    hertz, bits = _RATES[version][rate], 1000 * (_MPEG2 if half else _MPEG1)[bit_rate - 1]
    n_samples = 576 if half else 1152
    return _Frame(n_samples // 8 * bits // hertz + (data[at + 2] >> 1 & 1), n_samples / hertz)
