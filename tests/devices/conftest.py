"""The software device, and processes with engines that use it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dflash_local.native import library_path
from tests.devices import software_vulkan
from tests.placement.conftest import pairs
from tests.placement.rpc_server import rpc_servers
from tests.placement.worker import Worker

__all__ = ["pairs"]


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    """Of a process that sees Vulkan0."""
    if not list(library_path().parent.glob("libggml-vulkan*")):
        pytest.skip("needs a library with Vulkan: python -m tests.devices")
    try:
        return software_vulkan.environment()
    except software_vulkan.MissingError as error:
        pytest.skip(str(error))


@pytest.fixture
def worker(environment: dict[str, str], tmp_path: Path) -> Iterator[Worker]:
    """Each test with a process of its own."""
    worker = Worker([], tmp_path / "worker.log", environment)
    yield worker
    worker.close()


@pytest.fixture
def worker_of_two(environment: dict[str, str], tmp_path: Path) -> Iterator[Worker]:
    """It has an RPC server besides, RPC0."""
    with rpc_servers(1, tmp_path) as endpoints:
        worker = Worker(endpoints, tmp_path / "worker.log", environment)
        yield worker
        worker.close()
