"""Qwen2.5-Coder-1.5B, for tests of what this model itself writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from dflash_local.hub import packaged_models
from dflash_local.hub.client import Hub

_FOUND = packaged_models.cached("qwen2.5-coder", Hub(offline=True))  # in the user's cache, which tests else do not see


def coder_file() -> Path:
    """Its GGUF. The test is skipped if it was not downloaded."""
    return _FOUND or pytest.skip("it was not downloaded: python benchmarks/real_models.py qwen2.5-coder")
