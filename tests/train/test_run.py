"""Whole runs on the pocket pair: what they leave, and what happens if they are stopped, meet a full disk or a damaged
file, or go on with other settings."""

from __future__ import annotations

import errno
import json
import math
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import namedtuple
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType

from dflash_local import Engine
from dflash_local.cli import main
from dflash_local.convert.gguf_metadata import read_metadata, read_model
from dflash_local.convert.target import Target
from dflash_local.convert.writer import OutputTensor
from dflash_local.errors import ConvertError, DFlashError, ModelError, RequestError
from dflash_local.native import check_gguf
from dflash_local.train.answering import _submit
from dflash_local.train.drafter_file import FACTORS, HISTORY, DrafterFile
from dflash_local.train.drafter_size import DrafterSize
from dflash_local.train.estimate import load_of
from dflash_local.train.evaluation import n_measured
from dflash_local.train.examples import questions, read_data, tokenized
from dflash_local.train.run_checks import check_hf
from dflash_local.train.shards import Shard
from dflash_local.train.train_settings import TrainSettings, Watcher
from dflash_local.train.training import _Run, train
from dflash_local.train.workspace import Workspace
from dflash_local.train.written_texts import Text, identity, read_texts
from tests.gguf_files import rewritten

Make = Callable[..., TrainSettings]
ROOT = Path(__file__).parents[2]
N_LEARNED = 13  # of the 16 prompts, one is too long and two are held out
# Runs the settings of a pickle, and kills itself the second time that a stage reports progress.
KILLED = """
import os, pickle, signal, sys
from dflash_local.train.train_settings import Watcher
from dflash_local.train.training import train

class Killer(Watcher):
    name, calls = "", 0
    def stage(self, name, text):
        self.name, self.calls = name, 0
    def progress(self, done, total, text):
        self.calls += 1
        if self.name == sys.argv[2] and self.calls == 2:
            os.kill(os.getpid(), signal.SIGKILL)

train(pickle.load(open(sys.argv[1], "rb")), Killer())
"""


class Listener(Watcher):
    """Keeps what a run says."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.stages: list[str] = []
        self.work: dict[str, int] = {}

    def stage(self, name: str, text: str) -> None:
        self.stages.append(name)

    def progress(self, done: float, total: float, text: str) -> None:
        self.work[self.stages[-1]] = self.work.get(self.stages[-1], 0) + 1

    def note(self, text: str) -> None:
        self.notes.append(text)


def check_drafter(settings: TrainSettings) -> None:
    """The result is a drafter that the engine runs."""
    check_gguf(settings.output)
    with Engine(settings.model, settings.output, n_ctx=256, n_threads=1, warmup=False) as engine:
        question = [{"role": "user", "content": "What is 12 + 9?"}]
        assert engine.chat(question, max_tokens=16, temperature=0).message["content"]


def test_whole_run(settings: Make, tmp_path: Path) -> None:
    """From prompts to a drafter that drafts as well as the one before; the second time nothing is left to do."""
    too_long = tmp_path / "long.txt"
    too_long.write_text(2000 * "long " + "\n")  # more than a slot's context
    asked = settings(hf=tmp_path / "folder", checks=(settings().data[0],), data=(*settings().data, too_long))
    listener = Listener()
    result = train(asked, listener)
    assert listener.stages == ["answer", "tap", "fit"]
    assert any("2 of 17 prompts are left out" in note for note in listener.notes)
    check_drafter(asked)
    first, *others = result.evaluations
    assert first.step == 0 and others and result.best.step > 0
    assert result.best.al > 0.7 * first.al > 1.5
    assert 0 < result.best.depths[-1] <= result.best.depths[0] <= 1
    before, after = result.checks["prompts.jsonl"]
    assert before and after > 0.7 * before
    history = json.loads(read_metadata(asked.output)[HISTORY].data)
    assert history["steps"] == result.best.step and history["target"] == "pocket-target.gguf"
    assert {path.name for path in (tmp_path / "folder").iterdir()} == {"config.json", "model.safetensors"}

    again = Listener()
    assert train(settings(), again).evaluations == result.evaluations
    assert not again.work


def test_learned_text_is_the_targets_own(settings: Make) -> None:
    """At temperature 0 the training text is what plain decoding answers, and held-out prompts are not in it."""
    asked = settings()
    train(asked, Watcher())
    texts = list(read_texts(asked.work / "answers.jsonl"))
    held_out = json.loads((asked.work / "state.json").read_text())["held_out"]
    assert len(texts) == N_LEARNED and len(held_out) == 2
    assert not set(held_out) & {text.key for text in texts}
    with Engine(asked.model, n_ctx=512, n_threads=1, warmup=False, lookup=False) as engine:
        for text in texts[:4]:
            assert engine.generate(text.prompt, max_tokens=64, temperature=0).tokens == text.answer


@pytest.mark.parametrize("stage", ["answer", "tap", "fit"])
def test_killed_run_goes_on(stage: str, settings: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After kill -9 in a stage the same command finishes it; until then there is no result."""
    asked = settings(shard_mib=1, epochs=0.6)
    (tmp_path / "settings").write_bytes(pickle.dumps(asked))
    run = subprocess.run([sys.executable, "-c", KILLED, tmp_path / "settings", stage], cwd=ROOT, check=False)
    assert run.returncode == -signal.SIGKILL
    assert not asked.output.exists()
    lines = (asked.work / "answers.jsonl").read_bytes().splitlines()
    if stage == "answer":  # the kill may fall into a line
        (asked.work / "answers.jsonl").write_bytes(b"\n".join(lines) + b'\n{"key": "half')
    listener = Listener()
    train(asked, listener)
    check_drafter(asked)
    kept = (asked.work / "answers.jsonl").read_bytes().splitlines()
    assert kept[: len(lines)] == lines and len(kept) == N_LEARNED
    if stage != "answer":
        assert "answer" not in listener.work
    if stage == "fit":
        assert "tap" not in listener.work


