"""Qwen2.5-Coder's template asks for calls in the form in which the model writes them; llama.cpp's parser follows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dflash_local.convert.gguf_metadata import read_header, string
from dflash_local.convert.writer import OutputTensor, write_gguf
from dflash_local.engine import Engine
from dflash_local.fenced_calls import fenced_template, with_fences
from dflash_local.native import NativeEngine
from tests.coder_file import coder_file
from tests.engine.test_chat_shim import CALL, CLOCK, TOOLS, USER, WEATHER, answer, apply, joined
from tests.ggml_ops.native import llama_source

SINGLE = (llama_source() / "models" / "templates" / "Qwen-Qwen2.5-7B-Instruct.jinja").read_text(encoding="utf-8")
# The example of Qwen2.5-Coder's own template, else the same, has its braces twice.
OWN = SINGLE.replace('{\\"name\\": <', '{{\\"name\\": <').replace("object>}", "object>}}")
FENCED = with_fences(OWN)
NAMES = {"general.basename": "Qwen2.5-Coder", "general.finetune": "Instruct"}

LONDON = '{\n  "name": "get_weather",\n  "arguments": {\n    "city": "London"\n  }\n}'
ONE = f"```tool_call\n{LONDON}\n```"
TWO = f'```tool_call\n{{"name": "get_weather", "arguments": {{"city": "Paris"}}}}\n```\n{ONE}'
PACKAGE = (
    'Such a file:\n\n```json\n{\n  "name": "get_weather",\n  "arguments": {"city": "Oslo"}\n}\n```\n\nThat is all.'
)


def model(source: Path, path: Path, names: dict[str, str], template: str = OWN) -> Path:
    """A copy of a GGUF with this template and these names, which stand first, as in published files."""
    metadata, tensors = read_header(source)
    named = {key: string(value) for key, value in {"general.name": "", **names}.items()}
    keys = {**named, **metadata, **named, "tokenizer.chat_template": string(template)}
    write_gguf(path, keys, [OutputTensor.of(tensor) for tensor in tensors.values()])
    return path


def test_only_this_models_template_is_changed(pocket: dict[str, Path], tmp_path: Path) -> None:
    def changed(template: str = OWN, **other: str) -> str | None:
        names = NAMES | {f"general.{key}": value for key, value in other.items()}
        return fenced_template(model(pocket["target"], tmp_path / "model.gguf", names, template))

    assert changed() == FENCED
    assert "<tool_call>" not in FENCED
    assert changed(basename="", name="Qwen2.5 Coder 7B Instruct GGUF") == FENCED
    assert changed(SINGLE) == FENCED  # a file whose braces were put right
    assert changed(FENCED) is None
    assert changed(basename="Qwen2.5") is None
    assert changed(basename="Qwen3-Coder") is None
    assert changed(finetune="Instruct-Tools") is None  # it may have learned the tags
    assert fenced_template(pocket["target"]) is None
    assert fenced_template(tmp_path / "none.gguf") is None


def test_when_it_is_used(pocket: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "dflash_local.engine")
    path = model(pocket["target"], tmp_path / "model.gguf", NAMES)

    def used(**options: Any) -> tuple[str, bool, int]:
        caplog.clear()
        with Engine(path, n_ctx=256, n_slots=1, n_threads=1, warmup=False, **options) as engine:
            said = sum("--no-fenced-calls" in record.getMessage() for record in caplog.records)
            return engine.info["chat_template"].rstrip(), engine.info["fenced_calls"], said

    assert used() == (FENCED.rstrip(), True, 1)
    assert used(fenced_calls=False) == (OWN.rstrip(), False, 0)
    assert used(chat_template=SINGLE) == (SINGLE.rstrip(), False, 0)


def test_chats_without_tools_are_the_same(engine: NativeEngine) -> None:
    chats: list[list[dict[str, Any]]] = [
        USER,
        [{"role": "system", "content": "Be brief."}, *USER, {"role": "assistant", "content": "Yes."}, *USER],
    ]
    for messages in chats:
        fenced, own = apply(engine, FENCED, messages=messages), apply(engine, OWN, messages=messages)
        assert fenced["sampling"].pop("preserved_tokens") != own["sampling"].pop("preserved_tokens")
        assert fenced == own


def test_earlier_calls_are_shown_as_the_model_writes_them(engine: NativeEngine) -> None:
    turns = [
        *USER,
        {"role": "assistant", "content": "I look.", "tool_calls": [CALL, CALL | {"id": "call_2"}]},
        {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
        {"role": "tool", "tool_call_id": "call_2", "content": "rain"},
    ]
    prompt = apply(engine, FENCED, messages=turns, tools=TOOLS)["prompt"]
    call = '\n```tool_call\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n```'
    assert f"I look.{call}{call}<|im_end|>" in prompt
    assert '```tool_call\n{"name": <function-name>, "arguments": <args-json-object>}\n```<|im_end|>' in prompt


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_answers(engine: NativeEngine, size: int) -> None:
    """Calls become calls, also two, and after a text; other blocks of code, whatever is in them, stay text."""
    applied = apply(engine, FENCED, tools=TOOLS, parallel_tool_calls=True)
    for text, cities in ((ONE, ["London"]), (TWO, ["Paris", "London"]), (f"I look.\n{ONE}", ["London"]), (PACKAGE, [])):
        message, deltas = answer(engine, applied, text, size)
        calls = [call["function"] for call in message.get("tool_calls", [])]
        assert [call["name"] for call in calls] == ["get_weather"] * len(cities)
        assert [city(call["arguments"]) for call in calls] == cities
        assert (message["content"] or "").strip() == text.partition("```tool_call")[0].strip()
        assert [call["function"] for call in joined(deltas).get("tool_calls", [])] == calls


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_block_of_code_at_the_end_keeps_its_fence(engine: NativeEngine, size: int) -> None:
    applied = apply(engine, FENCED, tools=TOOLS, parallel_tool_calls=True)
    for text in ("See:\n```py\nf()\n```", "See:\n```py\nf()\n```\n", "Call `f`", "See:\n```tool_call"):
        message, deltas = answer(engine, applied, text, size)
        assert message == joined(deltas) == {"role": "assistant", "content": text}


def city(arguments: str) -> str:
    return str(json.loads(arguments)["city"])


def test_only_the_block_of_calls_is_bound_to_the_tools(engine: NativeEngine) -> None:
    sampling = apply(engine, FENCED, tools=[WEATHER, CLOCK])["sampling"]
    assert sampling["grammar_lazy"]
    assert sampling["grammar_triggers"] == [{"type": "word", "value": "```tool_call\n"}]


# ---- the model itself ----


@pytest.fixture(scope="module")
def coder() -> Iterator[Engine]:
    with Engine(coder_file(), n_ctx=4096, n_slots=1) as engine:
        yield engine


@pytest.mark.slow
def test_the_model_calls_tools(coder: Engine) -> None:
    reply = coder.chat([{"role": "user", "content": "What is the weather in Paris?"}], tools=TOOLS, temperature=0)
    (call,) = reply.message["tool_calls"]
    assert (call["function"]["name"], city(call["function"]["arguments"])) == ("get_weather", "Paris")


@pytest.mark.slow
def test_the_models_other_blocks_are_text(coder: Engine) -> None:
    ask = "Show me an example of a package.json in a block of code. Do not use a tool."
    reply = coder.chat([{"role": "user", "content": ask}], tools=TOOLS, temperature=0, max_tokens=300)
    assert "```json" in reply.message["content"]
    assert not reply.message.get("tool_calls")
