"""Drafters in other projects' dialects of GGUF: refused with the command that helps, rewritten, and then the same."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from dflash_local import cli
from dflash_local.engine import Engine
from dflash_local.errors import ModelError

from ..convert.dialect_samples import DIALECTS, write_dialect

# "C gemma4" adds scales that this target does not have; E is DSpark's.
WRITTEN = [name for name in DIALECTS if name not in ("C gemma4", "E")]
PROMPT = "<|im_start|>user\nWhat is 48 plus 24?<|im_end|>\n<|im_start|>assistant\n"


def drafts(target: Path, drafter: Path) -> tuple[list[int], list[int], np.ndarray, np.ndarray]:
    """Tokens and acceptance lengths of an answer, and what the drafter sees after the prompt."""
    with Engine(target, drafter, n_ctx=512, n_threads=1, warmup=False, n_slots=1) as engine:
        done = engine.generate(PROMPT, temperature=0, max_tokens=40, budget=8)
        probe = engine.draft_probe(engine.tokenize(PROMPT), 8)
    return list(done.tokens), list(done.acceptance_lengths), probe.hidden, probe.logits


@pytest.mark.parametrize("pair", ["", "hybrid-"])
@pytest.mark.parametrize("dialect", WRITTEN)
def test_the_same_drafts(pocket: dict[str, Path], tmp_path: Path, pair: str, dialect: str) -> None:
    target, drafter = pocket[f"{pair}target"], pocket[f"{pair}dflash"]
    source, output = write_dialect(tmp_path / "other.gguf", dialect, drafter), tmp_path / "new.gguf"
    with pytest.raises(ModelError) as error:
        Engine(target, source, n_ctx=512)
    command = re.search(r"rewrite it: (.+); or start with --auto-convert", error.value.hint or "")
    assert command
    arguments = shlex.split(command[1])
    assert arguments[0] == "dflash-local"
    assert cli.main([*arguments[1:], "-o", str(output), "-q"]) == 0

    before, after = drafts(target, drafter), drafts(target, output)
    assert before[:2] == after[:2] and max(before[1]) > 1
    np.testing.assert_array_equal(before[2], after[2])
    np.testing.assert_array_equal(before[3], after[3])


def test_taps_that_are_not_shifted_lose_drafts(pocket: dict[str, Path], tmp_path: Path) -> None:
    """The test above can tell: with ids taken for inputs, the drafter sees other hidden states."""
    from dflash_local.convert.gguf_metadata import array, read_header
    from dflash_local.convert.relabel import relabel

    from ..convert.dialect_samples import write_tensors

    source = write_dialect(tmp_path / "b.gguf", "B", pocket["dflash"])
    relabel(source, pocket["target"]).write(tmp_path / "a.gguf")
    metadata, tensors = read_header(tmp_path / "a.gguf")
    taps = metadata["dflash.target_layers"]
    assert taps.item is not None
    metadata["dflash.target_layers"] = array(taps.item, tuple(layer - 1 for layer in taps.data))
    write_tensors(tmp_path / "wrong.gguf", metadata, tensors)
    right, wrong = drafts(pocket["target"], tmp_path / "a.gguf"), drafts(pocket["target"], tmp_path / "wrong.gguf")
    assert right[0] == wrong[0]
    assert np.mean(right[1]) > np.mean(wrong[1]) + 0.5


BENCH = ["--predict", "16", "--repeat", "1", "--no-warmup", "-c", "256", "-t", "1"]


def test_auto_convert(pocket: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`bench` and `doctor` name the command, or with --auto-convert run from the cache, written once."""
    target, source = pocket["target"], write_dialect(tmp_path / "my drafter.gguf", "B", pocket["dflash"])
    (tmp_path / "prompts").write_text("Count from 1 to 9.\n")
    arguments = ["-m", str(target), "-md", str(source)]
    bench = ["bench", *arguments, "-p", str(tmp_path / "prompts"), *BENCH]
    assert cli.main(["doctor", *arguments]) == 1
    assert f"dflash-local convert '{source}' --target {target}" in capsys.readouterr().out
    assert cli.main(bench) == 1
    assert f"dflash-local convert '{source}' --target {target}" in capsys.readouterr().err
    assert cli.main([*bench, "--auto-convert"]) == 0
    shown = capsys.readouterr()
    assert "dialect B" in shown.err and "AL" in shown.out
    assert cli.main(["doctor", *arguments, "--auto-convert"]) == 0
    assert "dialect B" not in capsys.readouterr().err


def test_the_library_names_the_command(pocket: dict[str, Path], tmp_path: Path) -> None:
    from dflash_local.native import check_gguf

    for dialect in ("B", "C", "E"):
        with pytest.raises(ModelError, match=r"'general.architecture'.*dflash-local convert DRAFTER"):
            check_gguf(write_dialect(tmp_path / "other.gguf", dialect, pocket["dflash"]))
