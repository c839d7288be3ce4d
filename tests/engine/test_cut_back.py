"""Conversations that are cut back where their memory cannot go to any token: what is kept gives the probabilities of a
fresh read, from the farthest place on that it claims to reach, and no state of another text comes back."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dflash_local.engine import Completion, Engine, SamplingParams
from tests.trees import models

ENDLESS = SamplingParams(temperature=0, ignore_eos=True)
Make = Callable[..., Engine]


@pytest.fixture(scope="module")
def make(pocket: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Make]:
    """An engine over a tiny random target, or the hybrid pocket pair; closed at the end."""
    engines: list[Engine] = []
    folder = tmp_path_factory.mktemp("targets")

    def create(name: str, **options: Any) -> Engine:
        files = (
            (pocket["hybrid-target"], pocket["hybrid-dflash"])
            if name == "hybrid"
            else (models.write(name, folder / f"{name}.gguf"), None)
        )
        settings: dict[str, Any] = {"n_ctx": 1024, "n_slots": 1, "n_threads": 1, "n_batch": 16, "n_ubatch": 16,
                                    "warmup": False, "n_checkpoints": 2}  # fmt: skip
        engines.append(Engine(*files, **{**settings, **options}))
        return engines[-1]

    yield create
    for engine in engines:
        engine.close()


def words(engine: Engine, seed: int, n: int) -> list[int]:
    rng = random.Random(seed)
    n_vocab = int(engine.info["target"]["n_vocab"])
    return [rng.randrange(n_vocab // 5, n_vocab - 9) for _ in range(n)]


def say(engine: Engine, tokens: list[int], n: int = 3, **options: Any) -> Completion:
    return engine.generate(tokens, ENDLESS, max_tokens=n, n_probs=3, **{"lookup": False, **options})


def check(engine: Engine, prompt: list[int], n: int = 3) -> int:
    """Returns how many tokens were kept. Weights of F32 have no row-invariant kernels: some 1e-5; a token that is
    missing in the window makes 1e-3 and more."""
    done = say(engine, prompt, n)
    fresh = say(engine, prompt, n, cache_prompt=False)
    assert done.tokens == fresh.tokens and done.probs and fresh.probs
    values, expected = ([prob.value for prob in answer.probs or []] for answer in (done, fresh))
    assert values == pytest.approx(expected, abs=1e-4)
    return done.cached_tokens


@pytest.mark.parametrize("n_new", [1, 7])
@pytest.mark.parametrize("n_kept", [1, 4, 6])
def test_snapshots_of_the_last_pass_alone(make: Make, n_kept: int, n_new: int) -> None:
    """A hybrid without tapes: after passes of one row each, the other snapshots are of passes before them."""
    engine = make("lfm2")
    text = words(engine, 1, 90)
    answer = say(engine, text, 8, lookup=True).tokens
    assert check(engine, text) == 74  # the checkpoint
    say(engine, text, 8, lookup=True)
    assert check(engine, text + answer[:n_kept] + words(engine, 2, n_new)) == 74


def test_a_slot_that_went_back_is_copied_as_it_is(make: Make) -> None:
    """Of a hybrid without tapes, where the last pass of an answer drafted in vain: two tokens in random order, which
    quotations rarely guess, up to a random end."""
    engine = make("lfm2", n_slots=2, share_ctx=True)
    text = words(engine, 1, 90)
    bias = {**dict.fromkeys(map(str, text[:2]), 100.0), str(text[2]): 98.0}
    stop = engine.token_bytes(text[2:3])[0].decode()
    n_vain = 0
    for seed in range(20):
        sampling = SamplingParams(seed=seed, logit_bias=bias)
        answer = engine.generate(text, sampling, stop=[stop], max_tokens=300, id_slot=0, budget=8, trace=True)
        n_vain += answer.steps[-1].n_nodes > answer.acceptance_lengths[-1]
        turn = text + answer.tokens[:-1] + words(engine, 2, 2)
        both = [say(engine, turn, id_slot=1, cache_prompt=caches) for caches in (True, False)]
        values = [[prob.value for prob in completion.probs or []] for completion in both]
        assert len(values[0]) == 3 and values[0] == pytest.approx(values[1], abs=1e-4), seed
        engine.erase_slot(1)
    assert n_vain > 5


WINDOWS = ["gemma4", "gpt-oss"]


@pytest.mark.parametrize("name", WINDOWS)
def test_a_window_is_kept_as_far_as_it_reaches(make: Make, name: str) -> None:
    """No nearer and no farther: at the first cut that is kept whole all of the window is still there."""
    engine = make(name, n_checkpoints=0)
    text, more = words(engine, 1, 500), words(engine, 2, 5)

    def kept(cut: int) -> int:
        say(engine, text, 1, cache_prompt=False)
        return check(engine, text[:cut] + more)

    low, high = 1, 500  # kept(low) == 0, kept(high) == high
    while high - low > 1:
        middle = (low + high) // 2
        assert kept(middle) in (0, middle)
        say(engine, text, 1, cache_prompt=False)
        low, high = (low, middle) if say(engine, text[:middle] + more).cached_tokens else (middle, high)
    assert models.WINDOW < high < 500 - models.WINDOW
    assert (kept(low), kept(high), kept(high + 1)) == (0, high, high + 1)


@pytest.mark.parametrize("name", WINDOWS)
def test_a_copy_of_a_window_goes_back_by_one_token(make: Make, name: str, tmp_path: Path) -> None:
    engine = make(name, n_checkpoints=0)
    text, more = words(engine, 3, 300), words(engine, 4, 5)
    say(engine, text, 1, cache_prompt=False)
    engine.save_slot(0, tmp_path / "slot")
    for back, kept in ((0, 300), (1, 299), (2, 0), (3, 0)):
        engine.restore_slot(0, tmp_path / "slot")
        say(engine, words(engine, 5, 700), 1)  # to the host, which gives it back
        assert check(engine, text[: 300 - back] + more) == kept, back


@pytest.mark.parametrize("name", WINDOWS)
def test_a_copy_that_cannot_go_back_gives_way_to_what_the_slot_holds(make: Make, name: str) -> None:
    engine = make(name, n_checkpoints=0)
    text, beginning = words(engine, 10, 300), words(engine, 11, 5)
    say(engine, text, 1, cache_prompt=False)
    say(engine, text[:20] + beginning, 1)  # the whole text to the host; of the slot's, no window has passed
    assert check(engine, text[:298] + words(engine, 12, 5)) == 20


@pytest.mark.parametrize("name", ["hybrid", "gemma4"])
def test_a_checkpoint_of_another_text_is_none(make: Make, name: str) -> None:
    """Cut back to the first of two checkpoints, and grown past the place of the second with other words."""
    engine = make(name, n_batch=64, n_ubatch=64)
    first = words(engine, 6, 200)
    say(engine, first, 1)
    second = first + words(engine, 7, 300)
    say(engine, second, 1)
    other = second[:210] + words(engine, 8, 10)  # too short for a checkpoint of its own
    grown = other + say(engine, other, 560).tokens
    assert check(engine, grown[:495] + words(engine, 9, 20)) == 184
