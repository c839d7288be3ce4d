"""dflash_chat_*: OpenAI's chat requests to prompts and back, through llama.cpp's common/chat on the pocket target."""

from __future__ import annotations

import json
import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dflash_local.conversation import AnswerParser, ChatPrompt
from dflash_local.errors import RequestError
from dflash_local.generation import Completion, Timings
from dflash_local.native import NativeEngine, check_chat_template
from tests.ggml_ops.native import llama_source

Body = dict[str, Any]

USER: list[Body] = [{"role": "user", "content": "Is it raining in Paris?"}]
WEATHER: Body = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather in a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "more": {}}, "required": ["city"]},
    },
}
CLOCK: Body = {"type": "function", "function": {"name": "get_time", "description": "Tell the time"}}
TOOLS = [WEATHER, CLOCK]
SCHEMA: Body = {"type": "object", "properties": {"rain": {"type": "boolean"}}, "required": ["rain"]}
CALL: Body = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}

# A template with reasoning, as the pocket target's own has none.
THINKING = (
    "{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' }}"
    "{%- if message.reasoning_content %}"
    "{{- '<think>\\n' + message.reasoning_content + '\\n</think>\\n\\n' }}{%- endif %}"
    "{{- message.content + '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}"
    "{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}{%- endif %}"
)

# It also has calls.
THINKING_CALLS = THINKING.replace(
    "{%- for message", "{{- tools | tojson if tools else '' }}{%- for message", 1
).replace(
    "{{- message.content + '", "{%- for c in message.tool_calls or [] %}{{- '<tool_call>\\n{\"name\": \"' + "
    "c.function.name + '\", \"arguments\": ' + c.function.arguments | tojson + '}\\n</tool_call>' }}{%- endfor %}"
    "{{- message.content + '",
)  # fmt: skip

# A template of gpt-oss' kind: llama.cpp knows it by its channels, and waits for its calls with regular expressions.
HARMONY = (
    "{%- for message in messages %}{{- '<|start|>' + message.role + '<|message|>' + message.content + '<|end|>' }}"
    "{%- endfor %}{%- if add_generation_prompt %}{{- '<|start|>assistant' }}{%- endif %}{#- <|channel|> #}"
)


def apply(engine: NativeEngine, template: str | None = None, **body: Any) -> dict[str, Any]:
    """dflash_chat_apply(); what it asks of the sampler must be accepted there."""
    applied = engine.chat_apply(template, json.dumps({"messages": USER, **body}))
    engine.prepare({"tokens": [1], "n_predict": 8, "sampling": json.dumps(applied["sampling"])})
    return applied


def answer(engine: NativeEngine, applied: dict[str, Any], text: str, size: int) -> tuple[Body, list[Body]]:
    """The message and the deltas of an answer that comes in pieces of `size` characters."""
    chat = engine.chat_new(json.dumps(applied["parser"]))
    deltas = [delta for at in range(0, len(text), size) for delta in chat.push(text[at : at + size], False)]
    deltas += chat.push("", True)
    return chat.message(), deltas


def joined(deltas: list[Body]) -> Body:
    """The message that an OpenAI client builds from deltas: it appends every string."""
    message: Body = {"role": "assistant", "content": None}
    for delta in deltas:
        for key in ("content", "reasoning_content"):
            if key in delta:
                message[key] = (message.get(key) or "") + delta[key]
        for change in delta.get("tool_calls", []):
            calls = message.setdefault("tool_calls", [])
            if change["index"] == len(calls):
                calls.append({"id": change["id"], "type": change["type"], "function": {"name": "", "arguments": ""}})
            function = calls[change["index"]]["function"]
            function["name"] += change["function"].get("name", "")
            function["arguments"] += change["function"]["arguments"]
    if message["content"] is None and "tool_calls" not in message:
        message["content"] = ""
    return message


# ---- requests ----


def test_plain(engine: NativeEngine) -> None:
    applied = apply(engine)
    assert applied["prompt"] == "<|im_start|>user\nIs it raining in Paris?<|im_end|>\n<|im_start|>assistant\n"
    assert applied["stops"] == []
    assert applied["sampling"].keys() <= {"preserved_tokens", "generation_prompt"}


def test_history_with_tools_is_rendered(engine: NativeEngine) -> None:
    history = [
        {"role": "developer", "content": "Be brief."},
        *USER,
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
    ]
    prompt = apply(engine, messages=history, tools=TOOLS)["prompt"]
    assert prompt.startswith("<|im_start|>system\nBe brief.")
    assert '{"name": "get_weather", "arguments": {"city": "Paris"}}' in prompt
    assert "<tool_response>\nrain\n</tool_response>" in prompt
    parsed = {**CALL, "function": {"name": "get_weather", "arguments": {"city": "Paris"}}}
    assert (
        apply(engine, messages=[*history[:2], {"role": "assistant", "tool_calls": [parsed]}, history[3]], tools=TOOLS)[
            "prompt"
        ]
        == prompt
    )


def test_turns_that_were_broken_off(engine: NativeEngine) -> None:
    """As clients replay them: an aborted answer, a tool without a word."""
    aborted = apply(engine, messages=[*USER, {"role": "assistant", "content": None}, *USER])
    assert aborted["prompt"].count("<|im_start|>assistant\n<|im_end|>") == 1
    last = apply(engine, messages=[*USER, {"role": "assistant", "content": None}])
    assert last["prompt"].endswith("<|im_start|>assistant\n")
    silent = [*USER, {"role": "assistant", "tool_calls": [CALL]}, {"role": "tool", "content": None}]
    assert "<tool_response>\n\n</tool_response>" in apply(engine, messages=silent, tools=TOOLS)["prompt"]


