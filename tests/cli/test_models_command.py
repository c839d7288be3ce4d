"""`dflash-local models`, and models that are called by its names."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import httpx
import pytest

from dflash_local import cli
from dflash_local.cli import parse
from dflash_local.cli.flags.named_models import take_models
from dflash_local.demo.pocket import bundled_pair
from dflash_local.errors import ModelError, RequestError
from dflash_local.hub.model_programs import System
from tests.hub.fake_programs import gguf, header, ollama_model, qwen3
from tests.patience import PATIENCE
from tests.projector_files import projector_file
from tests.server.live import serving


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (
        "HUGGINGFACE_HUB_CACHE",
        "HF_HUB_CACHE",
        "HF_HOME",
        "XDG_CACHE_HOME",
        "OLLAMA_MODELS",
        "LLAMA_ARG_MODEL",
    ):
        monkeypatch.delenv(name, raising=False)
    for name in ("LLAMA_CACHE", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DFLASH_CACHE", str(tmp_path / "ours"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(System, "here", lambda: System("linux", tmp_path, {}))
    return tmp_path


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.main(["models", *words]) == 0
    return capsys.readouterr().out


def test_each_model_has_its_line(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ollama_model(home / ".ollama/models", "qwen3:8b", qwen3())
    gguf(home / ".cache/gpt4all/a model.gguf")
    gguf(home / ".cache/gpt4all/evil\x1b]0;x\x07.gguf", header("clip"))
    text = listed(capsys)
    lines = [shlex.split(line)[1:] for line in text.splitlines() if line.startswith("      ")]
    assert lines == [
        ["serve", "-m", "ollama:qwen3:8b", "-hfd", "z-lab/Qwen3-8B-DFlash-b16"],
        ["serve", "-m", "gpt4all:a model"],
    ]
    for line in lines:
        assert parse(line)
    assert "left out: 1; --all says why" in text
    text = listed(capsys, "--all")
    assert "(GPT4All): a projector, with which its model reads images or audio (--mmproj)" in text
    assert "\x1b" not in text


def test_as_json(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blob = ollama_model(home / ".ollama/models", "qwen3:8b", qwen3())
    gguf(Path("broken.gguf"), b"")
    found = json.loads(listed(capsys, "--json"))
    (model,) = found["models"]
    assert model == {
        "name": "ollama:qwen3:8b",
        "also": [],
        "program": "Ollama",
        "path": str(blob),
        "size": blob.stat().st_size,
        "quantization": "Q4_K_M",
        "architecture": "qwen3",
        "drafting": "drafter",
        "drafter": "z-lab/Qwen3-8B-DFlash-b16",
        "drafter_is_here": False,
        "next_token_layers": 0,
        "projector": None,
        "reads": ["text"],
        "serve": "dflash-local serve -m ollama:qwen3:8b -hfd z-lab/Qwen3-8B-DFlash-b16",
    }
    (left,) = found["left_out"]
    assert (left["name"], left["why"]) == ("broken.gguf", "not a GGUF file")


def test_nothing_here(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no models found" in listed(capsys)
    assert json.loads(listed(capsys, "--json")) == {"models": [], "left_out": []}


def taken(*words: str) -> str:
    return take_models(parse(["serve", *words])[1]).target


def test_a_name_brings_its_projector(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Unless another is named, or none is wanted."""
    folder = home / ".lmstudio/models/a/S-GGUF"
    folder.mkdir(parents=True)
    (folder / "S-Q8_0.gguf").symlink_to(bundled_pair().target)
    own = projector_file(folder / "mmproj-S-F16.gguf")
    other = projector_file(home / "other.gguf")

    def projector(*words: str) -> str | None:
        return take_models(parse(["serve", "-m", "lmstudio:S-Q8_0", *words])[1]).projector

    assert projector() == str(own)
    assert f"note: projector: {own}" in capsys.readouterr().err
    assert projector("--no-mmproj") is None
    assert projector("--mmproj", str(other)) == str(other)
    model = json.loads(listed(capsys, "--json"))["models"][0]
    assert (model["projector"], model["reads"]) == (str(own), ["text", "images"])
    assert "LM Studio  text, images  lookup" in listed(capsys)
    projector_file(own, 512)
    assert projector() is None
    assert "mmproj-S-F16.gguf cannot be used: the rows" in capsys.readouterr().err


