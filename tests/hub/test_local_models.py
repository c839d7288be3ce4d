"""Models that are on this computer: found in the layout of each program, on each system, and never a wrong offer."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFValueType, LlamaFileType

from dflash_local.convert.gguf_glance import FIRST_BYTES, MOST_BYTES, Glance, far_text
from dflash_local.convert.gguf_metadata import array, boolean
from dflash_local.errors import ModelError, RequestError
from dflash_local.hub.local_models import LocalModels, find_models
from dflash_local.hub.local_pairs import Drafting, LocalPairs
from dflash_local.hub.model_programs import System
from dflash_local.hub.registry import KnownDrafter, KnownTarget

from .fake_programs import PROJECTOR, gguf, header, hub_model, jan_model, ollama_model, qwen3

DRAFTER = "z-lab/Qwen3-8B-DFlash-b16"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with nothing in it, which is the current folder's parent."""
    for name in ("HUGGINGFACE_HUB_CACHE", "HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "home"
    (home / "work").mkdir(parents=True)
    monkeypatch.chdir(home / "work")
    monkeypatch.setenv("LLAMA_CACHE", str(home / "hub"))
    monkeypatch.setenv("DFLASH_CACHE", str(home / "ours"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    return home


def found_in(home: Path, platform: str = "linux", **env: str) -> LocalModels:
    return find_models(System(platform, home, env))


def names(found: LocalModels) -> list[str]:
    return sorted(model.name for model in found.models)


def reasons(found: LocalModels) -> dict[str, str]:
    return {one.name: one.why for one in found.left_out}


# ---- where each program keeps them ----

# System, path below the home folder, and the name that it gets.
PLACES = [
    ("linux", ".lmstudio/models/lmstudio-community/X-GGUF/X-Q8_0.gguf", "lmstudio:X-Q8_0"),
    ("linux", ".cache/lm-studio/models/a/b/X.gguf", "lmstudio:X"),
    ("darwin", ".lmstudio/models/a/b/X.gguf", "lmstudio:X"),
    ("win32", ".lmstudio/models/a/b/X.gguf", "lmstudio:X"),
    ("linux", ".cache/llama.cpp/ggml-org_X_x.gguf", "llama.cpp:ggml-org_X_x"),
    ("darwin", "Library/Caches/llama.cpp/x.gguf", "llama.cpp:x"),
    ("win32", "AppData/Local/llama.cpp/x.gguf", "llama.cpp:x"),
    ("linux", ".local/share/nomic.ai/GPT4All/x.gguf", "gpt4all:x"),
    ("darwin", "Library/Application Support/nomic.ai/GPT4All/x.gguf", "gpt4all:x"),
    ("win32", "AppData/Local/nomic.ai/GPT4All/x.gguf", "gpt4all:x"),
    ("linux", ".cache/gpt4all/x.gguf", "gpt4all:x"),
    ("linux", "text-generation-webui/user_data/models/x.gguf", "webui:x"),
    ("win32", "text-generation-webui-main/models/folder/x.gguf", "webui:x"),
    ("linux", "textgen-portable-3.4/user_data/models/x.gguf", "webui:x"),
    ("linux", "textgen-main/models/folder/x.gguf", "webui:x"),
    ("linux", "user_data/models/x.gguf", "webui:x"),
    ("linux", ".config/Jan/data/models/cortex.so/x/q4/model.gguf", "jan:cortex.so/x/q4/model"),
    ("linux", "ours/models/x.gguf", "dflash:x"),
]  # fmt: skip


@pytest.mark.parametrize(("platform", "path", "name"), PLACES)
def test_folders_of_files(home: Path, platform: str, path: str, name: str) -> None:
    file = gguf(home / path)
    (model,) = found_in(home, platform).models
    assert (model.name, model.path, model.size, model.flags) == (name, file, 4096, ("-m", name))


@pytest.mark.parametrize(
    ("platform", "path"),
    [
        ("linux", ".local/share/Jan/data"),
        ("linux", ".config/Jan/data"),
        ("darwin", "Library/Application Support/Jan/data"),
        ("win32", "AppData/Roaming/Jan/data"),
    ],
)
def test_jan(home: Path, platform: str, path: str) -> None:
    file = jan_model(home / path, "Menlo/Jan-nano-Q4_K_M")
    elsewhere = gguf(home / "else where" / "imported.gguf")
    jan_model(home / path, "imported", str(elsewhere))
    found = found_in(home, platform)
    assert {model.name: model.path for model in found.models} == {
        "jan:Menlo/Jan-nano-Q4_K_M": file,
        "jan:imported": elsewhere,
    }


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
def test_ollama(home: Path, platform: str) -> None:
    root = home / ".ollama/models"
    blob = ollama_model(root, "qwen3:8b", qwen3())
    ollama_model(root, "llama3:latest", header(general__name="L"))
    ollama_model(root, "registry.ollama.ai/someone/own:1b", header(general__name="M"))
    ollama_model(root, "hf.co/unsloth/X-GGUF:Q4_K_M", header(general__name="N"))
    found = found_in(home, platform)
    assert names(found) == [
        "ollama:hf.co/unsloth/X-GGUF:Q4_K_M", "ollama:llama3:latest", "ollama:qwen3:8b", "ollama:someone/own:1b",
    ]  # fmt: skip
    named = found.named("ollama:llama3")
    assert named is not None and named.name == "ollama:llama3:latest"
    assert found.models[-1].quantization == "Q4_K_M"
    model = found.named("qwen3:8b")
    assert model is not None and (model.path, model.program) == (blob, "Ollama")
    assert found.left_out == []


def test_ollama_s_variable(home: Path, tmp_path: Path) -> None:
    ollama_model(tmp_path / "other", "x:1b")
    assert names(found_in(home, OLLAMA_MODELS=str(tmp_path / "other"))) == ["ollama:x:1b"]
    assert names(found_in(home, OLLAMA_MODELS="~no-such-user/x")) == []


def test_variables_of_systems(home: Path, tmp_path: Path) -> None:
    gguf(tmp_path / "data/nomic.ai/GPT4All/x.gguf")
    assert names(found_in(home, XDG_DATA_HOME=str(tmp_path / "data"))) == ["gpt4all:x"]
    assert names(found_in(home, "win32", LOCALAPPDATA=str(tmp_path / "data"))) == ["gpt4all:x"]


# A file of settings, its text, and the file of a model in the folder that it names.
SETTINGS = [
    ("linux", ".lmstudio-home-pointer", "{place}\n", "models/a/b/X.gguf", "lmstudio:X"),
    ("linux", ".lmstudio/settings.json", '{{"downloadsFolder": "{place}"}}', "a/b/X.gguf", "lmstudio:X"),
    ("linux", ".config/nomic.ai/GPT4All.ini", "[General]\nmodelPath={place}/\n", "X.gguf", "gpt4all:X"),
    ("win32", "AppData/Roaming/nomic.ai/GPT4All.ini", "[General]\nmodelPath={place}\n", "X.gguf", "gpt4all:X"),
    ("linux", ".local/share/Jan/settings.json", '{{"data_folder": "{place}"}}', "models/X.gguf", "jan:X"),
]  # fmt: skip


@pytest.mark.parametrize(("platform", "settings", "text", "file", "name"), SETTINGS)
def test_a_folder_that_the_user_chose(
    home: Path, tmp_path: Path, platform: str, settings: str, text: str, file: str, name: str
) -> None:
    gguf(tmp_path / "place" / file)
    path = home / settings
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.format(place=tmp_path / "place"))
    assert names(found_in(home, platform)) == [name]
    damaged = ["", "{", "[]", "\0", '{"downloadsFolder": 3, "data_folder": null}', "[" * 100_000]
    damaged += [text.format(place=place) for place in ("~no-such-user/x", "a\\u0000b")]
    for content in damaged:
        path.write_text(content)
        assert names(found_in(home, platform)) == []
    path.write_bytes(b"\xff\xfe")
    assert names(found_in(home, platform)) == []


def test_the_hub_s_cache_and_this_folder(home: Path) -> None:
    hub_model(home / "hub", "unsloth/Qwen3-8B-GGUF", "Qwen3-8B-Q4_K_M.gguf", qwen3())
    gguf(Path("mine.gguf"))
    found = found_in(home)
    assert [model.flags for model in found.models] == [("-hf", "unsloth/Qwen3-8B-GGUF:Q4_K_M"), ("-m", "mine.gguf")]


# ---- names ----


def test_names_exactly_or_by_their_beginning(home: Path) -> None:
    root = home / ".ollama/models"
    for tag in ("1b", "3b", "3b-q8"):
        ollama_model(root, f"llama3.2:{tag}", header(general__name=tag))
    gguf(home / ".cache/gpt4all/Llama3.2-x.gguf", header(general__name="x"))
    found = found_in(home)

    def called(text: str) -> str | None:
        model = found.named(text)
        return model.name if model else None

    assert called("ollama:llama3.2:3b") == called("llama3.2:3b") == "ollama:llama3.2:3b"
    assert called("llama3.2:1") == "ollama:llama3.2:1b"
    assert called("LLAMA3.2-") == "gpt4all:Llama3.2-x"
    assert called("qwen") is None
    with pytest.raises(RequestError, match=r"'llama3\.2' names 4 models: .*ollama:llama3\.2:3b-q8") as refusal:
        called("llama3.2")
    assert (refusal.value.param, refusal.value.hint) == ("--model", "type the whole name")


def test_files_of_one_name_are_called_by_their_folders(home: Path) -> None:
    for user in ("a", "b"):
        gguf(home / f".lmstudio/models/{user}/X-GGUF/X.gguf")
    assert names(found_in(home)) == ["lmstudio:a/X-GGUF/X", "lmstudio:b/X-GGUF/X"]


def test_models_of_one_name_in_two_places(home: Path, tmp_path: Path) -> None:
    other = ollama_model(tmp_path / "other", "x:1b", header(general__name="other"))
    ollama_model(home / ".ollama/models", "x:1b")
    found = found_in(home, OLLAMA_MODELS=str(tmp_path / "other"))
    assert [model.path for model in found.models if model.name == "ollama:x:1b"] == [other]
    assert len(found.models) == 2 and found.models[1].name == str(found.models[1].path)


def test_a_file_is_listed_once(home: Path) -> None:
    root = home / ".ollama/models"
    blob = ollama_model(root, "x:1b")
    ollama_model(root, "x:latest")  # the same blob
    link = home / ".lmstudio/models/a/b/linked.gguf"
    link.parent.mkdir(parents=True)
    link.symlink_to(blob)
    os.link(blob, link.with_name("hard.gguf"))
    found = found_in(home)
    (model,) = found.models
    assert model.name == "ollama:x:1b"
    assert set(model.also) == {"ollama:x:latest", "ollama:x", "lmstudio:linked", "lmstudio:hard"}
    assert found.named("hard") == found.named("ollama:x") == model
    assert found.left_out == []


# ---- what is no model ----


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"layers": [1]}', '{"layers": [{"mediaType": 1}]}', "\0" * 99, "[" * 100_000],
    ids=lambda content: ascii(content[:30]),
)
def test_damaged_manifests(home: Path, content: str) -> None:
    manifest = home / ".ollama/models/manifests/h/u/n/t"
    manifest.parent.mkdir(parents=True)
    manifest.write_text(content)
    found = found_in(home)
    assert found.models == []
    assert reasons(found)["ollama:h/u/n:t"] in ("its manifest is damaged", "it has no weights on this disk")