def test_function_messages_are_tool_messages(engine: NativeEngine) -> None:
    call = {"name": "get_weather", "arguments": '{"city": "Paris"}'}
    old = [
        *USER,
        {"role": "assistant", "content": None, "function_call": call},
        {"role": "function", "name": "get_weather", "content": "rain"},
    ]
    new = [
        *USER,
        {"role": "assistant", "tool_calls": [{"type": "function", "function": call}]},
        {"role": "tool", "name": "get_weather", "content": "rain"},
    ]
    assert apply(engine, messages=old, tools=TOOLS)["prompt"] == apply(engine, messages=new, tools=TOOLS)["prompt"]
    # a template that insists on ids, as Mistral's do
    ids = (
        "{%- for m in messages %}{%- for c in m.tool_calls or [] %}{{ c.id }} {% endfor %}"
        "{{ m.tool_call_id }} {% endfor %}"
    )
    shown = apply(engine, ids, messages=[*old, *old[1:]], tools=TOOLS)["prompt"].split()
    assert shown == ["call00001", "call00001", "call00002", "call00002"]


@pytest.mark.parametrize("name", ["reasoning", "thinking"])
def test_other_names_of_reasoning(engine: NativeEngine, name: str) -> None:
    thought = {"role": "assistant", "content": "Yes.", "reasoning_content": "Paris, so"}
    expected = apply(engine, THINKING, messages=[*USER, thought, *USER])
    renamed = {"role": "assistant", "content": "Yes.", name: "Paris, so"}
    assert apply(engine, THINKING, messages=[*USER, renamed, *USER]) == expected
    assert apply(engine, THINKING, messages=[*USER, {**thought, name: "Paris, so"}, *USER]) == expected
    other = apply(engine, THINKING, messages=[*USER, {**thought, name: "London"}, *USER])
    assert other == {**expected, "ignored": [f"messages[].{name}"]}


def test_prefix_continues_the_last_message(engine: NativeEngine) -> None:
    begun = {"role": "assistant", "content": "It is"}
    assert apply(engine, messages=[*USER, {**begun, "prefix": True}]) == apply(engine, messages=[*USER, begun])
    again = apply(engine, messages=[*USER, {**begun, "prefix": False}])
    assert again == apply(engine, messages=[*USER, begun], continue_final_message=False)


def test_a_refusal_is_what_was_said(engine: NativeEngine) -> None:
    said = apply(engine, messages=[*USER, {"role": "assistant", "content": "No."}, *USER])["prompt"]
    refusals: list[Body] = [
        {"content": None, "refusal": "No.", "annotations": [], "audio": None},
        {"content": [{"type": "refusal", "refusal": "No."}]},
    ]
    for refused in refusals:
        applied = apply(engine, messages=[*USER, {"role": "assistant", **refused}, *USER])
        assert (applied["prompt"], applied["ignored"]) == (said, [])


def test_what_is_ignored_is_told(engine: NativeEngine) -> None:
    assert apply(engine)["ignored"] == []
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {}, "tone": "dry"}], "mood": "bad"},
        {"role": "assistant", "mood": None, "annotations": [1], "tool_calls": [{**CALL, "index": 0, "x": 1}]},
        {"role": "user", "content": "c", "mood": "good", "a\r\nb,\u00e9": 1},
    ]  # fmt: skip
    tools = [{**WEATHER, "extra": 1, "function": {**WEATHER["function"], "strict": True, "returns": {}}}]
    assert apply(engine, messages=messages, tools=tools)["ignored"] == [
        "messages[].content[].tone",
        "messages[].mood",
        "messages[].tool_calls[].x",
        "messages[].annotations",
        "messages[].a??b???",
        "tools[].function.returns",
        "tools[].extra",
    ]
    many = apply(engine, messages=[{"role": "user", "content": "x", **{f"{n}" * 200: n for n in range(1, 100)}}])[
        "ignored"
    ]
    assert len(many) == 33
    assert all(len(name) < 130 for name in many)
    assert many[-1] == "..."
    # what this template has no place for
    assert apply(engine, "chatml", tools=TOOLS)["ignored"] == ["tools"]
    call = {"role": "assistant", "content": "b", "tool_calls": [CALL]}
    assert apply(engine, "chatml", messages=[*USER, call, *USER])["ignored"] == ["messages[].tool_calls"]
    wrapped = {"type": "json_schema", "mode": 1, "json_schema": {"name": "x", "strict": True, "schema": SCHEMA, "y": 1}}
    assert apply(engine, response_format=wrapped)["ignored"] == [
        "response_format.json_schema.y", "response_format.mode",
    ]  # fmt: skip


def test_text_parts(engine: NativeEngine) -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert "user\none\ntwo<|im_end|>" in apply(engine, messages=[{"role": "user", "content": parts}])["prompt"]


