"""Tiny targets of every architecture whose taps are read by patches/0015, and what an eval callback said of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.native_process import run_native

from .models import ARCHS


class Probe(NamedTuple):
    """Of one architecture, a number for each layer, as shares of the largest value: how far its tap is from the
    layer's input, and how far it is from the tap of the layer before."""

    error: list[float]
    moved: list[float]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("taps")


@pytest.fixture(scope="session")
def probes(folder: Path, repo: Path) -> dict[str, Probe]:
    """By architecture. One that ended the process, and all behind it, are missing."""
    run = run_native(repo, "tests.taps.probe", str(folder), *ARCHS)
    found = [json.loads(line) for line in run.stdout.splitlines()]
    if run.returncode != 0:
        print(run.stderr[-2000:])
    return {line["arch"]: Probe(line["error"], line["moved"]) for line in found}


@pytest.fixture
def target(probes: dict[str, Probe], folder: Path) -> Callable[[str], Path]:
    """The file of an architecture."""
    return lambda arch: folder / f"{arch}.gguf"