@pytest.mark.parametrize("digest", ["../../../outside", "sha256:../../outside", "sha256:" + "0" * 63, 5])
def test_a_digest_cannot_leave_the_folder(home: Path, digest: Any) -> None:
    gguf(home / "outside")
    manifest = home / ".ollama/models/manifests/h/u/n/t"
    manifest.parent.mkdir(parents=True)
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": digest}
    manifest.write_text(json.dumps({"layers": [layer]}))
    assert found_in(home).models == []


def adapter() -> dict[str, Any]:
    return {"mediaType": "application/vnd.ollama.image.adapter", "digest": "sha256:" + "2" * 64, "size": 5}


def second() -> dict[str, Any]:
    return {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:" + "3" * 64, "size": 5}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"size": 1 << 20}, "its download is not complete"),
        ({"layers": [adapter()]}, "another model with an adapter"),
        ({"layers": [second()]}, "in several blobs"),
    ],
)
def test_ollama_s_models_that_are_not_whole(home: Path, changes: dict[str, Any], why: str) -> None:
    ollama_model(home / ".ollama/models", "x:1b", **changes)
    found = found_in(home)
    assert found.models == []
    assert why in reasons(found)["ollama:x:1b"]


def test_ollama_s_other_models(home: Path) -> None:
    root = home / ".ollama/models"
    ollama_model(root, "gone:1b", header(general__name="gone")).unlink()
    ollama_model(root, "seen:1b", header("gemma3", gemma3__vision__block_count=27))
    ollama_model(root, "own:20b", header("gptoss"))
    ollama_model(root, "broken:1b", b"not a GGUF")
    ollama_model(root, "text:1b", header(general__name="t"), layers=[{**adapter(), "mediaType": PROJECTOR}])
    cloud = root / "manifests/registry.ollama.ai/library/cloud/480b"
    cloud.parent.mkdir()
    cloud.write_text('{"layers": [{"mediaType": "application/vnd.ollama.image.license", "digest": "x"}]}')
    mlx = root / "manifests/registry.ollama.ai/library/mlx/8b"
    mlx.parent.mkdir()
    mlx.write_text('{"layers": [{"mediaType": "application/vnd.ollama.image.tensor", "digest": "x"}]}')
    found = found_in(home)
    assert names(found) == ["ollama:text:1b"]  # its text part is a model of its own
    said = reasons(found)
    assert said["ollama:gone:1b"] == "its file is missing"
    assert "only Ollama reads its layout (gemma3)" in said["ollama:seen:1b"]
    assert "only Ollama reads its layout (gptoss)" in said["ollama:own:20b"]
    assert said["ollama:broken:1b"] == "not a GGUF file"
    assert said["ollama:cloud:480b"] == "it has no weights on this disk"
    assert said["ollama:mlx:8b"] == "its weights are not in a GGUF"


