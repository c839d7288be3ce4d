"""`return_drafts` over HTTP: what each pass verified and kept, whole and streamed; and who refuses it."""

from __future__ import annotations

from typing import Any

import pytest

from dflash_local.engine import Engine
from dflash_local.generation import Chunk, Step
from dflash_local.server.formats.passes import ChoicePasses
from dflash_local.server.formats.reply_extras import ReplyExtras
from dflash_local.server.formats.text import TextReply
from dflash_local.server.settings import Settings
from dflash_local.server.streaming import chunk_bodies
from tests.fake_native import EOG, FakeNative
from tests.server.conftest import events, post
from tests.server.live import Live, live

MESSAGES: Any = [{"role": "user", "content": "hi"}]
PATHS = ("/v1/chat/completions", "/v1/completions", "/completion")


def script(prompt: bytes) -> list[list[int]]:
    if b"emoji" in prompt:
        return [[byte] for byte in "é😀!".encode()] + [[EOG]]
    return [[*b"h"], [*b"ello w"], [*b"o"], [*b"rld", EOG]]


@pytest.fixture(scope="module")
def native() -> FakeNative:
    return FakeNative(script, n_slots=4, n_ctx_slot=256)


def body_of(text: str = "hi", **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "prompt": text, "return_drafts": True, **more}


def passes(server: Live, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    return [event["dflash"]["pass"] for event in events(server, path, body) if "pass" in event.get("dflash", {})]


@pytest.mark.parametrize("path", PATHS)
def test_stream(server: Live, path: str) -> None:
    found = passes(server, path, body_of())
    assert [one["pass"] for one in found] == [0, 1, 2, 3]
    assert ["".join(one["tokens"]) for one in found] == ["h", "ello w", "o", "rld"]
    first, second, plain, _ = found
    assert (first["nodes"], first["tree"], first["path"]) == (0, [], [])
    assert (second["nodes"], second["depth"], second["accepted"]) == (11, 5, 5)
    assert (second["reason"], second["draft_ms"], second["verify_ms"]) == ("drafting pays", 0.5, 1.0)
    assert second["plain_ms"] == 0.75
    tree = second["tree"]
    assert tree[0] == {"t": "h", "p": -1, "prob": 1.0, "value": 1.0, "by": "target"}
    assert tree[1] == {"t": "e", "p": 0, "prob": 0.75, "value": 1.0, "by": "draft"}
    assert tree[3] == {"t": "l", "p": 1, "prob": None, "value": 0.5, "by": "lookup"}
    assert [tree[node]["t"] for node in second["path"]] == [*"hello "]
    assert (plain["nodes"], plain["path"]) == (1, [0])


@pytest.mark.parametrize("path", PATHS)
def test_whole(server: Live, path: str) -> None:
    answer = post(server, path, body_of())
    assert answer["dflash"]["passes"] == passes(server, path, body_of())[1:]
    assert answer["dflash"]["passes_n"] == 3


def test_every_event_has_timings(server: Live) -> None:
    with_passes = [event for event in events(server, PATHS[0], body_of()) if "pass" in event.get("dflash", {})]
    assert [event["timings"]["predicted_n"] for event in with_passes] == [1, 7, 8, 11]


def test_a_pass_needs_no_timings() -> None:
    reply = TextReply("model", ReplyExtras(passes=[ChoicePasses(0, {ord("h"): b"h"})]))
    step = Step(1, 1, 0, 0, 0, "", 0.0, 0.0)
    (event,) = chunk_bodies(reply, 0, Chunk("h", [ord("h")], 0, step=step), is_first=True)
    assert "timings" not in event
    assert event["dflash"]["pass"]["tokens"] == ["h"]


@pytest.mark.parametrize("path", PATHS)
def test_characters_of_several_tokens(server: Live, path: str) -> None:
    found = passes(server, path, body_of("emoji"))
    assert [one["tokens"] for one in found] == [[""], ["é"], [""], [""], [""], ["😀"], ["!"], []]
    assert "�" in found[2]["tree"][0]["t"] or found[2]["tree"][0]["t"] == "�"
    assert post(server, path, body_of("emoji"))["dflash"]["passes"] == found[1:]


@pytest.mark.parametrize("path", PATHS[:2])
def test_choices(server: Live, path: str) -> None:
    found = passes(server, path, body_of(n=2))
    assert sorted((one["choice"], one["pass"]) for one in found) == [(c, n) for c in (0, 1) for n in range(4)]
    answer = post(server, path, body_of(n=2))
    assert [(one["choice"], one["pass"]) for one in answer["dflash"]["passes"]] == [
        (c, n) for c in (0, 1) for n in (1, 2, 3)
    ]


def test_held_back_text_has_its_pass(server: Live) -> None:
    found = events(server, PATHS[0], body_of(stop=["world"]))
    told = [event["dflash"]["pass"] for event in found if "pass" in event.get("dflash", {})]
    assert [one["pass"] for one in told] == [0, 1, 2, 3]
    text = "".join(event["choices"][0]["delta"].get("content") or "" for event in found)
    assert text == "hello "


@pytest.mark.parametrize("path", PATHS)
def test_nothing_unasked(server: Live, native: FakeNative, path: str) -> None:
    found = events(server, path, body_of() | {"return_drafts": False})
    assert not native.prepared[-1].params["return_drafts"]
    assert all("pass" not in event.get("dflash", {}) for event in found)
    answer = post(server, path, {**body_of(), "return_drafts": None})
    assert "passes" not in answer["dflash"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/messages", {"messages": MESSAGES, "max_tokens": 8, "return_drafts": True}),
        ("/v1/responses", {"input": "hi", "return_drafts": True}),
        (PATHS[0], {"messages": MESSAGES, "return_drafts": 1}),
        (PATHS[1], {"prompt": "hi", "lookup": "yes"}),
    ],
)
def test_refused(server: Live, path: str, body: dict[str, Any]) -> None:
    response = server.http.post(path, json=body)
    assert response.status_code == 400
    assert ("return_drafts must be" if "return_drafts" in body else "lookup must be") in response.text


@pytest.mark.parametrize(
    ("settings", "headers", "owner"),
    [
        (Settings(), {"X-Dflash-Key": "3"}, 0),
        (Settings(api_keys=("a", "b")), {"X-Api-Key": "a", "X-Dflash-Key": "3"}, 1),
        (Settings(api_keys=("a", "b")), {"Authorization": "Bearer b"}, 2),
        (Settings(behind_router=True), {"X-Dflash-Key": "3"}, 3),
        (Settings(behind_router=True), {}, 0),
    ],
)
def test_whose_answers_may_be_quoted(settings: Settings, headers: dict[str, str], owner: int) -> None:
    """The number of the key, which no client can choose; an instance of a router has it from there."""
    native = FakeNative()
    with live(lambda _: Engine.over(native), settings) as server:
        for n, path in enumerate(PATHS, 1):
            body = {"messages": MESSAGES} if path == PATHS[0] else {"prompt": "hi"}
            server.http.post(path, json=body | {"lookup_owner": 9}, headers=headers).raise_for_status()
            assert len(native.prepared) == n and native.prepared[-1].params["lookup_owner"] == owner


def test_lookup(server: Live, native: FakeNative) -> None:
    for value, told in ((None, -1), (True, 1), (False, 0)):
        post(server, PATHS[0], {"messages": MESSAGES, "lookup": value})
        assert native.prepared[-1].params["lookup"] == told
