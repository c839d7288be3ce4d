"""The benchmark of pictures: who takes part, what is asked, who is left out, and what its table says."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from PIL import Image

from benchmarks import images
from benchmarks.http_load import Answer, LoadError
from benchmarks.pocket_vl.scenes import scene
from benchmarks.systems import BUDGET_1, OURS, PLAIN, UPSTREAM, Setting, Systems
from dflash_local.demo.shapes import Pair


def test_all_have_the_projector_and_upstream_drafts_with_the_same_drafter() -> None:
    pair = Pair(Path("target.gguf"), Path("drafter.gguf"))
    argvs = images.commands(Setting(pair, Path("bins"), mmproj=Path("mmproj.gguf")))
    assert set(argvs) == {PLAIN, *UPSTREAM, OURS, BUDGET_1}
    for name, argv in argvs.items():
        assert argv[argv.index("--mmproj") + 1] == "mmproj.gguf"
        assert ("drafter.gguf" in argv) == (name != PLAIN)


def test_lengths_that_fail_with_the_target_get_its_weights_as_a_qwen3() -> None:
    setting = Setting(Pair(Path("target.gguf"), Path("drafter.gguf")), Path("bins"), mmproj=Path("mmproj.gguf"))
    argvs = images.twins(setting, Path("words.gguf"), [UPSTREAM[2]])
    (argv,) = argvs.values()
    assert list(argvs) == [f"{UPSTREAM[2]}, as qwen3"] and "words.gguf" in argv and "drafter.gguf" in argv
    assert "--mmproj" not in argv and "target.gguf" not in argv


def test_questions_are_about_held_out_scenes_with_long_answers() -> None:
    asked = images.conversations(8)
    assert [len(body["messages"]) for body in asked] == [2 * len(kinds) - 1 for kinds in images.FORMS] * 2
    for body in asked:
        parts = body["messages"][0]["content"]
        assert [part["type"] for part in parts] == ["image_url", "text"]
        assert all(isinstance(said["content"], str) for said in body["messages"][1:])
    assert len({body["messages"][0]["content"][0]["image_url"]["url"] for body in asked}) == 8
    words = images.without_pictures(asked[2])["messages"]
    assert words[0] == {"role": "user", "content": "Describe the picture."} and words[1:] == asked[2]["messages"][1:]


def test_an_enlarged_picture_has_the_rows_that_the_table_names() -> None:
    seed = next(seed for seed in range(1000) if images.sides(scene(seed)) == images.SIDES)
    said = images.conversation(seed, ("describe",), enlarged=4)["messages"][0]["content"]
    data = base64.b64decode(said[0]["image_url"]["url"].partition(",")[2])
    assert Image.open(io.BytesIO(data)).size == (640, 512)
    assert images.media_rows(1) == 20 and images.media_rows(4) == 320


def answer(tokens: int, seconds: float, passes: int, ttft: float = 0.1) -> Answer:
    return Answer("text", 30, tokens + 1, "stop", 1.0, ttft, seconds, passes, 5 * passes, tokens - passes)


class FakeSystems:
    """Systems with answers of their own; those of `failing` end."""

    def __init__(self, speeds: dict[str, float], failing: tuple[str, ...] = ()) -> None:
        self.names, self.speeds, self.failing = list(speeds), speeds, failing
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.servers = {name: SimpleNamespace(complaint=lambda: "a.cpp:1: GGML_ASSERT(x)") for name in self.names}

    def turn(self, name: str, bodies: list[dict[str, Any]]) -> Any:
        self.asked.append((name, bodies[0]))
        if name in self.failing:
            raise LoadError("a request failed: closed")
        seen = any(isinstance(said["content"], list) for said in bodies[0]["messages"])
        speed = self.speeds[name]
        return SimpleNamespace(answers=[answer(100, 100 / speed, 25 if seen else 20, 1 / speed)])


def contest(speeds: dict[str, float], failing: tuple[str, ...] = ()) -> images.Contest:
    return images.Contest(cast(Systems, FakeSystems(speeds, failing)), {})


TWIN = next(iter(images.TWINS))
SPEEDS = {PLAIN: 50.0, UPSTREAM[0]: 60.0, UPSTREAM[1]: 80.0, OURS: 120.0, BUDGET_1: 55.0, TWIN: 100.0}


def test_a_length_that_fails_is_left_out_and_plain_may_not_fail() -> None:
    running = contest(SPEEDS, (UPSTREAM[1],))
    asked = images.conversations(2)
    rows = [images.measure(running, asked, repeat) for repeat in range(2)]
    assert running.left_out == {UPSTREAM[1]: "its server ends (a.cpp:1: GGML_ASSERT(x))"}
    systems = cast(FakeSystems, running.systems)
    assert sum(name == UPSTREAM[1] for name, _ in systems.asked) == 1
    row = images.row(0.0, rows, rows, running.left_out)
    assert row["best"]["pictures"] == UPSTREAM[0] and UPSTREAM[1] not in row["pictures"]
    row["left_out"][UPSTREAM[2]] = row["left_out"][UPSTREAM[1]]
    assert f"Left out: {UPSTREAM[1]}, {UPSTREAM[2]}: its server ends" in images.markdown([row, row], "Here.")
    with pytest.raises(LoadError, match=f"{PLAIN}: a request failed"):
        images.measure(contest(SPEEDS, (PLAIN,)), asked, 0)


def test_the_verdicts() -> None:
    running = contest(SPEEDS)
    asked = images.conversations(4)
    seen = [images.measure(running, asked, repeat) for repeat in range(3)]
    words = [images.measure(running, [images.without_pictures(body) for body in asked], 0, words=True)]
    row = images.row(0.0, seen, words, {})
    assert row["best"] == {"pictures": UPSTREAM[1], "text": TWIN} and TWIN not in row["pictures"]
    assert [round(row[key]["pictures"], 2) for key in ("over_best", "over_plain")] == [1.5, 2.4]
    assert round(row["over_best"]["text"], 2) == 1.2
    assert row["pictures"][OURS]["al"] == 4 and row["text"][OURS]["al"] == 5 and row["al_share"] == 0.8
    assert not row["held"] and images.row(0.0, seen, seen, {})["held"]
    text = images.markdown([row], "Here.")
    assert f"| 0 | {OURS} | 120.0 (120.0-120.0) | 4.00 | 60% | 4 of 4 | 120.0 (120.0-120.0) | 5.00 | 0.80 |" in text
    assert f"| 0 | {TWIN} | - | - | - | - | 100.0 (100.0-100.0) | 5.00 | - |" in text
    assert "1.50, over plain 2.40 (held: more than 1)" in text and "0.80 (MISSED: at least 0.9)" in text


def test_first_tokens_are_of_new_pictures_and_of_questions_after_them() -> None:
    running = contest(SPEEDS)
    waits = images.measure_waits(running, 2)
    assert list(waits) == [
        "new picture, 20 rows", "follow-up, 20 rows", "new picture, 320 rows", "follow-up, 320 rows",
    ]  # fmt: skip
    assert all(len(values) == 2 for of_kind in waits.values() for values in of_kind.values())
    asked = [body for name, body in cast(FakeSystems, running.systems).asked if name == OURS]
    assert all(body["stream"] and body["cache_prompt"] for body in asked)
    first, second = asked[:2]
    assert second["messages"][0] == first["messages"][0] and len(second["messages"]) == 3
    assert len({body["messages"][0]["content"][0]["image_url"]["url"] for body in asked}) == 4
    row = images.waits_row(waits, {})
    assert row["held"] and round(row["over_plain"]["new picture, 320 rows"], 2) == 0.42
    slow = images.waits_row({"new picture, 20 rows": {PLAIN: [10.0], OURS: [11.0]}}, {})
    speeds = [images.measure(running, images.conversations(1), 0)]
    text = images.markdown([images.row(0.0, speeds, speeds, {}), slow], "Here.")
    assert not slow["held"] and "ours over plain 1.10 (MISSED: at most 1)" in text
