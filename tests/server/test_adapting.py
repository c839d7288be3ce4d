"""`serve --adapt`: a server's drafter learns while nobody asks. Training is a stand-in but for the last test."""

from __future__ import annotations

import json
import logging
import shutil
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from dflash_local.cli.flags.adapt_flags import adapts, check_adapt_flags, check_adapted_models
from dflash_local.cli.flags.named_models import Models
from dflash_local.cli.serving import serve_app
from dflash_local.engine import Engine
from dflash_local.engine_options import EngineOptions
from dflash_local.errors import RequestError
from dflash_local.server import adapting, sleep
from dflash_local.train import adaptation as training_adaptation
from dflash_local.train import round_texts
from dflash_local.train.adaptation import Adaptation
from dflash_local.train.adapted_pair import AdaptedPair
from tests.fake_native import FakeNative
from tests.patience import PATIENCE, wait_until
from tests.server.live import Live, live_app
from tests.server.test_cli import parse
from tests.train.adapting_server import stand_in

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="it cannot stop processes")
ANSWER = b"an answer of some length"
PROMPTS = Path(__file__).parents[1] / "parity" / "prompts.jsonl"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(round_texts, "LEAST_PROMPTS", 4)
    monkeypatch.setattr(adapting, "_LOOK", 0.05)
    monkeypatch.setattr(adapting, "_IDLE", 0.5)
    monkeypatch.setattr(adapting, "_PAUSE", 0.3)
    monkeypatch.setattr(AdaptedPair, "command", stand_in("2,3"))


class Native(FakeNative):
    """Tells in each step whether training stands still."""

    def __init__(self) -> None:
        super().__init__(ANSWER, info={"drafter": {"kind": "dflash"}})
        self.is_paused: Callable[[], bool | None] = lambda: None
        self.heard: list[bool | None] = []

    def step(self) -> Any:
        self.heard.append(self.is_paused())
        return super().step()


def adaptation_of(live: Live) -> Adaptation:
    assert live.service.adapting is not None
    found = live.service.adapting._adaptation
    assert isinstance(found, Adaptation)
    return found


class Server:
    """A server that adapts, and its native engines."""

    def __init__(self, folder: Path, natives: list[Native], live: Live) -> None:
        self.folder, self.natives, self.live = folder, natives, live
        self.adaptation = adaptation_of(live)

    def ask(self, *prompts: int) -> None:
        for prompt in prompts:
            answer = self.live.http.post("/completion", json={"prompt": f"prompt {prompt}"})
            assert answer.json()["content"] == ANSWER.decode()

    def begin(self) -> psutil.Process:
        """Ask enough, and wait for a round."""
        self.ask(*range(9))
        wait_until(lambda: self.adaptation._child is not None)
        assert self.adaptation._child is not None
        return psutil.Process(self.adaptation._child.pid)

    def go(self) -> None:
        """Let the process end."""
        (self.pair_folder / "go").touch()

    @property
    def pair_folder(self) -> Path:
        (found,) = self.folder.iterdir()
        return found

    def taken(self) -> bool:
        return [path.name for path in self.natives[-1].drafters] in (["next.gguf"], ["drafter.gguf"])


@contextmanager
def adapting_server(folder: Path, pocket: dict[str, Path], **settings: Any) -> Iterator[Server]:
    args = parse(
        "-m", str(pocket["target"]), "-md", str(pocket["dflash"]), "--adapt", str(folder), "--adapt-tokens", "150"
    )  # fmt: skip
    natives: list[Native] = []

    def load(_progress: Any) -> Engine:
        natives.append(Native())
        engine = Engine.over(natives[-1])
        engine.options = EngineOptions(pocket["target"], pocket["dflash"])
        return engine

    with_model = replace(serve_app.make_settings(args), model_path=str(pocket["target"]), **settings)
    app = serve_app._app(args, with_model, Models(str(pocket["target"]), str(pocket["dflash"])), load)
    with live_app(app, with_model) as server:
        yield Server(folder, natives, server)


@pytest.fixture
def server(tmp_path: Path, pocket: dict[str, Path]) -> Iterator[Server]:
    with adapting_server(tmp_path / "adapt", pocket) as found:
        yield found


def is_stopped(process: psutil.Process) -> bool:
    return process.status() == psutil.STATUS_STOPPED


