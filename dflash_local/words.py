"""Sizes, lists and names of files in words."""

from __future__ import annotations

from collections.abc import Sequence

MIB = 2**20


def memory_text(n_bytes: float) -> str:
    """A part of memory: "4.4 GiB", in binary units as memory is sold and other tools show it."""
    return f"{n_bytes / 2**30:.1f} GiB" if n_bytes >= 2**30 else f"{n_bytes / MIB:.0f} MiB"


def file_size_text(n_bytes: float) -> str:
    """The size of a file or a download: "4.7 GB", in decimal units as on the Hub."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if n_bytes >= size:
            return f"{n_bytes / size:.1f} {unit}"
    return f"{n_bytes:.0f} bytes"


def first_names(names: Sequence[str], most: int) -> str:
    """At most so many of the names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def whole(text: str) -> str:
    """A text that can be sent: the name of a file may hold bytes that are no UTF-8, halves of characters to Python."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
