"""Tools and JSON schemas in the formats of all chat templates that the pinned llama.cpp brings: an answer is a call or
fits the schema, a required call is a call, and no tool is lost."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dflash_local.errors import RequestError
from dflash_local.native import NativeEngine
from tests.ggml_ops.native import llama_source

from .grammars import takes_fields

Body = dict[str, Any]

TEMPLATES = sorted((llama_source() / "models" / "templates").glob("*.jinja"))
USER: Body = {"role": "user", "content": "hi"}
SCHEMA: Body = {
    "type": "object",
    "properties": {"zq": {"type": "integer"}},
    "required": ["zq"],
    "additionalProperties": False,
}
FORMAT: Body = {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}}
NAMES = ("get_x", "get-x", "打开", "关闭", "call", "calls", "*")

# Their templates have no tool calls that llama.cpp could read.
NO_CALLS = {
    "HuggingFaceTB-SmolLM3-3B",
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
    "google-gemma-2-2b-it",
    "ibm-granite-granite-3.3-2B-Instruct",
    "llama-cpp-rwkv-world",
    "microsoft-Phi-3.5-mini-instruct",
}
# Arguments are written otherwise than as JSON, and not by their schema.
FREE_ARGUMENTS = {"LFM2-8B-A1B", "LFM2.5-8B-A1B", "LFM2.5-Instruct", "Kimi-K3"}
FREE_ARGUMENTS |= {"google-gemma-4-31B-it", "google-gemma-4-31B-it-interleaved"}
# An earlier turn's call is written otherwise than the model writes one, or leaves no trace.
OTHER_HISTORY = {
    "Apriel-1.6-15b-Thinker-fixed",
    "Cohere2MoE",
    "CohereForAI-c4ai-command-r-plus-tool_use",
    "LFM2-8B-A1B",
    "LFM2.5-Instruct",
    "Mistral-Small-3.2-24B-Instruct-2506",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
    "llama-cpp-deepseek-r1",
    "unsloth-Apriel-1.5",
}
# What stands before an answer's text, besides thoughts, and around JSON.
BEGINS = ("", "<|channel|>final<|message|>", "<|message|>", "all\n", "<|open|>response<|sep|>", "<|START_RESPONSE|>")
BEGINS += ("<|START_TEXT|>",)
AROUND = (("", ""), ("```json\n", "\n```"))


def tool(name: str, **more: Any) -> Body:
    properties = {"a": {"type": "integer", "maximum": 9}}
    parameters = {"type": "object", "properties": properties, "required": ["a"], "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "description": "d", "parameters": parameters, **more}}


TOOLS = [tool(name) for name in NAMES]


@pytest.fixture(scope="module")
def engine(pocket: dict[str, Path]) -> Iterator[NativeEngine]:
    engine = NativeEngine({"model": str(pocket["target"]), "n_ctx": 256, "n_threads": 1, "warmup": False, "budget": 1})
    yield engine
    engine.destroy()


def apply(engine: NativeEngine, template: Path, *turns: Body, **body: Any) -> Body:
    source = template.read_text(encoding="utf-8")
    return engine.chat_apply(source, json.dumps({"messages": [USER, *turns], **body}))


def begins(sampling: Body) -> Iterator[str]:
    """An answer's beginnings, with no thoughts or empty ones."""
    prompt = sampling.get("generation_prompt", "")
    yield prompt
    for end in sampling.get("thinking_end_tags", []):
        for before in ("", "\n"):
            for behind in ("", "\n", "\n\n"):
                yield prompt + before + end + behind


def text_of(engine: NativeEngine, sampling: Body, text: str) -> str | None:
    """An answer that says `text`, if the grammar takes one."""
    alone = "grammar_type" not in sampling  # it begins with the answer, not with what the template has begun
    for begin in [""] if alone else begins(sampling):
        for mark in BEGINS:
            for before, behind in AROUND:
                answer = begin + mark + before + text + behind
                if takes_fields(engine, {**sampling, "grammar_type": "tool_calls"}, answer):
                    return answer
    return None