def test_training_stands_still_while_somebody_asks(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """Before the first step of a request, until a while after the last one."""
    process, native = server.begin(), server.natives[0]
    assert not is_stopped(process)
    child = server.adaptation._child
    assert child is not None
    native.heard.clear()
    native.is_paused = lambda: child.is_paused
    server.ask(20)
    assert native.heard and all(native.heard)
    wait_until(lambda: not is_stopped(process))
    server.go()
    wait_until(lambda: "drafting with the new drafter" in caplog.text)
    assert server.taken() and "the new one is taken" in caplog.text


def test_no_round_begins_while_somebody_asks(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor where somebody came while it was prepared."""
    prepare, sleeping = server.adaptation.prepare, server.live.service.life.sleep
    asked: list[bool] = []

    def disturbed(stop: Callable[[], bool]) -> bool:
        is_ready = prepare(lambda: False)
        if is_ready and not asked:
            asked.append(stop())
            monkeypatch.setattr(type(sleeping), "is_used", property(lambda _: True))
            asked.append(stop())
        return is_ready

    monkeypatch.setattr(server.adaptation, "prepare", disturbed)
    server.ask(*range(9))
    wait_until(lambda: len(asked) == 2)
    assert asked == [False, True] and not server.adaptation.runs


def test_a_model_that_sleeps_drafts_with_it_once_it_wakes(
    tmp_path: Path, pocket: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sleep, "_LOOK", 0.05)
    with adapting_server(tmp_path / "adapt", pocket, sleep_idle_seconds=0.2) as server:
        server.begin()
        wait_until(lambda: server.live.service.life.sleep.is_sleeping)
        server.go()
        wait_until(lambda: server.adaptation.has_new_drafter)
        server.ask(30)
        assert len(server.natives) > 1 and server.taken()
    with adapting_server(tmp_path / "adapt", pocket) as server:
        assert server.taken()


def test_nothing_outlives_the_server(tmp_path: Path, pocket: dict[str, Path]) -> None:
    """A process that stands still, either; its round goes on after the next start, without new answers."""
    with adapting_server(tmp_path / "adapt", pocket) as server:
        process = server.begin()
        with server.live.service.life.sleep.held():
            wait_until(lambda: is_stopped(process))
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    with adapting_server(tmp_path / "adapt", pocket) as server:
        wait_until(lambda: server.adaptation.runs)
        server.go()
        wait_until(server.taken)


def test_the_engine_does_not_wait_for_the_end_of_training(
    tmp_path: Path, pocket: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """That may take longer than requests have for their errors."""
    ended: list[bool] = []
    with adapting_server(tmp_path / "adapt", pocket) as server:
        server.begin()
        engine, close = server.live.engine, server.adaptation.close

        def waits() -> None:
            ended.append(bool(wait([engine.ended], 5).done))
            close()

        monkeypatch.setattr(server.adaptation, "close", waits)
    assert ended and all(ended)


def test_a_new_drafter_is_handed_over_after_the_end_of_learning(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    finish = server.adaptation.finish

    def fails() -> None:
        finish()
        raise OSError("the disk is full")

    server.begin()
    monkeypatch.setattr(server.adaptation, "finish", fails)
    server.go()
    wait_until(server.taken)
    assert "the drafter learns no more" in caplog.text


def test_a_server_whose_folder_is_gone_answers(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    process = server.begin()
    shutil.rmtree(server.folder)
    process.kill()
    wait_until(lambda: "the drafter learns no more" in caplog.text)
    server.ask(1, 2)
    assert not server.adaptation.runs


def test_an_error_that_nobody_foresaw_ends_it_alone(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(_stop: object) -> bool:
        raise ZeroDivisionError("so it is")

    monkeypatch.setattr(server.adaptation, "prepare", fails)
    server.ask(*range(9))
    wait_until(lambda: "the drafter learns no more" in caplog.text)
    server.ask(1)
    assert "ZeroDivisionError" in caplog.text and not server.adaptation.is_on


def test_a_server_without_it_does_nothing(pocket: dict[str, Path]) -> None:
    args = parse("-m", str(pocket["target"]))
    settings = serve_app.make_settings(args)
    app = serve_app._app(args, settings, Models(str(pocket["target"])), lambda _: Engine.over(FakeNative()))
    assert app.state.service.adapting is None and not adapts(args)


# ---- flags ----


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ("--record R", "it keeps answers itself"),
        ("--replicas 2", "replicas"),
        ("--embedding", "writes no answers"),
        ("--draft off", "nothing drafts"),
        ("--spec-type none", "nothing drafts"),
        ("--draft-kind lookup", "--draft-kind lookup"),
        ("--draft-kind mtp", "--draft-kind mtp"),
        ("--rpc a:1", "--rpc"),
        ("-dev CUDA0", "--device"),
        ("-ot a=CPU", "--override-tensor"),
        ("-cmoe", "--cpu-moe"),
    ],
)
def test_flags_with_which_nothing_could_learn(flags: str, why: str) -> None:
    args = parse("-m", "T.gguf", "--adapt", "D", *flags.split())
    with pytest.raises(RequestError, match=why) as error:
        check_adapt_flags(args)
    assert error.value.param == "--adapt" and error.value.hint and "leave" in error.value.hint
    assert not adapts(args)


def test_flags_with_which_it_learns() -> None:
    for flags in ("-md D.gguf", "-ngl 20 -t 3 --mmproj M.gguf --record-limit 7", "--draft-kind dflash"):
        args = parse("-m", "T.gguf", "--adapt", "D", *flags.split())
        check_adapt_flags(args)
        assert adapts(args)


def test_tokens_without_a_folder() -> None:
    with pytest.raises(RequestError, match=r"^--adapt-tokens has no effect"):
        check_adapt_flags(parse("-m", "T.gguf", "--adapt-tokens", "7"))


def test_machines_on_which_nothing_can_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    """All models of a router."""
    args = parse("--models-dir", ".", "--adapt", "D")
    check_adapt_flags(args, several=True)
    monkeypatch.setattr("dflash_local.cli.flags.adapt_flags.find_spec", lambda _name: None)
    with pytest.raises(RequestError, match="torch") as error:
        check_adapt_flags(args, several=True)
    assert error.value.hint == "pip install 'dflash-local[train]'"
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(RequestError, match="Windows"):
        check_adapt_flags(args, several=True)


def test_a_target_without_a_drafter() -> None:
    args = parse("-m", "T.gguf", "--adapt", "D")
    check_adapted_models(args, Models("T.gguf", "D.gguf"))
    with pytest.raises(RequestError, match="no drafter file"):
        check_adapted_models(args, Models("T.gguf"))
    check_adapted_models(parse("-m", "T.gguf"), Models("T.gguf"))


def test_models_of_a_router_only_tell(
    tmp_path: Path, pocket: dict[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    """Others of them may have drafters."""
    args = parse("-m", str(pocket["target"]), "--parent-pipes", "--adapt", str(tmp_path))
    check_adapted_models(args, Models(str(pocket["target"])))
    app = serve_app._app(
        args, serve_app.make_settings(args), Models(str(pocket["target"])), lambda _: Engine.over(FakeNative())
    )
    load = app.state.service.life._load
    assert load is not None
    for _ in range(2):  # it may sleep and wake
        load(lambda _: True).close()
    assert [message for message in caplog.messages if "no drafter file" in message] == [
        "there is no drafter file that could learn"
    ]
    check_adapt_flags(parse("-m", "T.gguf", "--parent-pipes", "--adapt", "D", "--draft", "off"))
    assert caplog.messages[-1].startswith("--adapt has no effect: nothing drafts")


# ---- as it is ----


def test_an_engine_takes_what_was_kept(
    tmp_path: Path, pocket: dict[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    folders: list[Path] = []
    for _ in range(2):
        adaptation = Adaptation(tmp_path, 100, 1 << 20)
        with Engine(pocket["target"], pocket["dflash-small"], n_ctx=512, n_threads=1, warmup=False) as engine:
            adaptation.attach(engine)
            folders.append(adaptation._known.drafter.parent)
            adaptation.close()
        (pair,) = tmp_path.iterdir()
        shutil.copy(pocket["dflash-small"], pair / "drafter.gguf")
    assert folders == [pocket["dflash-small"].parent, pair] and "fit any more" not in caplog.text


@pytest.mark.slow
def test_a_round(
    tmp_path: Path, pocket: dict[str, Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """From answers over HTTP to a drafter that the engine has measured, and drafts with; requests come meanwhile, and
    all answers are the same."""
    monkeypatch.undo()
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(adapting, "_IDLE", 1.0)
    monkeypatch.setattr(training_adaptation, "_GAIN", 0.0)  # whatever it learns is taken
    folder = tmp_path / "adapt"
    args = parse(
        "-m", str(pocket["target"]), "-md", str(pocket["dflash-small"]), "-c", "2048", "-np", "2", "-t", "1",
        "--no-warmup", "--adapt", str(folder), "--adapt-tokens", "1200",
    )  # fmt: skip
    chats = [json.loads(line)["messages"] for line in PROMPTS.read_text().splitlines()]
    app = serve_app.make_app(args, logging.WARNING)
    with live_app(app) as server:

        def ask(chat: Any) -> str:
            body = {"messages": chat, "temperature": 0, "max_tokens": 100}
            return str(server.http.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"])

        before = [ask(chat) for chat in chats]
        adaptation = adaptation_of(server)
        wait_until(lambda: adaptation.runs)
        (pair,) = folder.iterdir()
        wait_until(lambda: "fit (3 of 3)" in (pair / "round" / "log.txt").read_text())
        child = adaptation._child
        assert child is not None
        assert ask(chats[0]) == before[0]
        assert child.is_paused
        wait_until(lambda: not adaptation.runs and not adaptation.has_new_drafter, 5 * PATIENCE)
        line = json.loads((pair / "rounds.jsonl").read_text())
        assert line["failure"] is None and line["taken"] and min(line["before"], line["after"]) > 1.5
        assert "drafting with the new drafter" in caplog.text
        assert [ask(chat) for chat in chats] == before
