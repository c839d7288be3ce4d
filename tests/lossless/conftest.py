"""The pocket pair in f32, and random models over twelve tokens."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dflash_local import Engine
from tests.parity.f32 import engine_f32, widen

from . import tiny


@pytest.fixture(scope="session", params=["dflash", "dflash2"])
def engine(
    request: pytest.FixtureRequest, pocket: dict[str, Path], target_f32: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    drafter = widen(pocket[request.param], tmp_path_factory.mktemp("f32") / f"{request.param}.gguf")
    with engine_f32(target_f32, drafter, n_ctx=1024) as engine:
        yield engine


@pytest.fixture(scope="session")
def tiny_target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_target(tmp_path_factory.mktemp("tiny") / "target.gguf", tiny.target_tensors())


@pytest.fixture(scope="session", params=["dflash", "dflash2"])
def tiny_engine(
    request: pytest.FixtureRequest, tiny_target: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    path = tmp_path_factory.mktemp("tiny") / f"{request.param}.gguf"
    drafter = tiny.write_drafter(path, request.param, tiny.drafter_tensors(request.param))
    with engine_f32(tiny_target, drafter, n_ctx=16 * 64, n_slots=16, max_queue=100_000) as engine:
        yield engine