def test_models_that_came_with_a_projector(home: Path) -> None:
    """As their programs note it, or as it lies beside them; each is served with it, and it is not left out."""
    seeing = header("clip", 0, clip__has_vision_encoder=boolean(True), clip__has_audio_encoder=boolean(False))
    root = home / ".ollama/models"
    blob = root / "blobs" / ("sha256-" + "2" * 64)
    layer = {"mediaType": PROJECTOR, "digest": "sha256:" + "2" * 64, "size": len(seeing)}
    ollama_model(root, "gone:4b", header(general__name="gone"), layers=[{**layer, "digest": "sha256:" + "3" * 64}])
    ollama_model(root, "seeing:4b", layers=[layer])
    gguf(blob, seeing)
    beside = home / ".lmstudio/models/a/S-GGUF"
    for name, data in (("S-Q8_0", None), ("mmproj-S-Q8_0", seeing), ("mmproj-S-BF16", seeing)):
        gguf(beside / f"{name}.gguf", data)
    gguf(home / ".lmstudio/models/a/T-GGUF/T-Q8_0.gguf")
    jan = home / ".local/share/Jan/data"
    jan_model(jan, "pics", mmproj_path="llamacpp/models/pics/mmproj.gguf")
    jan_model(jan, "fake", mmproj_path="llamacpp/models/fake/mmproj.gguf")
    gguf(jan / "llamacpp/models/pics/mmproj.gguf", seeing)
    gguf(jan / "llamacpp/models/fake/mmproj.gguf")  # a model
    found = found_in(home)
    assert {model.name: model.projector for model in found.models} == {
        "ollama:gone:4b": None,
        "ollama:seeing:4b": blob,
        "lmstudio:S-Q8_0": beside / "mmproj-S-Q8_0.gguf",
        "lmstudio:T-Q8_0": None,
        "jan:pics": jan / "llamacpp/models/pics/mmproj.gguf",
        "jan:fake": None,
    }
    assert {model.name: model.media for model in found.models if model.projector} == dict.fromkeys(
        ("ollama:seeing:4b", "lmstudio:S-Q8_0", "jan:pics"), ("images",)
    )
    assert reasons(found) == {
        "lmstudio:mmproj-S-BF16": "a projector, with which its model reads images or audio (--mmproj)"
    }


