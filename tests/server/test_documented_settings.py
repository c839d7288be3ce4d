"""Settings that docs/clients.md and docs/ollama.md give for programs besides what `launch` prints: each block is read
as the program reads it, names the server that the page starts, and its Python runs against one."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dflash_local import cli
from dflash_local.server.settings import Settings
from tests.server.live import Live, live_pair

DOCS = Path(__file__).resolve().parents[2] / "docs"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SERVER, OLLAMA, INFILL = (f"http://127.0.0.1:{port}" for port in (8080, 11434, 8012))


def text_of(page: str) -> str:
    return (DOCS / f"{page}.md").read_text(encoding="utf-8")


def block(page: str, language: str, word: str) -> str:
    """The page's only block of code in this language that has this word."""
    (code,) = (code for found, code in BLOCK.findall(text_of(page)) if found == language and word in code)
    return code


def printed(capsys: pytest.CaptureFixture[str], name: str) -> str:
    """What `launch` sets for a program."""
    assert cli.main(["launch", name, "--print", "--port", "1"]) == 0  # where no server is
    return capsys.readouterr().out.replace("127.0.0.1:1/", "127.0.0.1:8080/")


def test_all_blocks_are_tried_here() -> None:
    """A new one needs a test."""
    found = {page: [language for language, _ in BLOCK.findall(text_of(page))] for page in ("clients", "ollama")}
    assert found == {"clients": ["toml", "json", "yaml", "json", "json", "vim", "python"], "ollama": ["json", "python"]}


def test_codex(capsys: pytest.CaptureFixture[str]) -> None:
    """The file says what the arguments of `launch codex` say, but the key, which it needs none."""
    tomllib = pytest.importorskip("tomllib")  # of Python 3.11
    settings = tomllib.loads(block("clients", "toml", "model_provider"))
    words = shlex.split(printed(capsys, "codex").partition("\ncodex")[2].replace("\\\n", ""))
    given = tomllib.loads("\n".join(words[1::2]))
    assert set(words[::2]) == {"-c"}
    given["model_providers"]["dflash"].pop("env_key")
    assert settings == given


def test_continue(capsys: pytest.CaptureFixture[str]) -> None:
    (model,) = yaml.safe_load(block("clients", "yaml", "models:"))["models"]
    text = printed(capsys, "continue")
    (given,) = json.loads(text[text.index("{") : text.index("\nEOF")])["models"]
    assert model.items() <= given.items()


def test_opencodes_agent() -> None:
    """With the tools that it had in the conversation of fixtures/edits.json."""
    (agent,) = json.loads(block("clients", "json", '"agent"'))["agent"].values()
    edits = json.loads((Path(__file__).parent / "fixtures" / "edits.json").read_text(encoding="utf-8"))
    had = {tool["function"]["name"] for tool in edits["opencode"]["first"]["tools"]}
    assert {name for name, has in agent["tools"].items() if has} == had
    assert agent["mode"] == "primary" and agent["tools"]["*"] is False


def test_zed() -> None:
    settings = json.loads(block("clients", "json", "language_models"))["language_models"]
    (provider,) = settings["openai_compatible"].values()
    (model,) = provider["available_models"]
    assert provider["api_url"] == f"{SERVER}/v1"
    assert model["max_tokens"] == 32768 and model["capabilities"] == {"tools": True, "images": False}


def test_copilot() -> None:
    assert json.loads(block("ollama", "json", "copilot")) == {"github.copilot.chat.byok.ollamaEndpoint": OLLAMA}


def test_editors() -> None:
    """They find the server of the line above them."""
    line = re.search(r"^dflash-local serve .*--port 8012.*$", text_of("clients"), re.MULTILINE)
    assert line and cli.parser(["serve"]).parse_args(shlex.split(line[0])[1:])
    assert json.loads(block("clients", "json", "llama-vscode")) == {"llama-vscode.endpoint": INFILL}
    assert block("clients", "vim", "llama_config") == f"let g:llama_config = {{ 'endpoint_fim': '{INFILL}/infill' }}\n"


# ---- Python ----


@pytest.fixture(scope="module")
def server(pocket: dict[str, Path]) -> Iterator[Live]:
    with live_pair(pocket["target"], settings=Settings(alias="pocket"), n_ctx=2048, n_slots=1) as running:
        yield running


@pytest.mark.parametrize(("page", "url"), [("clients", SERVER), ("ollama", OLLAMA)])
def test_langchain(page: str, url: str, server: Live) -> None:
    code = block(page, "python", "langchain")
    assert url in code
    names: dict[str, Any] = {}
    exec(code.replace(url, server.url), names)
    answer = names["model"].invoke("What is 48 plus 24?")
    assert answer.content and answer.usage_metadata["output_tokens"] > 0
