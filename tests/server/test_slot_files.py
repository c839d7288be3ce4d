"""POST /slots/ID: slots to files and back, in llama-server's shapes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from dflash_local.engine import Engine
from dflash_local.server.settings import Settings
from tests.fake_native import FakeNative
from tests.patience import PATIENCE, wait_until
from tests.server.live import Live, live, serving

PROMPT = "Once upon a time there was " + ", ".join(f"a {i}" for i in range(40))


class Slots:
    """A server's slots."""

    def __init__(self, url: str, folder: Path) -> None:
        self.http, self.folder = httpx.Client(base_url=url, timeout=60), folder

    def act(self, slot: object, action: str, filename: object = None, **query: Any) -> httpx.Response:
        body = None if filename is None else {"filename": filename}
        return self.http.post(f"/slots/{slot}", params={"action": action, **query}, json=body)

    def say(self, prompt: str, slot: int) -> dict[str, Any]:
        body = {"prompt": prompt, "id_slot": slot, "temperature": 0, "n_predict": 24, "ignore_eos": True}
        answer = self.http.post("/completion", json=body)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("slots")


@pytest.fixture(scope="module")
def slots(pocket: dict[str, Path], folder: Path) -> Iterator[Slots]:
    flags = ["-m", pocket["target"], "-md", pocket["dflash"], "-t", 1, "-c", 2048, "--slot-save-path", folder]
    with serving(flags) as (_process, url):
        yield Slots(url, folder)


def test_save_restore_erase(slots: Slots, pocket: dict[str, Path]) -> None:
    """Also by another server: the next turn reads what is new and says the same."""
    first = slots.say(PROMPT, 1)
    n_held = first["tokens_evaluated"] + first["tokens_predicted"] - 1
    saved = slots.act(1, "save", "a b.bin").json()
    assert saved.pop("timings")["save_ms"] > 0
    size = (slots.folder / "a b.bin").stat().st_size
    assert saved == {"id_slot": 1, "filename": "a b.bin", "n_saved": n_held, "n_written": size}

    again = slots.say(PROMPT + first["content"] + " and", 1)
    assert slots.act(1, "erase").json() == {
        "id_slot": 1,
        "n_erased": again["tokens_evaluated"] + again["tokens_predicted"] - 1,
    }
    nothing = slots.http.post("/slots/1", params={"action": "erase"}, json={"model": "pocket"})
    assert nothing.json() == {"id_slot": 1, "n_erased": 0} and "x-dflash-ignored" not in nothing.headers
    flags = ["-m", pocket["target"], "-md", pocket["dflash"], "-t", 1, "-c", 2048, "--slot-save-path", slots.folder]
    with serving(flags) as (_process, url):
        later = Slots(url, slots.folder)
        restored = later.act(2, "restore", "a b.bin").json()
        assert restored.pop("timings")["restore_ms"] > 0
        assert restored == {"id_slot": 2, "filename": "a b.bin", "n_restored": n_held, "n_read": size}
        back = later.say(PROMPT + first["content"] + " and", 2)
    assert back["content"] == again["content"]
    assert back["timings"]["cache_n"] == again["timings"]["cache_n"] >= first["tokens_evaluated"]
    assert back["timings"]["prompt_n"] < 20


@pytest.mark.parametrize(
    "filename",
    ["", ".", "..", "../x", "a/b", "a\\b", "/etc/passwd", "C:x", "a*", "a?", "con", "NUL.txt", "x.", " x", "x ",
     "a\x00b", "a\nb", "\x9f", "\u2215x", "\ufffd", "x" * 256, 7, ["x"], {"a": 1}],
)  # fmt: skip
def test_names_that_lead_elsewhere(slots: Slots, filename: object) -> None:
    before = sorted(slots.folder.parent.rglob("*"))
    for action in ("save", "restore"):
        answer = slots.act(0, action, filename)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "filename"), answer.text
    assert sorted(slots.folder.parent.rglob("*")) == before