def test_tool_choice(engine: NativeEngine) -> None:
    auto = apply(engine, tools=TOOLS)
    assert auto["sampling"]["grammar_lazy"] is True
    assert auto["sampling"]["grammar_triggers"] == [{"type": "word", "value": "<tool_call>\n"}]
    assert auto == apply(engine, tools=TOOLS, tool_choice="auto")

    required = apply(engine, tools=TOOLS, tool_choice="required")
    assert required["prompt"] == auto["prompt"]
    assert "grammar_lazy" not in required["sampling"]
    assert required["sampling"]["grammar_type"] == "tool_calls"

    named = apply(engine, tools=TOOLS, tool_choice={"type": "function", "function": {"name": "get_time"}})
    assert named["prompt"] == auto["prompt"]
    assert "get_time" in named["sampling"]["grammar"]
    assert "get_weather" not in named["sampling"]["grammar"]

    none = apply(engine, tools=TOOLS, tool_choice="none")
    assert none["prompt"] == auto["prompt"]
    assert "grammar" not in none["sampling"]


def allowed(*names: str, **more: Any) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"tools": tools, **more}}


def test_some_tools_are_allowed(engine: NativeEngine) -> None:
    """The prompt shows all tools: its beginning is that of the turns before, which the cache has."""
    prompt = apply(engine, tools=TOOLS)["prompt"]
    for choice, lazy in ((allowed("get_time"), True), (allowed("get_time", mode="required"), None)):
        one = apply(engine, tools=TOOLS, tool_choice=choice)
        assert one["prompt"] == prompt
        assert one["sampling"].get("grammar_lazy") is lazy
        assert "get_time" in one["sampling"]["grammar"]
        assert "get_weather" not in one["sampling"]["grammar"]
    assert apply(engine, tools=TOOLS, tool_choice=allowed("get_time", "get_weather")) == apply(engine, tools=TOOLS)
    assert apply(engine, tools=TOOLS, tool_choice=allowed()) == apply(engine, tools=TOOLS, tool_choice="none")


def test_patterns_of_chat_formats_are_run(engine: NativeEngine) -> None:
    """Only those: test_sampling_fields.py has the refusals."""
    triggers = apply(engine, HARMONY, tools=TOOLS)["sampling"]["grammar_triggers"]
    assert {trigger["type"] for trigger in triggers} == {"pattern"}


def test_output_formats(engine: NativeEngine) -> None:
    wrapped = {"type": "json_schema", "json_schema": {"name": "weather", "strict": True, "schema": SCHEMA}}
    grammar = apply(engine, response_format=wrapped)["sampling"]["grammar"]
    assert "rain" in grammar
    assert apply(engine, json_schema=SCHEMA)["sampling"]["grammar"] == grammar
    assert apply(engine, response_format={"type": "json_object", "schema": SCHEMA})["sampling"]["grammar"] == grammar
    anything = apply(engine, response_format={"type": "json_object"})["sampling"]["grammar"]
    assert (
        anything
        == apply(engine, response_format={"type": "json_schema", "json_schema": {}})["sampling"]["grammar"]
        != grammar
    )
    assert "grammar" not in apply(engine, response_format={"type": "text"})["sampling"]

    own = apply(engine, grammar='root ::= "yes" | "no"')["sampling"]
    assert own["grammar"] == 'root ::= "yes" | "no"'
    assert "grammar_type" not in own
    assert (
        apply(engine, grammar='root ::= "yes"', tools=TOOLS, tool_choice="none")["sampling"]["grammar"]
        == 'root ::= "yes"'
    )


def test_continuation(engine: NativeEngine) -> None:
    begun = [*USER, {"role": "assistant", "content": "It is"}]
    for body in (
        {},
        {"continue_final_message": True},
        {"continue_final_message": "content"},
        {"add_generation_prompt": False},
    ):
        applied = apply(engine, messages=begun, **body)
        assert applied["prompt"].endswith("<|im_start|>assistant\nIt is")
        assert answer(engine, applied, " raining.", 3)[0] == {"role": "assistant", "content": " raining."}
    again = apply(engine, messages=begun, continue_final_message=False)
    assert again["prompt"].endswith("It is<|im_end|>\n<|im_start|>assistant\n")
    assert answer(engine, again, "It is raining.", 3)[0]["content"] == "It is raining."

    thought = [*USER, {"role": "assistant", "reasoning_content": "Paris, so"}]
    applied = apply(engine, THINKING, messages=thought)
    assert applied["prompt"].endswith("<think>\nParis, so")
    assert answer(engine, applied, " yes\n</think>\n\nYes.", 4)[0] == {
        "role": "assistant",
        "content": "Yes.",
        "reasoning_content": " yes\n",
    }


def test_thinking(engine: NativeEngine) -> None:
    on = apply(engine, THINKING)
    assert on["sampling"]["thinking_start_tag"] == "<think>"
    assert on["sampling"]["thinking_end_tags"] == ["</think>"]
    off = apply(engine, THINKING, enable_thinking=False)
    assert off["prompt"] == on["prompt"] + "<think>\n\n</think>\n\n"
    assert apply(engine, THINKING, chat_template_kwargs={"enable_thinking": False})["prompt"] == off["prompt"]
    assert (
        apply(engine, THINKING, enable_thinking=True, chat_template_kwargs={"enable_thinking": False})["prompt"]
        == on["prompt"]
    )


def test_template_arguments(engine: NativeEngine) -> None:
    template = (
        "{%- for message in messages %}{{- message.role + ': ' + message.content + '\\n' }}{%- endfor %}"
        "{{- mood | default('calm') }}"
    )
    assert apply(engine, template)["prompt"].endswith("Paris?\ncalm")
    wild = apply(engine, template, chat_template_kwargs={"mood": "wild"})
    assert wild["prompt"].endswith("Paris?\nwild") and not wild["ignored"]


