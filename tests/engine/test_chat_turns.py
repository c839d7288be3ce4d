"""Conversations as agents and chat pages send them, in all chat templates that the pinned llama.cpp brings: each is
rendered, and nothing that was said is lost without a word."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from dflash_local.conversation import ChatPrompt, chat_body
from dflash_local.native import NativeEngine
from dflash_local.server.fields.messages import MessagesRequest
from dflash_local.server.fields.responses import ResponsesRequest
from tests.fast import some_fast
from tests.ggml_ops.native import llama_source

Body = dict[str, Any]

TEMPLATES = llama_source() / "models" / "templates"
# Those that refuse or drop something, and a few that take everything.
PICKY = (
    "Mistral-Small-3.2-24B-Instruct-2506", "mistralai-Ministral-3-14B-Reasoning-2512",
    "mistralai-Mistral-Nemo-Instruct-2407", "google-gemma-2-2b-it", "meta-llama-Llama-3.1-8B-Instruct",
    "microsoft-Phi-3.5-mini-instruct", "llama-cpp-deepseek-r1", "GLM-4.6", "MiniMax-M2", "Qwen3-Coder",
)  # fmt: skip
PARAMETERS: Body = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOLS = [
    {"type": "function", "function": {"name": name, "description": "d", "parameters": PARAMETERS}}
    for name in ("read", "write")
]
SHORT_ID = re.compile(r"[0-9A-Za-z]{9}")


def system(n: int) -> Body:
    return {"role": "system", "content": f"instruction{n}x"}


def user(n: int) -> Body:
    return {"role": "user", "content": f"question{n}x"}


def answer(n: int) -> Body:
    return {"role": "assistant", "content": f"answer{n}x"}


def call(*ids: str, arguments: str = '{"path": "a.py"}', **more: Any) -> Body:
    calls = [{"id": one, "type": "function", "function": {"name": "read", "arguments": arguments}} for one in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls, **more}


def result(call_id: str, n: int) -> Body:
    return {"role": "tool", "tool_call_id": call_id, "content": f"result{n}x"}


def from_messages(*turns: Body, **body: Any) -> list[Body]:
    """The chat of Anthropic's turns."""
    return MessagesRequest.of({"messages": list(turns), **body}).chat().given()["messages"]


def from_responses(*items: Body, **body: Any) -> list[Body]:
    """The chat of a response's items."""
    return ResponsesRequest.of({"input": list(items), **body}).chat().given()["messages"]


CLAUDE = "toolu_01A09q90qw90lq917835lq9"
OWN = "call_Zz0123456789abcdefghijkl"
SHAPES: dict[str, list[Body]] = {
    "a question": [system(1), user(1), answer(1), user(2)],
    "claude code: results, and a reminder in the same turn": from_messages(
        {"role": "user", "content": [{"type": "text", "text": "question1x"}]},
        {"role": "assistant", "content": [
            {"type": "tool_use", "id": CLAUDE, "name": "read", "input": {"path": "a"}},
            {"type": "tool_use", "id": "toolu_2", "name": "read", "input": {}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": CLAUDE, "content": "result1x"},
            {"type": "tool_result", "tool_use_id": "toolu_2", "content": [{"type": "text", "text": "result2x"}]},
            {"type": "text", "text": "question2x"}]},
        {"role": "assistant", "content": "answer2x"},
        {"role": "system", "content": "instruction2x"},
        {"role": "user", "content": "question3x"},
        system=[{"type": "text", "text": "instruction1x"}],
    ),
    "codex: a chain of calls, broken off by a question": from_responses(
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "instruction2x"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "question1x"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "question2x"}]},
        {"type": "function_call", "call_id": "call_1", "name": "read", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "result1x"},
        {"type": "function_call", "call_id": "call_2", "name": "read", "arguments": ""},
        {"type": "function_call_output", "call_id": "call_2", "output": "result2x"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "question3x"}]},
        instructions="instruction1x",
    ),
    "codex: at work": [system(1), user(1), call("call_1"), result("call_1", 1), call("call_2"), result("call_2", 2)],
    "opencode: two system messages, text beside a call": [
        system(1), system(2), user(1), call("call_1", content="beside"), result("call_1", 1), answer(2), user(2)],
    "opencode: several calls at once": [user(1), call("a", "b", "c"), result("b", 2), result("a", 1), result("c", 3)],
    "continue: parts, and an empty answer": [
        system(1),
        {"role": "user", "content": [{"type": "text", "text": text} for text in ("question1x", "question2x")]},
        {"role": "assistant", "content": ""}, user(3)],
    "continue: a result in parts": [
        user(1), call("c"), {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "result1x"}]}],
    "open webui: instructions in the middle": [system(1), user(1), answer(1), system(2), user(2)],
    "open webui: two questions, two answers": [user(1), user(2), answer(1), answer(2), user(3)],
    "a greeting first": [system(1), answer(1), user(1)],
    "the server's own id": [user(1), call(OWN), result(OWN, 1)],
    "no ids": [user(1), {**call(""), "content": ""}, {"role": "tool", "content": "result1x"}],
    "a call that was cut off": [user(1), call("c1", arguments='{"path": "a'), result("c1", 1)],
    "a call without sense": [user(1), call("c1", arguments="a.py"), result("c1", 1), user(2)],
}  # fmt: skip


