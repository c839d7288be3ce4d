"""Prompt lookup without a drafter on each kind of target memory: what repeats the prompt is drafted, in trees or
chains, and is plain text."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dflash_local import Engine
from tests.native_process import run_native
from tests.trees import models

from .test_tokens import assert_same

# Latent attention (MLA), alone and with an indexer; tests/taps makes them.
LATENT = ["deepseek2", "deepseek32"]
NAMES = [*models.TREES, *models.CHAINS, *LATENT]
PERIOD, REPEATS, LIMIT = 24, 6, 64  # more than the sliding windows hold


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("memories")


@pytest.fixture(scope="module", params=NAMES)
def engine(folder: Path, request: pytest.FixtureRequest, repo: Path) -> Iterator[Engine]:
    path = folder / f"{request.param}.gguf"
    if request.param in LATENT:
        run_native(repo, "tests.taps.probe", str(folder), request.param)
    else:
        models.write(request.param, path)
    with Engine(path, n_ctx=1024, n_threads=1, warmup=False) as engine:
        yield engine


def repeated(seed: int) -> list[int]:
    """Tokens that were there before, up to the last."""
    period = random.Random(seed).choices(range(models.N_VOCAB - 1), k=PERIOD)
    return period * REPEATS


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 0.4, "top_k": 4}], ids=str)
def test_same_text(engine: Engine, sampling: dict[str, Any]) -> None:
    drafted = accepted = 0
    for seed in range(6):
        ask: dict[str, Any] = {"max_tokens": LIMIT, "seed": seed, "ignore_eos": True, **sampling}
        plain, quoting = (engine.generate(repeated(seed), budget=n, **ask) for n in (1, 8))
        assert_same(plain, quoting)
        assert plain.timings.draft_n == quoting.timings.n_drafter_passes == 0
        drafted += quoting.timings.lookup_n
        accepted += quoting.timings.lookup_n_accepted
    print(f"{drafted} drafted, {accepted} accepted")
    assert drafted > 0