def test_arguments_that_no_template_mentions(engine: NativeEngine) -> None:
    """Not to think is what happens anyway where a template knows nothing of it; agents always send an effort."""
    kwargs = {"mood": 1, "reasoning_effort": "low"}
    plain = "{%- for message in messages %}{{- message.role + ': ' + message.content }}{%- endfor %}"
    told = apply(engine, plain, enable_thinking=True, chat_template_kwargs=kwargs)["ignored"]
    assert sorted(told) == ["chat_template_kwargs.enable_thinking", "chat_template_kwargs.mood"]
    assert not apply(engine, plain, enable_thinking=False)["ignored"]
    assert not apply(engine, THINKING, enable_thinking=True)["ignored"]


DEEP: Body = {}
for _ in range(200):
    DEEP = {"type": "object", "properties": {"a": DEEP}}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": ["hi"]}, "messages[0]"),
        ({"messages": [*USER, {"content": "x"}]}, "messages[1].role"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "messages[0].content[0].type",
        ),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        ({"messages": [{"role": "user", "content": "x", "tool_calls": [CALL]}]}, "messages[0].tool_calls"),
        (
            {"messages": [*USER, {"role": "assistant", "tool_calls": [{"function": {}}]}]},
            "messages[1].tool_calls[0].function.name",
        ),
        (
            {
                "messages": [
                    *USER,
                    {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[" * 999}}]},
                    *USER,
                ]
            },
            "messages[1].tool_calls[0].function.arguments",
        ),
        ({"messages": [{"role": "assistant"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": "x", "reasoning": {"effort": 1}}]}, "messages[0].reasoning"),
        ({"messages": [{"role": "user", "content": "x", "images": ["..."]}]}, "messages[0].images"),
        ({"messages": [{"role": "user", "content": "x", "function_call": {"name": "f"}}]}, "messages[0].function_call"),
        ({"messages": [{"role": "function", "content": "x"}]}, "messages[0].name"),
        (
            {"messages": [*USER, {"role": "assistant", "tool_calls": [CALL], "function_call": {"name": "f"}}, *USER]},
            "messages[1].function_call",
        ),
        (
            {"messages": [*USER, {"role": "assistant", "content": "x", "prefix": True}, *USER]},
            "messages[1].prefix",
        ),
        ({"messages": [*USER, {"role": "assistant", "content": "x", "prefix": "yes"}]}, "messages[1].prefix"),
        ({"tools": {}}, "tools"),
        ({"tools": [{"type": "retrieval"}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools[0].function.name"),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": "none"}}]},
            "tools[0].function.parameters",
        ),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "any"}}}]},
            "tools[0].function.parameters.type",
        ),
        ({"tools": TOOLS, "tool_choice": "always"}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice.function.name"),
        ({"tools": TOOLS, "tool_choice": allowed("f")}, "tool_choice.allowed_tools.tools[0].function.name"),
        ({"tools": TOOLS, "tool_choice": allowed("get_time", mode="none")}, "tool_choice.allowed_tools.mode"),
        ({"tools": TOOLS, "tool_choice": allowed(mode="required")}, "tool_choice.allowed_tools.tools"),
        ({"tools": TOOLS, "tool_choice": {"type": "allowed_tools"}}, "tool_choice.allowed_tools"),
        ({"tools": TOOLS, "parallel_tool_calls": "yes"}, "parallel_tool_calls"),
        ({"tools": TOOLS, "grammar": 'root ::= "a"'}, "grammar"),
        ({"json_schema": SCHEMA, "grammar": 'root ::= "a"'}, "grammar"),
        ({"json_schema": SCHEMA, "response_format": {"type": "json_object"}}, "json_schema"),
        ({"json_schema": {"type": "any"}}, "json_schema.type"),
        ({"json_schema": DEEP}, "body"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": []}}},
            "response_format.json_schema.schema",
        ),
        ({"chat_template_kwargs": {"enable_thinking": "no"}}, "chat_template_kwargs.enable_thinking"),
        ({"enable_thinking": 1}, "enable_thinking"),
        ({"reasoning_format": "loud"}, "reasoning_format"),
        ({"continue_final_message": True}, "continue_final_message"),
        ({"continue_final_message": 3}, "continue_final_message"),
        (
            {
                "messages": [*USER, {"role": "assistant", "content": "a"}],
                "continue_final_message": True,
                "add_generation_prompt": True,
            },
            "continue_final_message",
        ),
        (
            {"messages": [*USER, {"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}]},
            "messages[2]",
        ),
        ({"messages": [*USER, {"role": "assistant", "tool_calls": [CALL]}]}, "messages[1]"),
        ({"tool_choise": "auto"}, "tool_choise"),
    ],
)
def test_refusals_name_the_field(engine: NativeEngine, body: Body, field: str) -> None:
    with pytest.raises(RequestError) as caught:
        engine.chat_apply(None, json.dumps({"messages": USER, **body}))
    assert caught.value.param == field


@pytest.mark.parametrize(
    "body", ["", "[]", "{", "null", '{"messages": [{"role": "user", "content": "\\ud800"}]}', "[" * 100_000]
)
def test_a_body_that_is_no_json_object(engine: NativeEngine, body: str) -> None:
    with pytest.raises(RequestError) as caught:
        engine.chat_apply(None, body)
    assert caught.value.param == "body"


def test_template_refusals(engine: NativeEngine) -> None:
    with pytest.raises(RequestError, match="not a Jinja template") as caught:
        engine.chat_apply("{{ broken", json.dumps({"messages": USER}))
    assert caught.value.param == "chat_template"
    with pytest.raises(RequestError, match=r"cannot render this request: Jinja Exception: users only$"):
        engine.chat_apply("{{ raise_exception('users only') }}", json.dumps({"messages": USER}))
    with pytest.raises(RequestError, match="has no tool calls") as caught:
        engine.chat_apply("chatml", json.dumps({"messages": USER, "tools": TOOLS, "tool_choice": "required"}))
    assert caught.value.param == "tool_choice"


BOOK: list[Body] = [{"role": "system", "content": "Book"}, {"role": "user", "content": "What is the best book"}]


def test_built_in_templates(engine: NativeEngine) -> None:
    """By name, as llama-server's own tests have them."""
    assert apply(engine, "llama3", messages=BOOK)["prompt"] == (
        "<|start_header_id|>system<|end_header_id|>\n\nBook<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nWhat is the best book<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )
    assert apply(engine, "command-r", messages=BOOK)["prompt"].startswith(
        "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>Book<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|USER_TOKEN|>What is"
    )
    begun = apply(engine, "llama3", messages=[*BOOK, {"role": "assistant", "content": "The"}])
    assert begun["prompt"].endswith("<|start_header_id|>assistant<|end_header_id|>\n\nThe")
    assert answer(engine, begun, " Bible", 2)[0] == {"role": "assistant", "content": " Bible"}
    developer = [{**BOOK[0], "role": "developer"}, BOOK[1]]
    assert apply(engine, "llama3", messages=developer) == apply(engine, "llama3", messages=BOOK)
    assert "rain" in apply(engine, "llama3", json_schema=SCHEMA)["sampling"]["grammar"]
    ignored = apply(
        engine, "llama3", messages=[*BOOK, {"role": "assistant", "content": "a", "tool_calls": [CALL]}, *USER],
        enable_thinking=False, chat_template_kwargs={"mood": 1}, tools=TOOLS, tool_choice="none",
    )["ignored"]  # fmt: skip
    assert sorted(ignored) == [
        "chat_template_kwargs.enable_thinking", "chat_template_kwargs.mood", "messages[].tool_calls", "tools",
    ]  # fmt: skip
    with pytest.raises(RequestError, match="have no tools") as caught:
        apply(engine, "llama3", tools=TOOLS)
    assert caught.value.param == "tools"


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("lama3", "nor one of llama.cpp's names: .*llama3"),
        ("templates/llama3.jinja", "neither Jinja"),
        ("", "neither Jinja"),
        ("{{ broken", "not a Jinja template that llama.cpp can read: "),
        ("{% for %}", "not a Jinja template that llama.cpp can read: "),
    ],
)
def test_what_is_no_template_is_refused_before_a_model_loads(
    engine: NativeEngine, tmp_path: Path, template: str, why: str
) -> None:
    with pytest.raises(RequestError, match=why) as caught:
        check_chat_template(template)
    assert caught.value.param == "chat_template"
    with pytest.raises(RequestError, match=why):
        engine.chat_apply(template, json.dumps({"messages": USER}))
    if template:
        with pytest.raises(RequestError, match=why) as caught:
            NativeEngine({"model": str(tmp_path / "missing.gguf"), "chat_template": template})
        assert caught.value.param == "chat_template"


def test_an_engine_has_its_own_template(pocket: dict[str, Path]) -> None:
    params = {"model": str(pocket["target"]), "n_ctx": 64, "n_threads": 1, "warmup": False, "budget": 1}
    for template in ("llama3", THINKING):
        engine = NativeEngine({**params, "chat_template": template})
        assert engine.info()["chat_template"] == template
        assert engine.chat_apply(None, json.dumps({"messages": BOOK})) == apply(engine, template, messages=BOOK)
        engine.destroy()


def test_many_threads(engine: NativeEngine) -> None:
    bodies = [
        json.dumps({"messages": [{"role": "user", "content": f"{n}"}], "tools": TOOLS if n % 2 else []})
        for n in range(64)
    ]
    alone = [engine.chat_apply(None, body) for body in bodies]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda body: engine.chat_apply(None, body), bodies)) == alone


