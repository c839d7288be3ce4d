"""`dflash-local` alone: what it finds of builds and models, and that what it says to type next can be typed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from dflash_local import cli
from dflash_local.build import installed_build
from dflash_local.cli import parse
from dflash_local.cli.terminal import greeting
from dflash_local.hub.model_programs import System
from tests.hub.fake_programs import gguf, header, hub_model, qwen3

QWEN = "Qwen3-8B-Q4_K_M"
DRAFTER = "z-lab/Qwen3-8B-DFlash-b16"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with nothing in it."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LLAMA_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("DFLASH_CACHE", str(tmp_path / "ours"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(System, "here", lambda: System("linux", tmp_path, {}))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


def greeted(capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main([]) == 0
    return capsys.readouterr().out


def commands(text: str) -> Iterator[list[str]]:
    for line in text.partition("\nnext\n")[2].splitlines():
        yield shlex.split(line.strip().split("  ")[0])[1:]


def test_nothing_here(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed_build, "installed_stamp", lambda: None)
    text = greeted(capsys)
    assert "none yet" in text
    assert "none found" in text
    assert next(commands(text)) == ["build"]
    assert ["demo"] in commands(text)


def test_a_model_with_a_known_drafter_comes_first(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installed_build, "installed_stamp", lambda: {"backend": "cuda", "version": "1+dflash.2"})
    hub_model(home / "hub", "aaa/No-Drafter-GGUF", "No-Drafter-Q8_0.gguf")
    gguf(home / f".lmstudio/models/u/{QWEN} GGUF/{QWEN}.gguf", qwen3())
    text = greeted(capsys)
    assert "llama.cpp for cuda, 1+dflash.2" in text
    assert "models   2 found, served where they are" in text
    assert f"{DRAFTER}, to be downloaded" in text
    assert f"      dflash-local serve -m lmstudio:{QWEN} -hfd {DRAFTER}\n" in text
    assert "      dflash-local serve -hf aaa/No-Drafter-GGUF:Q8_0\n" in text
    assert next(commands(text)) == ["serve", "-m", f"lmstudio:{QWEN}", "-hfd", DRAFTER]
    hub_model(home / "hub", DRAFTER, "model.safetensors")
    assert f"  {DRAFTER}\n" in greeted(capsys)
    hub_model(home / "hub", "unsloth/Qwen3-8B-GGUF", f"{QWEN}.gguf", qwen3())
    assert ["chat", "-hf", "unsloth/Qwen3-8B-GGUF:Q4_K_M"] in commands(greeted(capsys))


def test_without_a_drafter_a_model_can_be_served(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gguf(Path("mine.gguf"))
    text = greeted(capsys)
    assert "this folder  text   lookup\n" in text
    assert list(commands(text))[-7:-4] == [["serve", "-m", "mine.gguf"], ["chat", "-m", "mine.gguf"], ["demo"]]
    assert ["pairs"] in commands(text)


def test_what_is_left_out_is_counted(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gguf(Path("lora.gguf"), header(general__type="adapter"))
    assert "1 file is left out: 'dflash-local models --all' says why" in greeted(capsys)
    gguf(Path("empty.gguf"), b"")
    assert "2 files are left out" in greeted(capsys)


def test_what_is_to_be_typed_can_be(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        for command in commands(greeted(capsys)):
            if command != ["--help"]:
                assert parse(command)
        hub_model(home / "hub", "unsloth/Qwen3-8B-GGUF", f"{QWEN}.gguf", qwen3())


def test_names_on_disk_cannot_write_to_the_terminal(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gguf(Path("evil\x1b]0;x\x07.gguf"))
    assert "\x1b" not in greeted(capsys)


def test_only_the_first_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(greeting.MOST_LISTED + 3):
        gguf(Path(f"m{number:02}.gguf"))
    text = greeted(capsys)
    assert "and 3 more: 'dflash-local models'" in text
    assert text.count("      dflash-local serve -m m") == greeting.MOST_LISTED


def test_a_wrong_list_of_pairs_does_not_spoil_it(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gguf(Path(f"{QWEN}.gguf"), qwen3())
    own = home / "config/dflash-local/pairs.json"
    own.parent.mkdir(parents=True)
    own.write_text("{")
    assert QWEN in greeted(capsys)