def call_of(engine: NativeEngine, template: Path, sampling: Body, name: str, arguments: Body) -> str | None:
    """An answer with the call as the template writes one of an earlier turn, if the grammar takes it."""
    call = {"id": "call00001", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    turn = {"role": "assistant", "content": None, "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "call00001", "name": name, "content": "RESULT"}
    prompt = sampling.get("generation_prompt", "")
    before = apply(engine, template, tools=TOOLS)["prompt"].removesuffix(prompt)
    after = apply(engine, template, turn, result, tools=TOOLS)["prompt"]
    turn_text = after[len(os.path.commonprefix([before, after])) :]  # noqa: RUF071
    turn_text = turn_text.partition("RESULT")[0].partition("<|im_end|>")[0]
    shared = len(os.path.commonprefix([turn_text, prompt]))  # noqa: RUF071
    start = sampling.get("thinking_start_tag", "")
    starts = {shared, len(prompt.rstrip().removesuffix(start)) if start else shared}
    ends = [n for n in range(1, len(turn_text) + 1) if turn_text[n - 1] in ">])}`"]
    for end in reversed(ends):
        for answer in [turn_text[:end], *(begin + turn_text[n:end] for begin in begins(sampling) for n in starts)]:
            if takes_fields(engine, sampling, answer):
                return answer
    return None


def message(engine: NativeEngine, applied: Body, answer: str, pieces: int) -> Body:
    """The message that the parser makes of the answer, in so many pieces."""
    parser = applied["parser"]
    for one in (parser, parser.get("answer", {})):
        one["generation_prompt"] = ""
    chat = engine.chat_new(json.dumps(parser))
    step = max(1, len(answer) // pieces)
    deltas = [d for at in range(0, len(answer), step) for d in chat.push(answer[at : at + step], False)]
    deltas += chat.push("", True)
    said = "".join(delta.get("content") or "" for delta in deltas)
    whole: Body = chat.message()
    assert (whole.get("content") or "") == said
    return whole


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.stem)
def test_a_call_or_the_schema(engine: NativeEngine, template: Path) -> None:
    applied = apply(engine, template, tools=TOOLS, **FORMAT)
    sampling = applied["sampling"]
    answer = text_of(engine, sampling, '{"zq": 5}')
    assert answer, "the schema's JSON is not taken"
    for text in ('{"zq": "x"}', '{"zq": 5, "b": 1}', "hello", ""):
        assert text_of(engine, sampling, text) is None
    for pieces in (1, 8):
        said = message(engine, applied, answer, pieces)
        assert json.loads(said["content"]) == {"zq": 5}
        assert "tool_calls" not in said
    if template.stem in NO_CALLS:
        assert "tools" in applied["ignored"]
        return
    for name in ("get_x", "打开", "calls"):
        call = call_of(engine, template, sampling, name, {"a": 3})
        assert (call is None) == (template.stem in OTHER_HISTORY)
        for pieces in (1, 8) if call else ():
            calls = message(engine, applied, call or "", pieces)["tool_calls"]
            assert [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in calls] == [(name, {"a": 3})]
    assert call_of(engine, template, sampling, "get_x", {"a": 33}) is None or template.stem in FREE_ARGUMENTS


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.stem)
def test_required_calls(engine: NativeEngine, template: Path) -> None:
    named = {"type": "function", "function": {"name": "关闭"}}
    for more in ({}, FORMAT):
        for choice in ("required", named):
            if template.stem in NO_CALLS:
                with pytest.raises(RequestError, match="cannot be enforced") as caught:
                    apply(engine, template, tools=TOOLS, tool_choice=choice, **more)
                assert caught.value.param == "tool_choice"
                continue
            applied = apply(engine, template, tools=TOOLS, tool_choice=choice, **more)
            sampling = applied["sampling"]
            assert not sampling.get("grammar_lazy")
            for name in NAMES if choice == "required" else ("关闭",):
                assert name in sampling["grammar"]
            for text in ("hello", '{"zq": 5}', ""):
                assert text_of(engine, sampling, text) is None
            told = any("maximum" in name or name.endswith("parameters") for name in applied["ignored"])
            assert told == (template.stem in FREE_ARGUMENTS)
    none = apply(engine, template, tools=TOOLS, tool_choice="none", **FORMAT)["sampling"]
    assert text_of(engine, none, '{"zq": 5}')
    assert text_of(engine, none, '{"zq": "x"}') is None


@pytest.mark.parametrize("name", ["", 'a"b', "a\\b", "<f>", "a\nb"])
def test_names_that_no_format_carries(engine: NativeEngine, name: str) -> None:
    with pytest.raises(RequestError) as caught:
        apply(engine, TEMPLATES[0], tools=[tool(name)])
    assert caught.value.param == "tools[0].function.name"
