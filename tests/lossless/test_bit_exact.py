"""--bit-exact: a row's logits are the same bits in every pass, so drafted text is plain text, token for token, of quantized pairs too.

Nothing here is allowed to differ: no tolerance, no ties.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dflash_local import Engine
from dflash_local.errors import RequestError
from dflash_local.native import quantize
from dflash_local.sampling import SamplingParams
from tests.trees import models

from .test_tokens import OPENINGS, PROMPTS, chat

TYPES = ["f16", "q4_0", "q4_k_m", "q8_0"]
DRAFTS: list[dict[str, Any]] = [{}, {"budget": 64}, {"budget": 16, "draft": "chain"}, {"budget": 5}]


def open_engine(target: Path, drafter: Path | None, **options: Any) -> Engine:
    try:
        return Engine(target, drafter, n_ctx=1024 * options.get("n_slots", 1), warmup=False, bit_exact=True, **options)
    except RequestError as error:
        if "do not run on this CPU" in str(error) or "no row-invariant kernel" in str(error):
            pytest.skip(str(error))
        raise


@pytest.fixture(scope="module", params=TYPES)
def target(request: pytest.FixtureRequest, pocket: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    if request.param == "f16":
        return pocket["target"]
    path = tmp_path_factory.mktemp("exact") / f"{request.param}.gguf"
    quantize(pocket["target"], path, request.param)
    return path


@pytest.fixture(scope="module")
def engine(target: Path, pocket: dict[str, Path]) -> Iterator[Engine]:
    with open_engine(target, pocket["dflash-small"], n_threads=2, n_slots=3) as engine:
        yield engine


def compare(engine: Engine, prompt: list[int], n_tokens: int, seed: int) -> int:
    """Tokens compared: one plain answer against three slots that draft in different ways at once, at temperatures 0 and 1."""
    compared = 0
    for temperature in (0.0, 1.0):
        sampling = SamplingParams(temperature=temperature, seed=seed, ignore_eos=True)
        plain = engine.generate(prompt, sampling, draft="off", max_tokens=n_tokens).tokens
        running = [engine.submit(prompt, sampling, max_tokens=n_tokens, **DRAFTS[(seed + i) % len(DRAFTS)]) for i in range(3)]
        for drafted in running:
            assert drafted.result().tokens == plain
            compared += len(plain)
    return compared


def test_text(engine: Engine) -> None:
    for seed, text in enumerate(PROMPTS[:3]):
        compare(engine, chat(engine, text), 60, seed)
    compare(engine, engine.tokenize(OPENINGS[0]), 60, 7)


@pytest.mark.slow
def test_a_hundred_thousand_tokens(engine: Engine) -> None:
    prompts = [chat(engine, text) for text in PROMPTS] + [engine.tokenize(opening) for opening in OPENINGS]
    compared = seed = 0
    while compared < 100_000:
        compared += compare(engine, prompts[seed % len(prompts)], 200, seed)
        seed += 1


def check_rows(path: Path) -> None:
    """Logits of the same tokens in passes of 1 to 29 rows, with 1 and 3 threads."""
    rows = []
    for threads in (1, 3):
        with open_engine(path, None, n_threads=threads) as engine:
            tokens = [i * 7 % 120 for i in range(300)]
            rows += [engine.score(tokens, 270, width).logit for width in (1, 2, 5, 8, 16, 29)]
    for other in rows[1:]:
        np.testing.assert_array_equal(rows[0], other)


def test_rows(target: Path) -> None:
    check_rows(target)


@pytest.mark.parametrize("name", ["llama", "qwen3", "qwen3moe", "mpt"])
def test_rows_of_other_graphs(name: str, tmp_path: Path) -> None:
    check_rows(models.write(name, tmp_path / "model.gguf"))


def test_what_cannot_be_promised(pocket: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="flash attention is off"):
        Engine(pocket["target"], warmup=False, bit_exact=True, flash_attn="off")
    with pytest.raises(RequestError, match="does not keep its cells in order"):
        Engine(models.write("gemma4", tmp_path / "gemma4.gguf"), warmup=False, bit_exact=True)
    with Engine(pocket["target"], warmup=False, n_slots=2) as engine:
        assert "--no-kv-unified" in engine.info["not_bit_exact"]
