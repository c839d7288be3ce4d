"""What the hour of abuse (test_hour.py) takes for a fault, without a server."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import psutil
import pytest

from tests.server.abuse.answers import difference, is_silent, said_in_stream, said_in_whole
from tests.server.abuse.clients import Asked
from tests.server.abuse.crowd import PARTS, Crowd, Sample, changed, parts_after, silent
from tests.server.abuse.deeds import COMPARING, DEEDS, OUTCOMES, Busy, Refused, check_status
from tests.server.abuse.refusals import REFUSALS

ASKED = Asked("chat", 0, stream=True)


def stream(*texts: str, end: str = "data: [DONE]\n\n", number: int = 1) -> str:
    """A chat in pieces."""
    events: list[Any] = [{"id": number, "choices": [{"index": 0, "delta": {"content": text}}]} for text in texts]
    events.append({"id": number, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events) + end


def crowd_that_did_all() -> Crowd:
    """What must happen did, with one question."""
    crowd = Crowd("", psutil.Process(), {ASKED: {"": "a"}}, [], ())
    crowd.tally.done.update(deed.__name__ for deed in DEEDS)
    crowd.tally.comparing.update(deed.__name__ for deed in COMPARING)
    crowd.tally.seen.update(OUTCOMES)
    crowd.tally.refusals.update(range(len(REFUSALS)))
    crowd.tally.compared[ASKED] = PARTS
    crowd.samples = [Sample((part + 0.5) / PARTS, 100 + part, part + 1) for part in range(PARTS)]
    return crowd


def test_answers_are_compared_by_what_they_say() -> None:
    known = said_in_stream(stream("ab", "c"))
    assert difference(said_in_stream(stream("a", "b", "c", number=2)), known) == ""
    assert "content" in difference(said_in_stream(stream("ab", "d")), known)
    assert difference(said_in_stream(stream("ab")), known)
    calls = [said_in_whole(json.dumps({"tool_calls": [{"arguments": {"days": days}}]})) for days in (1, 2)]
    assert difference(*calls)


@pytest.mark.parametrize("end", ["", 'data: {"error": {"message": "no"}}\n\ndata: [DONE]\n\n'])
def test_a_stream_must_end_well(end: str) -> None:
    with pytest.raises(AssertionError):
        said_in_stream(stream("ab", end=end))


def test_an_answer_without_content_is_silent() -> None:
    assert is_silent(said_in_stream(stream()))
    assert not is_silent(said_in_stream(stream("a")))
    whole = said_in_whole('{"content": "", "prompt": "asked", "stop_type": "eos", "tokens": []}')
    assert silent({ASKED: whole}) == {"chat"}
    assert silent({ASKED: whole, ASKED._replace(stream=False): {".content": "a"}}) == set()
    assert not is_silent(said_in_whole('{"prompt": "from a template"}'))


def test_answers_that_are_missing_are_changes() -> None:
    known = {ASKED: {".content": "a"}}
    assert changed(known, known) == []
    assert changed({}, known) and changed(known, {}) and changed({ASKED: {".content": "b"}}, known)


def test_statuses() -> None:
    error = b'{"error": {"message": "no", "code": "queue_full"}}'
    check_status(200, {}, b"")
    check_status(404, {}, error, 404)
    with pytest.raises(Refused, match="no"):
        check_status(400, {}, error)
    with pytest.raises(Busy, match="queue_full"):
        check_status(503, {"retry-after": "1"}, error)
    for status, body in ((500, error), (404, error), (503, error), (400, b"{}")):
        with pytest.raises(AssertionError) as raised:
            check_status(status, {}, body)
        assert not isinstance(raised.value, Refused)


def test_what_must_happen() -> None:
    assert crowd_that_did_all().missing(wholly=True) == []
    crowd = Crowd("", psutil.Process(), {ASKED: {"": "a"}}, [], ())
    n_kinds = len(DEEDS) + len(COMPARING) + len(OUTCOMES) + 1 + PARTS
    assert len(crowd.missing(wholly=False)) == n_kinds
    assert len(crowd.missing(wholly=True)) == n_kinds + 1 + len(REFUSALS)


def test_a_question_that_was_never_compared() -> None:
    crowd = crowd_that_did_all()
    crowd.known = {ASKED: {}, ASKED._replace(variant=1): {}}
    assert crowd.missing(wholly=False) == []
    assert len(crowd.missing(wholly=True)) == 1


def test_a_part_of_the_time_without_answers() -> None:
    crowd = crowd_that_did_all()
    crowd.samples[4] = crowd.samples[4]._replace(compared=4)
    assert crowd.stalls() == [4]
    del crowd.samples[4]
    assert crowd.stalls() == [4]


@pytest.mark.parametrize(("minutes", "n_parts"), [(10, 2), (14, 2), (18, 3), (36, 6), (60, 11)])
def test_parts_cover_all_that_follows(minutes: int, n_parts: int) -> None:
    """At least two: one alone has nothing to grow from."""
    parts = parts_after(5 / minutes)
    assert len(parts) == n_parts
    assert parts[0][0] == 5 / minutes and parts[-1][1] == pytest.approx(1)
    assert all(before[1] == after[0] for before, after in pairwise(parts))


def test_memory_of_a_part_of_the_time() -> None:
    crowd = crowd_that_did_all()
    assert crowd.memory(0, 0.5) == 100 + PARTS // 2 - 1
    assert crowd.memory(0.5) == 100 + PARTS - 1
    assert crowd.memory(2) == 0
