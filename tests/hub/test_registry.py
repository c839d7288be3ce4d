"""The list of pairs: ours is sound and covers the targets that we name, and a user's file adds to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dflash_local.cli import main
from dflash_local.diagnose.architectures import TAPPED_ARCHS
from dflash_local.errors import HubError
from dflash_local.hub import registry

# Repositories of quantized targets as people publish them, and what they hold.
PUBLISHED = {
    "unsloth/Qwen3-4B-GGUF": "Qwen3-4B",
    "Qwen/Qwen3-8B-GGUF": "Qwen3-8B",
    "bartowski/Qwen_Qwen3-8B-GGUF": "Qwen3-8B",
    "unsloth/Qwen3-8B-128K-GGUF": "Qwen3-8B",
    "mradermacher/Qwen3-8B-i1-GGUF": "Qwen3-8B",
    "unsloth/Qwen3-Coder-30B-A3B-Instruct-GGUF": "Qwen3-Coder-30B-A3B",
    "unsloth/Qwen3-Coder-Next-GGUF": "Qwen3-Coder-Next",
    "unsloth/Qwen3.5-4B-GGUF": "Qwen3.5-4B",
    "unsloth/Qwen3.5-9B-GGUF": "Qwen3.5-9B",
    "unsloth/Qwen3.5-27B-GGUF": "Qwen3.5-27B",
    "unsloth/Qwen3.5-35B-A3B-GGUF": "Qwen3.5-35B-A3B",
    "unsloth/Qwen3.5-122B-A10B-GGUF": "Qwen3.5-122B-A10B",
    "unsloth/Qwen3.6-27B-GGUF": "Qwen3.6-27B",
    "lmstudio-community/Qwen3.6-35B-A3B-GGUF": "Qwen3.6-35B-A3B",
    "ggml-org/Qwen3.8-27B-GGUF": "Qwen3.8-27B",
    "unsloth/gemma-4-26B-A4B-it-GGUF": "gemma-4-26B-A4B-it",
    "bartowski/google_gemma-4-31B-it-GGUF": "gemma-4-31B-it",
    "ggml-org/gpt-oss-20b-GGUF": "gpt-oss-20b",
    "unsloth/gpt-oss-120b-GGUF": "gpt-oss-120b",
    "unsloth/Llama-3.1-8B-Instruct-GGUF": "Llama-3.1-8B-Instruct",
    "bartowski/Meta-Llama-3.1-8B-Instruct-GGUF": "Llama-3.1-8B-Instruct",
    "unsloth/MiniMax-M2.7-GGUF": "MiniMax-M2.7",
    "unsloth/MiniMax-M2.5-GGUF": "MiniMax-M2.5",
    "unsloth/Kimi-K2.5-GGUF": "Kimi-K2.5",
    "unsloth/Kimi-K2.6-GGUF": "Kimi-K2.6",
    "unsloth/GLM-5.2-GGUF": "GLM-5.2",
    "unsloth/GLM-5.3-GGUF": "GLM-5.3",
    "unsloth/GLM-5.3-Flash-GGUF": "GLM-5.3-Flash",
    "ggml-org/DeepSeek-V4-Flash-0731-GGUF": "DeepSeek-V4-Flash",
}


@pytest.fixture(autouse=True)
def clean(cache_folder: Path) -> None: ...


def known(name: str) -> registry.KnownTarget | None:
    return registry.by_name(registry.known_targets(), name)


@pytest.mark.parametrize(("repository", "target"), PUBLISHED.items())
def test_targets_are_known_by_name(repository: str, target: str) -> None:
    found = known(repository)
    assert found and found.name == target


@pytest.mark.parametrize(
    "repository",
    [
        "user/Qwen3-8B-abliterated-GGUF", "user/Qwen3-80B-GGUF", "user/MyQwen3-8B-GGUF", "user/Qwen3-VL-8B-GGUF",
        "user/DeepSeek-R1-0528-Qwen3-8B-GGUF", "user/gemma-4-31B-GGUF", "user/Qwen3_5-4B-GGUF",
    ],
)  # fmt: skip
def test_other_models_are_not(repository: str) -> None:
    assert known(repository) is None


def test_every_target_can_be_used_or_says_why_not() -> None:
    for target in registry.known_targets():
        assert target.drafters or target.none, target.name
        for drafter in target.drafters:
            assert drafter.file.is_file() if drafter.file else str(drafter.repository).count("/") == 1
            assert drafter.refused is None or len(drafter.refused) > 10
        names = [str(drafter) for drafter in target.drafters]
        assert len(names) == len(set(names))


def shape(architecture: str, n_embd: int, n_layer: int, n_vocab: int = 1) -> dict[str, Any]:
    return {"architecture": architecture, "n_embd": n_embd, "n_layer": n_layer, "n_vocab": n_vocab}


@pytest.mark.parametrize(
    ("wanted", "names", "expected"),
    [
        (shape("qwen3", 4096, 36, 151936), ["whatever"], ["Qwen3-8B"]),
        (shape("qwen3", 4096, 36, 151937), ["whatever"], []),
        (shape("qwen35", 5120, 64, 248320), ["Qwen3.6-27B-UD-Q4_K_XL"], ["Qwen3.6-27B"]),
        (shape("qwen35", 5120, 64, 248320), ["model", "Qwen3.5 27B"], ["Qwen3.5-27B"]),
        (shape("qwen35", 5120, 64, 248320), ["mine"], ["Qwen3.5-27B", "Qwen3.6-27B"]),
        (shape("qwen3moe", 2048, 48), ["Qwen3-30B-A3B-Q4_0"], ["Qwen3-30B-A3B"]),
        (shape("qwen3moe", 2048, 48), ["mine"], ["Qwen3-Coder-30B-A3B"]),
        (shape("minimax-m2", 3072, 62, 200064), ["MiniMax-M2.7-Q4_K_M-00001-of-00003"], ["MiniMax-M2.7"]),
        (shape("qwen3", 256, 6, 1699), ["pocket-target"], []),
        (shape("llama", 576, 30, 49152), ["SmolLM2-135M-Instruct.Q4_1"], ["SmolLM2-135M-Instruct"]),
    ],
)
def test_local_files_are_known_by_shape(wanted: dict[str, Any], names: list[str], expected: list[str]) -> None:
    assert [target.name for target in registry.by_shape(registry.known_targets(), wanted, lambda: names)] == expected


def test_refusals_of_drafters() -> None:
    targets = registry.known_targets()
    assert "four residual streams" in (registry.refusal(targets, "RedHatAI/DeepSeek-V4-Flash-speculator.dflash") or "")
    assert registry.refusal(targets, "z-lab/Qwen3-8B-DFlash-b16") is None


@pytest.fixture
def user_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    path = tmp_path / "config" / "dflash-local" / "pairs.json"
    path.parent.mkdir(parents=True)
    return path


def test_a_users_file_comes_first(user_file: Path) -> None:
    drafters = [{"repository": "me/Mine", "revision": "abc"}]
    entry = {"target": "Mine", "repositories": ["qwen3-8b"], "drafters": drafters}
    user_file.write_text(json.dumps({"targets": [entry]}))
    found = known("unsloth/Qwen3-8B-GGUF")
    assert found and str(found.drafters[0]) == "me/Mine@abc" and found.drafters[0].kind == "DFlash"
    assert known("unsloth/Qwen3-4B-GGUF")


def test_a_file_of_the_users_list(user_file: Path) -> None:
    """It is named from the list's folder, or from the root or the user's home."""
    files = ["mine/a.gguf", "/models/b.gguf", "~/c.gguf"]
    user_file.write_text(json.dumps({"targets": [GOOD | {"drafters": [{"file": file} for file in files]}]}))
    found = known("me/T-GGUF")
    assert found
    paths = [drafter.file for drafter in found.drafters]
    assert paths == [user_file.parent / "mine" / "a.gguf", Path("/models/b.gguf"), Path.home() / "c.gguf"]
    assert found.drafters[1].flags == ("-md", "/models/b.gguf") and found.drafters[1].format == "GGUF"
    assert not found.files and not found.usable
    for target in registry.targets_with_files():
        assert target.name != "T" or target == found
    (user_file.parent / "mine").mkdir()
    (user_file.parent / "mine" / "a.gguf").touch()
    assert found.files == [paths[0]] and found.usable == [found.drafters[0]]


GOOD = {"target": "T", "repositories": ["t"], "drafters": []}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot read"),
        ("[]", "the file must be an object"),
        ({"pairs": []}, "the unknown key 'pairs'"),
        ({"targets": {}}, "'targets' must be a list"),
        ({"targets": [GOOD | {"target": None}]}, "a target has no name"),
        ({"targets": [GOOD | {"repositories": []}]}, "T needs 'repositories', or a 'shape'"),
        ({"targets": [GOOD | {"repositories": ["("]}]}, "must be a list of patterns"),
        ({"targets": [GOOD | {"shape": {"n_embd": "4096"}}]}, "T: 'n_embd' must be of type int"),
        ({"targets": [GOOD | {"shape": {"width": 1}}]}, "the shape of T has the unknown key 'width'"),
        ({"targets": [GOOD | {"drafters": [{"repository": "x"}]}]}, "has no 'repository'"),
        (
            {"targets": [GOOD | {"drafters": [{"repository": "a/b", "file": "c"}]}]},
            "a 'file' and 'repository', which is for",
        ),
        ({"targets": [GOOD | {"drafters": [{"file": "c", "revision": "v1"}]}]}, "and 'revision', which is for the Hub"),
        ({"targets": [GOOD | {"drafters": [{"file": "~nobody-here/c"}]}]}, "a user who is not known here"),
        ({"targets": [GOOD | {"drafters": [{"file": 1}]}]}, "a drafter of T: 'file' must be a text"),
        ({"targets": [GOOD | {"drafters": [{"repository": "a/b", "kind": 2}]}]}, "a/b: 'kind' must be a text"),
        ({"targets": [GOOD | {"drafters": [{"repository": "a/b", "gated": "no"}]}]}, "'gated' must be true or false"),
        ({"targets": [GOOD | {"drafters": ["a/b"]}]}, "a drafter of T must be an object"),
    ],
)
def test_a_wrong_file_is_named(user_file: Path, content: Any, message: str) -> None:
    user_file.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(HubError) as caught:
        registry.known_targets()
    assert str(user_file) in caught.value.message and message in caught.value.message
    assert caught.value.hint == "docs/models.md describes the file"


def test_pairs_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pairs"]) == 0
    out = capsys.readouterr().out
    for target in registry.known_targets():
        assert f"{target.name}\n" in out
    assert "  z-lab/gpt-oss-20b-DFlash@d53f6551 " in out and "gated; unverified" in out
    assert main(["pairs", "unsloth/Qwen3-8B-GGUF"]) == 0
    assert capsys.readouterr().out.startswith("Qwen3-8B\n  z-lab/Qwen3-8B-DFlash-b16 ")
    assert main(["pairs", "deepseek-v4-flash"]) == 0
    assert "refused: it reads all four residual streams" in capsys.readouterr().out
    assert main(["pairs", "nonsense"]) == 1


def test_pairs_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pairs", "--json"]) == 0
    entries = {entry["target"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert entries["Qwen3-8B"]["refused"] is None
    assert entries["Qwen3.5-4B"]["drafters"][0]["revision"] == "9a1996cc"
    refused = {entry["shape"].get("architecture") for entry in entries.values() if entry["refused"]}
    assert refused.isdisjoint(TAPPED_ARCHS)
    assert "kimi-k3" in refused


@pytest.mark.parametrize(
    ("path", "shape", "expected"),
    [
        ("any.gguf", {"architecture": "qwen3", "n_embd": 4096}, True),
        ("any.gguf", {"architecture": "qwen3", "n_embd": 4095}, False),
        ("any.gguf", {"architecture": "llama", "n_embd": 960}, False),
        ("any.gguf", {"architecture": "qwen3moe", "n_embd": 2048}, True),  # no width is listed
        ("any.gguf", {"architecture": "new", "n_embd": 5120}, True),  # no architecture is listed
        ("folder/GLM-5.3-Q4_K_M.gguf", {"architecture": "new", "n_embd": 1}, True),  # neither, but the name
    ],
)
def test_few_facts_rule_most_files_out(path: str, shape: dict[str, Any], expected: bool) -> None:
    assert registry.may_know(path, shape) is expected
