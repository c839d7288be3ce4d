"""Rounds of an adaptation, with processes that stand in for training: when they are due, how they end, what of them is
kept, and what becomes of them at the server's end."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from gguf import LlamaFileType

from dflash_local import cli
from dflash_local.cli.commands import train as train_command
from dflash_local.convert.gguf_metadata import read_model
from dflash_local.convert.outtypes import OUTTYPES
from dflash_local.convert.target import Target
from dflash_local.errors import DFlashError, EngineDeadError, PairError, RequestError
from dflash_local.native import quantize_rows
from dflash_local.train import round_texts, training_child
from dflash_local.train.adaptation import Adaptation
from dflash_local.train.adapted_pair import AdaptedPair, types_of
from dflash_local.train.drafter_file import DrafterFile
from dflash_local.train.train_settings import TrainSettings, Watcher
from dflash_local.train.training import train
from dflash_local.train.training_child import TrainingChild
from dflash_local.train.written_texts import read_texts
from tests.patience import wait_until
from tests.train import adapting_server
from tests.train.adapting_server import Drafting, stand_in

N_TOKENS = 60
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="it cannot stop processes")


class Adapted:
    """An adaptation whose training is a stand-in, and its server."""

    def __init__(self, folder: Path, pocket: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self._pocket, self._monkeypatch = folder, pocket, monkeypatch
        self.engine = Drafting(pocket["target"], pocket["dflash"])
        self.adaptation = self.opened()

    def opened(self) -> Adaptation:
        """That of another start of the server."""
        found = Adaptation(self.folder, N_TOKENS, 1 << 20)
        found.attach(self.engine)  # type: ignore[arg-type]
        return found

    def started_again(self) -> None:
        self.adaptation.close()
        self.engine = Drafting(self._pocket["target"], self._pocket["dflash"])
        self.adaptation = self.opened()

    @property
    def pair_folder(self) -> Path:
        (found,) = self.folder.iterdir()
        return found

    @property
    def rounds(self) -> list[dict[str, Any]]:
        path = self.pair_folder / "rounds.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def prepare(self, stop: Callable[[], bool] = lambda: False) -> bool:
        """Prepare a round, if one is due."""
        return self.adaptation.is_due and self.adaptation.prepare(stop)

    def start(self, what: str) -> None:
        """Start the process of a round that was prepared."""
        self._monkeypatch.setattr(AdaptedPair, "command", stand_in(what))
        self.adaptation.start()

    def go(self) -> None:
        """Let the process end, and finish the round."""
        go = self.pair_folder / "go"
        go.touch()
        wait_until(lambda: self.adaptation.has_ended)
        go.unlink()
        self.adaptation.finish()

    def round(self, what: str, prompts: range) -> None:
        """A whole round."""
        self.engine.answer(prompts)
        assert self.prepare()
        self.start(what)
        self.go()

    @property
    def pid(self) -> int:
        assert self.adaptation._child is not None
        return self.adaptation._child.pid


@pytest.fixture
def adapted(
    tmp_path: Path, pocket: dict[str, Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Iterator[Adapted]:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(round_texts, "LEAST_PROMPTS", 4)
    found = Adapted(tmp_path / "adapt", pocket, monkeypatch)
    yield found
    found.adaptation.close()


def is_stopped(pid: int) -> bool:
    return psutil.Process(pid).status() == psutil.STATUS_STOPPED


def is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


# ---- answers, and when a round is due ----


def test_answers_are_kept_for_the_user_alone(adapted: Adapted, caplog: pytest.LogCaptureFixture) -> None:
    adapted.started_again()
    adapted.engine.answer(range(3))
    folder = adapted.pair_folder
    assert folder.name.startswith("pocket-target-") and len(folder.name) == len("pocket-target-") + 8
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert "PROMPTS AND ANSWERS ARE RECORDED" in caplog.text and "experimental" in caplog.text
    adapted.adaptation.close()
    record = max((folder / "answers").iterdir())
    assert len([*read_texts(record)]) == 3
    adapted.engine.answer([4])  # the engine may have one more
    assert len([*read_texts(record)]) == 3


def test_another_pair_has_a_folder_of_its_own(adapted: Adapted, pocket: dict[str, Path]) -> None:
    other = Adaptation(adapted.folder, N_TOKENS, 1 << 20)
    other.attach(Drafting(pocket["target"], pocket["dflash-small"]))  # type: ignore[arg-type]
    other.close()
    assert len([*adapted.folder.iterdir()]) == 2


def test_a_round_is_due_with_enough_new_answers(adapted: Adapted) -> None:
    """Those of earlier starts count, those of earlier rounds do not."""
    adapted.engine.answer(range(5))
    assert not adapted.prepare() and not adapted.adaptation.is_due
    adapted.started_again()
    adapted.engine.answer(range(5, 7))
    adapted.round("2,2", range(0))
    assert adapted.rounds[0]["tokens"] == 70
    adapted.engine.answer(range(10, 15))
    assert not adapted.adaptation.is_due and not adapted.prepare()
    adapted.engine.answer(range(15, 17))
    assert adapted.prepare()


def test_repeated_answers_are_not_read_each_second(adapted: Adapted, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(9):
        adapted.engine.answer([1])
    assert not adapted.prepare()
    adapted.engine.answer([1])
    assert not adapted.adaptation.is_due
    adapted.engine.answer(range(2, 9))
    assert adapted.prepare()


def test_a_request_interrupts_the_preparation(adapted: Adapted) -> None:
    adapted.engine.answer(range(9))
    assert not adapted.prepare(lambda: True)
    assert not (adapted.pair_folder / "round").exists()
    assert adapted.prepare()


def test_old_answers_make_room(
    tmp_path: Path, pocket: dict[str, Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A full record would end it otherwise."""
    monkeypatch.setattr(round_texts, "LEAST_PROMPTS", 4)
    seconds = iter(range(10, 99))
    monkeypatch.setattr(time, "strftime", lambda _form: f"20260101-0000{next(seconds)}")
    adapted = Adapted(tmp_path / "adapt", pocket, monkeypatch)
    adapted.adaptation._record._n_most = 4000  # type: ignore[union-attr]
    for number in range(9):
        adapted.round("2,2", range(10 * number, 10 * number + 9))
    adapted.adaptation.close()
    sizes = [path.stat().st_size for path in (adapted.pair_folder / "answers").iterdir()]
    assert 1000 < sum(sizes) <= 4000 and len(sizes) > 1
    assert len(adapted.rounds) == 9 and "is full" not in caplog.text