def test_a_cached_model_and_its_projector(home: Path, cache_folder: Path) -> None:
    hub_model(cache_folder, "u/Seeing-GGUF", "Seeing-Q8_0.gguf")
    path = hub_model(cache_folder, "u/Seeing-GGUF", "mmproj-F16.gguf", header("clip", 0))
    (model,) = found_in(home).models
    assert (model.name, model.projector) == ("u/Seeing-GGUF:Q8_0", path)


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("mmproj-X-f16", header("clip"), "projector"),
        ("X-vision", header("clip", 0), "projector"),
        ("projector", header("llama", 0, general__type="mmproj"), "projector"),
        ("lora", header("llama", 0, general__type="adapter"), "adapter"),
        ("old-lora", header("llama", 0, adapter__type="lora"), "adapter"),
        ("imatrix", header("llama", 0, general__type="imatrix"), "statistics"),
        ("statistics", header("llama", 0, general__type="imatrix"), "type 'imatrix'"),
        ("ggml-vocab-x", header(n_tensors=0), "only a vocabulary"),
        ("flux", header("flux", 0), "has no vocabulary"),
        ("nomic", header("nomic-bert"), "--embedding-model"),
        ("qwen3-embedding", header("qwen3", qwen3__pooling_type=3), "--embedding-model"),
        ("qwen3-reranker", header("qwen3", qwen3__pooling_type=4), "--rerank-model"),
        ("nameless", header(""), "names no architecture"),
        ("empty", b"", "not a GGUF"),
        ("page", b"<html>", "not a GGUF"),
        ("short", b"GGUF\x03\0\0\0", "damaged"),
        ("big-endian", b"GGUF\0\0\0\x03" + bytes(64), "damaged: it has GGUF version"),
        ("long", b"GGUF\x03\0\0\0" + b"\xff" * 99, "damaged"),
        ("part", header(split__count=3), "a part of a split model"),
        ("incomplete-X", header(), "not complete"),
    ],
)
def test_files_that_are_no_models(home: Path, name: str, data: bytes, why: str) -> None:
    gguf(home / f".cache/gpt4all/{name}.gguf", data, len(data))
    found = found_in(home)
    assert found.models == []
    assert why in reasons(found)[f"gpt4all:{name}"]