def test_fit_goes_on_from_its_checkpoint(settings: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped after a checkpoint, the fit takes only the steps that are left, and ends where it would have."""
    from dflash_local.train.fitting import Fit

    monkeypatch.setattr(Fit, "save_every", 0.0)
    asked = settings(epochs=1.0)
    advance = Fit.advance

    def interrupted(self: Fit, done: float) -> None:
        if self.step == 3:
            raise KeyboardInterrupt
        advance(self, done)

    monkeypatch.setattr(Fit, "advance", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(asked, Watcher())
    monkeypatch.setattr(Fit, "advance", advance)
    listener = Listener()
    result = train(asked, listener)
    assert any(re.search("goes on after [1-3] steps", note) for note in listener.notes)
    assert result.best.step > 3
    whole = train(settings(epochs=1.0, work=asked.work.with_name("whole")), Watcher())
    assert whole.best.step == result.best.step
    assert result.best.al == pytest.approx(whole.best.al, rel=0.02)


def test_other_settings(settings: Make) -> None:
    """Each says which flag differs and what to do; what does not matter may change."""
    asked = settings()
    train(asked, Watcher())
    for change, flag in (
        ({"temperatures": (0.0, 0.5)}, "--temperatures"),
        ({"n_predict": 32}, "--predict"),
        ({"goal": "distill"}, "--goal"),
        ({"batch": 64}, "--batch"),
        ({"held_out": 3}, "begun with --held-out 2, and now it is 3"),
    ):
        with pytest.raises(RequestError, match=flag) as error:
            train(settings(**change), Watcher())
        assert error.value.hint and "--restart" in error.value.hint
    train(settings(budget=8), Watcher())
    listener = Listener()
    train(settings(goal="distill"), listener, restart="tap")
    assert set(listener.work) <= {"tap", "fit"}  # a stage of less than a second says nothing
    with pytest.raises(RequestError, match="--top-k"):
        train(settings(goal="distill", top_k=2), Watcher())
    assert json.loads((asked.work / "state.json").read_text())["stages"]["fit"]["goal"] == "distill"


def test_other_types_and_nodes_are_measured_again(settings: Make) -> None:
    """The best drafter is written in the new types, and what is compared was measured alike."""
    first = train(settings(), Watcher())
    asked = settings(outtype="f16", fc_type="q8_0")
    again = train(asked, Watcher())
    tensors = read_model(asked.output)[1]
    assert (tensors["blk.0.attn_q.weight"].type.name, tensors["fc.weight"].type.name) == ("F16", "Q8_0")
    assert [e.step for e in again.evaluations] == [e.step for e in first.evaluations]
    assert again.evaluations[0] == first.evaluations[0] and again.before == first.before
    assert again.evaluations[1] != first.evaluations[1]
    assert train(asked, Watcher()).evaluations == again.evaluations
    fewer = train(replace(asked, budget=3), Watcher())
    assert [e.step for e in fewer.evaluations] == [e.step for e in first.evaluations]
    assert all(len(e.depths) < 3 for e in fewer.evaluations)
    history = json.loads(read_metadata(asked.output)[HISTORY].data)
    assert (history["nodes"], history["steps"]) == (3, first.best.step)


def test_a_measurement_that_was_interrupted_is_done_again(settings: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    first = train(settings(), Watcher())
    asked = settings(outtype="f16")
    for after in (asked, settings()):
        with monkeypatch.context() as patched:
            patched.setattr(_Run, "_alone", interrupt)
            with pytest.raises(KeyboardInterrupt):
                train(settings(outtype="bf16"), Watcher())
        again = train(after, Watcher())
        assert [e.step for e in again.evaluations] == [e.step for e in first.evaluations]
        assert json.loads(read_metadata(asked.output)[HISTORY].data)["steps"] == first.best.step
    assert [e.al for e in again.evaluations] == [e.al for e in first.evaluations]


def test_a_folder_of_an_earlier_version(settings: Make) -> None:
    """It has the best drafter's file alone, and does not say how that was measured."""
    first = train(settings(), Watcher())
    for asked, kind in ((settings(outtype="f16"), "F16"), (settings(outtype="q8_0", budget=3), "Q8_0")):
        (asked.work / "best.safetensors").unlink()
        state = json.loads((asked.work / "state.json").read_text())
        del state["measured_as"]
        state["stages"]["answer"].pop("held_out", None)
        (asked.work / "state.json").write_text(json.dumps(state))
        again = train(asked, Watcher())
        assert read_model(asked.output)[1]["blk.0.attn_q.weight"].type.name == kind
        assert [e.step for e in again.evaluations] == [e.step for e in first.evaluations]
        assert json.loads(read_metadata(asked.output)[HISTORY].data)["steps"] == first.best.step
    assert all(len(e.depths) < 3 for e in again.evaluations)


def test_a_folder_of_an_earlier_version_never_says_how_many_are_held_out(tmp_path: Path) -> None:
    """It keeps those that it has: what is asked for now is not what it was begun with."""
    workspace = Workspace(tmp_path)
    with workspace.opened():
        workspace.state["stages"]["answer"] = {"length": 1024}
        for n in (3, 10):
            workspace.begin("answer", {"length": 1024, "held_out": n})
        assert workspace.state["stages"]["answer"] == {"length": 1024}


def test_prompts_stay_as_they_were_first_rendered(settings: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A template may print the date, and the run may go on tomorrow."""
    first = train(settings(), Watcher())
    plain = Engine.chat_tokens
    monkeypatch.setattr(Engine, "chat_tokens", lambda *given: [*plain(*given), 65])
    listener = Listener()
    assert train(settings(), listener).evaluations == first.evaluations
    assert listener.work == {}


def test_the_folder_is_that_of_the_result(settings: Make, tmp_path: Path) -> None:
    """Asked for later, and again; a folder of something else stays as it is."""
    train(settings(), Watcher())
    asked = settings(hf=tmp_path / "folder", outtype="f16")
    train(asked, Watcher())
    (tmp_path / "folder" / "model.safetensors").write_bytes(b"old")
    train(asked, Watcher())
    target = Target.read(asked.model)
    written, result = (DrafterFile.read(path, target, tmp_path).values for path in (tmp_path / "folder", asked.output))
    for name, values in result.items():
        np.testing.assert_allclose(written[name], values, rtol=1 / 64, atol=1e-5)
    (tmp_path / "diary").mkdir()
    (tmp_path / "diary" / "monday.txt").write_text("mine")
    with pytest.raises(RequestError, match="is not empty"):
        train(settings(hf=tmp_path / "diary"), Watcher())
    with pytest.raises(RequestError, match="is a file"):
        train(settings(hf=tmp_path / "diary" / "monday.txt"), Watcher())
    (asked.work / "best.safetensors").unlink()  # as in a folder of an earlier version
    train(settings(hf=tmp_path / "another", outtype="f16"), Watcher())
    other = DrafterFile.read(tmp_path / "another", target, tmp_path).values
    np.testing.assert_allclose(other["fc.weight"], written["fc.weight"], rtol=1 / 64, atol=1e-5)


def test_a_folder_to_go_on_from(settings: Make, pocket: dict[str, Path], tmp_path: Path) -> None:
    """A first try that is refused does not lock the run out; another folder of the same name is told."""
    file = DrafterFile.read(pocket["dflash-small"], Target.read(pocket["target"]), tmp_path)
    folder = tmp_path / "drafter"
    file.write_checkpoint(folder, file.values)
    for _ in range(2):
        with pytest.raises(RequestError, match="--layers 9 disagrees"):
            train(settings(init=folder, layers=9), Watcher())
    first = identity(folder)
    assert first == identity(folder) and first.startswith("drafter (")
    file.write_checkpoint(folder, {name: 2 * values for name, values in file.values.items()})
    assert identity(folder) != first
    workspace = Workspace(settings().work)
    with workspace.opened():
        workspace.begin("fit", {"init": "drafter"})  # as earlier versions did
        workspace.begin("fit", {"init": first})
        with pytest.raises(RequestError, match="begun with --init drafter"):
            workspace.begin("fit", {"init": identity(folder)})
        workspace.restart("fit")
        assert (workspace.folder / "init.gguf").exists()  # which the run that restarts has read already


def test_a_restart_that_is_refused_removes_nothing(settings: Make, tmp_path: Path) -> None:
    asked = settings()
    train(asked, Watcher())
    kept = [asked.work / name for name in ("best.gguf", "fit.pt", "answers.jsonl", "prompts.json", "state.json")]
    before, none = [path.read_bytes() for path in kept], tmp_path / "none.txt"
    other, long, broken = tmp_path / "other.txt", tmp_path / "long.txt", tmp_path / "broken.jsonl"
    other.write_text("What is 31 + 5?\nWhat is 32 + 5?\n")
    long.write_text(400 * "long " + "\n")
    broken.write_text(json.dumps({"messages": [{"role": "user", "content": "Hi"}], "grammar": "root ::= answr"}))
    refused: tuple[tuple[str, dict[str, Any], type[DFlashError], str], ...] = (
        ("fit", {"init": tmp_path / "none.gguf"}, DFlashError, "none.gguf"),
        ("fit", {"layers": 9}, RequestError, "--layers 9 disagrees"),
        ("fit", {"n_predict": 32}, RequestError, "begun with --predict 64"),
        ("fit", {"goal": "distill"}, RequestError, "begun with --goal text"),
        ("tap", {"data": (other,)}, RequestError, "held out are not in --data any more"),
        ("tap", {"init": None, "taps": (99,)}, DFlashError, "out of range"),
        ("answer", {"data": (none,)}, RequestError, "cannot read"),
        ("answer", {"data": (long,)}, RequestError, "tokens or fewer"),
        ("answer", {"checks": (long,)}, RequestError, "no prompt of --check has 256 tokens or fewer"),
        ("answer", {"data": (*asked.data, broken)}, RequestError, "--data, prompt 17: .*rule 'answr' is not defined"),
        ("tap", {"checks": (broken,)}, RequestError, "--check, prompt 1: .*rule 'answr' is not defined"),
    )
    for stage, change, kind, words in refused:
        with pytest.raises(kind, match=words):
            train(settings(**change), Watcher(), stage)
        assert [path.read_bytes() for path in kept] == before, words


def test_a_folder_to_go_on_from_is_there_after_a_restart(
    settings: Make, pocket: dict[str, Path], tmp_path: Path
) -> None:
    file, folder = DrafterFile.read(pocket["dflash-small"], Target.read(pocket["target"]), tmp_path), tmp_path / "d"
    file.write_checkpoint(folder, file.values)
    asked = settings(init=folder, slots=8)
    train(asked, Watcher())
    assert train(asked, Watcher(), "answer").best.step > 0


def test_a_prompts_grammar_holds(settings: Make) -> None:
    """What is learned is what the prompt asks for, and what is measured."""
    asked = settings(n_predict=32)
    prompt = {"messages": [{"role": "user", "content": "What is 12 + 9?"}], "grammar": 'root ::= "rain" | "snow"'}
    with Engine(asked.model, n_ctx=256, n_threads=1, warmup=False) as engine:
        (example,) = tokenized(engine, [prompt], 200)
        assert _submit(engine, example, 0, asked)[1].result().text in ("rain", "snow")


def test_more_later(settings: Make, tmp_path: Path) -> None:
    """More prompts and more epochs go on from what is there, and what they bring is measured."""
    first = train(settings(epochs=0.5), Watcher())
    more = tmp_path / "more.jsonl"
    more.write_text("\n".join(json.dumps({"prompt": f"What is {n} + 5?"}) for n in range(20, 28)))
    asked = settings(epochs=1.5, data=(*settings().data, more))
    before = (asked.work / "answers.jsonl").read_bytes()
    listener = Listener()
    result = train(asked, listener)
    after = (asked.work / "answers.jsonl").read_bytes()
    assert after.startswith(before) and after.count(b"\n") == N_LEARNED + 8
    assert any("the fit goes on after" in note for note in listener.notes)
    assert result.evaluations[: len(first.evaluations)] == first.evaluations
    assert result.evaluations[-1].step == result.history["steps"] > 2 * first.history["steps"]
    again = settings(epochs=1.6, data=asked.data, evaluations=0)
    assert train(again, Watcher()).evaluations[-1].step > result.history["steps"]


def test_what_there_is_time_for_is_of_all_kinds(settings: Make, tmp_path: Path) -> None:
    """Prompts of all files and all temperatures are among the first answers; each prompt has each temperature once."""
    files = (tmp_path / "a.txt", tmp_path / "b.txt")
    for file in files:
        file.write_text("".join(f"What is {n} plus {n + len(file.name)}? ({file.stem})\n" for n in range(12)))
    asked = settings(data=files, temperatures=(0.0, 0.7), n_predict=8, slots=1)
    train(asked, Watcher())
    texts = list(read_texts(asked.work / "answers.jsonl"))
    with Engine(asked.model, n_ctx=256, n_threads=1, warmup=False) as engine:
        first = [engine.detokenize(text.prompt) for text in texts[:8]]
    assert len({"(a)" in text for text in first}) == len({text.temperature for text in texts[:8]}) == 2
    of: dict[str, list[float]] = {}
    for text in texts:
        of.setdefault(text.key, []).append(text.temperature)
    assert all(sorted(found) == [0.0, 0.7] for found in of.values())


def test_a_folder_that_holds_the_run_gives_no_answers_of_its_own(settings: Make, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    shutil.copy(settings().data[0], data / "prompts.jsonl")
    asked = settings(data=(data,), work=data / "run", output=data / "new.gguf")
    train(asked, Watcher())
    listener = Listener()
    train(asked, listener)
    assert not listener.work and len(list(read_texts(asked.work / "answers.jsonl"))) == N_LEARNED


def test_the_gpus_memory_is_told_and_less_is_taken(settings: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    from dflash_local.train.fitting import Fit, memory_errors

    def full(*_: object) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    def full_metal(*_: object) -> None:
        raise RuntimeError("MPS backend out of memory (MPS allocated: 8 GiB)")

    for method, error, micro, hint in (
        ("advance", full, 0, "--micro 2 "),
        ("advance", full_metal, 2, "--micro 1 "),
        ("advance", full, 1, "'--only lora --restart fit'"),
        ("_make_head", full, 0, "'--only lora --restart fit'"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(Fit, method, error)
            with pytest.raises(DFlashError, match="the fit needs more memory than the GPU has") as caught:
                train(settings(batch=128, micro=micro), Watcher())
        assert caught.value.hint and caught.value.hint.startswith(hint)
    assert train(settings(batch=128, micro=1), Watcher()).history["steps"] > 0
    changes: tuple[dict[str, Any], ...] = ({"init": None}, {"kind": "dspark"}, {"only": "lora"})
    for change in changes:  # with which --only lora is refused, or there already
        with pytest.raises(DFlashError) as caught, memory_errors(1, settings(**change)):
            full()
        assert caught.value.hint and caught.value.hint.startswith("a smaller --length")


def test_time_alone_bounds_a_fit_with_minutes(settings: Make) -> None:
    assert settings(epochs=None).n_epochs == 4
    assert settings(epochs=None, minutes=5.0).n_epochs == math.inf
    assert settings(epochs=2.0, minutes=5.0).n_epochs == 2


def test_prompts_to_check_are_read_first_and_fit(settings: Make, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"cannot read .*none\.txt"):
        train(settings(checks=(tmp_path / "none.txt",)), Watcher())
    others = [tmp_path / name / "same.txt" for name in "ab"]
    for path, text in zip(others, ("What is 3 + 4?\n" + 900 * "long ", "What is 3 + 5?\n"), strict=True):
        path.parent.mkdir()
        path.write_text(text)
    result = train(settings(checks=tuple(others)), Watcher())
    assert [*result.checks] == [str(path) for path in others]  # they have one name
    assert all(before and after for before, after in result.checks.values())
    assert train(settings(), Watcher()).checks == {}
    answered = tmp_path / "answered.jsonl"
    chat = [{"role": "user", "content": "What is 3 + 5?"}, {"role": "assistant", "content": "3 + 5 is"}]
    answered.write_text(json.dumps({"messages": chat}))
    assert questions(answered) == [{"messages": chat[:1]}]
    again = train(settings(checks=(others[1], answered)), Watcher()).checks
    assert again["same.txt"][1] == again["answered.jsonl"][1]


def test_all_measurements_are_counted(settings: Make) -> None:
    """As many as are planned: their time is kept free for them."""
    asked = settings(evaluations=2, checks=(settings().data[0],), draft_vocab=0)
    train(asked, Watcher())
    assert json.loads((asked.work / "state.json").read_text())["measured_answers"] == n_measured(asked)


def test_stopped_fit_is_kept(
    settings: Make, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """SIGTERM, as Ctrl-C, writes the steps so far, and says how to go on."""
    from dflash_local.train.fitting import Fit

    asked = settings()
    advance = Fit.advance

    def stopped(self: Fit, done: float) -> None:
        if self.step == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        advance(self, done)

    monkeypatch.setattr(Fit, "advance", stopped)
    flags = ["-m", str(asked.model), "--init", str(asked.init), "--data", str(asked.data[0]), "-o", str(asked.output)]
    flags += ["--work", str(asked.work), "--predict", "64", "--length", "256", "--held-out", "2", "-t", "1"]
    assert main(["train", *flags, "--temperatures", "0", "--restart", "fit"]) == 130
    assert "the same command goes on, without --restart" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    saved = torch.load(asked.work / "fit.pt", weights_only=True)
    assert saved["step"] == 2


def test_answers_fit_the_disk(settings: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more is answered than there is room for hidden states and for the fit."""
    asked = settings(slots=1)
    room = asked.length + 300  # tokens
    monkeypatch.setattr(DrafterSize, "fit_bytes", 1000)
    monkeypatch.setattr(Workspace, "room", lambda self: 1000 + load_of(asked).token_bytes * room)
    listener = Listener()
    train(asked, listener)
    texts = list(read_texts(asked.work / "answers.jsonl"))
    assert 0 < len(texts) < N_LEARNED
    assert sum(len(text.tokens) for text in texts) <= room
    assert any("no room for the hidden states of more answers" in note for note in listener.notes)


def test_time_of_a_killed_stage(tmp_path: Path) -> None:
    """It is written down while the stage runs; what a killed run was writing is removed."""
    workspace = Workspace(tmp_path)
    with workspace.opened():
        workspace.begin("answer", {})
        with workspace.timed("answer"):
            time.sleep(0.01)
            workspace.keep_time()
            assert "answer" not in json.loads((tmp_path / "state.json").read_text())["seconds"]
            workspace.keep_time(after=0.0)
            assert json.loads((tmp_path / "state.json").read_text())["seconds"]["answer"] >= 0.01
    (tmp_path / ".fit.pt.1.part").write_text("half")
    with Workspace(tmp_path).opened():
        assert not list(tmp_path.glob(".*.part"))


def test_damaged_files(settings: Make) -> None:
    """A shard that was cut off is written again; a checkpoint of an earlier version is read, a damaged one says what to
    do."""
    asked = settings()
    train(asked, Watcher())
    saved = torch.load(asked.work / "fit.pt", weights_only=True)
    torch.save({**saved, "course": {"share": [0.5], **saved["course"]}}, asked.work / "fit.pt")
    shard = next((asked.work / "taps").glob("*.safetensors"))
    whole = shard.read_bytes()
    shard.write_bytes(whole[: len(whole) // 2])
    listener = Listener()
    assert train(asked, listener).course == saved["course"]
    assert listener.work.get("tap") and shard.read_bytes() == whole
    (asked.work / "fit.pt").write_bytes(b"nothing")
    with pytest.raises(DFlashError, match="damaged") as error:
        train(asked, Watcher())
    assert error.value.hint and "--restart fit" in error.value.hint
    answers = (asked.work / "answers.jsonl").read_text()
    (asked.work / "answers.jsonl").write_text("{\n" + answers)
    with pytest.raises(RequestError, match=r"answers\.jsonl, line 1: not JSON") as told:
        train(asked, Watcher())
    assert told.value.param == "--work"
    (asked.work / "state.json").write_text("{")
    with pytest.raises(RequestError, match="damaged"):
        train(asked, Watcher())


def test_hidden_states_stay_until_others_have_room(settings: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is refused removes none; what it would remove is room."""
    asked = settings()
    train(asked, Watcher())
    taps = sorted((asked.work / "taps").iterdir())
    before = [path.read_bytes() for path in taps]
    monkeypatch.setattr(Shard, "is_there", lambda self: False)
    monkeypatch.setattr(Workspace, "room", lambda self: -(10**9))
    with pytest.raises(DFlashError, match="storing the hidden states"):
        train(asked, Watcher())
    assert [path.read_bytes() for path in taps] == before
    monkeypatch.setattr(Workspace, "room", lambda self: 4096)
    train(asked, Watcher())
    assert [path.read_bytes() for path in taps] == before


def test_small_disk(settings: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too little room is said before answers are written, and again before the hidden states are made."""

    class Stopper(Watcher):
        def stage(self, name: str, text: str) -> None:
            if name == "tap":
                raise KeyboardInterrupt

    usage = namedtuple("usage", "total used free")
    asked, small = settings(), usage(10**9, 10**9, 10**6)
    for is_answered, words in (
        (False, "storing the first hidden states"),
        (True, r"hidden states of \d+ tokens takes"),
    ):
        if is_answered:
            with pytest.raises(KeyboardInterrupt):
                train(asked, Stopper())
        monkeypatch.setattr("shutil.disk_usage", lambda path: small)
        listener = Listener()
        with pytest.raises(DFlashError, match=words) as error:
            train(asked, listener)
        assert error.value.hint and "what is done so far is kept" in error.value.hint
        assert not listener.work
        monkeypatch.undo()
    train(asked, Watcher())
    check_drafter(asked)


@pytest.mark.parametrize("at", ["00000.safetensors", "fit.pt", "best.gguf", "new.gguf"])
def test_disk_fills_up(at: str, settings: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the disk is full, no half file is left, and the run goes on once there is room."""
    asked = settings()
    replace = Path.replace

    def full(self: Path, target: Any) -> Path:
        if Path(target).name == at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(DFlashError, match=r"full|No space"):
        train(asked, Watcher())
    monkeypatch.undo()
    assert not list(asked.work.rglob("*.part")) and not list(asked.output.parent.glob("*.part"))
    assert not asked.output.exists()
    train(asked, Watcher())
    check_drafter(asked)


@pytest.mark.parametrize("name", ["token_embd.weight", "output.weight"])
def test_a_target_whose_numbers_cannot_be_read(name: str, settings: Make, tmp_path: Path) -> None:
    """It is said before hours of answers."""
    kind, source = GGMLQuantizationType.Q1_0, settings().model
    tensor = read_model(source)[1]["token_embd.weight"]
    row_bytes = replace(tensor, type=kind).row_bytes
    rows = np.zeros((tensor.n_rows, row_bytes), np.uint8)
    model = rewritten(source, tmp_path / "q1.gguf", {}, {name: OutputTensor(name, tensor.shape, kind, lambda: [rows])})
    listener = Listener()
    with pytest.raises(ModelError, match=f"'{name}' is Q1_0, whose numbers the package gguf cannot read"):
        train(settings(model=model, init=None), listener)
    assert listener.stages == []
    with pytest.raises(ModelError, match="cannot read"):
        load_of(settings(model=model, init=None))


def test_a_link_to_nothing_is_no_data(settings: Make, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (folder / "folder.txt").mkdir(parents=True)
    shutil.copy(settings().data[0], folder / "prompts.jsonl")
    (folder / "gone.txt").symlink_to(tmp_path / "nothing.txt")
    assert len(read_data((folder,), tmp_path / "run")[0]) == 16


def test_a_folder_that_cannot_be_made_is_told_first(settings: Make, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    listener = Listener()
    with pytest.raises(RequestError, match="is not a folder in which you may write") as error:
        train(settings(hf=tmp_path / "file" / "folder"), listener)
    assert error.value.param == "--hf" and listener.stages == []


def test_a_folder_that_may_not_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Python 3.14, methods of Path raise there."""

    def denied(path: Path) -> bool:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    (tmp_path / "file").write_text("")
    for name in ("exists", "is_dir"):
        monkeypatch.setattr(Path, name, denied)
    check_hf(tmp_path / "folder", None)
    with pytest.raises(RequestError, match="is not a folder in which you may write"):
        check_hf(tmp_path / "file" / "folder", None)


def test_a_line_that_is_being_written(tmp_path: Path) -> None:
    """A record may grow while it is read, and may begin with empty lines; a broken line before others is told."""
    path, text = tmp_path / "record.jsonl", Text("key", 0, [1, 2], [3, 4], 0.0, True)
    line = text.to_json() + "\n"
    path.write_text(2 * line + '{"key":"a')
    assert list(read_texts(path)) == [text, text]
    path.write_text("\n \n" + line)
    assert read_data((path,), tmp_path / "run") == ([], [text])
    path.write_text('{"key":"a')
    assert read_data((path,), tmp_path / "run") == ([], [])
    path.write_text(line + '{"key":"a\n' + line)
    with pytest.raises(RequestError, match="line 2: not JSON") as error:
        list(read_texts(path))
    assert error.value.param == "--data"


def test_folder_of_something_else(settings: Make, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "diary.txt").write_text("mine")
    with pytest.raises(RequestError, match=r"diary\.txt"):
        train(settings(), Watcher())


def test_busy_folder(settings: Make) -> None:
    asked = settings()
    with (
        Workspace(asked.work).opened(),
        pytest.raises(RequestError, match="another training run"),
    ):
        train(asked, Watcher())


@pytest.mark.parametrize("only", ["fc", "heads", "lora"])
def test_parts(only: str, settings: Make, pocket: dict[str, Path]) -> None:
    """Only what is named changes."""
    from tests.gguf_files import numbers

    init = pocket["dspark"]
    asked = settings(init=init, only=only, rank=4, outtype="f32")
    train(asked, Watcher())
    check_drafter(asked)
    before, after = numbers(init), numbers(asked.output)
    changed = {name for name in before if (abs(before[name] - after[name]) > 1e-6).any()}
    if only == "fc":
        assert changed and changed <= {"fc.weight", "enc.output_norm.weight"}
    elif only == "heads":
        assert changed and not any(name.startswith(("blk.", "fc.")) for name in changed)
    else:
        assert {"fc.weight", "blk.0.attn_q.weight"} <= changed and "blk.0.attn_norm.weight" not in changed


@pytest.mark.parametrize("kind", ["dflash", "dflash2", "dspark"])
def test_from_nothing(kind: str, settings: Make) -> None:
    """A new drafter of each kind learns: it is better than none within seconds."""
    new = {"init": None, "kind": kind, "layers": 1, "block": 8, "taps": (0, 2, 4)}
    asked = settings(**new, feed_forward=96, epochs=6.0, rate=2e-3, batch=64)
    result = train(asked, Watcher())
    assert read_metadata(asked.output)["dflash.feed_forward_length"].data == 96
    check_drafter(asked)
    assert result.before is None
    assert result.best.al > 1.2
    losses = result.course["entropy"]
    assert losses[-1] < 5.5  # of 7.4 nats for 1,699 tokens
    for width, text in ((None, "begun with --feed-forward 96, and now it is nothing"), (64, "and now it is 64")):
        with pytest.raises(RequestError, match=text):
            train(replace(asked, feed_forward=width), Watcher())


@pytest.mark.parametrize(("kind", "only"), [("dflash2", None), ("dflash2", "heads"), ("dspark", "heads")])
def test_a_drafter_becomes_another_kind(kind: str, only: str | None, settings: Make, tmp_path: Path) -> None:
    """A DFlash drafter gets parts that are new, which learn; a run that is given again goes on with them."""
    asked = settings(kind=kind, only=only, hf=tmp_path / "folder", rate=1e-3, epochs=2.0)
    listener = Listener()
    result = train(asked, listener)
    assert any("becomes a D" in note and note.endswith("whose own parts are new") for note in listener.notes)
    check_drafter(asked)
    assert result.history["kind"] == kind
    with Engine(asked.model, asked.output, n_ctx=512) as engine:
        assert engine.info["drafter"]["kind"] == kind
    first, file = result.evaluations[0], DrafterFile.read(asked.init or Path(), Target.read(asked.model), tmp_path)
    assert first.step == 0 and result.best.al > 0.8 * first.al
    grown = DrafterFile.read(asked.output, Target.read(asked.model), tmp_path)
    own = grown.values.keys() - file.values.keys()
    begun = file.grown(kind, Target.read(asked.model), asked.seed).values
    heads = [name for name in own if name.startswith(("candidate_selector.", "markov_head."))]
    assert heads and max(np.abs(grown.values[name] - begun[name]).max() for name in heads) > 4e-3  # of Q8_0: 1e-3
    with pytest.raises(RequestError, match=f"begun with --kind {kind}, and now it is dflash"):
        train(replace(asked, kind=None, only=None, hf=None), Watcher())


def test_a_drafter_becomes_narrower(settings: Make, tmp_path: Path) -> None:
    """It goes on from the units that write most, and the result and its folder have that many."""
    asked = settings(feed_forward=64, hf=tmp_path / "folder", fc_type="q4_0")
    result = train(asked, Watcher())
    metadata, tensors = read_model(asked.output)
    assert metadata["dflash.feed_forward_length"].data == 64 and tensors["fc.weight"].type.name == "Q4_0"
    assert json.loads((tmp_path / "folder" / "config.json").read_text())["intermediate_size"] == 64
    check_drafter(asked)
    assert result.best.al > 1.2
    with pytest.raises(RequestError, match="begun with --feed-forward 64, and now it is nothing"):
        train(replace(asked, feed_forward=None, hf=None), Watcher())


def test_disagreeing_flags(settings: Make, pocket: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="--layers 4 disagrees"):
        train(settings(layers=4), Watcher())
    for only in ("fc", "lora"):
        with pytest.raises(RequestError, match=f"--only {only} does not train the new parts of --kind dspark"):
            train(settings(kind="dspark", only=only), Watcher())
    with pytest.raises(RequestError, match="a DFlash drafter has no heads of its own"):
        train(settings(only="heads"), Watcher())
    with pytest.raises(RequestError, match="--feed-forward 8192 disagrees"):
        train(settings(feed_forward=8192), Watcher())
    with pytest.raises(RequestError, match="is the drafter to go on from"):
        train(settings(output=settings().init), Watcher())
    n_pairs = read_metadata(pocket["dflash"])["dflash.attention.key_length"].data // 2
    scaled = rewritten(pocket["dflash"], tmp_path / "scaled.gguf", {}, {FACTORS: np.ones(n_pairs, np.float32)})
    with pytest.raises(ConvertError, match="table of rotation factors"):
        train(settings(init=scaled, hf=tmp_path / "folder"), Watcher())
    with pytest.raises(RequestError, match="--only"):
        settings(init=None, only="fc")
    with pytest.raises(RequestError, match="--epochs"):
        settings(epochs=0.0)
