"""The head of a trained drafter: how many tokens it needs, and a result that may propose only some."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from dflash_local.convert.gguf_metadata import read_model
from dflash_local.errors import RequestError
from dflash_local.train import draft_vocabulary
from dflash_local.train.draft_vocabulary import enough_tokens
from dflash_local.train.drafter_file import D2T
from dflash_local.train.train_settings import TrainSettings, Watcher
from dflash_local.train.training import train
from tests.train.test_run import Listener, check_drafter


def test_enough_tokens() -> None:
    """Those that make up 99.9% of the text, in whole thousands."""
    assert enough_tokens(Counter(dict.fromkeys(range(100), 1000)), 50_000) == 4096
    often, seldom = dict.fromkeys(range(6000), 1000), dict.fromkeys(range(6000, 11000), 1)
    assert enough_tokens(Counter(often | seldom), 50_000) == 6144
    assert enough_tokens(Counter(often | seldom), 12_000) is None  # most of the vocabulary
    assert enough_tokens(Counter(), 50_000) == 4096


def test_result_with_a_reduced_head(
    settings: Callable[..., TrainSettings], pocket: dict[str, Path], tmp_path: Path
) -> None:
    asked = settings(draft_vocab=500)
    train(asked, Watcher())
    tokens = read_model(asked.output)[1][D2T]
    assert tokens.shape == (500,)
    check_drafter(asked)
    for init, n_tokens, words in (
        (asked.init, 5000, "5000 exceeds the 1699 tokens"),
        (asked.output, 400, "400 is for a whole drafter: this one proposes 500 tokens already"),
        (pocket["dflash2"], 400, "400 is not for a DFlash 2 drafter"),
    ):
        listener = Listener()
        with pytest.raises(RequestError, match=f"--draft-vocab {words}"):
            train(settings(init=init, draft_vocab=n_tokens, work=tmp_path / "other", output=tmp_path / "o"), listener)
        assert not listener.stages  # before hours of answers


def test_the_faster_head_is_kept(settings: Callable[..., TrainSettings], monkeypatch: pytest.MonkeyPatch) -> None:
    """Unasked, both heads are measured, and what they reached is said."""
    monkeypatch.setattr(draft_vocabulary, "_LEAST", 400)
    monkeypatch.setattr(draft_vocabulary, "_STEP", 100)
    asked, listener = settings(), Listener()
    result = train(asked, listener)
    (note,) = (note for note in listener.notes if "the faster one is kept" in note)
    few, every = map(float, re.findall(r"(\d+) tok/s", note))
    assert (D2T in read_model(asked.output)[1]) == (few > every)
    assert round(result.after.drafted) == max(few, every)