def apply(engine: NativeEngine, template: str, messages: list[Body], **body: Any) -> ChatPrompt:
    source = (TEMPLATES / f"{template}.jinja").read_text(encoding="utf-8")
    return ChatPrompt.of(engine.chat_apply(source, chat_body({"messages": messages, **body})))


def said(messages: list[Body], *kinds: str) -> set[str]:
    return set(re.findall(rf"\b(?:{'|'.join(kinds)})\dx", json.dumps(messages)))


@pytest.mark.parametrize(
    "template",
    some_fast(sorted(path.stem for path in TEMPLATES.glob("*.jinja")), fast=PICKY),
)
def test_all_that_was_said_is_shown(engine: NativeEngine, template: str) -> None:
    for name, messages in SHAPES.items():
        for tools in ({"tools": TOOLS}, {}):
            applied = apply(engine, template, messages, **tools)
            lost = {text for text in said(messages, "instruction", "question", "result") if text not in applied.prompt}
            assert not lost, (name, tools)
            lost = {text for text in (*said(messages, "answer"), "beside") if text not in applied.prompt}
            assert not lost & said(messages, "answer"), (name, tools)
            told = "messages[].content" in applied.ignored
            assert told == ("beside" in json.dumps(messages) and "beside" in lost), (name, tools)


def test_mistral_gets_ids_that_it_takes_and_the_same_ones_every_time(engine: NativeEngine) -> None:
    template = "Mistral-Small-3.2-24B-Instruct-2506"
    chat = [user(1), call(OWN), result(OWN, 1)]
    first = apply(engine, template, chat, tools=TOOLS).prompt
    ids = re.findall(r"\[CALL_ID\](\w+)|\[TOOL_RESULTS\](\w+)", first)
    assert ids and len({one or other for one, other in ids}) == 1
    assert SHORT_ID.fullmatch(ids[0][0])
    longer = apply(engine, template, [*chat, answer(1), user(2)], tools=TOOLS).prompt
    assert ids == re.findall(r"\[CALL_ID\](\w+)|\[TOOL_RESULTS\](\w+)", longer)
    kept = apply(engine, template, [user(1), call("abc123def"), result("abc123def", 1)], tools=TOOLS).prompt
    assert "[CALL_ID]abc123def" in kept


def test_what_a_template_takes_stays_as_it_is(engine: NativeEngine) -> None:
    """A template that shows ids shows those that were sent, and a question after a result is one."""
    prompt = apply(engine, "moonshotai-Kimi-K2", [user(1), call(OWN), result(OWN, 1), user(2)], tools=TOOLS).prompt
    assert OWN in prompt
    assert "<|im_user|>user<|im_middle|>question2x" in prompt


def test_a_question_after_a_result_stays_a_question(engine: NativeEngine) -> None:
    chat = [user(1), call("abc123def"), result("abc123def", 1), user(2)]
    prompt = apply(engine, "Mistral-Small-3.2-24B-Instruct-2506", chat, tools=TOOLS).prompt
    assert "[INST]question2x[/INST]" in prompt


def test_each_result_follows_its_call_where_only_one_is_taken(engine: NativeEngine) -> None:
    prompt = apply(engine, "meta-llama-Llama-3.1-8B-Instruct", SHAPES["opencode: several calls at once"]).prompt
    assert [prompt.index(f"result{n}x") for n in (1, 2, 3)] == sorted(prompt.index(f"result{n}x") for n in (1, 2, 3))
    assert prompt.count('"name": "read"') == 3
