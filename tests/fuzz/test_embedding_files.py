"""Damaged embedding models: refused, or used without harm; none ends the process that holds them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.server import encoders

from .architectures import ENCODERS
from .gguf_image import read
from .sweep import Sweep, sweep

COMMAND = [sys.executable, "-m", "tests.fuzz.embedding_worker"]
FAST, SLOW = 100, 400


def made(name: str, pocket: dict[str, Path], folder: Path) -> Path:
    path = folder / f"{name}.gguf"
    if name == "pocket":
        return pocket["target"]
    if name in ENCODERS:
        path.write_bytes(ENCODERS[name](read(pocket["target"])).encode()[0])
        return path
    return encoders.write_bert(path, encoders.weights(rerank=name == "ranker"))


def check(result: Sweep, count: int) -> None:
    assert not result.deaths, "\n\n".join(result.deaths)
    assert len(result.results) == count
    assert result.kinds()["refused"] > count // 3  # the damage is real
    assert result.kinds()["answered"] > count // 20  # and not all of it is at the gate


def test_mutations(pocket: dict[str, Path], tmp_path: Path) -> None:
    path = made("ranker", pocket, tmp_path)
    check(sweep(path, Path("-"), "rank", [f"0:{FAST}"], tmp_path, command=COMMAND), FAST)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "ranker", "pocket", *ENCODERS])
def test_many_mutations(pocket: dict[str, Path], tmp_path: Path, name: str) -> None:
    path, role = made(name, pocket, tmp_path), "rank" if name == "ranker" else "embed"
    check(sweep(path, Path("-"), role, [f"{FAST}:{FAST + SLOW}"], tmp_path, command=COMMAND), SLOW)