def test_downloads_that_go_on(home: Path) -> None:
    folder = home / ".lmstudio/models/a/b"
    gguf(folder / "downloading_X.gguf.part")
    gguf(folder / "Y.gguf")
    (folder / "Y.gguf.aria2").touch()
    jan_model(home / ".local/share/Jan/data", "half", size_bytes=1 << 30)
    found = found_in(home)
    assert found.models == []
    complete = "its download is not complete"
    assert reasons(found) == {"lmstudio:Y": complete, "jan:half": complete}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"model_path": None}, "names no file"),
        ({"model_path": "3"}, "names no file"),
        ({"model_path": "gone.gguf"}, "file is missing"),
        ({"model_path": '"a\\0b.gguf"'}, "a path that no file can have"),
        ({"embedding": "true"}, "--embedding-model"),
        ({"name": "[unclosed"}, "cannot be read"),
        ({"name": "a: b: c"}, "cannot be read"),
    ],
)
def test_jan_s_models_that_are_none(home: Path, changes: dict[str, Any], why: str) -> None:
    jan_model(home / ".local/share/Jan/data", "x", **changes)
    found = found_in(home)
    assert found.models == []
    assert why in reasons(found)["jan:x"]


def test_a_projector_at_a_path_that_no_file_can_have(home: Path) -> None:
    jan_model(home / ".local/share/Jan/data", "x", mmproj_path='"a\\0b.gguf"')
    assert [(model.name, model.projector) for model in found_in(home).models] == [("jan:x", None)]


