"""What Engine makes of its arguments before anything is loaded: libdflash's numbers, the pair's check, the file of
measured costs."""

from __future__ import annotations

import inspect
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from dflash_local import engine_loader, native
from dflash_local.diagnose import pair
from dflash_local.engine import Engine
from dflash_local.engine_options import COST_OPTIONS, EngineOptions
from dflash_local.errors import DFlashError, PairError, RequestError
from dflash_local.machine import costs
from dflash_local.native import AcceptRule, DraftMode
from tests.fake_native import FakeNative

DEFAULTS = {name: parameter.default for name, parameter in inspect.signature(Engine).parameters.items()}


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A build that is only a file; what functions need is loaded from the real one before."""
    native.load()
    path = tmp_path / "lib" / "libdflash.so"
    path.parent.mkdir()
    path.write_bytes(b"x")
    monkeypatch.setattr(native, "library_path", lambda: path)
    monkeypatch.setattr(
        native,
        "library_info",
        lambda: {"version": "1", "devices": [{"name": "CPU", "description": "a CPU", "type": "cpu"}]},
    )
    monkeypatch.setenv("DFLASH_CACHE", str(tmp_path / "cache"))
    return path


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The parameters of the native engines that would have been made."""
    params: list[dict[str, Any]] = []

    def make(given: dict[str, Any], _progress: object) -> FakeNative:
        params.append(given)
        return FakeNative()

    monkeypatch.setattr(engine_loader, "NativeEngine", make)
    monkeypatch.setattr(pair, "check_gguf", lambda _path: None)
    return params


def test_engine_takes_what_engine_options_has() -> None:
    assert inspect.signature(Engine).parameters == inspect.signature(EngineOptions).parameters
    explained = inspect.getdoc(EngineOptions) or ""
    assert [name for name in DEFAULTS if not re.search(rf"\b{name}\b[\w, ]*:", explained)] == []
    with pytest.raises(TypeError, match="n_slot"):
        Engine("target.gguf", n_slot=1)  # type: ignore[call-arg]


def test_drafting_arguments_reach_libdflash(pocket: dict[str, Path], made: list[dict[str, Any]]) -> None:
    Engine(
        pocket["target"], pocket["dflash2"], draft="chain", accept="block", lookup=False, kv_unified=False, budget=9
    ).close()
    Engine(pocket["target"]).close()
    names = ("draft", "accept", "lookup", "kv_unified", "budget")
    assert [made[0][name] for name in names] == [DraftMode.CHAIN, AcceptRule.BLOCK, False, False, 9]
    assert [made[1][name] for name in names] == [DraftMode.TREE, AcceptRule.MATCH, True, True, 0]
    assert {field[0] for field in native.EngineParams._fields_} >= made[0].keys()


@pytest.mark.parametrize(
    ("arguments", "param"),
    [
        ({"draft": "star"}, "draft"),
        ({"draft": 7}, "draft"),
        ({"accept": "most"}, "accept"),
        ({"accept": "block"}, "accept"),  # the drafter is none of DFlash 2
        ({"accept": "block", "drafter": None}, "accept"),
        ({"draft_n_max": 64}, "draft_n_max"),
        ({"budget": 65}, "budget"),
    ],
)
def test_bad_arguments_are_told_before_loading(
    pocket: dict[str, Path], made: list[dict[str, Any]], arguments: dict[str, Any], param: str
) -> None:
    with pytest.raises(RequestError) as caught:
        Engine(pocket["target"], **{"drafter": pocket["dflash"], **arguments})
    assert caught.value.param == param
    assert made == []


def test_a_wrong_pair_is_told_before_loading(
    pocket: dict[str, Path], made: list[dict[str, Any]], tmp_path: Path
) -> None:
    with pytest.raises(DFlashError, match="not a DFlash drafter"):
        Engine(pocket["target"], pocket["target"])
    other = tmp_path / "other.gguf"
    data = pocket["dflash"].read_bytes()
    key = b"dflash.embedding_length"
    at = data.index(key) + len(key) + 4  # behind the value's type
    other.write_bytes(data[:at] + (2560).to_bytes(4, "little") + data[at + 4 :])
    with pytest.raises(PairError, match="the drafter is 2560 wide"):
        Engine(pocket["target"], other)
    assert made == []


@pytest.mark.parametrize(("given", "limit", "handed"), [(None, None, 0), (None, 2, 2), (0, 2, 2), (4, 2, 4)])
def test_threads_are_as_many_as_cores_that_may_be_used(
    pocket: dict[str, Path], made: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch,
    given: int | None, limit: int | None, handed: int,
) -> None:  # fmt: skip
    """Unless the user says; 0: libdflash's own choice, all physical cores."""
    monkeypatch.setattr(engine_loader, "core_limit", lambda: limit)
    Engine(pocket["target"], n_threads=given).close()
    assert made[0]["n_threads"] == handed


# ---- the file of measured costs ----


def test_the_cost_file_is_named_by_what_a_pass_costs(pocket: dict[str, Path], library: Path, tmp_path: Path) -> None:
    target = tmp_path / "target.gguf"
    shutil.copy(pocket["target"], target)

    def name(drafter: str | None = "dflash", **changed: Any) -> Path:
        return costs.cost_file(target, None if drafter is None else pocket[drafter], {**DEFAULTS, **changed})

    first = name()
    assert name() == name(n_threads=0) == name(budget=3, n_ctx=77, chat_template="x", draft="chain") == first
    different: dict[str, Any] = {
        argument: 3 if type(DEFAULTS[argument]) is int else "other" for argument in COST_OPTIONS
    }
    different |= {argument: not DEFAULTS[argument] for argument in COST_OPTIONS if type(DEFAULTS[argument]) is bool}
    names = [first, name("dflash2"), name(None), *(name(**{argument: value}) for argument, value in different.items())]
    with pytest.MonkeyPatch.context() as patch:  # another number of threads by default
        patch.setattr(costs, "core_limit", lambda: 1000)
        names.append(name())
    os.utime(target, (0, 0))  # another file in its place
    names.append(name())
    library.write_bytes(b"another build")
    names.append(name())
    assert len(set(names)) == len(names) == len(COST_OPTIONS) + 6

    target = tmp_path / "target-00001-of-00002.gguf"  # and what is named by the first part of a split model
    for part in (target, tmp_path / "target-00002-of-00002.gguf"):
        shutil.copy(pocket["target"], part)
    whole = name()
    os.utime(part, (0, 0))
    assert name() != whole


def test_engine_hands_over_the_cost_file(pocket: dict[str, Path], made: list[dict[str, Any]], tmp_path: Path) -> None:
    Engine(pocket["target"], pocket["dflash"], n_slots=2).close()
    assert made[0]["cost_cache"] == str(costs.cost_file(pocket["target"], pocket["dflash"], {**DEFAULTS, "n_slots": 2}))
    assert Path(made[0]["cost_cache"]).parent == tmp_path / "cache" / "costs"
    assert Path(made[0]["cost_cache"]).parent.is_dir()
    Engine(pocket["target"], cost_cache=False).close()
    assert made[1].get("cost_cache") is None
    Engine(pocket["target"], cost_cache=tmp_path / "mine.json").close()
    assert made[2]["cost_cache"] == str(tmp_path / "mine.json")


def test_a_folder_that_cannot_be_written_is_no_error(
    pocket: dict[str, Path], made: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("DFLASH_CACHE", str(tmp_path / "file"))
    Engine(pocket["target"], pocket["dflash"]).close()
    assert made[0]["cost_cache"] is None
