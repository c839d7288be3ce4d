"""Fixtures for training: a run that has texts and taps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from dflash_local.train.train_settings import TrainSettings

PROMPTS = Path(__file__).parents[1] / "parity" / "prompts.jsonl"


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def gradients() -> Iterator[None]:
    """Parity tests, which the same process may have run before, turn them off for good."""
    with torch.enable_grad():
        yield


@pytest.fixture(scope="session")
def prompts_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every fourth of the parity prompts."""
    path = tmp_path_factory.mktemp("data") / "prompts.jsonl"
    path.write_text("\n".join(PROMPTS.read_text().splitlines()[::4]) + "\n")
    return path


@pytest.fixture
def settings(pocket: dict[str, Path], prompts_file: Path, tmp_path: Path) -> Callable[..., TrainSettings]:
    """Settings of a run of seconds, from the weak pocket drafter."""

    def make(**changes: Any) -> TrainSettings:
        given: dict[str, Any] = {
            "model": pocket["target"],
            "data": (prompts_file,),
            "init": pocket["dflash-small"],
            "output": tmp_path / "new.gguf",
            "work": tmp_path / "run",
            "temperatures": (0.0,),
            "n_predict": 64,
            "length": 256,
            "slots": 4,
            "held_out": 2,
            "epochs": 0.2,
            "batch": 32,
            "evaluations": 0,
            "threads": 1,
            "rate": 1e-4,
        }
        return TrainSettings(**{**given, **changes})

    return make