def test_split_models(home: Path) -> None:
    folder = home / ".lmstudio/models/u/r"
    for part in (1, 2, 3):
        gguf(folder / f"big-Q8_0-0000{part}-of-00003.gguf", header(n_tensors=0, split__count=3), 1000)
    (model,) = found_in(home).models
    assert (model.name, model.size, model.path.name, model.quantization) == (
        "lmstudio:big-Q8_0", 3000, "big-Q8_0-00001-of-00003.gguf", "Q8_0",
    )  # fmt: skip
    (folder / "big-Q8_0-00002-of-00003.gguf").unlink()
    assert reasons(found_in(home)) == {"lmstudio:big-Q8_0": "part 2 of 3 is missing"}
    (folder / "big-Q8_0-00001-of-00003.gguf").unlink()
    assert not found_in(home).models


def test_links_to_nothing(home: Path) -> None:
    folder = home / ".lmstudio/models/u/r"
    folder.mkdir(parents=True)
    (folder / "gone.gguf").symlink_to(home / "nowhere")
    (folder / "self.gguf").symlink_to(folder / "self.gguf")
    (folder / "folder.gguf").mkdir()
    (home / "text-generation-webui").symlink_to(home / "nowhere")
    (home / ".ollama").symlink_to(home / ".ollama")
    found = found_in(home)
    assert found.models == []
    assert {"lmstudio:gone", "lmstudio:self", "lmstudio:folder"} <= reasons(found).keys()


