"""`dflash-local quantize`: the arithmetic on hand-made runs, and a whole trial of the pocket pair."""

from __future__ import annotations

from pathlib import Path

import pytest

from dflash_local.bench import Run
from dflash_local.cli import main
from dflash_local.demo.pocket import bundled_pair
from dflash_local.trials import Trial, recommended

PAIR = bundled_pair("dflash")


def trial(tmp_path: Path, name: str, n_bytes: int, speeds: list[float]) -> Trial:
    """A candidate whose answers to each prompt have these tokens per second, in two rounds."""
    path = tmp_path / name
    path.write_bytes(bytes(n_bytes))
    runs = [Run("", 100, 100 / speed, 0.1, 0, (10,) * 10) for speed in speeds]
    return Trial(name, path, [runs, runs], runs)


def test_intervals_come_from_prompts(tmp_path: Path) -> None:
    same = trial(tmp_path, "same", 1, [50.0] * 8)
    speed = same.tokens_per_second()
    assert speed.low == speed.value == speed.high == pytest.approx(50.0)
    assert same.al().value == 10.0
    mixed = trial(tmp_path, "mixed", 1, [20.0, 80.0] * 8).tokens_per_second()
    assert mixed.value == pytest.approx(32.0) and 20.0 < mixed.low < 30.0 and 34.0 < mixed.high < 80.0


def test_the_smallest_that_is_not_measurably_slower(tmp_path: Path) -> None:
    small = trial(tmp_path, "small", 10, [49.0, 55.0, 50.0, 46.0] * 3)
    large = trial(tmp_path, "large", 20, [50.0, 53.0, 51.0, 47.0] * 3)
    slow = trial(tmp_path, "slow", 5, [40.0, 42.0, 41.0, 39.0] * 3)
    assert recommended([slow, small, large]).name == "small"
    assert slow.speed_over(large).high < 1


def test_the_pocket_drafter(tmp_path: Path, repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("Count from 10 to 40 in steps of 3.\nWrite a Python function that filters limits above 37.\n")
    arguments = ["--types", "q4_0", "f16", "--draft-vocab", "500", "--corpus", str(repo / "benchmarks/perplexity.txt")]
    arguments += ["-p", str(prompts), "-n", "20", "--repeat", "1", "-t", "1", "-c", "512"]
    out = tmp_path / "best.gguf"
    assert main(["quantize", str(PAIR.drafter), "--target", str(PAIR.target), "-o", str(out), *arguments]) == 0
    shown = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in shown.splitlines() if line.startswith("| ")]
    assert [row[0] for row in rows[1:2]] == ["plain"]
    assert {row[0] for row in rows[2:]} == {"q4_0", "f16", "q4_0, 500 tokens", "f16, 500 tokens"}
    sizes = [float(row[1]) for row in rows[2:]]
    assert sizes == sorted(sizes) and "recommended: " in shown
    assert out.is_file() and [path.name for path in tmp_path.iterdir()].count("best.gguf") == 1
    assert not list(tmp_path.glob(".dflash-quantize-*"))


def test_a_corpus_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["quantize", str(PAIR.drafter), "--target", str(PAIR.target), "--draft-vocab", "500"]
    assert main(arguments) == 1
    assert "--corpus FILE" in capsys.readouterr().err