def test_the_longest_name(slots: Slots) -> None:
    slots.say(PROMPT, 0)
    assert slots.act(0, "save", "x" * 255).status_code == 200
    assert slots.act(0, "restore", "x" * 255).status_code == 200


def test_refusals(slots: Slots) -> None:
    slots.act(3, "erase")
    (slots.folder / "text").write_bytes(b"GGUF" + bytes(1000))
    (slots.folder / "folder").mkdir()
    slots.say(PROMPT, 0)
    slots.act(0, "save", "short")
    short = slots.folder / "short"
    short.write_bytes(short.read_bytes()[:-1])
    for slot, action, filename, param, why in (
        (4, "erase", None, "id_slot", "between 0 and 3"),
        (-1, "erase", None, "id_slot", "between 0 and 3"),
        ("x", "save", "a", "id_slot", "between 0 and 3"),
        ("99999999999999999999", "save", "a", "id_slot", "between 0 and 3"),
        (0, "forget", "a", "action", "save, restore or erase"),
        (0, "", "a", "action", "save, restore or erase"),
        (0, "save", None, None, "body"),
        (3, "save", "a", "filename", "holds nothing"),
        (0, "restore", "none", "filename", "unable to restore 'none'"),
        (0, "restore", "text", "filename", "no saved slot"),
        (0, "restore", "folder", "filename", "no regular file"),
        (0, "restore", "short", "filename", "is damaged"),
    ):
        answer = slots.act(slot, action, filename)
        error = answer.json()["error"]
        assert (answer.status_code, error["param"]) == (400, param) and why in error["message"], (slot, action, error)
    assert slots.say(PROMPT, 0)["timings"]["prompt_n"] == 1  # as it was


def test_unknown_fields_are_told(slots: Slots) -> None:
    slots.say(PROMPT, 0)
    answer = slots.http.post("/slots/0?action=save", json={"filename": "f", "speed": 9})
    assert answer.status_code == 200 and answer.headers["X-DFlash-Ignored"] == "speed"


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[Live]:
    settings = Settings(slot_save_path=tmp_path, api_keys=("key",), sleep_idle_seconds=1)
    with live(lambda _progress: Engine.over(FakeNative()), settings) as server:
        yield server


def test_only_with_a_key(fake: Live) -> None:
    assert fake.http.post("/slots/0?action=erase").status_code == 401


def test_an_engine_that_sleeps_is_woken(fake: Live) -> None:
    from tests.server.test_sleep import is_sleeping

    fake.http.headers["Authorization"] = "Bearer key"
    wait_until(lambda: is_sleeping(fake))
    assert fake.http.post("/slots/0?action=erase").json() == {"id_slot": 0, "n_erased": 0}


@pytest.mark.parametrize("action", ["save", "restore", "erase"])
def test_a_client_that_leaves_takes_its_action_back(tmp_path: Path, action: str) -> None:
    gate = threading.Semaphore(0)
    native = FakeNative(gate=gate)
    with live(lambda _progress: Engine.over(native), Settings(slot_save_path=tmp_path)) as server:
        answer = server.engine.submit([1])
        wait_until(lambda: server.engine.n_running == 1)
        with pytest.raises(httpx.ReadTimeout):
            timeout = httpx.Timeout(PATIENCE, read=0.3)
            httpx.post(f"{server.url}/slots/0?action={action}", json={"filename": "x"}, timeout=timeout)
        asked = [*server.engine._scheduler._futures]
        wait_until(lambda: all(future.cancelled() for future in asked))
        gate.release(20)
        assert len(asked) == 1 and answer.result(PATIENCE).text == "hello"
        assert native._slots[0].tokens  # not erased


def test_without_a_folder_there_are_no_files() -> None:
    with live(lambda _progress: Engine.over(FakeNative())) as server:
        for action in ("save", "restore", "erase"):
            answer = server.http.post(f"/slots/0?action={action}", json={"filename": "x"})
            assert answer.status_code == 501 and answer.json()["error"]["type"] == "not_supported_error"
            assert "--slot-save-path" in answer.json()["error"]["message"]