def test_texts_that_no_round_can_use_make_room(
    tmp_path: Path, pocket: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else they would fill the record for good, also after a start."""
    monkeypatch.setattr(round_texts, "LEAST_PROMPTS", 4)
    seconds = iter(range(10, 99))
    monkeypatch.setattr(time, "strftime", lambda _form: f"20260101-0000{next(seconds)}")
    adapted = Adapted(tmp_path / "adapt", pocket, monkeypatch)
    for _ in range(2):
        adapted.adaptation._record._n_most = 8000  # type: ignore[union-attr]
        adapted.engine.answer(range(9), n_prompt=500)
        assert not adapted.prepare()
        adapted.started_again()
    adapted.adaptation._record._n_most = 8000  # type: ignore[union-attr]
    adapted.engine.answer(range(9), n_prompt=500)
    assert not adapted.prepare()
    adapted.adaptation._record.flush()  # type: ignore[union-attr]
    adapted.engine.answer(range(10, 19))
    assert adapted.prepare()
    adapted.adaptation.close()


# ---- a round ----


def test_what_a_round_leaves_to_train(adapted: Adapted, pocket: dict[str, Path]) -> None:
    """Its command is one of `train`, which goes on with a drafter of the same form and holds out what it is told."""
    adapted.engine.answer(range(9))
    assert adapted.prepare()
    words = [*adapted.adaptation._known.command(512)]
    _, args = cli.parse(words[words.index("train") :])
    settings = train_command.settings_of(args, pocket["target"])
    assert (settings.init, settings.draft_vocab, settings.minutes) == (pocket["dflash"], 0, None)
    assert args.background and settings.work.is_relative_to(adapted.pair_folder)
    keys = json.loads((settings.work / "state.json").read_text())["held_out"]
    assert len(keys) == 4 and {text.key for text in read_texts(settings.data[0])} > set(keys)


def test_training_measures_on_the_prompts_of_the_round(
    adapted: Adapted, settings: Callable[..., TrainSettings]
) -> None:
    adapted.engine.answer(range(9))
    assert adapted.prepare()
    pair = adapted.adaptation._known
    state = pair.work / "state.json"
    held_out = json.loads(state.read_text())["held_out"]
    asked = settings(data=(pair.texts,), work=pair.work, output=pair.new, held_out=10)
    train(asked, Watcher())
    assert json.loads(state.read_text())["held_out"] == held_out and len(held_out) == 4
    child = TrainingChild([sys.executable, "-c", ""], pair.log)
    wait_until(lambda: child.status == 0)
    child.close()
    outcome = adapted.adaptation._outcome(child)
    assert outcome.failure is None and outcome.before and outcome.after


@pytest.mark.parametrize(
    ("options", "flags"),
    [
        ({}, []),
        ({"n_threads": 3, "n_gpu_layers": 0}, ["--threads", "3", "--n-gpu-layers", "0"]),
        ({"n_gpu_layers": 7, "fitted": 3}, ["--n-gpu-layers", "7"]),
        ({"fitted": 3}, []),
    ],
)
def test_the_machine_is_used_as_the_server_does(
    pocket: dict[str, Path], tmp_path: Path, options: dict[str, Any], flags: list[str]
) -> None:
    """But for what --fit chose for it: rounds have their own."""
    given = options.get("n_gpu_layers", -1)
    drafting = Drafting(
        pocket["target"],
        pocket["dflash"],
        n_threads=options.get("n_threads"),
        n_gpu_layers=options.get("fitted", given),
    )
    adaptation = Adaptation(tmp_path, N_TOKENS, 1 << 20, given)
    adaptation.attach(drafting)  # type: ignore[arg-type]
    adaptation.close()
    words = [*adaptation._known.command(512)]
    assert words[len(words) - len(flags) :] == flags and ("--threads" in words) is ("--threads" in flags)


@pytest.mark.parametrize("outtype", ["f16", "q8_0", "q4_0"])
@pytest.mark.parametrize("fc_type", [None, "q8_0", "f32"])
def test_the_new_file_has_the_types_of_the_old_one(
    pocket: dict[str, Path], tmp_path: Path, outtype: str, fc_type: str | None
) -> None:
    target, first, second = Target.read(pocket["target"]), tmp_path / "a.gguf", tmp_path / "b.gguf"
    file = DrafterFile.read(pocket["dflash"], target, tmp_path)
    file.write(first, file.values, outtype, {}, quantize_rows, fc_type=fc_type)
    flags = types_of(first)
    types = dict(zip(flags[::2], flags[1::2], strict=True))
    file.write(second, file.values, types["--outtype"], {}, quantize_rows, fc_type=types.get("--fc-type"))
    assert [t.type for t in read_model(first)[1].values()] == [t.type for t in read_model(second)[1].values()]


def test_mixtures_of_types_keep_that_of_most_matrices(
    pocket: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the new file would be better by its type alone."""
    path, target = tmp_path / "a.gguf", Target.read(pocket["target"])
    file = DrafterFile.read(pocket["dflash"], target, tmp_path)
    mixture = replace(OUTTYPES["q4_0"], file_type=LlamaFileType.MOSTLY_Q4_K_M)
    with monkeypatch.context() as patch:
        patch.setitem(OUTTYPES, "q4_0", mixture)
        file.write(path, file.values, "q4_0", {}, quantize_rows)
    assert types_of(path)[:2] == ["--outtype", "q4_0"]
    monkeypatch.delitem(OUTTYPES, "q4_0")
    adaptation = Adaptation(tmp_path / "adapt", N_TOKENS, 1 << 20)
    with pytest.raises(RequestError, match=r"a\.gguf cannot learn: its matrices are Q4_0") as error:
        adaptation.attach(Drafting(pocket["target"], path))  # type: ignore[arg-type]
    assert error.value.hint


def test_a_better_drafter_is_taken(adapted: Adapted, caplog: pytest.LogCaptureFixture) -> None:
    """Once no request runs, and by the next start; the next round goes on from it."""
    adapted.round("2.0,2.04", range(9))
    engine, folder = adapted.engine, adapted.pair_folder
    assert (folder / "next.gguf").read_text() == "drafter of 2.0,2.04" and not (folder / "round").exists()
    assert "AL 2.00 -> 2.04 on held-out prompts; the new one is taken" in caplog.text
    (line,) = adapted.rounds
    assert (line["tokens"], line["before"], line["after"], line["taken"]) == (90, 2.0, 2.04, True)
    engine.is_busy = True
    adapted.adaptation.hand_over(engine)  # type: ignore[arg-type]
    assert (adapted.adaptation.has_new_drafter, engine.drafters) == (True, [])
    engine.is_busy = False
    adapted.adaptation.hand_over(engine)  # type: ignore[arg-type]
    assert (adapted.adaptation.has_new_drafter, engine.drafters) == (False, ["drafter of 2.0,2.04"])
    assert (folder / "drafter.gguf").exists() and not (folder / "next.gguf").exists()
    assert adapted.adaptation._known.drafter == folder / "drafter.gguf"
    adapted.started_again()
    assert adapted.engine.drafters == ["drafter of 2.0,2.04"]
    assert adapted.adaptation._known.drafter == folder / "drafter.gguf"


@pytest.mark.parametrize("what", ["2.0,2.0", "2.0,2.039", "2.0,1.5"])
def test_no_other_drafter_is(adapted: Adapted, what: str, caplog: pytest.LogCaptureFixture) -> None:
    adapted.round(what, range(9))
    assert not adapted.adaptation.has_new_drafter and "the old one stays" in caplog.text
    assert sorted(path.name for path in adapted.pair_folder.iterdir()) == [
        "answers", "last.log", "lock", "rounds.jsonl", "state.json",
    ]  # fmt: skip


def test_after_a_failure_the_next_round_waits_longer(adapted: Adapted, caplog: pytest.LogCaptureFixture) -> None:
    """Twice as long each time, also after a start, until one succeeds."""
    adapted.round("fails", range(7))
    assert "error: no luck" in caplog.text and "waits for 120 tokens" in caplog.text
    assert "no luck" in (adapted.pair_folder / "last.log").read_text()
    assert not (adapted.pair_folder / "round").exists()
    assert adapted.rounds[0]["failure"] == "error: no luck"
    adapted.engine.answer(range(10, 17))
    adapted.started_again()
    assert not adapted.prepare()
    adapted.round("2,2", range(17, 23))
    adapted.engine.answer(range(30, 37))
    assert adapted.prepare()


def test_a_process_that_was_killed_has_failed(adapted: Adapted) -> None:
    adapted.engine.answer(range(9))
    assert adapted.prepare()
    adapted.start("2,2")
    os.kill(adapted.pid, signal.SIGKILL)
    adapted.go()
    assert adapted.rounds[0]["failure"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"evaluations": []}', '{"evaluations": [{"step": 0}]}'])
def test_a_result_that_cannot_be_read_has_failed(adapted: Adapted, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(adapting_server, "TRAINS", f"open('run/state.json', 'w').write({text!r})")
    adapted.round("", range(9))
    assert "cannot be read" in adapted.rounds[0]["failure"]


def test_a_process_that_cannot_be_started_has_failed(adapted: Adapted, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object, **__: object) -> None:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    adapted.engine.answer(range(9))
    assert adapted.prepare()
    monkeypatch.setattr(subprocess, "Popen", none)
    adapted.adaptation.start()
    assert not adapted.adaptation.runs and "cannot be started" in adapted.rounds[0]["failure"]


# ---- requests, and the server's end ----


def test_it_stands_still_and_goes_on(adapted: Adapted) -> None:
    """What it stood still is no time of the round."""
    adapted.engine.answer(range(9))
    assert adapted.prepare()
    adapted.adaptation.pause()  # nothing runs yet
    adapted.start("2,2")
    for _ in range(2):
        adapted.adaptation.pause()
        wait_until(lambda: is_stopped(adapted.pid))
    child = adapted.adaptation._child
    assert child is not None and child.is_paused and child.seconds == child.seconds
    adapted.adaptation.resume()
    wait_until(lambda: not is_stopped(adapted.pid))
    adapted.go()
    adapted.adaptation.pause()  # nothing runs any more
    assert adapted.rounds[0]["failure"] is None


def test_a_round_that_was_stopped_goes_on_after_the_next_start(adapted: Adapted) -> None:
    """Its process ends with the server, even if it stands still; what it left is there."""
    adapted.engine.answer(range(9))
    assert adapted.prepare()
    adapted.start("2,3")
    pid = adapted.pid
    adapted.adaptation.pause()
    adapted.started_again()
    assert is_gone(pid) and not adapted.rounds
    assert adapted.prepare(lambda: True)  # nothing is to be prepared
    adapted.start("2,3")
    adapted.go()
    assert adapted.rounds[0]["tokens"] == 90 and adapted.adaptation.has_new_drafter


def test_minutes_are_those_of_all_starts(adapted: Adapted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TrainingChild, "seconds", property(lambda _: 90.0))
    adapted.engine.answer(range(9))
    assert adapted.prepare()
    adapted.start("2,2")
    adapted.started_again()
    adapted.start("2,2")
    adapted.go()
    assert adapted.rounds[0]["minutes"] == 3.0


def test_a_process_that_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_child, "PATIENCE", 0.1)
    deaf = "import signal; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); signal.pause()"
    child = TrainingChild([sys.executable, "-c", deaf], tmp_path / "log")
    wait_until(lambda: child.last_words() == "deaf")
    child.pause()
    child.end()
    assert child.status == -signal.SIGKILL


# Starts a process in the background, stops it if it is told to, and waits to be killed.
SERVER = """
import sys, time
from pathlib import Path
from dflash_local.train.training_child import TrainingChild

child = TrainingChild([sys.executable, "-c", sys.argv[1]], Path(sys.argv[2]))
while "begun" not in child.last_words():
    time.sleep(0.01)
if sys.argv[3] == "stopped":
    child.pause()
print(child.pid, flush=True)
time.sleep(1000)
"""
BACKGROUND = """
import os, time
from dflash_local.train.background import go_to_background
go_to_background()
print("begun", os.getpriority(os.PRIO_PROCESS, 0), os.getpgrp() == os.getpid(), flush=True)
time.sleep(1000)
"""


@pytest.mark.parametrize("how", ["running", "stopped"])
def test_it_does_not_outlive_a_server_that_is_killed(tmp_path: Path, how: str) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-c", SERVER, BACKGROUND, str(log), how]
    # As under a terminal, a supervisor or a router, its session is not that of the process that adopts orphans.
    server = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    assert server.stdout is not None
    pid = int(server.stdout.readline())
    assert log.read_text() == "begun 19 True\n"
    if how == "stopped":
        wait_until(lambda: is_stopped(pid))
    server.kill()
    server.wait()
    server.stdout.close()
    wait_until(lambda: is_gone(pid))


# ---- what goes wrong ----


def test_of_two_servers_one_adapts(adapted: Adapted, caplog: pytest.LogCaptureFixture) -> None:
    engine = Drafting(adapted.engine.options.model, adapted.engine.options.drafter)
    second = Adaptation(adapted.folder, N_TOKENS, 1 << 20)
    second.attach(engine)  # type: ignore[arg-type]
    assert not second.is_on and engine.on_answer is None and not second.is_due
    assert "another server adapts the drafter" in caplog.text
    second.close()
    adapted.adaptation.close()
    third = adapted.opened()
    assert third.is_on
    third.close()


def test_a_drafter_that_does_not_fit_any_more(adapted: Adapted, caplog: pytest.LogCaptureFixture) -> None:
    (adapted.pair_folder / "drafter.gguf").write_text("of another version")
    engine = Drafting(adapted.engine.options.model, adapted.engine.options.drafter)
    engine.refusal = PairError("it has another block")
    adapted.adaptation.attach(engine)  # type: ignore[arg-type]
    assert "does not fit any more, so pocket-dflash.gguf drafts: it has another block" in caplog.text
    assert adapted.adaptation._known.drafter == engine.options.drafter and engine.on_answer is not None


def test_a_new_drafter_that_the_engine_refuses(adapted: Adapted, caplog: pytest.LogCaptureFixture) -> None:
    adapted.round("2,3", range(9))
    adapted.engine.refusal = PairError("it has another block")
    adapted.adaptation.hand_over(adapted.engine)  # type: ignore[arg-type]
    assert not adapted.adaptation.has_new_drafter and "cannot be used: it has another block" in caplog.text
    assert sorted(path.suffix for path in adapted.pair_folder.iterdir() if path.suffix == ".gguf") == []


@pytest.mark.parametrize(
    ("error", "left"),
    [(PairError("it has another block"), ["drafter.gguf"]), (DFlashError("no memory"), ["drafter.gguf", "next.gguf"])],
)
def test_what_earlier_rounds_made_stays(adapted: Adapted, error: DFlashError, left: list[str]) -> None:
    """What the engine cannot take for lack of memory is tried again at the next start."""
    adapted.round("2,3", range(9))
    adapted.adaptation.hand_over(adapted.engine)  # type: ignore[arg-type]
    adapted.round("3,4", range(10, 19))
    adapted.engine.refusal = error
    adapted.adaptation.hand_over(adapted.engine)  # type: ignore[arg-type]
    kept = adapted.pair_folder / "drafter.gguf"
    assert not adapted.adaptation.has_new_drafter and adapted.adaptation._known.drafter == kept
    assert kept.read_text() == "drafter of 2,3"
    assert sorted(path.name for path in adapted.pair_folder.glob("*.gguf")) == left
    adapted.started_again()
    assert adapted.engine.drafters == ["drafter of 2,3" if len(left) == 1 else "drafter of 3,4"]


def test_rounds_go_on_from_what_an_engine_has_no_memory_for(adapted: Adapted, caplog: pytest.LogCaptureFixture) -> None:
    (adapted.pair_folder / "drafter.gguf").write_text("of earlier rounds")
    adapted.engine.refusal = DFlashError("no memory")
    adapted.adaptation.attach(adapted.engine)  # type: ignore[arg-type]
    assert adapted.adaptation._known.drafter == adapted.pair_folder / "drafter.gguf"
    assert "cannot be used now, so pocket-dflash.gguf drafts: no memory" in caplog.text


def test_a_server_that_is_killed_while_a_round_ends(adapted: Adapted, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the round made is used, and its files, which are of another drafter, are not gone on with."""

    class Killed(BaseException):
        pass

    def killed(*_: object, **__: object) -> None:
        raise Killed

    adapted.engine.answer(range(9))
    assert adapted.prepare()
    adapted.start("2,3")
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(shutil, "rmtree", killed)
        adapted.go()
    adapted.started_again()
    assert adapted.engine.drafters == ["drafter of 2,3"] and adapted.adaptation._round is None
    adapted.round("3,3", range(10, 19))
    assert adapted.rounds[-1]["failure"] is None


def test_an_engine_that_wakes_after_the_end_of_learning_drafts_with_the_kept_one(adapted: Adapted) -> None:
    adapted.round("2,3", range(9))
    adapted.adaptation.hand_over(adapted.engine)  # type: ignore[arg-type]
    adapted.adaptation.give_up(OSError("the disk is full"))
    engine = Drafting(adapted.engine.options.model, adapted.engine.options.drafter)
    adapted.adaptation.attach(engine)  # type: ignore[arg-type]
    assert engine.drafters == ["drafter of 2,3"] and engine.on_answer is None


def test_an_engine_that_falls_asleep_gets_it_when_it_wakes(adapted: Adapted) -> None:
    adapted.round("2,3", range(9))
    adapted.engine.refusal = EngineDeadError("the engine was closed")
    adapted.adaptation.hand_over(adapted.engine)  # type: ignore[arg-type]
    assert adapted.adaptation.has_new_drafter
    adapted.engine.refusal = None
    adapted.adaptation.attach(adapted.engine)  # type: ignore[arg-type]
    assert adapted.engine.drafters == ["drafter of 2,3"] and not adapted.adaptation.has_new_drafter


def test_a_folder_that_is_gone(adapted: Adapted, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever calls gives up with the error, which is said once."""
    adapted.engine.answer(range(9))
    assert adapted.prepare()
    adapted.start("2,3")
    pid = adapted.pid
    os.kill(pid, signal.SIGKILL)
    shutil.rmtree(adapted.folder)
    wait_until(lambda: adapted.adaptation.has_ended)
    with pytest.raises(DFlashError) as error:
        adapted.adaptation.finish()
    adapted.adaptation.give_up(error.value)
    assert caplog.text.count("the drafter learns no more") == 1 and "Traceback" not in caplog.text
    adapted.engine.answer(range(9))
    assert not adapted.adaptation.is_due


def test_a_record_that_is_gone(adapted: Adapted) -> None:
    adapted.engine.answer(range(9))
    shutil.rmtree(adapted.pair_folder / "answers")
    with pytest.raises(FileNotFoundError):
        adapted.prepare()


def test_a_full_disk(adapted: Adapted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the round stays."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    adapted.engine.answer(range(9))
    monkeypatch.setattr(round_texts.RoundTexts, "write", full)
    with pytest.raises(DFlashError, match="is full") as error:
        adapted.prepare()
    adapted.adaptation.give_up(error.value)
    assert not (adapted.pair_folder / "round").exists() and not adapted.adaptation.is_on


def test_giving_up_ends_the_process(adapted: Adapted) -> None:
    adapted.engine.answer(range(9))
    assert adapted.prepare()
    adapted.start("2,3")
    pid = adapted.pid
    adapted.adaptation.give_up(OSError("the disk is gone"))
    assert is_gone(pid) and not adapted.adaptation.runs


def test_what_cannot_learn_is_refused(pocket: dict[str, Path], tmp_path: Path, untrained_mtp: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder, drafter, why in (
        (tmp_path, None, "no drafter file"),
        (tmp_path, untrained_mtp, "cannot learn: "),
        (tmp_path / "file", pocket["dflash"], "cannot adapt in"),
    ):
        adaptation = Adaptation(folder, N_TOKENS, 1 << 20)
        with pytest.raises(RequestError, match=why) as error:
            adaptation.attach(Drafting(pocket["target"], drafter))  # type: ignore[arg-type]
        assert error.value.param == "--adapt" and error.value.hint
        adaptation.close()


@pytest.mark.parametrize(("file", "text"), [("state.json", '{"other": 1}'), ("round/round.json", '{"other": 1}')])
def test_files_of_another_version(adapted: Adapted, file: str, text: str) -> None:
    adapted.adaptation.close()
    (adapted.pair_folder / "round").mkdir()
    (adapted.pair_folder / file).write_text(text)
    with pytest.raises(RequestError, match="files of another version"):
        adapted.opened()
    (adapted.pair_folder / file).unlink()
    adapted.adaptation = adapted.opened()
    assert adapted.adaptation.is_on
