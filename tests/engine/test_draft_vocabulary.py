"""--draft-vocab: a drafter that shares the target's output projection proposes the tokens of the texts."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gguf import GGMLQuantizationType as Type

from dflash_local import Engine, RequestError
from dflash_local.convert.gguf_metadata import read_header
from dflash_local.convert.requantize import ReducedHead, requantize
from dflash_local.errors import DFlashError
from dflash_local.generation import Completion
from tests.convert import samples
from tests.gguf_files import quantized, rewritten

PROMPT = "<|im_start|>user\nWrite a Python context manager that logs the size.<|im_end|>\n<|im_start|>assistant\n"
N_VOCAB = 1699
OPTIONS: dict[str, Any] = {"n_ctx": 2048, "n_threads": 1, "budget": 8, "warmup": False, "lookup": False}


def answers(engine: Engine, n: int = 1, max_tokens: int = 120) -> Iterator[Completion]:
    for _ in range(n):
        yield engine.generate(PROMPT, max_tokens=max_tokens, temperature=0, ignore_eos=True)


def rate(completion: Completion) -> float:
    """AL."""
    return completion.timings.n_steps / completion.timings.n_passes


@pytest.fixture(params=["f16", "q6_k", "split"])
def target(request: pytest.FixtureRequest, pocket: dict[str, Path], tmp_path: Path) -> Path:
    """Targets whose projection is a plain matrix, packed for products, and in the second part of a split file."""
    if request.param == "split":
        return samples.write_split(pocket["target"], tmp_path / "t", "output.weight".__eq__, 64)
    if request.param == "q6_k":
        head = read_header(pocket["target"])[1]["output.weight"]
        tensors = {"output.weight": quantized(head, Type.Q6_K)}
        return rewritten(pocket["target"], tmp_path / "target.gguf", tensors=tensors)
    return pocket["target"]


def test_drafts_are_those_of_a_file_with_these_tokens(pocket: dict[str, Path], target: Path, tmp_path: Path) -> None:
    """Before 256 tokens of text they are those with the lowest ids, which those that end a text are, too."""
    file = tmp_path / "drafter.gguf"
    requantize(pocket["dflash"], file, None, head=ReducedHead.of(range(500), target))
    with Engine(target, pocket["dflash"], draft_vocab=500, **OPTIONS) as engine:
        assert engine.info["drafter"]["n_vocab_draft"] == 500
        ours = next(answers(engine))
        plain = engine.generate(PROMPT, max_tokens=120, temperature=0, ignore_eos=True, budget=1)
    with Engine(target, file, **OPTIONS) as engine:
        assert engine.info["drafter"]["n_vocab_draft"] == 500
        theirs = next(answers(engine))
    assert ours.tokens == theirs.tokens == plain.tokens
    assert ours.acceptance_lengths == theirs.acceptance_lengths
    assert sum(ours.acceptance_lengths) > 10


@pytest.mark.parametrize("drafter", ["dflash", "dflash2"])
def test_it_follows_the_texts(pocket: dict[str, Path], drafter: str) -> None:
    """150 tokens of 1,699: none of the lowest ids is a word. After some text the drafter has what it needs."""
    lengths = {}
    for draft_vocab in (150, "all"):
        with Engine(pocket["target"], pocket[drafter], draft_vocab=draft_vocab, **OPTIONS) as engine:
            lengths[draft_vocab] = [rate(answer) for answer in answers(engine, 5)]
    first, *_, last = lengths[150]
    assert last > 1.5 * first
    assert last > 0.8 * lengths["all"][-1]


@pytest.mark.parametrize("other", [False, True])
def test_a_file_that_is_gone_costs_nothing_but_drafts(pocket: dict[str, Path], other: bool, tmp_path: Path) -> None:
    """So does one in whose place another lies, whose rows would be of no use."""
    target = tmp_path / "target.gguf"
    shutil.copy(pocket["target"], target)
    with Engine(target, pocket["dflash"], draft_vocab=150, **OPTIONS) as engine:
        size = target.stat().st_size
        target.unlink()
        if other:
            target.write_bytes(bytes(size))
        lengths = [rate(answer) for answer in answers(engine, 4)]
        drafted = next(answers(engine))
        plain = engine.generate(PROMPT, max_tokens=120, temperature=0, ignore_eos=True, budget=1)
    assert drafted.tokens == plain.tokens
    assert max(lengths) - min(lengths) < 0.05


def test_small_vocabularies_stay_whole(pocket: dict[str, Path]) -> None:
    for draft_vocab in ("auto", "all", 10_000):
        with Engine(pocket["target"], pocket["dflash"], draft_vocab=draft_vocab, **OPTIONS) as engine:
            assert engine.info["drafter"]["n_vocab_draft"] == N_VOCAB


@pytest.mark.parametrize("value", [0, 7, -1, True, 1.5, "none", None, 2**31])
def test_wrong_values(pocket: dict[str, Path], value: Any) -> None:
    with pytest.raises(RequestError, match="draft_vocab"):
        Engine(pocket["target"], pocket["dflash"], draft_vocab=value, **OPTIONS)


def test_kinds_that_need_all_tokens_say_so(pocket: dict[str, Path]) -> None:
    with pytest.raises(DFlashError, match="draft_vocab is 500, but DSpark drafters need all tokens"):
        Engine(pocket["target"], pocket["dspark"], draft_vocab=500, **OPTIONS)
    with Engine(pocket["target"], pocket["dspark"], **OPTIONS) as engine:
        assert engine.info["drafter"]["n_vocab_draft"] == N_VOCAB


def test_fewer_tokens_than_candidates_are_refused(pocket: dict[str, Path], tmp_path: Path) -> None:
    file = rewritten(pocket["dflash2"], tmp_path / "drafter.gguf", keys={"dflash.selector_top_k": 12})
    with pytest.raises(DFlashError, match="draft_vocab is 8, fewer than the 12 candidates"):
        Engine(pocket["target"], file, draft_vocab=8, **OPTIONS)
    with Engine(pocket["target"], file, draft_vocab=12, **OPTIONS) as engine:
        assert engine.info["drafter"]["n_vocab_draft"] == 12


def test_a_drafter_with_a_head_keeps_it(pocket: dict[str, Path], tmp_path: Path) -> None:
    file = tmp_path / "drafter.gguf"
    requantize(pocket["dflash"], file, None, head=ReducedHead.of(range(600), pocket["target"]))
    with pytest.raises(DFlashError, match="with an output projection of their own keep its tokens"):
        Engine(pocket["target"], file, draft_vocab=500, **OPTIONS)
