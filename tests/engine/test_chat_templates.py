"""Long answers in the formats of all chat templates that the pinned llama.cpp brings: the pieces give what the whole
gives."""

from __future__ import annotations

import json
import os
import random
from typing import Any

import pytest

from dflash_local.errors import RequestError
from dflash_local.native import NativeEngine
from tests.engine.test_chat_shim import LONG as MARKED
from tests.engine.test_chat_shim import joined, without_ids
from tests.ggml_ops.native import llama_source

pytestmark = pytest.mark.slow
Body = dict[str, Any]

LONG = MARKED.replace(
    "<tool", "tool"
)  # the beginning of a mark is misread in streams by some formats, in llama.cpp too
TEMPLATES = llama_source() / "models" / "templates"
USER: Body = {"role": "user", "content": "A question?"}
PARAMETERS: Body = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "content": {"type": "string"},
        "more": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["path", "content"],
}
TOOLS = [
    {"type": "function", "function": {"name": "write_file", "description": "Write", "parameters": PARAMETERS}},
    {"type": "function", "function": {"name": "get_time", "description": "Tell the time"}},
]
CALLS = [
    ("write_file", {"path": "a/b.py", "content": LONG[:8000], "more": [LONG[:2500], LONG[:4000]]}),
    ("get_time", {}),
    ("write_file", {"path": "c", "content": LONG[:6000]}),
]


def apply(engine: NativeEngine, source: str, messages: list[Body], **body: Any) -> Body:
    return engine.chat_apply(source, json.dumps({"messages": messages, **body}))


def thoughts(engine: NativeEngine, source: str) -> str:
    """An answer that begins with thoughts, if the template knows some."""
    applied = apply(engine, source, [USER])
    start, ends = (applied["sampling"].get(f"thinking_{name}", "") for name in ("start_tag", "end_tags"))
    if not ends:
        pytest.skip("no thoughts")
    begun = applied["sampling"].get("generation_prompt", "").rstrip().endswith(start.strip())
    end = next(tag for tag in ends if "tool" not in tag)
    answer = "<|start|>assistant<|channel|>final<|message|>" if "<|channel|>" in source else "\n\n"
    return ("" if begun else start) + "\n" + LONG[:7000] + "\n" + end + answer + LONG[:5000]


def calls(engine: NativeEngine, source: str) -> str:
    """An answer with calls, as the template writes those of an earlier turn."""
    said = [
        {"id": f"call{n:05d}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for n, (name, arguments) in enumerate(CALLS)
    ]
    turn = {"role": "assistant", "content": "I write.", "tool_calls": said}
    results = [{"role": "tool", "tool_call_id": call["id"], "name": "x", "content": "RESULT"} for call in said]
    try:
        before = apply(engine, source, [USER], tools=TOOLS)["prompt"]
        after = apply(engine, source, [USER, turn, *results], tools=TOOLS)["prompt"]
    except RequestError as error:
        pytest.skip(f"cannot be rendered: {error}")
    text = after[len(os.path.commonprefix([before, after])) :]  # noqa: RUF071
    return text[: text.find("RESULT")] if "RESULT" in text else text


@pytest.mark.parametrize("kind", ["content", "thoughts", "calls"])
@pytest.mark.parametrize("name", sorted(path.name for path in TEMPLATES.glob("*.jinja")))
def test_pieces(engine: NativeEngine, name: str, kind: str) -> None:
    source = (TEMPLATES / name).read_text(encoding="utf-8")
    text = {"content": lambda *_: LONG, "thoughts": thoughts, "calls": calls}[kind](engine, source)
    tools: Body = {"tools": TOOLS, "parallel_tool_calls": True} if kind == "calls" else {}
    parser = json.dumps(apply(engine, source, [USER], **tools)["parser"])
    rng = random.Random(name + kind)
    looks = {rng.randrange(1, len(text)) for _ in range(8)}
    chat, at = engine.chat_new(parser), 0
    deltas: list[Body] = []
    shown: list[Body] = []  # by parsers of the text so far, as it grew
    while at < len(text):
        size = rng.choice((1, 3, 5, 9, 30))
        deltas += chat.push(text[at : at + size], False)
        if any(at < look <= at + size for look in looks):
            deltas += chat.push("", False)  # a piece of a long answer may wait for more
            shown.append(without_ids(joined(engine.chat_new(parser).push(text[: at + size], False))))
            got = without_ids(joined(deltas))
            # a format that the text broke takes back what it had shown; a stream cannot
            assert got == shown[-1] or len(json.dumps(got)) > len(json.dumps(shown[-1]))
        at += size
    deltas += chat.push("", True)
    assert chat.message() == joined(deltas)
    whole = engine.chat_new(parser)
    whole.push(text, True)
    assert without_ids(chat.message()) == without_ids(whole.message())
