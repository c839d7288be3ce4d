"""`dflash-local` alone: what it finds of builds and models, and that what it says to type next can be typed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from dflash_local import cli
from dflash_local.build import installation
from dflash_local.cli import parser
from dflash_local.cli.terminal import greeting
from dflash_local.hub.local_models import local_models

QWEN = "Qwen3-8B-Q4_K_M"
DRAFTER = "z-lab/Qwen3-8B-DFlash-b16"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with nothing in it."""
    for name in ("LLAMA_CACHE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "OLLAMA_MODELS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setattr("dflash_local.hub.local_models.sys.platform", "linux")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


def gguf(path: Path, size: int = 4096) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"GGUF" + bytes(size - 4))
    return path


def hub_model(home: Path, repo: str, file: str, size: int = 4096) -> Path:
    folder = home / ".cache/huggingface/hub" / ("models--" + repo.replace("/", "--"))
    commit = "0" * 40
    (folder / "refs").mkdir(parents=True)
    (folder / "refs/main").write_text(commit)
    return gguf(folder / "snapshots" / commit / file, size)


def ollama_model(root: Path, name: str, tag: str, content: bytes = b"GGUF12345") -> None:
    manifest = root / "manifests/registry.ollama.ai/library" / name / tag
    manifest.parent.mkdir(parents=True)
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{name}"}
    manifest.write_text(json.dumps({"layers": [{"mediaType": "license", "digest": "sha256:x"}, layer]}))
    (root / "blobs").mkdir(exist_ok=True)
    (root / "blobs" / f"sha256-{name}").write_bytes(content)


def greeted(capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main([]) == 0
    return capsys.readouterr().out


def commands(text: str) -> Iterator[list[str]]:
    for line in text.partition("\nnext\n")[2].splitlines():
        yield shlex.split(line.strip().split("  ")[0])[1:]


def test_finds_models_of_every_program(home: Path) -> None:
    hub_model(home, "unsloth/Qwen3-8B-GGUF", f"{QWEN}.gguf")
    gguf(home / ".cache/llama.cpp/old.gguf")
    gguf(home / ".lmstudio/models/lmstudio-community/X-GGUF/X-Q8_0.gguf")
    gguf(home / ".lmstudio/models/lmstudio-community/X-GGUF/mmproj-X.gguf")
    gguf(Path("mine.gguf"))
    gguf(Path("mine-dflash.gguf"))
    ollama_model(home / ".ollama/models", "qwen3", "8b")
    ollama_model(home / ".ollama/models", "other", "1b", b"not a GGUF")
    assert sorted((model.place, model.name) for model in local_models()) == [
        ("Hugging Face cache", f"unsloth/Qwen3-8B-GGUF:{QWEN[-6:]}"),
        ("LM Studio", "X-Q8_0"),
        ("Ollama", "qwen3:8b"),
        ("llama.cpp", "old"),
        ("this folder", "mine"),
    ]


def test_a_split_model_is_one_of_all_its_bytes(home: Path) -> None:
    for part in (1, 2, 3):
        gguf(home / f".lmstudio/models/u/r/big-Q8_0-0000{part}-of-00003.gguf", 1000)
    (found,) = local_models()
    assert (found.size, found.path.name) == (3000, "big-Q8_0-00001-of-00003.gguf")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"layers": [1]}', '{"layers": [{"mediaType": 1}]}', "\0" * 99])
def test_damaged_manifests_are_no_models(home: Path, content: str) -> None:
    manifest = home / ".ollama/models/manifests/h/u/n/t"
    manifest.parent.mkdir(parents=True)
    manifest.write_text(content)
    assert local_models() == []


def test_a_digest_cannot_leave_the_folder(home: Path) -> None:
    gguf(home / "outside")
    root = home / ".ollama/models"
    manifest = root / "manifests/h/u/n/t"
    manifest.parent.mkdir(parents=True)
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": "../../../outside"}
    manifest.write_text(json.dumps({"layers": [layer]}))
    assert local_models() == []


def test_nothing_here(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "installed_stamp", lambda: None)
    text = greeted(capsys)
    assert "none yet" in text
    assert "none found" in text
    assert next(commands(text)) == ["build"]
    assert ["demo"] in commands(text)


def test_a_model_with_a_known_drafter_comes_first(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installation, "installed_stamp", lambda: {"backend": "cuda", "version": "1+dflash.2"})
    hub_model(home, "aaa/No-Drafter-GGUF", "No-Drafter-Q8_0.gguf")
    gguf(home / f".lmstudio/models/u/{QWEN} GGUF/{QWEN}.gguf")
    text = greeted(capsys)
    assert "llama.cpp for cuda, 1+dflash.2" in text
    assert f"drafter {DRAFTER}, to be downloaded" in text
    first = next(commands(text))
    assert first == ["serve", "-m", str(home / f".lmstudio/models/u/{QWEN} GGUF/{QWEN}.gguf"), "-hfd", DRAFTER]
    hub_model(home, DRAFTER, "model.safetensors")
    assert f"drafter {DRAFTER}\n" in greeted(capsys)
    hub_model(home, "unsloth/Qwen3-8B-GGUF", f"{QWEN}.gguf")
    assert ["chat", "-hf", "unsloth/Qwen3-8B-GGUF:Q4_K_M"] in commands(greeted(capsys))


def test_what_is_to_be_typed_can_be(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        for command in commands(greeted(capsys)):
            if command != ["--help"]:
                assert callable(parser().parse_args(command).func)
        hub_model(home, "unsloth/Qwen3-8B-GGUF", f"{QWEN}.gguf") if not list(home.rglob("*.gguf")) else None


def test_names_on_disk_cannot_write_to_the_terminal(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gguf(Path("evil\x1b]0;x\x07.gguf"))
    assert "\x1b" not in greeted(capsys)


def test_only_the_first_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(greeting.MOST_LISTED + 3):
        gguf(Path(f"m{number:02}.gguf"))
    text = greeted(capsys)
    assert "and 3 more" in text
    assert text.count(".gguf") == 0  # names of files without a drafter are listed without their ends


def test_a_wrong_list_of_pairs_does_not_spoil_it(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gguf(Path(f"{QWEN}.gguf"))
    own = home / "config/dflash-local/pairs.json"
    own.parent.mkdir(parents=True)
    own.write_text("{")
    assert QWEN in greeted(capsys)
