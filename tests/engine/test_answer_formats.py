"""Tools and JSON schemas in the formats of all chat templates that the pinned llama.cpp brings: an answer is a call or
fits the schema, a required call is a call, and no tool is lost."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dflash_local.errors import RequestError
from dflash_local.native import NativeEngine
from tests.engine.grammars import takes_fields
from tests.ggml_ops.native import llama_source

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
JSON = '{"zq": 5}'
OTHERS = ('{"zq": "x"}', '{"zq": 5, "b": 1}', "hello", "")
NAMES = ("get_x", "get-x", "打开", "call", "calls", "*", "关闭")

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
    "CohereForAI-c4ai-command-r-plus-tool_use",
    "LFM2-8B-A1B",
    "LFM2.5-Instruct",
    "Mistral-Small-3.2-24B-Instruct-2506",
    "unsloth-Apriel-1.5",
}
# What stands before an answer's text, besides thoughts, and around JSON.
BEGINS: tuple[str, ...] = (
    "",
    "<|channel|>final<|message|>",
    "<|message|>",
    "all\n",
    "<|open|>response<|sep|>",
    "<|START_RESPONSE|>",
)
BEGINS += ("<|START_TEXT|>",)
AROUND = (("", ""), ("```json\n", "\n```"))


def tool(name: str, **more: Any) -> Body:
    properties = {"a": {"type": "integer", "maximum": 9}}
    parameters = {"type": "object", "properties": properties, "required": ["a"], "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "description": "d", "parameters": parameters, **more}}


TOOLS = [tool(name) for name in NAMES]


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
    for begin in begins(sampling):
        for mark, (before, behind) in itertools.product(BEGINS, AROUND):
            answer = begin + mark + before + text + behind
            if takes_fields(engine, sampling, answer):
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
    parser = json.loads(json.dumps(applied["parser"]))
    prompt = parser["generation_prompt"]
    if answer.startswith(prompt):
        answer = answer.removeprefix(prompt)
    else:
        for one in (parser, parser.get("answer", {})):
            one["generation_prompt"] = ""
    chat = engine.chat_new(json.dumps(parser))
    step = -(-len(answer) // pieces)
    deltas = [d for at in range(0, len(answer), step) for d in chat.push(answer[at : at + step], False)]
    deltas += chat.push("", True)
    whole: Body = chat.message()
    assert (whole.get("content") or "") == "".join(delta.get("content") or "" for delta in deltas)
    return whole


def check_text(engine: NativeEngine, applied: Body) -> str:
    """The schema's JSON is taken and read, other texts are not. Returns how an answer says JSON."""
    answer = text_of(engine, applied["sampling"], JSON)
    assert answer, "the schema's JSON is not taken"
    for text in OTHERS:
        assert not takes_fields(engine, applied["sampling"], answer.replace(JSON, text)), text
    for pieces in (1, 8):
        said = message(engine, applied, answer, pieces)
        assert json.loads(said["content"]) == json.loads(JSON)
        assert "tool_calls" not in said
    return answer


def check_calls(engine: NativeEngine, template: Path, applied: Body) -> None:
    sampling, first = applied["sampling"], NAMES[0]
    call = call_of(engine, template, sampling, first, {"a": 7})
    assert (call is None) == (template.stem in OTHER_HISTORY)
    if call is None:
        return
    for name in NAMES:
        one = call.replace(first, name)
        assert takes_fields(engine, sampling, one), one
        for pieces in (1, 8):
            said = message(engine, applied, one, pieces)
            calls = [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in said["tool_calls"]]
            assert calls == [(name, {"a": 7})]
    bad = call.replace("7", "77")
    assert takes_fields(engine, sampling, bad) == (template.stem in FREE_ARGUMENTS)


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.stem)
def test_a_call_or_the_schema(engine: NativeEngine, template: Path) -> None:
    either = apply(engine, template, tools=TOOLS, **FORMAT)
    answer = check_text(engine, either)
    if template.stem in NO_CALLS:
        assert "tools" in either["ignored"]
    else:
        check_calls(engine, template, either)
    assert check_text(engine, apply(engine, template, **FORMAT)) == answer
    assert check_text(engine, apply(engine, template, tools=TOOLS, tool_choice="none", **FORMAT)) == answer

    named = {"type": "function", "function": {"name": NAMES[-1]}}
    for choice, names in (("required", NAMES), (named, NAMES[-1:])):
        for more in ({}, FORMAT):
            body = {"tools": TOOLS, "tool_choice": choice, **more}
            if template.stem in NO_CALLS:
                with pytest.raises(RequestError, match="cannot be enforced") as caught:
                    apply(engine, template, **body)
                assert caught.value.param == "tool_choice"
                continue
            applied = apply(engine, template, **body)
            sampling = applied["sampling"]
            assert not sampling.get("grammar_lazy")
            assert all(name in sampling["grammar"] for name in names)
            for text in (JSON, "hello", ""):
                assert not takes_fields(engine, sampling, answer.replace(JSON, text))
            told = any("maximum" in name or name.endswith("parameters") for name in applied["ignored"])
            assert told == (template.stem in FREE_ARGUMENTS)


@pytest.mark.parametrize("name", ["", 'a"b', "a\\b", "<f>", "a\nb"])
def test_names_that_no_format_carries(engine: NativeEngine, name: str) -> None:
    with pytest.raises(RequestError) as caught:
        apply(engine, TEMPLATES[0], tools=[tool(name)])
    assert caught.value.param == "tools[0].function.name"
