"""The benchmark of infill: the session of edits, and what its table says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import editing, infill
from benchmarks.editing import Cursor, Ring, session
from benchmarks.infill import OURS, UPSTREAM, Suggestion
from dflash_local.server.fields.infill import InfillRequest

ROOT = Path(__file__).resolve().parents[2]


def test_a_session_is_the_same_for_every_server() -> None:
    one, other = list(session(ROOT, 3, seed=7)), list(session(ROOT, 3, seed=7))
    assert one == other
    count = editing.totals(one)
    assert count["suggestions"] >= 30 and count["files"] >= 3
    for request in one:
        body = request.body
        assert InfillRequest.of(body, strict=True).files == [(c["filename"], c["text"]) for c in body["input_extra"]]
        assert request.is_awaited == (body["n_predict"] > 0) == ("seed" in body)
        assert len(body["input_extra"]) <= editing.RING_N_CHUNKS
        assert body["input_prefix"].count("\n") <= editing.N_PREFIX or not request.is_awaited
        assert body["input_suffix"].count("\n") <= editing.N_SUFFIX + 1


def test_lines_are_written_one_after_the_other() -> None:
    lines = ["def f():", "    first = 1", "    second = 2", "    return 3", "", "f()"]
    places = list(editing.written(lines, editing.place(lines, 0.0)))
    assert [one.line for one in places] == ["    ", "    fir", "    ", "    sec", "    ", "    re"]
    assert [len(one.before) for one in places] == [1, 1, 2, 2, 3, 3]
    assert {tuple(one.after) for one in places} == {("", "f()")}
    body = places[0].ask([]).body
    assert (body["prompt"], body["n_indent"], body["input_prefix"]) == ("", 4, "def f():\n")
    assert body["input_suffix"] == "\n\nf()\n"
    assert Cursor([], "x", []).ask([], top_k=1).body["top_k"] == 1
    with pytest.raises(ValueError, match="no 3 indented lines"):
        editing.place(["a"] * 9, 0.5)


def test_chunks_that_are_almost_the_same_go() -> None:
    ring = Ring(0)
    for name, lines in (("a", ["1", "2", "3"]), ("b", ["4", "5", "6"]), ("c", ["1", "2", "3"])):
        ring.pick(name, lines)
    assert [chunk["filename"] for chunk in ring.chunks] == ["b", "c"]
    for index in range(editing.RING_N_CHUNKS + 1):
        ring.pick("long", [f"{index} {line}" for line in range(200)])
    assert len(ring.chunks) == editing.RING_N_CHUNKS
    assert all(chunk["text"].count("\n") == editing.RING_CHUNK_SIZE // 2 for chunk in ring.chunks)


def test_the_table() -> None:
    def run(latency: float, text: str, passes: int) -> list[Suggestion]:
        return [Suggestion(text, latency * (1 + index), latency / 2, 100, 11, passes) for index in range(20)]

    runs = [{UPSTREAM: run(2.0, "a", 10), OURS: run(1.0, text, 5)} for text in "ab"]
    base, ours = infill.row(UPSTREAM, runs), infill.row(OURS, runs)
    assert (base["over_median"], base["al"], base["equal"]) == (1.0, 1.0, 1.0)
    assert (ours["over_median"], ours["over_p95"], ours["al"], ours["equal"]) == (2.0, 2.0, 2.0, 0.5)
    assert (ours["median"], ours["p95"]) == (10.5, 19.0)
    data: dict[str, Any] = {"options": {"threads": 2}, "command": "python benchmarks/infill.py"}
    text = infill.markdown({**data, "model": "M", "session": {"files": 5}, "rows": [base, ours]})
    assert "| dflash-local | 10.50 | 19.00 | 2.00 | 2.00 |" in text
    assert infill.commands(Path("m"), Path("b"), 2, [UPSTREAM]).keys() == {UPSTREAM}
