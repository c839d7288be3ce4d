"""`--spec-type`: llama-server's names for ways of drafting, and the options of an engine that each stands for."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

SPEC_TYPES: Mapping[str, Mapping[str, Any]] = {
    "none": {"draft": "off"},
    "draft-dflash": {},
    "draft-dspark": {},
    "draft-mtp": {"draft_kind": "mtp"},
}


def type_name(text: str) -> str:
    """The type of the flag. Raises ArgumentTypeError."""
    if text in SPEC_TYPES:
        return text
    if text.startswith("ngram"):
        raise argparse.ArgumentTypeError(f"{text} is not supported: --lookup on, the default, drafts from the prompt")
    raise argparse.ArgumentTypeError(f"must be one of {', '.join(SPEC_TYPES)}, got {text!r}: see docs/drafters.md")
