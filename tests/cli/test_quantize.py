"""`dflash-local quantize`: the arithmetic on hand-made runs, and a whole trial of the pocket pair."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

import numpy as np
import pytest

from dflash_local import trials
from dflash_local.bench import Run
from dflash_local.cli import main
from dflash_local.demo.pocket import bundled_pair
from dflash_local.errors import RequestError
from dflash_local.trials import Trial, recommended
from tests.convert import samples
from tests.convert.test_conversion import POCKET

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


def test_a_checkpoint_is_not_rounded_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is written is what `convert` writes; and what it says of the checkpoint is said here."""
    contents = {name: data * np.float32(1.0001) for name, data in samples.tensors_of_drafter(PAIR.drafter).items()}
    settings = POCKET | {"num_target_layers": 7}
    checkpoint = samples.write_checkpoint(tmp_path / "Pocket", settings, contents, dtype="F32")
    converted, out, prompts = (tmp_path / name for name in ("f16.gguf", "out.gguf", "prompts.txt"))
    prompts.write_text("Count from 10 to 40 in steps of 3.\n")
    arguments = [str(checkpoint), "--target", str(PAIR.target)]
    assert main(["convert", *arguments, "-o", str(converted), "-q"]) == 0
    warning = capsys.readouterr().err
    arguments += ["--types", "f16", "-p", str(prompts), "-n", "8", "--repeat", "1", "-t", "1", "-c", "512"]
    assert main(["quantize", *arguments, "-o", str(out)]) == 0
    assert out.read_bytes() == converted.read_bytes()
    assert warning.startswith("warning: num_target_layers is 7") and warning in capsys.readouterr().err
    assert main(["quantize", *arguments, "-o", str(checkpoint / "model.safetensors")]) == 1
    assert "is an input of this conversion" in capsys.readouterr().err


def test_answers_of_one_token_do_not_count(tmp_path: Path) -> None:
    plain, drafted = (trial(tmp_path, name, 1, [50.0, 60.0]) for name in ("plain", "drafted"))
    short = Run("", 0, 0.0, 0.1, 0, ())
    for one in (plain, drafted):
        for runs in one.runs:
            runs[1] = short
    assert drafted.speed_over(plain).value == pytest.approx(1.0)
    plain.runs[0][0] = plain.runs[1][0] = short
    with pytest.raises(RequestError, match="no prompt is answered with more than one token"):
        drafted.speed_over(plain)


def test_one_token_has_no_speed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["quantize", str(PAIR.drafter), "--target", str(PAIR.target), "--types", "f16", "-t", "1", "-c", "512"]
    assert main([*arguments, "-n", "1"]) == 1
    assert "--predict must be at least 2" in capsys.readouterr().err
    monkeypatch.setattr(trials, "answer", lambda *_: Run("", 0, 0.0, 0.1, 0, ()))
    assert main(arguments) == 1
    shown = capsys.readouterr().err
    assert "no prompt is answered with more than one token" in shown and "round 1 of 3: plain" in shown
    assert "round 1 of 3: f16" not in shown


def test_a_folder_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(tempfile, "TemporaryDirectory", refuse)
    arguments = ["quantize", str(PAIR.drafter), "--target", str(PAIR.target)]
    assert main([*arguments, "-o", str(tmp_path / "out.gguf")]) == 1
    assert f"cannot write into {tmp_path}: Permission denied" in capsys.readouterr().err
    assert main(arguments) == 1
    assert "point TMPDIR elsewhere" in capsys.readouterr().err


def test_a_corpus_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["quantize", str(PAIR.drafter), "--target", str(PAIR.target), "--draft-vocab", "500"]
    assert main(arguments) == 1
    assert "--corpus FILE" in capsys.readouterr().err
