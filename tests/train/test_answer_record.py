"""`serve --record`: what is kept, for whom, how much of it, and that training takes it."""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dflash_local import Engine
from dflash_local.cli.serving.serve_app import _record
from dflash_local.convert.target import Target
from dflash_local.errors import DFlashError, RequestError
from dflash_local.train import answer_record, training
from dflash_local.train.answer_record import AnswerRecord
from dflash_local.train.drafter_size import DrafterSize
from dflash_local.train.estimate import load_of
from dflash_local.train.examples import key_of
from dflash_local.train.recorded_texts import learned_texts
from dflash_local.train.train_settings import TrainSettings, Watcher
from dflash_local.train.training import train
from dflash_local.train.workspace import Workspace
from dflash_local.train.written_texts import Text, identity, in_order, read_texts

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
    assert path.name.startswith(f"answers-{pocket['target'].stem}-")
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


class Notes(Watcher):
    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)


def write_record(path: Path, model: Path, lengths: Sequence[int]) -> list[Text]:
    """A record of answers by `model`, of 12 tokens each, to prompts of these lengths."""
    texts = []
    for number, n in enumerate(lengths):
        prompt, answer = [7 + number, *range(40, 39 + n)], list(range(50 + number, 62 + number))
        texts.append(Text(key_of(prompt), 0, prompt, answer, 0.0, True, identity(model)))
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(text.to_json() + "\n" for text in texts))
    return texts


