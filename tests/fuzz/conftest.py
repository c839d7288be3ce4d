"""The server that requests are fired at."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.patience import PATIENCE
from tests.server.encoders import weights, write_bert
from tests.server.live import serving
from tests.upstream.models import write_infill

# What may answer 501: infill, by its own name or with `suffix`, if the model has no tokens for it; changes of what
# cannot be changed; and Ollama's way to free a model, on a server that may not sleep.
OFF = ("/infill", "/v1/completions", "/completions", "/props", "/lora-adapters", "/api/chat", "/api/generate")


@pytest.fixture(scope="module")
def server(pocket: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[psutil.Process, str]]:
    """The pocket pair and two tiny encoders, served by the command: all endpoints work. It must end well."""
    folder = tmp_path_factory.mktemp("models")
    target = write_infill(folder / "target.gguf")
    encoder = write_bert(folder / "encoder.gguf", weights())
    ranker = write_bert(folder / "ranker.gguf", weights(rerank=True))
    flags = ["-m", target, "-md", pocket["dflash"], "--embedding-model", encoder, "--rerank-model", ranker]
    slots = folder / "slots"
    slots.mkdir()
    flags += ["--slot-save-path", slots, "--cache-ram", 32]
    with serving([*flags, "-c", 2048, "-np", 4, "-t", 1, "-n", 4, "--metrics"]) as (process, url):
        yield psutil.Process(process.pid), url
        process.terminate()
        assert process.wait(PATIENCE) == 0
