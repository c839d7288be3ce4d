"""Agents that read a file and edit it, as they did with Qwen2.5-Coder-1.5B: their conversations, turn by turn, and the
model itself at the same task."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dflash_local.server.settings import Settings
from tests.coder_file import coder_file
from tests.server.live import Live, live_pair

EDITS: dict[str, Any] = json.loads((Path(__file__).parent / "fixtures" / "edits.json").read_text(encoding="utf-8"))
EDITS.pop("about")
BEFORE = 'NAME = "shop"\nPORT = 8080\nDEBUG = False\n'
AFTER = BEFORE.replace("8080", "9090")
OWN_SAMPLING = {"temperature": 0.7, "top_p": 0.8, "top_k": 20, "repeat_penalty": 1.1}
N_SEEDS, N_TURNS = 10, 6


class Call(NamedTuple):
    """A call of a tool in an answer."""

    id: str
    name: str
    arguments: Mapping[str, Any]


# ---- what the three APIs call these things ----


class Chat:
    """POST /v1/chat/completions."""

    messages, limit = "messages", "max_tokens"

    @staticmethod
    def answer(body: Any) -> tuple[list[Any], list[Call], str]:
        message = body["choices"][0]["message"]
        calls = [
            Call(call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))
            for call in message.get("tool_calls") or []
        ]
        return [message], calls, message["content"] or ""

    @staticmethod
    def results(texts: Mapping[str, str]) -> list[Any]:
        return [{"role": "tool", "tool_call_id": call, "content": text} for call, text in texts.items()]

    @staticmethod
    def read(usage: Any) -> tuple[int, int]:
        return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


class Messages:
    """POST /v1/messages."""

    messages, limit = "messages", "max_tokens"

    @staticmethod
    def answer(body: Any) -> tuple[list[Any], list[Call], str]:
        blocks = body["content"]
        calls = [Call(block["id"], block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"]
        text = "".join(block["text"] for block in blocks if block["type"] == "text")
        return [{"role": "assistant", "content": blocks}], calls, text

    @staticmethod
    def results(texts: Mapping[str, str]) -> list[Any]:
        blocks = [{"type": "tool_result", "tool_use_id": call, "content": text} for call, text in texts.items()]
        return [{"role": "user", "content": blocks}]

    @staticmethod
    def read(usage: Any) -> tuple[int, int]:
        return usage["input_tokens"] + usage["cache_read_input_tokens"], usage["cache_read_input_tokens"]


class Responses:
    """POST /v1/responses."""

    messages, limit = "input", "max_output_tokens"

    @staticmethod
    def answer(body: Any) -> tuple[list[Any], list[Call], str]:
        items = body["output"]
        calls = [
            Call(item["call_id"], item["name"], json.loads(item["arguments"]))
            for item in items
            if item["type"] == "function_call"
        ]
        text = "".join(part["text"] for item in items if item["type"] == "message" for part in item["content"])
        return items, calls, text

    @staticmethod
    def results(texts: Mapping[str, str]) -> list[Any]:
        return [{"type": "function_call_output", "call_id": call, "output": text} for call, text in texts.items()]

    @staticmethod
    def read(usage: Any) -> tuple[int, int]:
        return usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]


API = Chat | Messages | Responses
APIS: dict[str, API] = {"claude": Messages(), "codex": Responses()}


def post(server: Live, agent: Mapping[str, Any], body: Mapping[str, Any]) -> Any:
    whole = {**body, "stream": False}
    whole.pop("stream_options", None)  # which only a stream may have
    response = server.http.post(agent["path"], headers=agent["headers"], json=whole, timeout=300)
    assert response.status_code == 200, response.text
    assert "x-dflash-ignored" not in response.headers, response.headers
    return response.json()


# ---- their conversations ----


@pytest.fixture(scope="module")
def pocket_server(pocket: dict[str, Path]) -> Iterator[Live]:
    with live_pair(pocket["target"], pocket["dflash"], Settings(alias="coder"), n_ctx=4096, n_slots=1) as running:
        yield running


@pytest.mark.parametrize("name", EDITS)
def test_each_turn_is_understood_and_reads_only_what_is_new(pocket_server: Live, name: str) -> None:
    agent = EDITS[name]
    api = APIS.get(name, Chat())
    body = {**agent["first"], api.limit: 1, "temperature": 0}
    last = 0
    for turn in ([], *agent["turns"]):
        body[api.messages] = [*body[api.messages], *turn]
        n_prompt, n_cached = api.read(post(pocket_server, agent, body)["usage"])
        assert n_prompt > last
        # The template may write the begin of an answer in another way once the answer is known.
        assert n_cached >= last - 8
        last = n_prompt


# ---- the model itself ----


class Shop:
    """The folder, and what the agents' tools do in it."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "settings.py"
        self.file.write_text(BEFORE, encoding="utf-8")

    def run(self, call: Call) -> str:
        if call.name == "exec_command":
            return self._execute(str(call.arguments.get("cmd")))
        named = {re.sub(r"[A-Z]", lambda c: "_" + c[0].lower(), name): text for name, text in call.arguments.items()}
        if Path(str(named.get("file_path", named.get("filepath")))).name != self.file.name:
            return "There is no such file."
        if call.name.lower() == "edit":
            return self._edit(str(named.get("old_string")), str(named.get("new_string")))
        return self.file.read_text(encoding="utf-8")

    def _edit(self, old: str, new: str) -> str:
        text = self.file.read_text(encoding="utf-8")
        if old not in text:
            return f"The text to replace is not in the file: {old}"
        self.file.write_text(text.replace(old, new, 1), encoding="utf-8")
        return f"The file /home/user/shop/{self.file.name} has been updated."

    def _execute(self, command: str) -> str:
        """`cat` and `sed` only, and without what GNU's sed could run or write elsewhere."""
        try:
            program, *arguments = shlex.split(command)
        except ValueError as error:
            return f"bash: {error}"
        if program not in ("cat", "sed") or Path(arguments[-1]).name != self.file.name:
            return f"bash: {program}: command not found"
        safe = ["--sandbox"] if program == "sed" else []
        ran = subprocess.run(
            [program, *safe, *arguments[:-1], self.file.name],
            cwd=self.file.parent, capture_output=True, text=True, check=False, timeout=10,
        )  # fmt: skip
        return f"Process exited with code {ran.returncode}\nOutput:\n{ran.stdout}{ran.stderr}"