def test_a_name_is_a_model(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = ollama_model(home / ".ollama/models", "x:1b", header(general__name="1"))
    two = ollama_model(home / ".ollama/models", "x:2b", header(general__name="2"))
    assert taken("-m", "ollama:x:2b") == taken("-m", "x:2b") == taken("-m", "x:2") == str(two)
    assert f"note: model: ollama:x:2b, {two} (Ollama)" in capsys.readouterr().err
    with pytest.raises(RequestError, match="'x' names 2 models: ollama:x:1b, ollama:x:2b"):
        taken("-m", "x")
    with pytest.raises(ModelError, match="y: no such file") as refusal:
        taken("-m", "y")
    assert "'dflash-local' alone lists the models" in str(refusal.value.hint)
    shutil.copy(one, "x")  # a file beats a name
    assert taken("-m", "x") == "x"


def test_training_takes_a_name(home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    blob = ollama_model(home / ".ollama/models", "x:1b")
    Path("prompts.txt").write_text("Hello\n")
    monkeypatch.setattr("dflash_local.train.estimate.estimate", lambda settings: [settings.model])
    assert cli.main(["train", "-m", "x:1", "--data", "prompts.txt", "-o", "new.gguf", "--plan"]) == 0
    assert capsys.readouterr().out == f"{blob}\n"


def test_ollama_s_model_is_served_where_it_lies(home: Path, pocket: dict[str, Path]) -> None:
    blob = ollama_model(home / ".ollama/models", "pocket:latest", pocket["target"].read_bytes())
    env = {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")}
    with serving(["-m", "pocket", "-c", 512], env) as (_, url):
        listed = httpx.get(f"{url}/v1/models").json()["data"][0]
        assert listed["id"] == "ollama:pocket:latest"
        body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8, "temperature": 0}
        answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=PATIENCE).json()
        assert answer["model"] == "ollama:pocket:latest"
        assert answer["usage"]["completion_tokens"] > 0
        assert httpx.get(f"{url}/props").json()["model_path"] == str(blob)
    files = (path for path in home.rglob("*") if path.is_file())
    assert [path for path in files if path.read_bytes()[:4] == b"GGUF"] == [blob]  # no copy


def test_a_router_of_all_that_is_found(home: Path, pocket: dict[str, Path]) -> None:
    ollama_model(home / ".ollama/models", "pocket:latest", pocket["target"])
    gguf(home / ".cache/gpt4all/other.gguf")
    folder = home / ".lmstudio/models/a/S-GGUF"
    own = projector_file(folder / "mmproj-S-F16.gguf")
    (folder / "S-Q8_0.gguf").symlink_to(bundled_pair("hybrid").target)
    env = {"HOME": str(home), "XDG_CACHE_HOME": str(home / ".cache"), "LLAMA_CACHE": str(home / "hub")}
    with serving(["--models-found", "-c", 512], env) as (_, url):
        listed = {model["id"]: model["status"]["args"] for model in httpx.get(f"{url}/models").json()["data"]}
        assert listed.keys() == {"gpt4all:other", "ollama:pocket:latest", "lmstudio:S-Q8_0"}
        assert [name for name, words in listed.items() if f"--mmproj={own}" in words] == ["lmstudio:S-Q8_0"]
        body = {"model": "ollama:pocket:latest", "prompt": "Hello", "max_tokens": 4}
        answer = httpx.post(f"{url}/v1/completions", json=body, timeout=PATIENCE).json()
        assert answer["usage"]["completion_tokens"] > 0
        assert answer["model"] == "ollama:pocket:latest"