@pytest.fixture
def tapped(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Tokens of each text that passes through the target."""
    found: list[list[int]] = []
    tap = Engine.tap

    def heard(self: Engine, tokens: list[int], *given: Any) -> Any:
        found.append(list(tokens))
        return tap(self, tokens, *given)

    monkeypatch.setattr(Engine, "tap", heard)
    return found


def test_other_models_answers_are_left_out(
    settings: Callable[..., TrainSettings], pocket: dict[str, Path], tmp_path: Path, tapped: list[list[int]]
) -> None:
    """A router records all its models in one folder."""
    own = write_record(tmp_path / "record" / "a.jsonl", pocket["target"], [9, 10, 11, 12])
    write_record(tmp_path / "record" / "b.jsonl", pocket["hybrid-target"], [20, 21, 22])
    asked, notes = settings(data=(tmp_path / "record",)), Notes()
    train(asked, notes)
    assert "3 of 7 recorded answers are left out: another model wrote them" in notes.said
    assert len(tapped) == 2 and all(tokens in [text.tokens for text in own] for tokens in tapped)
    assert load_of(asked).answer_tokens == 4 * 12


def test_answers_that_do_not_fit_the_length_are_counted(
    settings: Callable[..., TrainSettings], pocket: dict[str, Path], tmp_path: Path
) -> None:
    write_record(tmp_path / "record.jsonl", pocket["target"], [10, 11, 12, 300])
    notes = Notes()
    train(settings(data=(tmp_path / "record.jsonl",)), notes)
    assert any(note.startswith("1 of 4 recorded answers") and "--length 256" in note for note in notes.said)


def test_recorded_answers_fit_the_disk(
    settings: Callable[..., TrainSettings],
    pocket: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tapped: list[list[int]],
) -> None:
    """Those of the first run stay, whatever room there is later; '--restart tap' chooses anew."""
    texts = write_record(tmp_path / "record.jsonl", pocket["target"], [18] * 22)
    asked, notes = settings(data=(tmp_path / "record.jsonl",)), Notes()
    token_bytes = load_of(asked).token_bytes
    monkeypatch.setattr(DrafterSize, "fit_bytes", 1000)
    monkeypatch.setattr(Workspace, "stored", lambda self: 0)
    monkeypatch.setattr(Workspace, "room", lambda self: 1000 + token_bytes * 160)
    train(asked, notes)
    assert any(note.startswith("5 of 20 recorded answers are used") for note in notes.said)
    held_out = json.loads((asked.work / "state.json").read_text())["held_out"]
    chosen = sorted((text for text in texts if text.key not in held_out), key=lambda text: text.key)
    assert tapped == [text.tokens for text in chosen[:5]]
    assert learned_texts(texts, held_out, asked.length, 130, Watcher()) == chosen[:4]
    monkeypatch.setattr(Workspace, "room", lambda self: 1000 + token_bytes * 130)
    train(asked, Watcher())
    assert len(tapped) == 5
    train(asked, notes, "tap")
    assert any(note.startswith("4 of 20 recorded answers are used") for note in notes.said)
    monkeypatch.setattr(Workspace, "room", lambda self: 1000)
    with pytest.raises(DFlashError, match="storing the first hidden states"):
        train(replace(asked, work=tmp_path / "other"), Watcher())


def test_answers_that_are_there_take_room_of_a_record(
    settings: Callable[..., TrainSettings], pocket: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, notes, record = settings(), Notes(), tmp_path / "record.jsonl"
    train(asked, Watcher())
    n_written = sum(len(text.tokens) for text in read_texts(asked.work / "answers.jsonl"))
    write_record(record, pocket["target"], [18] * 8)
    n_bytes = load_of(asked).token_bytes * (n_written + 70)
    monkeypatch.setattr(DrafterSize, "fit_bytes", 1000)
    monkeypatch.setattr(Workspace, "stored", lambda self: 0)
    monkeypatch.setattr(Workspace, "room", lambda self: 1000 + n_bytes)
    train(replace(asked, data=(*asked.data, record)), notes)
    assert any(note.startswith("2 of 8 recorded answers are used") for note in notes.said)


def test_the_mask_is_no_token_of_texts_that_are_tapped_later(
    settings: Callable[..., TrainSettings], pocket: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Chosen(Exception):
        pass

    def choose(target: Target, used: set[int]) -> int:
        raise Chosen(used)

    texts = write_record(tmp_path / "record.jsonl", pocket["target"], [188] * 14)
    monkeypatch.setattr(training, "TAP_SHARE", 0.0)
    monkeypatch.setattr(training, "choose_mask_token", choose)
    asked = settings(init=None, data=(tmp_path / "record.jsonl",), shard_mib=1, minutes=1.0)
    with pytest.raises(Chosen) as chosen:
        train(asked, Watcher())
    held_out = json.loads((asked.work / "state.json").read_text())["held_out"]
    assert chosen.value.args[0] == {token for text in texts if text.key not in held_out for token in text.tokens}
    assert len(list((asked.work / "taps").iterdir())) == 1


def test_minutes_bound_the_tapping_of_a_record(
    settings: Callable[..., TrainSettings],
    pocket: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tapped: list[list[int]],
) -> None:
    """One file of hidden states is made at least; a run with more time makes the others, and none twice."""
    write_record(tmp_path / "record.jsonl", pocket["target"], [188] * 14)
    asked, notes = settings(data=(tmp_path / "record.jsonl",), shard_mib=1, minutes=1.0), Notes()
    with monkeypatch.context() as patch:
        patch.setattr(training, "TAP_SHARE", 0.0)
        assert train(asked, notes).best.step > 0
    n_first = len(tapped)
    assert 0 < n_first < 12
    assert f"{12 - n_first} of 12 answers are left out: --minutes leaves no time to tap them" in notes.said
    train(asked, Watcher())
    assert len(tapped) == 12 == len({tuple(tokens) for tokens in tapped})


def test_a_record_that_grows_moves_no_text(
    settings: Callable[..., TrainSettings], pocket: dict[str, Path], tmp_path: Path, tapped: list[list[int]]
) -> None:
    """Whichever file a new answer is in: hidden states of the others stay, but for those of the last file."""
    record = tmp_path / "record"
    write_record(record / "b.jsonl", pocket["target"], [188] * 42)
    asked = settings(data=(record,), shard_mib=1)
    train(asked, Watcher())
    n_files = len(list((asked.work / "taps").iterdir()))
    assert len(tapped) == 40 and n_files > 2
    (new,) = write_record(record / "a.jsonl", pocket["target"], [187])
    train(asked, Watcher())
    again = tapped[40:]
    assert new.tokens in again and len(again) <= 40 // (n_files - 1) + 1
    train(asked, Watcher(), "tap")
    assert len(tapped) == 40 + len(again) + 41


def test_known_texts_have_room_first(pocket: dict[str, Path], tmp_path: Path) -> None:
    texts = write_record(tmp_path / "record.jsonl", pocket["target"], [18] * 20)
    known = [text.digest for text in sorted(texts, key=lambda text: text.key)[-3:]]
    kept = learned_texts(texts, (), 256, 5 * 30, Watcher(), known)
    assert {text.digest for text in kept[:3]} == set(known) and len(kept) == 5
    assert [text.digest for text in in_order([*texts, texts[0]], known)[:3]] == known
    twice = [texts[0], texts[1], texts[0]]
    assert in_order(twice, [text.digest for text in twice]) == twice


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


def an_answer() -> tuple[Any, Any]:
    """A request and what came of it."""
    request = SimpleNamespace(prompt_tokens=[1, 2, 3], sampling=None)
    return request, SimpleNamespace(tokens=list(range(10)), finish_reason="stop", stopped_by=None)


def test_the_engines_thread_does_not_go_through_prompts(
    pocket: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    def key_here(prompt: list[int]) -> str:
        threads.append(threading.current_thread())
        return key_of(prompt)

    monkeypatch.setattr(answer_record, "key_of", key_here)
    record = AnswerRecord(tmp_path, pocket["target"], 1 << 20)
    record(*an_answer())
    record.close()
    assert len(threads) == 1 and threads[0] is not threading.current_thread()


def test_an_error_ends_the_record(
    pocket: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody waits for the thread that writes."""
    asked: list[object] = []

    def fails(prompt: object) -> str:
        asked.append(prompt)
        raise MemoryError

    monkeypatch.setattr(answer_record, "key_of", fails)
    record = AnswerRecord(tmp_path, pocket["target"], 1 << 20)
    record(*an_answer())
    record(*an_answer())
    record.close()
    assert len(asked) == 1
    assert caplog.text.count("an answer could not be recorded") == 1


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
