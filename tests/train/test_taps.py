"""Taps and distributions that the engine exports, against transformers on the f32 pocket target."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from dflash_local import Engine
from dflash_local.errors import RequestError
from tests.parity.f32 import engine_f32
from tests.parity.reference import TARGET_LAYERS, load_target

LAYERS = (0, 1, 3, 5)
TOKENS = np.random.default_rng(1).integers(4, 1699, 150).tolist()  # more than one pass


@pytest.fixture(scope="module")
def engine(target_f32: Path) -> Iterator[Engine]:
    with engine_f32(target_f32, None, n_ctx=256) as engine:
        yield engine


def test_against_transformers(engine: Engine, target_f32: Path) -> None:
    found = engine.tap(TOKENS, LAYERS, 8)
    with torch.no_grad():
        out = load_target(target_f32)(torch.tensor([TOKENS]), output_hidden_states=True)
    assert found.hidden.shape == (len(TOKENS), len(LAYERS), 256)
    for column, layer in enumerate(LAYERS):
        np.testing.assert_allclose(found.hidden[:, column], out.hidden_states[layer][0].numpy(), atol=1e-4)
    log_probs = out.logits[0].log_softmax(-1)
    best = log_probs.topk(8, -1)
    np.testing.assert_allclose(found.log_probs, best.values.numpy(), atol=1e-4)
    np.testing.assert_allclose(
        found.log_probs, log_probs.gather(-1, torch.from_numpy(found.ids).long()).numpy(), atol=1e-4
    )


def test_wide_passes_are_the_same(engine: Engine) -> None:
    """Without distributions passes are wider, and hidden states the same."""
    some = engine.tap(TOKENS, LAYERS, 1)
    wide = engine.tap(TOKENS, LAYERS)
    assert wide.ids.shape == wide.log_probs.shape == (len(TOKENS), 0)
    np.testing.assert_allclose(wide.hidden, some.hidden, atol=1e-4)


def test_distributions_of_the_last_tokens(engine: Engine) -> None:
    """Few distributions leave passes wide, many do not: both are those of all rows."""
    every = engine.tap(TOKENS, LAYERS, 4)
    for first in (len(TOKENS) - 1, 3, len(TOKENS)):
        some = engine.tap(TOKENS, LAYERS, 4, first)
        np.testing.assert_array_equal(some.ids, every.ids[first:])
        np.testing.assert_allclose(some.log_probs, every.log_probs[first:], atol=1e-4)
        np.testing.assert_allclose(some.hidden, every.hidden, atol=1e-4)


def test_other_layers_later(engine: Engine) -> None:
    """What an earlier call tapped does not matter."""
    both = engine.tap(TOKENS, (1, 4))
    np.testing.assert_array_equal(engine.tap(TOKENS, (4,)).hidden[:, 0], both.hidden[:, 1])


def test_refusals(engine: Engine, pocket: dict[str, Path]) -> None:
    with pytest.raises(RequestError, match=f"layers has {TARGET_LAYERS + 1}, which the target"):
        engine.tap(TOKENS, (1, TARGET_LAYERS + 1))
    with pytest.raises(RequestError, match="n_layers"):
        engine.tap(TOKENS, ())
    with pytest.raises(RequestError, match="top_k"):
        engine.tap(TOKENS, LAYERS, -1)
    with pytest.raises(RequestError, match="first must be between 0 and 150"):
        engine.tap(TOKENS, LAYERS, 1, len(TOKENS) + 1)
    with pytest.raises(RequestError, match="tokens must be at least 1"):
        engine.tap([], LAYERS)
    with (
        Engine(pocket["target"], pocket["dflash"], n_ctx=256, warmup=False) as paired,
        pytest.raises(RequestError, match="without a drafter"),
    ):
        paired.tap(TOKENS[:20], LAYERS)
