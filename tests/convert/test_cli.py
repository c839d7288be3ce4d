"""`dflash-local convert` on the command line."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dflash_local import vocabulary
from dflash_local.cli import main
from dflash_local.cli.terminal.progress import Progress
from dflash_local.convert import conversion

from . import samples
from .dialect_samples import write_dialect
from .test_assistant import contents as assistant_contents
from .test_assistant import settings as assistant_settings
from .test_conversion import reduced_vocabulary
from .test_kinds import DOMINO, domino_tensors

C = "qwen35-dflash-draft"


def test_convert(
    target: Path, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["convert", str(checkpoint), "--target", str(target), "--outtype", "q8_0"]) == 0
    assert samples.read_keys(tmp_path / "drafter-q8_0.gguf")["general.file_type"] == 7
    shown = capsys.readouterr()
    assert "drafter-q8_0.gguf: DFlash drafter, 25 tensors" in shown.out
    assert "block size 8, mask token 3, taps at the inputs of layers 1, 5" in shown.out
    assert "100%" in shown.err


def test_warnings(target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = samples.write_checkpoint(tmp_path / "d", samples.config(num_target_layers=5))
    assert main(["convert", str(directory), "--target", str(target), "-o", str(tmp_path / "x.gguf"), "-q"]) == 0
    assert capsys.readouterr().err.startswith("warning: num_target_layers is 5, but target.gguf has 6 layers")


def test_quiet(target: Path, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(checkpoint), "--target", str(target), "-o", str(tmp_path / "x.gguf"), "-q"]) == 0
    assert capsys.readouterr().err == ""


def test_reduced_vocabulary(
    target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is said of the file is true of it; a drafter that must keep its vocabulary replaces no file."""
    monkeypatch.setattr(vocabulary, "frequent_tokens", lambda target, corpus, n_tokens: list(range(n_tokens)))
    contents = samples.tensors(samples.CONFIG)
    contents["lm_head.weight"] = np.ones((samples.N_VOCAB, samples.N_EMBD), np.float32)
    plain = samples.write_checkpoint(tmp_path / "plain", samples.config(), contents)
    domino = samples.write_checkpoint(tmp_path / "domino", DOMINO, domino_tensors(), dtype="F32")
    flags = ["--target", str(target), "-o", str(tmp_path / "x.gguf"), "-q", "--draft-vocab", "8", "--corpus", "text"]
    assert main(["convert", str(plain), *flags]) == 0
    tensors = samples.read_tensors(tmp_path / "x.gguf")
    assert tensors["d2t"][1].tolist() == list(range(8))
    size = sum(data.nbytes for _, data in tensors.values()) / 1e6
    assert f"{len(tensors)} tensors, {size:.1f} MB as f16" in capsys.readouterr().out
    assert main(["convert", str(domino), *flags]) == 1
    assert "Domino drafter, whose recurrent cell needs all tokens" in capsys.readouterr().err
    assert samples.read_tensors(tmp_path / "x.gguf").keys() == tensors.keys()
    assert not list(tmp_path.glob(".dflash-*"))
    shard = plain / "model.safetensors"
    flags[flags.index("-o") + 1] = str(shard)
    assert main(["convert", str(plain), *flags]) == 1
    assert "is an input of this conversion" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["convert", "quantize"])
@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("DFlash 2", "drafter is a DFlash 2 drafter, whose selector needs all tokens"),
        ("reduced", "drafter has a reduced vocabulary already"),
        ("assistant", "drafter is a Gemma 4 assistant, and 'quantize' and --draft-vocab are for DFlash drafters"),
    ],
)
def test_a_head_that_cannot_be_reduced_is_refused_at_once(
    target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str,
    kind: str, says: str,
) -> None:  # fmt: skip
    """The whole drafter, gigabytes, would be written first."""
    monkeypatch.setattr(conversion, "write_drafter", lambda *_: pytest.fail("it was converted"))
    settings, contents = {
        "DFlash 2": (samples.dflash2_config(), None),
        "reduced": reduced_vocabulary([0, 0, 5, 30]),
        "assistant": (assistant_settings(), assistant_contents()),
    }[kind]
    if kind == "assistant":
        samples.write_target(target, arch="gemma4")
    checkpoint = samples.write_checkpoint(tmp_path / "drafter", settings, contents)
    flags = ["--target", str(target), "--draft-vocab", "8", "--corpus", str(checkpoint / "config.json")]
    assert main([command, str(checkpoint), *flags, "-o", str(tmp_path / "x.gguf")]) == 1
    assert f"error: {says}" in capsys.readouterr().err
    assert not (tmp_path / "x.gguf").exists()


