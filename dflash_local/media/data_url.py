"""Files inside a request: data URLs (RFC 2397) and bare base64."""

from __future__ import annotations

import base64
import re

from dflash_local.media.media_limits import MAX_BYTES
from dflash_local.media.medium import Kind
from dflash_local.words import MIB

# Line breaks, as encoders write them, cost nothing to allow; nothing else is skipped.
_BREAKS = str.maketrans("", "", "\r\n")
_HEAD = re.compile(r"data:(?P<type>[^,;]*)(?P<more>;[^,]*)?,", re.IGNORECASE)
_LONGEST_HEAD = 256
_UNKNOWN = ("", "application/octet-stream")  # types of files whose own is not known


def read_data_url(url: str, kind: Kind) -> bytes:
    """The file in a data URL. Raises ValueError if it is malformed, or is declared as something else than `kind`."""
    head = _HEAD.match(url[:_LONGEST_HEAD])
    if head is None:
        raise ValueError(f"must be data:{kind}/...;base64,...")
    declared = head["type"].lower()
    if declared not in _UNKNOWN and not declared.startswith(f"{kind}/"):
        raise ValueError(f"must have a type of {kind}, got {head['type']!r:.60}")
    if not (head["more"] or "").lower().endswith(";base64"):
        raise ValueError("must be base64: data:TYPE;base64,...")
    return read_base64(url[head.end() :])


def read_base64(text: str) -> bytes:
    """The bytes of base64. Raises ValueError if it is malformed or too long."""
    if len(text) // 4 * 3 > MAX_BYTES + MIB:  # the readers say exactly
        raise ValueError(f"is longer than {MAX_BYTES // MIB} MiB")
    try:
        return base64.b64decode(text.translate(_BREAKS), validate=True)
    except ValueError:
        raise ValueError("is not valid base64") from None
