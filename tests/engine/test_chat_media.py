"""Chat templates show what stands for images and audio, once each, wherever a conversation has them."""

from __future__ import annotations

from typing import Any

import pytest

from dflash_local.conversation import ChatPrompt, chat_body
from dflash_local.errors import RequestError
from dflash_local.media.abilities import Abilities
from dflash_local.media.content_parts import MarkedConversation
from dflash_local.media.media_sources import MediaSources
from dflash_local.native import NativeEngine
from tests.engine.test_chat_turns import PICKY, TEMPLATES, TOOLS
from tests.fast import some_fast
from tests.media.samples import png

MARKER = "<__media_0123456789abcdef__>"
CALL = {"id": "call00001", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def image(width: int) -> dict[str, Any]:
    """Its width tells it from the others."""
    return {"type": "image", "image": png(width)}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def apply(engine: NativeEngine, template: str, messages: list[Any], **body: Any) -> ChatPrompt:
    conversation = MarkedConversation(messages, Abilities(True, True, MARKER), MediaSources())
    source = (TEMPLATES / f"{template}.jinja").read_text(encoding="utf-8")
    sent = chat_body({"messages": conversation.messages, **body})
    conversation.check(sent)
    return ChatPrompt.of(engine.chat_apply(source, sent), conversation)


CONVERSATIONS: dict[str, list[Any]] = {
    "between texts": [{"role": "user", "content": [text("first word"), image(1), text("second word"), image(2)]}],
    "alone": [{"role": "user", "content": [image(1)]}],
    "in several turns": [
        {"role": "user", "content": [image(1), text("what is this")]},
        {"role": "assistant", "content": "a square"},
        {"role": "user", "content": [text("and this"), image(2)]},
    ],
    "in instructions": [
        {"role": "system", "content": [text("such as this"), image(1)]},
        {"role": "user", "content": [text("what is this"), image(2)]},
    ],
    "two turns of one side": [
        {"role": "user", "content": [image(1), text("what is this")]},
        {"role": "user", "content": [text("and this"), image(2)]},
    ],
}
RESULT = [
    {"role": "user", "content": [text("look at it"), image(1)]},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": CALL["id"], "content": [text("it shows this"), image(2), text("and no more")]},
]


@pytest.mark.parametrize("template", some_fast(sorted(path.stem for path in TEMPLATES.glob("*.jinja")), fast=PICKY))
def test_each_image_is_shown_once(engine: NativeEngine, template: str) -> None:
    for name, messages in CONVERSATIONS.items():
        shown = apply(engine, template, messages)
        wanted = [1] if name == "alone" else [1, 2]
        assert [medium.width for medium in shown.media] == wanted, name
        assert shown.prompt.count(MARKER) == len(wanted), name
    shown = apply(engine, template, RESULT, tools=TOOLS)
    assert [medium.width for medium in shown.media] == [1, 2]


def test_no_line_end_is_added_around_what_stands_for_media(engine: NativeEngine) -> None:
    parts = [text("a"), text("b"), image(1), text("c"), text("d")]
    for role, rest in (("user", {}), ("tool", {"tool_call_id": CALL["id"]})):
        before = [] if role == "user" else RESULT[:2]
        shown = apply(engine, "Qwen-Qwen2.5-7B-Instruct", [*before, {"role": role, "content": parts, **rest}])
        assert f"a\nb{MARKER}c\nd" in shown.prompt


def test_a_client_cannot_write_what_stands_for_media(engine: NativeEngine) -> None:
    for said in (MARKER, f"{MARKER}[0]"):
        with pytest.raises(RequestError, match="marker for media"):
            apply(engine, "Qwen-Qwen2.5-7B-Instruct", [{"role": "user", "content": [image(1), text(said)]}])


def test_other_parts_are_refused_in_openais_words(engine: NativeEngine) -> None:
    with pytest.raises(RequestError, match=r"Invalid content type\. file is only supported") as caught:
        apply(engine, "Qwen-Qwen2.5-7B-Instruct", [{"role": "user", "content": [image(1), {"type": "file"}]}])
    assert caught.value.param == "messages[0].content[1].type"
