"""Prompts that show pictures: the target's answers to them are learned from, behind the pictures."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dflash_local import Engine
from dflash_local.conversation import ChatPrompt
from dflash_local.errors import DFlashError, RequestError
from dflash_local.media.media_prompt import MediaPrompt
from dflash_local.train.train_settings import TrainSettings, Watcher
from dflash_local.train.training import train
from dflash_local.train.written_texts import read_texts
from tests.media.samples import data_url, png
from tests.projector_files import projector_file
from tests.train.test_run import Listener

QUESTIONS = ("What is 12 + 9?", "Write a poem about rain.", "Count from one to nine.", "Describe it.", "Which color?")


def shown(question: str, color: int) -> dict[str, Any]:
    picture = {"type": "image_url", "image_url": {"url": data_url(png(48, 32, (color, 9, 200)))}}
    return {"messages": [{"role": "user", "content": [picture, {"type": "text", "text": question}]}]}


@pytest.fixture
def seeing(settings: Callable[..., TrainSettings], tmp_path: Path) -> TrainSettings:
    prompts = [shown(question, 20 * number) for number, question in enumerate(QUESTIONS * 2)]
    data = tmp_path / "prompts.jsonl"
    data.write_text("".join(json.dumps(prompt) + "\n" for prompt in [*prompts, {"prompt": "One and one is"}]))
    projector = projector_file(tmp_path / "mmproj.gguf")
    return settings(mmproj=projector, data=(data,), n_predict=24, held_out=2)


def test_a_run_with_pictures(seeing: TrainSettings) -> None:
    train(seeing, Watcher())
    texts = [text for file in sorted(seeing.work.glob("**/*.jsonl")) for text in read_texts(file)]
    assert sum(min(text.prompt) < -1 for text in texts) >= len(QUESTIONS)
    with Engine(seeing.model, seeing.output, mmproj=seeing.mmproj, n_ctx=256, n_threads=1, warmup=False) as engine:
        question = shown(QUESTIONS[0], 3)["messages"]
        plain = engine.chat(question, max_tokens=24, temperature=0, budget=1)
        drafted = engine.chat(question, max_tokens=24, temperature=0, budget=8)
        assert drafted.text == plain.text


def test_prompts_with_pictures_stay_as_they_were_first_rendered(
    seeing: TrainSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A template may print the date, and the run may go on tomorrow."""
    first = train(seeing, Watcher())
    taps = [path.read_bytes() for path in sorted((seeing.work / "taps").iterdir())]
    plain = Engine.chat_tokens

    def tomorrow(self: Engine, chat: ChatPrompt) -> Any:
        given = plain(self, chat)
        return MediaPrompt(array("i", [65, *given]), given.rows, given) if isinstance(given, MediaPrompt) else given

    monkeypatch.setattr(Engine, "chat_tokens", tomorrow)
    listener = Listener()
    assert train(seeing, listener).evaluations == first.evaluations
    assert listener.work == {}
    train(seeing, listener, "tap")
    assert [path.read_bytes() for path in sorted((seeing.work / "taps").iterdir())] == taps
    answers = (seeing.work / "answers.jsonl").read_bytes()
    (seeing.work / "answers.jsonl").write_bytes(b"")
    train(seeing, listener)
    assert sorted((seeing.work / "answers.jsonl").read_bytes().splitlines()) == sorted(answers.splitlines())


def test_pictures_need_a_projector(
    seeing: TrainSettings, settings: Callable[..., TrainSettings], tmp_path: Path
) -> None:
    with pytest.raises(RequestError, match="image"):
        train(settings(data=seeing.data), Watcher())
    with pytest.raises(DFlashError, match=r"none\.gguf cannot be used: No such file") as error:
        train(settings(data=seeing.data, mmproj=tmp_path / "none.gguf"), Watcher())
    assert error.value.hint and "--work" not in error.value.hint
