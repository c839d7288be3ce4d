"""The line of figures below an answer with drafts."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

from dflash_local.cli.drafts.palette import ASIDE, Palette
from dflash_local.cli.drafts.tally import Tally

_BARS = "▁▂▃▄▅▆▇█"
# Dropped in narrow windows, in this order.
_SPARE = ("nodes", "tokens", "time", "passes", "depth")
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def figures_line(timings: Mapping[str, Any], tally: Tally, palette: Palette, columns: int | None) -> str:
    """Speed, estimated plain speed, AL, and the work of drafting; in at most `columns`, if given."""
    parts = _parts(timings, tally, palette)
    for name in _SPARE:
        if columns is None or len(_ESCAPE.sub("", _line(parts, palette))) < columns:
            break
        parts.pop(name, None)
    return _line(parts, palette)


def _line(parts: Mapping[str, str], palette: Palette) -> str:
    return palette.paint("[", ASIDE) + palette.paint(", ", ASIDE).join(parts.values()) + palette.paint("]", ASIDE)


def _parts(timings: Mapping[str, Any], tally: Tally, palette: Palette) -> dict[str, str]:
    speed, plain, length = timings["predicted_per_second"], tally.plain_per_second, timings.get("acceptance_length")
    bar = depth_bar(tally.acceptance, palette)
    parts = {"speed": f"{speed:.1f} tok/s"}
    if plain:
        parts["plain"] = f"{speed / plain:.1f}x plain ({plain:.1f})"
    if length is not None:
        parts["al"] = f"AL {length:.2f}"
    parts["tokens"] = f"{timings['predicted_n']} tokens"
    parts["passes"] = f"{tally.n_passes} pass{'' if tally.n_passes == 1 else 'es'}"
    parts["nodes"] = f"{tally.nodes_mean:.1f} nodes each"
    if bar:
        parts["depth"] = "by depth "
    if shares := tally.shares(timings["predicted_ms"]):
        parts["time"] = " ".join(f"{name} {share:.0%}" for name, share in shares.items())
    painted = {name: palette.paint(text, ASIDE) for name, text in parts.items()}
    return painted | ({"depth": painted["depth"] + bar} if bar else {})


def depth_bar(acceptance: list[float], palette: Palette) -> str:
    """A block for each depth: its height is the share of passes that accepted a draft token there."""
    try:
        _BARS.encode(sys.stderr.encoding or "ascii")
    except UnicodeEncodeError:
        return " ".join(f"{share:.2f}" for share in acceptance)
    blocks = (_BARS[round(share * (len(_BARS) - 1))] for share in acceptance)
    return "".join(palette.paint(block, palette.style_of("draft", depth)) for depth, block in enumerate(blocks, 1))
