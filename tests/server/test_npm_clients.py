"""npm's packages `ollama` and `ollama-ai-provider-v2`, against the pocket pair. Answers are those of OpenAI's API."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dflash_local.server.settings import Settings
from tests.patience import PATIENCE
from tests.server.live import Live, live_pair

pytestmark = [
    pytest.mark.slow,  # npm fetches them
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed"),
]

HERE = Path(__file__).parent / "npm_clients"
MODEL = "pocket"
ASK: Any = [{"role": "user", "content": "What is 48 plus 24?"}]


@pytest.fixture(scope="module")
def server(pocket: dict[str, Path]) -> Iterator[Live]:
    settings = Settings(alias=MODEL, model_path=str(pocket["target"]))
    with live_pair(pocket["target"], pocket["dflash"], settings, n_ctx=4096, n_slots=2) as running:
        yield running


@pytest.fixture(scope="module")
def told(server: Live, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What both packages made of the server's answers."""
    folder = tmp_path_factory.mktemp("npm") / "clients"
    shutil.copytree(HERE, folder, ignore=shutil.ignore_patterns("node_modules"))
    run(["npm", "ci"], folder)
    return json.loads(run(["node", "clients.mjs", server.url, MODEL], folder))


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=4 * PATIENCE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def plain(server: Live) -> Any:
    return server.openai.chat.completions.create(model=MODEL, messages=ASK, temperature=0, max_tokens=120).choices[0]


def test_ollama(server: Live, told: Any) -> None:
    found = told["ollama"]
    assert found["whole"] == found["streamed"] == plain(server).message.content
    assert found["done"] == "stop"
    assert [call["function"]["name"] for call in found["calls"]] == ["get_weather"]
    assert isinstance(found["calls"][0]["function"]["arguments"]["city"], str)
    assert isinstance(found["shaped"]["answer"], int)
    assert found["tags"] == [f"{MODEL}:latest"]
    assert {"completion", "tools"} <= set(found["capabilities"])


def test_ollama_ai_provider(server: Live, told: Any) -> None:
    found = told["provider"]
    assert found["whole"] == found["streamed"] == plain(server).message.content
    assert (found["finish"], found["tokens"] > 0) == ("stop", True)
    assert found["asked"] and all(isinstance(city, str) for city in found["asked"])
    assert isinstance(found["told"], str)
    assert isinstance(found["object"]["answer"], int)
