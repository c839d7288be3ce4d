"""Attention that reads K and V once for all rows: a whole model against stock."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from dflash_local import Engine
from dflash_local.convert.gguf_metadata import read_header
from dflash_local.errors import ComputeError
from tests.fast import some_fast
from tests.gguf_files import rewritten, stored

SCORES = """
import json, sys
from dflash_local import Engine
types = dict.fromkeys(("cache_type_k", "cache_type_v"), sys.argv[3])
with Engine(sys.argv[1], n_ctx=1024, n_threads=int(sys.argv[2]), warmup=False, **types) as engine:
    text = "The capital of France is Paris. 17 + 25 = 42. def area(width, height): return width. " * 20
    tokens = engine.tokenize(text)[:560]
    print(json.dumps([engine.score(tokens, 520, width).logit.tolist() for width in (1, 2, 9, 40)]))
"""


@pytest.mark.parametrize("cache", some_fast(["f16", "q8_0"], ["f16"]))
def test_whole_model(pocket: dict[str, Path], cache: str) -> None:
    """Ours and stock the same logits but for rounding; ours the same bits for every number of threads."""

    def scores(ours: str, threads: int) -> np.ndarray:
        environment = {**os.environ, "DFLASH_ATTENTION": ours}
        command = [sys.executable, "-c", SCORES, str(pocket["target"]), str(threads), cache]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
        assert done.returncode == 0, done.stderr
        return np.array(json.loads(done.stdout.splitlines()[-1]))

    stock, ours = scores("0", 1), scores("1", 1)
    assert 0 < np.abs(stock - ours).max() < 0.02 * (stock.max() - stock.min())
    np.testing.assert_array_equal(ours, scores("1", 2))


@pytest.mark.parametrize("flash", ["on", "off"])
def test_a_failed_request_spoils_no_other(pocket: dict[str, Path], tmp_path: Path, flash: Literal["on", "off"]) -> None:
    """Its K and V stay in the slot's cells, beside those of the next request, whose mask hides them."""
    table = np.array(stored(read_header(pocket["target"])[1]["token_embd.weight"]))
    prompt, damaged = list(range(100, 125)), 1500
    table[damaged] = np.nan
    target = rewritten(pocket["target"], tmp_path / "target.gguf", tensors={"token_embd.weight": table})
    with Engine(target, n_ctx=256, n_threads=1, warmup=False, flash_attn=flash) as engine:

        def answer() -> list[int]:
            return engine.generate(prompt, max_tokens=4, temperature=0, ignore_eos=True, cache_prompt=False).tokens

        expected = answer()
        assert damaged not in expected
        with pytest.raises(ComputeError):
            engine.generate([*range(200, 220), damaged, *range(220, 239)], max_tokens=1, temperature=0)
        assert answer() == expected