@pytest.fixture(scope="module")
def coder_server() -> Iterator[Live]:
    with live_pair(coder_file(), settings=Settings(alias="coder"), n_ctx=4096, n_slots=1) as running:
        yield running


def finishes(server: Live, agent: Mapping[str, Any], api: API, shop: Shop, seed: int) -> bool:
    """True if the model reads the file, edits it, and then says so."""
    body = {**agent["first"], **OWN_SAMPLING, "seed": seed, api.limit: 300}
    results: list[str] = []
    for _ in range(N_TURNS):
        answer, calls, text = api.answer(post(server, agent, body))
        if not calls:
            return bool(text) and BEFORE in "".join(results) and shop.file.read_text(encoding="utf-8") == AFTER
        told = {call.id: shop.run(call) for call in calls}
        results += told.values()
        body[api.messages] = [*body[api.messages], *answer, *api.results(told)]
    return False


@pytest.mark.slow
@pytest.mark.parametrize("name", EDITS)
def test_the_coder_finishes(coder_server: Live, tmp_path: Path, name: str) -> None:
    """With its own sampling: a model of this size does not always stop after the edit."""
    ended = (
        finishes(coder_server, EDITS[name], APIS.get(name, Chat()), Shop(tmp_path), seed) for seed in range(N_SEEDS)
    )
    assert any(ended)