# ---- answers ----

SIZES = [1, 2, 7, 1000]


def bundled(name: str) -> str:
    """A template that llama.cpp brings."""
    return (llama_source() / "models" / "templates" / f"{name}.jinja").read_text(encoding="utf-8")


@pytest.mark.parametrize("size", SIZES)
def test_content(engine: NativeEngine, size: int) -> None:
    text = 'Yes, it\'s raining: 雨 🌧. `{["<tool"` </tool_call>'
    message, deltas = answer(engine, apply(engine), text, size)
    assert message == joined(deltas) == {"role": "assistant", "content": text}


@pytest.mark.parametrize("size", SIZES)
def test_calls(engine: NativeEngine, size: int) -> None:
    text = (
        "I look.\n"
        '<tool_call>\n{"name": "get_weather", '
        '"arguments": {"city": "Paris \\"x\\"", "more": [1, {"a": null}]}}\n</tool_call>\n'
        '<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>'
    )
    message, deltas = answer(engine, apply(engine, tools=TOOLS, parallel_tool_calls=True), text, size)
    assert message == joined(deltas)
    assert message["content"].strip() == "I look."
    assert [call["function"]["name"] for call in message["tool_calls"]] == ["get_weather", "get_time"]
    assert [json.loads(call["function"]["arguments"]) for call in message["tool_calls"]] == [
        {"city": 'Paris "x"', "more": [1, {"a": None}]},
        {},
    ]
    ids = [call["id"] for call in message["tool_calls"]]
    assert all(id.startswith("call_") for id in ids)
    assert len(set(ids)) == 2
    # each call is announced once, with its whole name
    names = [
        change["function"]["name"]
        for delta in deltas
        for change in delta.get("tool_calls", [])
        if "name" in change["function"]
    ]
    assert names == ["get_weather", "get_time"]


