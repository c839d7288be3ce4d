"""Hugging Face checkpoint of a drafter -> GGUF in upstream's dialect (docs/converting.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .conversion import Conversion, convert

__all__ = ["FC_TYPES", "OUTTYPES", "Conversion", "convert"]

OUTTYPES = ("f32", "f16", "bf16", "q8_0", "q6_k", "q5_k", "q5_0", "q4_k", "q4_0", "iq4_nl", "q3_k", "q2_k")
FC_TYPES = tuple(name for name in OUTTYPES if name != "f16")  # of `fc`, whose inputs are beyond float16's range


def __getattr__(name: str) -> Any:
    # Imported on first use: numpy and gguf would delay `dflash-local convert --help`.
    if name in ("Conversion", "convert"):
        from . import conversion

        return getattr(conversion, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
