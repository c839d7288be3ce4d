"""Two RPC servers, a process with engines that use them, and f32 pairs of three kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from dflash_local.demo.inflate import inflate
from dflash_local.demo.pocket import bundled_pair
from dflash_local.demo.shapes import Experts, Pair, Shape
from tests.parity.f32 import widen
from tests.placement.rpc_server import has_rpc, rpc_servers
from tests.placement.worker import Worker

# About the small pair's own sizes, with a mixture in place of each feed-forward.
MIXTURE = Shape(6, 320, 768, 4, 2, 1792, 2, 64, Experts(8, 4, 384))


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Pair]:
    """A pair in f32: "attention", "hybrid" or "moe"."""
    folder = tmp_path_factory.mktemp("pairs")

    @cache
    def make(kind: str) -> Pair:
        small = bundled_pair("hybrid" if kind == "hybrid" else "dflash")
        if kind == "moe":
            small = inflate(small, folder / "f16", MIXTURE, "f16")
        names = ("target", "drafter")
        return Pair(*(widen(path, folder / f"{kind}-{name}.gguf") for path, name in zip(small, names, strict=True)))

    return make


@pytest.fixture(scope="session")
def endpoints(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    if not has_rpc():
        pytest.skip("needs a library with RPC: dflash-local build -- -DGGML_RPC=ON")
    with rpc_servers(2, tmp_path_factory.mktemp("rpc")) as endpoints:
        yield endpoints


@pytest.fixture
def worker(endpoints: list[str], tmp_path: Path) -> Iterator[Worker]:
    """The devices RPC0 and RPC1, each test with a process of its own."""
    worker = Worker(endpoints, tmp_path / "worker.log")
    yield worker
    worker.close()
