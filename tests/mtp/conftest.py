"""The tiny models as files, and what llama.cpp itself drafts with them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.native_process import run_native

from .models import ASSISTED, NAMES, WITHOUT_GRAPH


class Reference(NamedTuple):
    """A greedy text behind PROMPT, and for each of its tokens what is drafted behind it: by position the likeliest
    tokens with their probabilities."""

    text: list[int]
    drafts: list[list[dict[int, float]]]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mtp")


@pytest.fixture(scope="session")
def references(folder: Path, repo: Path) -> dict[str, Reference]:
    """By name. One that ended the process, and all behind it, are missing."""
    run = run_native(repo, "tests.mtp.probe", str(folder), *NAMES, ASSISTED, *(f"{arch}-1" for arch in WITHOUT_GRAPH))
    if run.returncode != 0:
        print(run.stderr[-2000:])
    found = {}
    for line in (json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")):
        drafts = [[{int(token): prob for token, prob in at.items()} for at in draft] for draft in line["drafts"]]
        found[line["name"]] = Reference(line["text"], drafts)
    return found


@pytest.fixture
def model(references: dict[str, Reference], folder: Path) -> Callable[[str], Path]:
    """The file of a name in NAMES, or of ASSISTED."""
    return lambda name: folder / f"{name}.gguf"
