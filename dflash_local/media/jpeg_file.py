"""JPEG files: how many scans and segments a picture has (ISO/IEC 10918-1)."""

from __future__ import annotations

import re

# Those with a segment, and the ends; libjpeg skips all others, those in the data of a scan, too.
_MARKER = re.compile(rb"\xff([\xc0-\xcf\xd8-\xfe])")
_END, _SCAN = b"\xd9", b"\xda"


def counted(data: bytes, most_scans: int, most_segments: int) -> tuple[int, int]:
    """The scans and the segments up to the end of the picture, as libjpeg finds them, or one more than the most of
    either. What comes behind the picture does not count: phones put films there."""
    n_scans, n_segments, at = 0, 0, 2
    while (marker := _MARKER.search(data, at)) is not None and marker[1] != _END:
        n_segments += 1
        n_scans += marker[1] == _SCAN
        if n_scans > most_scans or n_segments > most_segments:
            break
        at = marker.end()
        at += max(2, int.from_bytes(data[at : at + 2], "big"))
    return n_scans, n_segments
