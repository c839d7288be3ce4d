"""JPEG files: how many scans a picture has (ISO/IEC 10918-1)."""

from __future__ import annotations

import re

# Those with a segment, and the ends; libjpeg skips all others, those in the data of a scan, too.
_MARKER = re.compile(rb"\xff([\xc0-\xcf\xd8-\xfe])")
_END, _SCAN = b"\xd9", b"\xda"


def n_scans(data: bytes) -> int:
    """The scans up to the end of the picture, as libjpeg finds them. What comes behind it does not count: phones put
    films there."""
    n_found, at = 0, 2
    while (marker := _MARKER.search(data, at)) is not None and marker[1] != _END:
        n_found += marker[1] == _SCAN
        at = marker.end()
        at += max(2, int.from_bytes(data[at : at + 2], "big"))
    return n_found