def test_thoughts_in_both_places_beside_calls(engine: NativeEngine) -> None:
    text = '<think>\nHm.\n</think>\n\n<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>'
    told, _ = answer(engine, apply(engine, THINKING_CALLS, tools=TOOLS), text, 5)
    both, _ = answer(engine, apply(engine, THINKING_CALLS, tools=TOOLS, reasoning_format="deepseek-legacy"), text, 5)
    assert told["reasoning_content"] == both["reasoning_content"] == "Hm.\n"
    assert [call["function"]["name"] for call in both["tool_calls"]] == ["get_time"]
    assert both["content"].startswith("<think>\nHm.\n</think>")
    assert not told["content"]


def test_content_is_null_beside_calls(engine: NativeEngine) -> None:
    text = '<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>'
    assert answer(engine, apply(engine, tools=TOOLS), text, 5)[0]["content"] is None


@pytest.mark.parametrize("size", SIZES)
def test_reasoning(engine: NativeEngine, size: int) -> None:
    text = "<think>\nParis in <autumn>.\n</think>\n\nYes."
    message, deltas = answer(engine, apply(engine, THINKING), text, size)
    assert (
        message
        == joined(deltas)
        == {"role": "assistant", "content": "Yes.", "reasoning_content": "Paris in <autumn>.\n"}
    )
    raw, deltas = answer(engine, apply(engine, THINKING, reasoning_format="none"), text, size)
    assert raw == joined(deltas)
    assert raw["content"].endswith(text)
    assert "reasoning_content" not in raw
    both, deltas = answer(engine, apply(engine, THINKING, reasoning_format="deepseek-legacy"), text, size)
    assert both == joined(deltas) == {**message, "content": raw["content"]}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "text",
    [
        'Well.<tool_call>\n{"name": "fly", "arguments": {}}\n</tool_call>',
        'Well.<tool_call>\n{"name": "get_weather", "args": {}}',
        "Well.<tool_call>\nget_weather(Paris)",
        '{"name": "get_weather"',
        "",
    ],
)
def test_broken_calls_are_not_lost(engine: NativeEngine, text: str, size: int) -> None:
    message, deltas = answer(engine, apply(engine, tools=TOOLS), text, size)
    assert message == joined(deltas)
    assert message["content"] == text


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("said", ["", "I look.\n"])
def test_a_broken_call_after_thoughts(engine: NativeEngine, said: str, size: int) -> None:
    call = "<tool_call>\nget_weather(Paris)"
    message, deltas = answer(
        engine, apply(engine, THINKING_CALLS, tools=TOOLS), f"<think>\nHm.\n</think>\n\n{said}{call}", size
    )
    assert message == joined(deltas)
    assert (message["reasoning_content"], message["content"]) == ("Hm.\n", said + call)


@pytest.mark.parametrize("said", ["", "I look.\n"])
@pytest.mark.parametrize(
    "more",
    [
        "<tool_call>\nget_weather(Paris)",
        '<tool_call>\n{"name": "get_weather", "args": {}}',
        "<b>That</b> is all.",
        "雨 <",
    ],
)
def test_what_breaks_the_format_after_a_call(engine: NativeEngine, said: str, more: str) -> None:
    """A call that has only its name is none."""
    text = f'{said}<tool_call>\n{{"name": "get_time", "arguments": {{}}}}\n</tool_call>\n{more}'
    applied = apply(engine, tools=TOOLS, parallel_tool_calls=True)
    for size in SIZES:
        message, deltas = answer(engine, applied, text, size)
        assert message == joined(deltas)
        assert [call["function"] for call in message["tool_calls"]] == [{"name": "get_time", "arguments": "{}"}]
        assert message["content"] == said + more


@pytest.mark.parametrize("size", SIZES)
def test_a_cut_call_is_no_text(engine: NativeEngine, size: int) -> None:
    """Ling's parser takes one for text, once it is known that nothing follows."""
    applied = apply(engine, bundled("inclusionai-ling-3.0-flash"), tools=TOOLS)
    for call, names in (("get_wea", []), ("get_weather\n<arg_key>city</arg_key>\n<arg_val", ["get_weather"])):
        message, deltas = answer(engine, applied, f"</think>I look.\n<tool_call>{call}", size)
        assert message == joined(deltas)
        assert message["content"] == "I look.\n"
        assert [made["function"]["name"] for made in message.get("tool_calls", [])] == names


@pytest.mark.parametrize("size", SIZES)
def test_a_broken_call_where_the_format_has_no_end(engine: NativeEngine, size: int) -> None:
    """Qwen3-Coder's parser stops before such a call, and takes that for the end."""
    text = "I look.\n<tool_call>\nget_weather(Paris)"
    message, deltas = answer(engine, apply(engine, bundled("Qwen3-Coder"), tools=TOOLS), text, size)
    assert message == joined(deltas)
    assert message["content"] == text


