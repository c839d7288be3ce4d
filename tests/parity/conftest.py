"""Our engine and the authors' models on the same f32 weights."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from dflash_local import Engine
from tests.fast import some_fast

from .f32 import engine_f32, widen
from .reference import DRAFTERS, Reference, load_drafter, load_target

N_CONTEXT = 1024


@pytest.fixture(scope="session", autouse=True)
def torch_settings() -> None:
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)  # small matrices: more threads only wait for each other


@pytest.fixture(scope="session", params=DRAFTERS)
def drafter_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def drafter_f32(pocket: dict[str, Path], drafter_name: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return widen(pocket[drafter_name], tmp_path_factory.mktemp("f32") / f"{drafter_name}.gguf")


@pytest.fixture(scope="session")
def engine(target_f32: Path, drafter_f32: Path) -> Iterator[Engine]:
    with engine_f32(target_f32, drafter_f32, n_ctx=N_CONTEXT) as engine:
        yield engine


@pytest.fixture(scope="session")
def reference(target_f32: Path, drafter_f32: Path, drafter_name: str) -> Reference:
    return Reference(load_target(target_f32), load_drafter(drafter_f32, DRAFTERS[drafter_name]))


@pytest.fixture(scope="session")
def prompts(target_f32: Path) -> list[list[int]]:
    """Chats about the pocket model's subjects, several turns and tools among them, as tokens."""
    lines = (Path(__file__).parent / "prompts.jsonl").read_text().splitlines()
    with Engine(target_f32, n_threads=1, warmup=False) as engine:
        return [engine.tokenize(engine.apply_chat(json.loads(line)).prompt) for line in lines]


@pytest.fixture(params=some_fast((16, 64), (16,)))
def chats(request: pytest.FixtureRequest, prompts: list[list[int]]) -> list[list[int]]:
    """So many of the prompts, evenly spread."""
    some = prompts[:: len(prompts) // request.param]
    assert len(some) == request.param
    return some
