"""When a server that refuses for now wants to be asked again."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, by an answer's headers (their names in any case): `Retry-After`, which is a number or a date, or
    `t=` of the Hub's `RateLimit` if no requests are left. None if they do not say."""
    text = headers.get("Retry-After", "")
    if re.fullmatch(r"\d+", text):
        return float(text)
    if text:
        try:
            return max(parsedate_to_datetime(text).timestamp() - time.time(), 0.0)
        except (ValueError, TypeError, OverflowError):
            return None
    window = headers.get("RateLimit", "")
    left, seconds = (re.search(rf"\b{name}=(\d+)", window) for name in "rt")
    is_used_up = left is None or float(left[1]) == 0  # else it says when requests come back, not that one must wait
    return float(seconds[1]) if seconds and is_used_up else None