@pytest.mark.parametrize("size", [1, 5])
def test_text_that_breaks_the_format_is_streamed(engine: NativeEngine, size: int) -> None:
    """Calls of Llama 3.1 have no mark: each brace could begin one."""
    chat = engine.chat_new(
        json.dumps(apply(engine, bundled("meta-llama-Llama-3.1-8B-Instruct"), tools=TOOLS)["parser"])
    )
    text = "A set is {1, 2}: 雨. " * 50
    deltas = [delta for at in range(0, len(text), size) for delta in chat.push(text[at : at + size], False)]
    assert joined(deltas)["content"] == text
    assert chat.push("", True) == []
    assert chat.message()["content"] == text


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("text", ["Use a <", "Well.<tool", "x\n<tool_call", "<", "A 雨 <"])
def test_an_answer_ends_with_what_could_have_become_a_mark(engine: NativeEngine, text: str, size: int) -> None:
    message, deltas = answer(engine, apply(engine, tools=TOOLS), text, size)
    assert message == joined(deltas) == {"role": "assistant", "content": text}


@pytest.mark.parametrize("size", SIZES)
def test_thoughts_end_with_what_could_have_become_a_mark(engine: NativeEngine, size: int) -> None:
    for format_, message in (
        ("auto", {"role": "assistant", "content": "", "reasoning_content": "is a <"}),
        ("none", {"role": "assistant", "content": "<think>\nis a <"}),
        ("deepseek-legacy", {"role": "assistant", "content": "<think>\nis a <", "reasoning_content": "is a <"}),
    ):
        applied = apply(engine, THINKING, reasoning_format=format_)
        told, deltas = answer(engine, applied, "<think>\nis a <", size)
        assert told == joined(deltas) == message
    assert answer(engine, apply(engine, THINKING), "<think>\n", size)[0] == {"role": "assistant", "content": ""}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("more", [" 3", "", "tool_call>\nget_weather(Paris)"])
def test_a_given_end_that_could_become_a_mark_is_not_sent_back(engine: NativeEngine, more: str, size: int) -> None:
    applied = apply(engine, messages=[*USER, {"role": "assistant", "content": "if x <"}], tools=TOOLS)
    message, deltas = answer(engine, applied, more, size)
    assert message == joined(deltas) == {"role": "assistant", "content": more}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("template", "given", "more"),
    [
        ("meta-llama-Llama-3.1-8B-Instruct", "function f() {", "\n  return 1;\n}"),
        ("meta-llama-Llama-3.1-8B-Instruct", 'Say {"na', "me it."),
        (None, "I write <tool_call>", " for calls."),
    ],
)
def test_a_given_end_that_begins_a_call_is_not_sent_back(
    engine: NativeEngine, template: str | None, given: str, more: str, size: int
) -> None:
    """What comes breaks the format, and the rest begins before it."""
    begun = [*USER, {"role": "assistant", "content": given}]
    applied = apply(engine, bundled(template) if template else None, messages=begun, tools=TOOLS)
    message, deltas = answer(engine, applied, more, size)
    assert message == joined(deltas) == {"role": "assistant", "content": more}


def reasons(engine: NativeEngine, template: str | None, pieces: list[str], stop: str | None = None) -> set[str]:
    """The finish reasons of an answer in pieces and of the whole one."""
    prompt = ChatPrompt.of(apply(engine, template, tools=TOOLS))
    completion = Completion("".join(pieces), [], "stop", 0, 0, Timings(), [], stopped_by=stop)
    streamed = AnswerParser(engine, prompt)
    for piece in pieces:
        streamed.push(piece)
    return {streamed.finish(completion)[1].finish_reason, AnswerParser(engine, prompt).parse(completion).finish_reason}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("city", "reason"), [("Paris", "stop"), ('"Paris"', "tool_calls")])
def test_a_call_that_breaks_inside_its_arguments_is_not_finished(
    engine: NativeEngine, city: str, reason: str, size: int
) -> None:
    text = f'{{"name": "get_weather", "parameters": {{"city": {city}}}}}'
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    assert reasons(engine, bundled("meta-llama-Llama-3.1-8B-Instruct"), pieces) == {reason}


@pytest.mark.parametrize(("end", "reason"), [("}", "tool_calls"), ("", "stop")])
def test_a_call_that_waited_is_whole_at_a_stop_string(engine: NativeEngine, end: str, reason: str) -> None:
    """In a long answer of which nothing can be left out, a short call comes whole with the end."""
    call = f'<tool_call>\n{{"name": "get_weather", "arguments": {{"city": "Paris"{end}'
    assert reasons(engine, None, ["12,5,7;" * 4000, call], "x") == {reason}


@pytest.mark.parametrize("size", SIZES)
def test_a_cut_call_keeps_what_came(engine: NativeEngine, size: int) -> None:
    message, deltas = answer(
        engine, apply(engine, tools=TOOLS), '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Par', size
    )
    assert message == joined(deltas)
    (call,) = message["tool_calls"]
    assert call["function"]["name"] == "get_weather"
    assert '{"city": "Paris"}'.startswith(call["function"]["arguments"])


# ---- long answers: most of a field that still grows is not parsed again ----

LONG = (
    'def f(x):\n    return {"a": [1, x["k"]]}  # a < b, é雨\nThe quick brown fox jumps over a lazy dog. `<tool` \\ \n'
    * 150
)


