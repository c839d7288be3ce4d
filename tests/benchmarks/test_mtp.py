"""The benchmark of MTP layers: who takes part, and what its table says."""

from __future__ import annotations

from pathlib import Path

from benchmarks import mtp
from benchmarks.systems import PLAIN
from dflash_local.demo.shapes import Pair


def test_each_way_of_drafting_takes_part() -> None:
    argvs = mtp.commands(Pair(Path("target.gguf"), Path("drafter.gguf")), Path("bins"), 2, (7, 15))
    assert next(iter(argvs)) == PLAIN and len(argvs) == 1 + len(mtp.MTP_LENGTHS) + len(mtp.DFLASH_LENGTHS) + 4
    assert "draft-mtp" in argvs["upstream mtp 4"] and "-md" not in argvs["upstream mtp 4"]
    assert argvs["upstream dflash 15"][-6:-1] and "drafter.gguf" in argvs["upstream dflash 15"]
    assert "-md" not in argvs[mtp.OURS_MTP] and "-md" in argvs[mtp.OURS_BOTH]
    assert "--draft-kind" not in argvs[mtp.OURS_BOTH]


def test_the_verdicts() -> None:
    names = list(mtp.commands(Pair(Path("t"), Path("d")), Path("bins"), 2, (7, 15)))

    def repeat(factor: float) -> dict[str, mtp.Speed]:
        speeds = {name: mtp.Speed(tokens=100, seconds=10 / factor, passes=50) for name in names}
        speeds["upstream mtp 8"].seconds = 5 / factor
        speeds[mtp.OURS_MTP].seconds = speeds[mtp.OURS_DFLASH].seconds = speeds[mtp.OURS_BOTH].seconds = 4 / factor
        return speeds

    row = mtp.row(0.0, [repeat(1), repeat(1), repeat(0.1)])
    assert row["best"] == "upstream mtp 8" and round(row["over_best"], 2) == 1.25 and row["over_plain"] == 2.5
    text = mtp.markdown([row], "Here.")
    assert "| upstream mtp 8 | 20.0 (2.00) |" in text and "(mtp 8) 1.25 (MISSED: at least 1.3)" in text
    assert "2.50 (held: at least 0.99)" in text
