"""Thoughts as clients carry them: an opaque text that a later request brings back.

Some clients show thoughts and send back only what the APIs call a signature or encrypted content. This server keeps
nothing between requests, so that string is the thoughts themselves. It is no secret from whoever sees the answer.
"""

from __future__ import annotations

import base64
import binascii

_MARK = "dflash1."


def seal(thoughts: str) -> str:
    """The text to hand out."""
    return _MARK + base64.urlsafe_b64encode(thoughts.encode()).decode()


def unseal(sealed: str) -> str | None:
    """The thoughts in a text of `seal`; None if another server wrote it."""
    if not sealed.startswith(_MARK):
        return None
    try:
        return base64.b64decode(sealed[len(_MARK) :], altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        return None