def long_answers() -> dict[str, tuple[str | None, Body, str]]:
    """Template, fields and text, by name."""
    arguments = json.dumps({"city": LONG, "more": [LONG[:5000], {"a": LONG[:3000]}]}, ensure_ascii=False)
    call = f'<tool_call>\n{{"name": "get_weather", "arguments": {arguments}}}\n</tool_call>'
    clock = '\n<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>'
    tools: Body = {"tools": TOOLS, "parallel_tool_calls": True}
    return {
        "content": (None, {}, LONG),
        "content with tools": (None, tools, LONG),
        "reasoning": (THINKING, {}, f"<think>\n{LONG}\n</think>\n\n{LONG[:6000]}"),
        "calls": (None, tools, f"I look.\n{call}{clock}\n{call}"),
        "a broken call": (None, tools, call[:9000] + '"}]} </tool_call>' + LONG[:6000]),
        "json": (None, {"json_schema": SCHEMA}, json.dumps([{"rain": [LONG[:2500], {"x": LONG[:2500]}]}] * 3)),
        "channels": (
            HARMONY,
            tools,
            f"<|channel|>analysis<|message|>{LONG}<|end|><|start|>assistant<|channel|>commentary "
            f"to=functions.get_weather <|constrain|>json<|message|>{arguments}",
        ),
    }


@pytest.mark.parametrize("name", long_answers())
def test_long_answers(engine: NativeEngine, name: str) -> None:
    """After each piece, the deltas are those of a parser that reads the text so far at once."""
    template, body, text = long_answers()[name]
    applied = apply(engine, template, **body)
    parser = json.dumps(applied["parser"])
    rng = random.Random(name)
    chat = engine.chat_new(parser)
    deltas: list[Body] = []
    looks = sorted(rng.randrange(len(text)) for _ in range(20))
    at = 0
    while at < len(text):
        size = rng.choice((1, 4, 9, 40))
        deltas += chat.push(text[at : at + size], False)
        at += size
        if looks and at >= looks[0]:
            looks = [look for look in looks if look > at]
            deltas += chat.push("", False)  # a piece of a long answer may wait for more
            assert without_ids(joined(deltas)) == without_ids(joined(engine.chat_new(parser).push(text[:at], False)))
    deltas += chat.push("", True)
    assert chat.message() == joined(deltas)
    assert without_ids(chat.message()) == without_ids(answer(engine, applied, text, len(text))[0])


def without_ids(message: Body) -> Body:
    """Ids of calls are random."""
    calls = [{**call, "id": ""} for call in message.get("tool_calls", [])]
    return {**message, "tool_calls": calls} if calls else message


def growing_answers() -> dict[str, tuple[Body, str]]:
    """Fields and text, by name; the last two have no place where a part could be left out."""
    plain = LONG.replace('"', "").replace("\n", " ").replace("\\", "") * 8
    _, tools, calls = long_answers()["calls"]
    people: Body = {"json_schema": {"type": "array"}}
    return {
        "content": ({}, plain),
        "calls": (tools, calls[: calls.index("def f") + 200] + plain),
        "short strings": (people, json.dumps([{"name": "Ann", "city": "Rome", "n": 12}] * 3000)),
        "numbers": ({}, "12,5,7;" * 18000),
    }


@pytest.mark.parametrize("name", growing_answers())
def test_the_cost_of_a_piece_does_not_grow(engine: NativeEngine, name: str) -> None:
    body, text = growing_answers()[name]
    parser = json.dumps(apply(engine, **body)["parser"])

    def growth() -> float:
        chat, seconds = engine.chat_new(parser), [0.0, 0.0]
        for at in range(0, len(text), 8):
            begun = time.thread_time()
            chat.push(text[at : at + 8], False)
            seconds[2 * at > len(text)] += time.thread_time() - begun
        return seconds[1] / seconds[0]

    # It is 3 if each piece costs what the text before it costs. What others do to a cache makes a half longer now and
    # then, not each time.
    assert any(growth() < 2 for _ in range(10))


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_deep_nesting_does_not_overflow_the_stack(engine: NativeEngine, opening: str) -> None:
    text = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "x", "more": ' + opening * 50_000
    message, _ = answer(engine, apply(engine, tools=TOOLS), text, len(text))
    assert message["tool_calls"][0]["function"]["name"] == "get_weather"
    # without a structure to parse, the same text is just text
    assert answer(engine, apply(engine), text, len(text))[0]["content"] == text


@pytest.mark.parametrize("size", SIZES)
def test_brackets_of_a_text_are_no_nesting(engine: NativeEngine, size: int) -> None:
    text = "[0, 1) {" * 300 + "end"
    applied = apply(engine, tools=TOOLS)
    assert answer(engine, applied, text, size)[0]["content"] == text
    call = "<tool_call>\n" + json.dumps({"name": "get_weather", "arguments": {"city": text}}) + "\n</tool_call>"
    (made,) = answer(engine, applied, call, size)[0]["tool_calls"]
    assert json.loads(made["function"]["arguments"]) == {"city": text}


@pytest.mark.parametrize(
    "parser", ["", "{}", "[]", '{"format": true}', '{"format": 99}', '{"format": 0, "arena": "x"}', '{"arena": ""}']
)
def test_a_foreign_parser_is_refused(engine: NativeEngine, parser: str) -> None:
    with pytest.raises(RequestError, match="parser"):
        engine.chat_new(parser)
