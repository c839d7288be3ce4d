"""`serve --record`: what is kept, for whom, how much of it, and that training takes it."""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dflash_local import Engine
from dflash_local.cli.serving.serve_app import _record
from dflash_local.errors import RequestError
from dflash_local.train.answer_record import AnswerRecord
from dflash_local.train.train_settings import TrainSettings, Watcher
from dflash_local.train.training import train
from dflash_local.train.written_texts import Text, read_texts

PROMPTS = Path(__file__).parents[1] / "parity" / "prompts.jsonl"


def ask(engine: Engine, n: int) -> list[list[int]]:
    """Answers to the first n prompts."""
    lines = PROMPTS.read_text().splitlines()[:n]
    chats = [json.loads(line)["messages"] for line in lines]
    prompts = [engine.tokenize(engine.apply_chat({"messages": chat}).prompt) for chat in chats]
    return [engine.generate(prompt, max_tokens=48, temperature=0).tokens for prompt in prompts]


def test_record_and_train(
    settings: Callable[..., TrainSettings], pocket: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "record"
    with Engine(pocket["target"], n_ctx=512, n_threads=1, warmup=False) as engine:
        _record(engine, str(pocket["target"]), folder, 1)
        found = [tokens for tokens in ask(engine, 12) if len(tokens) >= 8]
        ended = engine.ended
    ended.result()
    assert "PROMPTS AND ANSWERS ARE RECORDED" in caplog.text
    (path,) = folder.iterdir()
    assert [text.answer for text in read_texts(path)] == found
    if sys.platform != "win32":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(folder.stat().st_mode) == 0o700

    result = train(settings(data=(folder,)), Watcher())
    assert result.best.step > 0 and not (settings().work / "answers.jsonl").read_bytes()
    held_out = json.loads((settings().work / "state.json").read_text())["held_out"]
    more = settings(data=(folder, *settings().data))  # prompts, some of them the same
    assert train(more, Watcher()).evaluations[: len(result.evaluations)] == result.evaluations
    assert json.loads((more.work / "state.json").read_text())["held_out"] == held_out
    assert not set(held_out) & {text.key for text in read_texts(more.work / "answers.jsonl")}
    others = tmp_path / "others.txt"
    others.write_text("What is 31 + 5?\nWhat is 32 + 5?\nWhat is 33 + 5?\n")
    with pytest.raises(RequestError, match="2 of the 2 prompts that were held out are not in --data any more") as error:
        train(settings(data=(others,)), Watcher())
    assert error.value.hint and "--restart answer" in error.value.hint
    with pytest.raises(RequestError, match="text of another model"):
        train(settings(data=(folder,), model=pocket["hybrid-target"], init=None, work=tmp_path / "other"), Watcher())


def test_record_is_bounded(pocket: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Earlier files count, too."""
    tmp_path.joinpath("earlier.jsonl").write_bytes(b"x" * 1000)
    with Engine(pocket["target"], n_ctx=512, n_threads=1, warmup=False) as engine:
        recorder = AnswerRecord(tmp_path, pocket["target"], 2000)
        engine.watch_answers(recorder)
        ask(engine, 12)
        engine.watch_answers(None)
        recorder.close()
    assert "is full" in caplog.text
    assert 1000 < sum(path.stat().st_size for path in tmp_path.iterdir()) <= 2000


def a_text(n_tokens: int = 100) -> Text:
    return Text("key", 0, [1, 2, 3], list(range(n_tokens)), 0.0, True)


def test_processes_share_the_limit(
    pocket: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each counts what the others wrote; what is over is taken back."""
    monkeypatch.setattr(os, "getpid", count(1).__next__)
    line = len(a_text().to_json()) + 1
    records = [AnswerRecord(tmp_path, pocket["target"], 4 * line + 10) for _ in range(3)]
    for _ in range(4):
        for record in records:
            record._write(a_text())
    for record in records:
        record.close()
    assert sorted(path.stat().st_size / line for path in tmp_path.iterdir()) == [1, 1, 2]
    assert caplog.text.count("is full") == 3


def test_a_full_disk_leaves_no_half_line(
    pocket: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write, room = os.write, [500]

    def small(file: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        n = write(file, data[: room[0]])
        room[0] -= n
        return n

    record = AnswerRecord(tmp_path, pocket["target"], 1 << 20)
    monkeypatch.setattr(os, "write", small)
    for _ in range(3):
        record._write(a_text())
    monkeypatch.undo()
    record.close()
    (path,) = tmp_path.iterdir()
    assert list(read_texts(path)) == [a_text()]
    assert caplog.text.count("cannot be written") == 1


def test_an_answer_that_a_stop_string_cut_has_not_ended(pocket: dict[str, Path], tmp_path: Path) -> None:
    record = AnswerRecord(tmp_path, pocket["target"], 1 << 20)
    request: Any = SimpleNamespace(prompt_tokens=[1, 2, 3], sampling=None)
    for reason, stopped_by in (("stop", None), ("stop", "END"), ("length", None)):
        completion: Any = SimpleNamespace(tokens=list(range(10)), finish_reason=reason, stopped_by=stopped_by)
        record(request, completion)
    record.close()
    (path,) = tmp_path.iterdir()
    assert [text.ended for text in read_texts(path)] == [True, False, False]


def test_folder_that_cannot_be_made(pocket: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RequestError, match="cannot record"):
        AnswerRecord(tmp_path / "file", pocket["target"], 2000)


def test_a_failing_watcher_costs_no_answer(pocket: dict[str, Path]) -> None:
    def fails(*_: object) -> None:
        raise ValueError

    with Engine(pocket["target"], n_ctx=512, n_threads=1, warmup=False) as engine:
        engine.watch_answers(fails)
        assert all(ask(engine, 2))
