"""WAV files: their header, rewritten so that it says what is there."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from dflash_local.media.media_limits import MAX_CHANNELS, MAX_SECONDS

_PCM, _FLOAT, _ALAW, _MULAW, _EXTENSIBLE = 1, 3, 6, 7, 0xFFFE
# Bits of a sample, by what the samples are.
_BITS = {_PCM: (8, 16, 24, 32), _FLOAT: (32, 64), _ALAW: (8,), _MULAW: (8,)}
_FORMAT = struct.Struct("<HHIIHH")
_MOST_CHUNKS = 1024
_MOST_RATE = 768_000  # samples a second


def checked_wav(data: bytes) -> bytes:
    """The same samples behind a header of two chunks. The sizes in headers are often wrong: who writes to a pipe does
    not know them yet.

    Raises:
        ValueError: it has no samples, too many, or of a kind that cannot be read.
    """
    form: bytes | None = None
    for name, content in _chunks(data):
        if name == b"fmt ":
            form = content
        elif name == b"data":
            if form is None:
                raise ValueError("its samples come before their format")
            return _written(form, content)
    raise ValueError("it has no samples")


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Names and contents; the last one is cut where the file ends."""
    at = 12
    for _ in range(_MOST_CHUNKS):
        if at + 8 > len(data):
            return
        name, size = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        if name == b"data" and (size == 0 or at + 8 + size > len(data)):
            size = len(data) - at - 8
        yield name, data[at + 8 : at + 8 + size]
        at += 8 + size + size % 2
    raise ValueError(f"it has more than {_MOST_CHUNKS} chunks")


def _written(form: bytes, samples: bytes) -> bytes:
    kind, channels, rate, bits = _read_format(form)
    frame = channels * bits // 8
    n_frames = len(samples) // frame
    if n_frames == 0:
        raise ValueError("it has no samples")
    if n_frames > MAX_SECONDS * rate:
        raise ValueError(f"it is longer than {MAX_SECONDS} seconds")
    samples = samples[: n_frames * frame]
    head = _FORMAT.pack(kind, channels, rate, rate * frame, frame, bits)
    chunks = b"fmt " + struct.pack("<I", len(head)) + head + b"data" + struct.pack("<I", len(samples)) + samples
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


def _read_format(form: bytes) -> tuple[int, int, int, int]:
    """What the samples are, channels, samples a second, and bits of each."""
    if len(form) < _FORMAT.size:
        raise ValueError("its format is cut off")
    kind, channels, rate, _, frame, bits = _FORMAT.unpack_from(form)
    if kind == _EXTENSIBLE:
        if len(form) < 40:
            raise ValueError("its format is cut off")
        kind = int.from_bytes(form[24:26], "little")
    if bits not in _BITS.get(kind, ()):
        raise ValueError(f"its samples are of format {kind} with {bits} bits")
    if not 1 <= channels <= MAX_CHANNELS:
        raise ValueError(f"it has {channels} channels")
    if not 1 <= rate <= _MOST_RATE or frame != channels * bits // 8:
        raise ValueError("its format contradicts itself")
    return kind, channels, rate, bits
