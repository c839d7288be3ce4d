"""`serve --record`: what is kept, for whom, how much of it, and that training takes it."""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dflash_local import Engine
from dflash_local.cli.serving.serve_app import _record
from dflash_local.errors import RequestError
from dflash_local.train.answer_record import AnswerRecord
from dflash_local.train.train_settings import TrainSettings, Watcher
from dflash_local.train.training import train
from dflash_local.train.written_texts import read_texts

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
