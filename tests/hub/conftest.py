"""A stand-in for the Hub, and an empty cache, for every test of this folder."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dflash_local.hub.client import Hub

from .stand_in import StandIn, stand_in

FORGOTTEN = ("HF_", "HUGGING", "LLAMA_", "MODEL_ENDPOINT", "TRANSFORMERS_OFFLINE", "XDG_")


@pytest.fixture
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of the cache, which is not there yet; no variable of the user's counts."""
    for name in os.environ:
        if name.startswith(FORGOTTEN):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setenv("LLAMA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache_folder: Path) -> None:
    """Folders of its own for what we keep and what the user says."""
    monkeypatch.setenv("DFLASH_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def server() -> Iterator[StandIn]:
    with stand_in() as hub:
        yield hub


@pytest.fixture
def endpoint(server: StandIn, cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """The stand-in, as the Hub of this process and its children."""
    monkeypatch.setenv("MODEL_ENDPOINT", server.endpoint + "/")
    return server


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pauses between two tries, which pass at once."""
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    return pauses


@pytest.fixture
def make_hub(endpoint: StandIn) -> Callable[..., Hub]:
    """Hubs of a user; what they are told is in `notes`."""

    def make(**facts: Any) -> Hub:
        notes: list[str] = []
        hub = Hub(note=notes.append, **facts)
        hub.__dict__["notes"] = notes
        return hub

    return make