def test_what_may_not_be_read(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may read everything, so the refusal is made."""
    closed = home / ".lmstudio/models"
    gguf(closed / "u/r/x.gguf")
    file = gguf(home / ".cache/gpt4all/x.gguf")

    def guarded(before: Callable[..., Any]) -> Callable[..., Any]:
        def refuse(path: Path, *rest: Any, **more: Any) -> Any:
            if path in (closed, file):
                raise PermissionError(13, "Permission denied")
            return before(path, *rest, **more)

        return refuse

    for name in ("iterdir", "open"):
        monkeypatch.setattr(Path, name, guarded(getattr(Path, name)))
    found = found_in(home)
    assert found.models == []
    assert reasons(found)[str(closed)] == "it cannot be read: Permission denied"
    assert "Permission denied" in reasons(found)["gpt4all:x"]


# ---- drafters ----


def drafting(found: LocalModels, index: int = 0) -> Any:
    return LocalPairs.of(found).drafting(found.models[index])


@pytest.mark.parametrize(
    "place",
    [
        lambda home: ollama_model(home / ".ollama/models", "qwen3:8b", qwen3(general__name="")),
        lambda home: ollama_model(home / ".ollama/models", "mine:latest", qwen3()),
        lambda home: ollama_model(home / ".ollama/models", "hf.co/u/Qwen3-8B-GGUF:Q4_K_M", qwen3(general__name="x")),
        lambda home: gguf(home / ".cache/gpt4all/Qwen3-8B-UD-Q4_K_XL.gguf", qwen3(general__name="x"), 1 << 22),
    ],
)
def test_a_drafter_of_the_list(home: Path, place: Callable[[Path], Path]) -> None:
    place(home)
    found = found_in(home)
    draft = drafting(found)
    assert (draft.way, draft.drafter, draft.flags, draft.is_here) == ("drafter", DRAFTER, ("-hfd", DRAFTER), False)
    hub_model(home / "hub", DRAFTER, "model.safetensors")
    assert drafting(found).is_here


@pytest.mark.parametrize(
    "data",
    [
        qwen3(general__name="Qwen3 4B"),
        qwen3(**{"qwen3.embedding_length": 2560}),  # another shape of that name
        header("qwen2", 151936, general__name="Qwen3 8B"),
    ],
)
def test_no_drafter_of_another_model(home: Path, data: bytes) -> None:
    gguf(home / ".cache/gpt4all/x.gguf", data, 1 << 22)
    assert drafting(found_in(home)).way == "lookup"


def test_the_hub_finds_its_drafters_itself(home: Path) -> None:
    hub_model(home / "hub", "unsloth/Qwen3-8B-GGUF", "Qwen3-8B-Q4_K_M.gguf", qwen3())
    draft = drafting(found_in(home))
    assert (draft.drafter, draft.flags) == (DRAFTER, ())


def test_a_drafter_on_this_disk(home: Path) -> None:
    gguf(home / ".cache/gpt4all/Qwen3-8B-Q4_K_M.gguf", qwen3(), 1 << 22)
    head = {"dflash.embedding_length": 4096, "dflash.block_size": 16}
    other = gguf(Path("Qwen3-4B-DFlash.gguf"), header("dflash", 151936, **{**head, "dflash.embedding_length": 2560}))
    found = found_in(home)
    assert [path for path, _ in found.drafters] == [other]
    assert drafting(found).drafter == DRAFTER
    own = gguf(Path("Qwen3-8B-DFlash.gguf"), header("dflash", 151936, **head), 1 << 22)
    found = found_in(home)
    assert len(found.models) == 1
    draft = drafting(found)
    assert (draft.drafter, draft.flags, draft.is_here) == (own.name, ("-md", str(own)), True)


def test_a_listed_file_on_this_disk(home: Path, tmp_path: Path) -> None:
    """It has its flag; one that is gone is passed over."""
    gguf(home / ".cache/gpt4all/Qwen3-8B-Q4_K_M.gguf", qwen3(), 1 << 22)
    gone, here = (KnownDrafter(file=tmp_path / name) for name in ("gone.gguf", "here.gguf"))
    (tmp_path / "here.gguf").touch()

    def drafted(*drafters: KnownDrafter) -> Drafting:
        found = found_in(home)
        return LocalPairs([KnownTarget("Q", ("qwen3-8b",), {}, drafters)]).drafting(found.models[0])

    draft = drafted(gone, here)
    assert (draft.drafter, draft.flags, draft.is_here) == ("here.gguf", ("-md", str(here)), True)
    assert drafted(gone).way == "lookup"


def test_lookup_or_nothing(home: Path) -> None:
    gguf(home / ".cache/gpt4all/a.gguf", header("mamba"))
    gguf(home / ".cache/gpt4all/b.gguf", header("openpangu", openpangu__nextn_predict_layers=1))
    gguf(home / ".cache/gpt4all/c.gguf", header("glm4moe"))
    found = found_in(home)
    assert str(drafting(found)) == "none: its state cannot be rolled back"
    assert str(drafting(found, 1)) == "lookup, its MTP layers are not used"
    assert str(drafting(found, 2)) == "lookup"


def test_next_token_layers(home: Path) -> None:
    """Those of the model's own file, then those of a file that fits; a DFlash drafter comes before both."""
    shape = {"glm4moe.embedding_length": 64, "glm4moe.nextn_predict_layers": 1}
    gguf(home / ".cache/gpt4all/GLM-Own.gguf", header("glm4moe", 100, **shape))
    gguf(home / ".cache/gpt4all/GLM-Trunk.gguf", header("glm4moe", 100, **shape | {"glm4moe.nextn_predict_layers": 0}))
    layers = gguf(Path("mtp-GLM-Trunk-Q8_0.gguf"), header("glm4moe", 100, **shape))
    found = found_in(home)
    assert [model.path.name for model in found.models] == ["GLM-Own.gguf", "GLM-Trunk.gguf"]
    own, trunk = drafting(found), drafting(found, 1)
    assert (own.way, str(own), own.flags, own.next_token_layers) == ("mtp", "its own MTP layers", (), 1)
    assert (trunk.way, str(trunk), trunk.flags) == ("mtp", layers.name, ("-md", str(layers)))
    head = {"dflash.embedding_length": 64, "dflash.block_size": 16}
    gguf(Path("GLM-Own-DFlash.gguf"), header("dflash", 100, **head))
    assert drafting(found_in(home)).way == "drafter"


# ---- headers ----


def test_names_of_file_types() -> None:
    for kind in LlamaFileType:
        name = kind.name.removeprefix("MOSTLY_").removeprefix("ALL_").removesuffix("_MOE")
        seen = Glance(1, 0, {"general.file_type": kind.value}).quantization
        assert seen == ("" if kind is LlamaFileType.GUESSED else name)
    for unknown in (4, 99, -1, b"x"):
        assert Glance(1, 0, {"general.file_type": unknown}).quantization == ""


def test_a_text_behind_the_vocabulary(tmp_path: Path) -> None:
    tokens = array(GGUFValueType.STRING, ["tokenizer.chat_template", "a" * 8])
    before = header("llama", 0, tokenizer__ggml__tokens=tokens, tokenizer__chat_template="{{ é }}")
    path = gguf(tmp_path / "x.gguf", before)
    assert far_text(path, "tokenizer.chat_template") == "{{ é }}"
    assert far_text(path, "tokenizer.ggml.tokens") == far_text(path, "chat_template") == ""  # no text; no key
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.rindex(b"}}")])
    with pytest.raises(ModelError, match="it ends inside"):
        far_text(path, "tokenizer.chat_template")
    path.write_bytes(b"")
    with pytest.raises(ModelError, match="cannot read"):
        far_text(path, "tokenizer.chat_template")


