"""The benchmark of passes of few rows: its drafters load, and what its table says."""

from __future__ import annotations

from pathlib import Path

from benchmarks import few_rows


def test_an_untrained_drafter_is_measured_with_both_heads(pocket: dict[str, Path], tmp_path: Path) -> None:
    drafter = tmp_path / "drafter.gguf"
    few_rows.write_drafter(drafter, pocket["target"])
    part, whole = (few_rows.costs(pocket["target"], drafter, head, 1) for head in (64, "all"))
    assert part["tokens"] == 64 and whole["tokens"] == 1699
    assert min(*part.values(), *whole.values()) > 0


def test_the_table_has_medians_and_a_verdict() -> None:
    part = [{"one": 1.0 + i, "rows": 1.5, "draft": 0.5, "tokens": 8192.0} for i in range(3)]
    whole = [{"one": 1.0, "rows": 1.5, "draft": 2.5, "tokens": 49152.0}]
    row = few_rows.row("Model", {"auto": part, "all": whole})
    assert row["one"] == 1.0  # the smaller median: one row knows no drafter
    assert row["over"] == {"auto": 2.0, "all": 4.0}
    lines = few_rows.markdown([row], "Here.").splitlines()
    assert lines[2] == "| Model | 1.00 | 1.50 | 1.50 | 8,192 tokens | 0.50 | 2.00 | held |"
    assert lines[3] == "|  |  | 1.50 | 1.50 | 49,152 tokens | 2.50 | 4.00 |  |"
