"""Names of models, apart from how they are made: every start of a server reads this."""

from __future__ import annotations

from pathlib import Path

_DEMO = Path(__file__).resolve().parents[2] / "dflash_local" / "demo"
TARGET = _DEMO / "pocket-target.gguf"
DRAFTER = _DEMO / "pocket-dflash.gguf"
POCKET = "dflash-local/pocket"  # the repository of the target as it ships
SEEING = "ggml-org/tinygemma3-GGUF"  # that of the model with a projector
