"""The pocket pair in f32, and random models over twelve tokens."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dflash_local import Engine
from tests.parity.f32 import DEMO, engine_f32, widen

from . import tiny

DRAFTERS = ["pocket-dflash", "pocket-dflash2"]


@pytest.fixture(scope="session")
def target_f32(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return widen(DEMO / "pocket-target.gguf", tmp_path_factory.mktemp("f32") / "target.gguf")


@pytest.fixture(scope="session", params=DRAFTERS)
def engine(request: pytest.FixtureRequest, target_f32: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    drafter = widen(DEMO / f"{request.param}.gguf", tmp_path_factory.mktemp("f32") / f"{request.param}.gguf")
    with engine_f32(target_f32, drafter, n_ctx=1024) as engine:
        yield engine


@pytest.fixture(scope="session")
def tiny_target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_target(tmp_path_factory.mktemp("tiny") / "target.gguf", tiny.target_tensors())


@pytest.fixture(scope="session", params=["dflash", "dflash2"])
def tiny_engine(request: pytest.FixtureRequest, tiny_target: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    path = tmp_path_factory.mktemp("tiny") / f"{request.param}.gguf"
    drafter = tiny.write_drafter(path, request.param, tiny.drafter_tensors(request.param))
    with engine_f32(tiny_target, drafter, n_ctx=16 * 64, n_slots=16, n_threads=1, max_queue=100_000) as engine:
        yield engine
