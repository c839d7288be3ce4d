"""The head of a trained drafter: how many tokens it needs, and a result that may propose only some."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from dflash_local.convert.gguf_metadata import read_model
from dflash_local.errors import RequestError
from dflash_local.train.draft_vocabulary import enough_tokens
from dflash_local.train.drafter_file import D2T
from dflash_local.train.train_settings import TrainSettings, Watcher
from dflash_local.train.training import train
from tests.train.test_run import check_drafter


def test_enough_tokens() -> None:
    """Those that make up 99.9% of the text, in whole thousands."""
    assert enough_tokens(Counter(dict.fromkeys(range(100), 1000)), 50_000) == 4096
    often, seldom = dict.fromkeys(range(6000), 1000), dict.fromkeys(range(6000, 11000), 1)
    assert enough_tokens(Counter(often | seldom), 50_000) == 6144
    assert enough_tokens(Counter(often | seldom), 12_000) is None  # most of the vocabulary
    assert enough_tokens(Counter(), 50_000) == 4096


def test_result_with_a_reduced_head(settings: Callable[..., TrainSettings]) -> None:
    asked = settings(draft_vocab=500)
    train(asked, Watcher())
    tokens = read_model(asked.output)[1][D2T]
    assert tokens.shape == (500,)
    check_drafter(asked)
    with pytest.raises(RequestError, match="--draft-vocab 5000 exceeds"):
        train(settings(draft_vocab=5000), Watcher())