def test_what_lies_at_a_path_that_is_none(
    target: Path, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name too long, as a folder that may not be searched, is no file; what is none stays."""
    long, pipe = str(tmp_path / ("x" * 300)), tmp_path / "pipe"
    os.mkfifo(pipe)
    for arguments, says in (
        ([long], "is not a directory"),
        ([str(checkpoint), "-o", long], "cannot write"),
        ([str(checkpoint), "-o", f"{long}/y.gguf"], "not a file in an existing directory"),
        ([str(checkpoint), "-o", str(pipe)], f"cannot write {pipe}: not a file"),
    ):
        assert main(["convert", *arguments, "--target", str(target), "-q"]) == 1
        assert says in capsys.readouterr().err
    assert pipe.is_fifo()
    index = {"weight_map": {"norm.weight": "x" * 300 + ".safetensors"}}
    (checkpoint / "model.safetensors.index.json").write_text(json.dumps(index))
    assert main(["convert", str(checkpoint), "--target", str(target), "-q"]) == 1
    assert "is missing" in capsys.readouterr().err


def test_a_gguf_of_another_dialect(
    target: Path, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["convert", str(checkpoint), "--target", str(target), "-o", "a.gguf", "-q"]) == 0
    source = write_dialect(tmp_path / "their.gguf", "C", Path("a.gguf"), {f"{C}.dflash.target_layer_ids": None})
    capsys.readouterr()
    command = ["convert", str(source), "--target", str(target)]
    assert main(command) == 1
    assert "--target-layer-ids" in capsys.readouterr().err
    assert main([*command, "--target-layer-ids", "0,4"]) == 0
    shown = capsys.readouterr()
    assert "their-dflash.gguf: from dialect C (lucebox), 25 tensors" in shown.out and "100%" in shown.err
    assert main(["convert", "their-dflash.gguf", "--target", str(target)]) == 0
    assert "already" in capsys.readouterr().out
    assert not Path("their-dflash-dflash.gguf").exists()
    for flags in (
        ["--outtype", "q8_0"], ["--outtype", "f16"], ["--fc-type", "q8_0"], ["--draft-vocab", "8"],
        ["--corpus", "text"],
    ):  # fmt: skip
        assert main([*command, *flags]) == 1
        assert f"{flags[0]} is for checkpoints: a GGUF keeps its weights" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*command, "--target-layer-ids", "one"])


def test_error_is_two_lines(target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = samples.write_checkpoint(tmp_path / "d", samples.config(hidden_size=64))
    assert main(["convert", str(directory), "--target", str(target), "-o", str(tmp_path / "x.gguf")]) == 1
    shown = capsys.readouterr().err.splitlines()
    assert shown[0].startswith("error: the drafter does not fit the target: hidden_size is 64")
    assert shown[1].startswith("  fix: give the GGUF of the model")
    assert not (tmp_path / "x.gguf").exists()


@pytest.mark.parametrize("arguments", [["x"], ["x", "--target", "t", "--outtype", "q4_9"], ["--target", "t"]])
def test_usage(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["convert", *arguments])
    assert exit_.value.code == 2


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_on_a_terminal_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    stream = Terminal()
    progress = Progress(stream)
    for done in range(1, 1001):
        progress(f"blk.{done}.attn_q.weight", done, 1000)
    progress.close()
    lines = stream.getvalue().split("\r")
    assert 2 <= len(lines) < 50  # not one for each step
    assert "100%" in lines[-1] and lines[-1].endswith("\n") and all(len(line.rstrip("\n")) < 60 for line in lines)


def test_progress_elsewhere_is_a_line_for_each_tenth() -> None:
    stream = io.StringIO()
    progress = Progress(stream)
    for done in range(1, 1001):
        progress("fc.weight", done, 1000)
    progress.close()
    assert stream.getvalue().count("\n") == 10


def test_neither_torch_nor_safetensors_is_imported() -> None:
    code = (
        "import sys, dflash_local.convert.conversion\n"
        "sys.exit(not {'torch', 'safetensors', 'transformers'}.isdisjoint(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_help_needs_neither_numpy_nor_gguf() -> None:
    code = "import sys, dflash_local.cli.commands.convert; sys.exit(not {'numpy', 'gguf'}.isdisjoint(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
