"""When a server that refuses for now wants to be asked again."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, by an answer's headers (their names in any case): `Retry-After`, which is a number or a date, or
    `t=` of `RateLimit`, which the Hub sends. None if they do not say."""
    text = headers.get("Retry-After", "")
    if re.fullmatch(r"\d+", text):
        return float(text)
    if text:
        try:
            return max(parsedate_to_datetime(text).timestamp() - time.time(), 0.0)
        except (ValueError, TypeError):
            return None
    match = re.search(r"\bt=(\d+)", headers.get("RateLimit", ""))
    return float(match[1]) if match else None