def test_a_header_is_read_no_further_than_its_vocabulary(tmp_path: Path) -> None:
    before = header("llama", 0, general__name="M", x=array(GGUFValueType.STRING, ["a", "b"]), more="-" * FIRST_BYTES)
    path = gguf(tmp_path / "x.gguf", before)
    assert Glance.of(path).text("more") == "-" * FIRST_BYTES
    whole = header("llama", 50000, general__name="M")
    path.write_bytes(whole[: whole.index(b"tokenizer.ggml.tokens") + 40])
    found = Glance.of(path)
    assert (found.n_vocab, found.architecture, found.text("general.name")) == (50000, "llama", "M")
    path.write_bytes(header("llama", 0, more="-" * MOST_BYTES))
    with pytest.raises(ModelError, match=f"does not end within {MOST_BYTES} bytes"):
        Glance.of(path)


# ---- real files ----


def test_the_bundled_pair(home: Path, repo: Path) -> None:
    for name in ("pocket-target", "pocket-dflash", "pocket-hybrid-target"):
        shutil.copy(repo / f"dflash_local/demo/{name}.gguf", Path(f"{name}.gguf"))
    found = found_in(home)
    assert names(found) == ["pocket-hybrid-target.gguf", "pocket-target.gguf"]
    assert [path.name for path, _ in found.drafters] == ["pocket-dflash.gguf"]
    assert {model.quantization for model in found.models} == {"F16"}
    assert found.left_out == []
