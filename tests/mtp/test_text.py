"""MTP layers draft, and change no text: for each architecture, with several slots, and when prompts go on or are cut
back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from dflash_local import Engine, SamplingParams
from dflash_local.draft_options import DraftKind, draft_kind_id
from dflash_local.native import NativeEngine
from tests.fuzz import gguf_image
from tests.parity.f32 import F32
from tests.trees.models import N_VOCAB

from .assistant import path_of
from .models import ASSISTED, NAMES, ROUNDED, without_trunk

Model = Callable[[str], Path]

GREEDY = SamplingParams(temperature=0, ignore_eos=True)
SAMPLED = SamplingParams(temperature=0.8, seed=3, ignore_eos=True)


def words(seed: int, n: int) -> list[int]:
    return [int(word) for word in np.random.default_rng(seed).integers(0, N_VOCAB - 1, n)]


def engine(path: Path, kind: DraftKind) -> Engine:
    """Where a pass rounds differently from one of another width, all is computed in f32: then no token of these texts
    is near enough to another for that."""
    settings = F32 if path.stem in ROUNDED else {}
    layers = path_of(path) if kind == "mtp" else None
    made = Engine(
        path, layers, n_slots=2, n_ctx=1024, n_batch=64, n_ubatch=64, n_threads=1, warmup=False, draft_kind=kind,
        swa_full=path.stem == ASSISTED, **{**settings, "lookup": kind == "lookup"},
    )  # fmt: skip
    assert (made.info["not_bit_exact"] != "") == (path.stem in ROUNDED)
    return made


class Pair:
    """An engine that drafts, and one that only answers."""

    def __init__(self, path: Path) -> None:
        self.plain, self.mtp = engine(path, "lookup"), engine(path, "mtp")

    def answer(self, prompt: list[int], sampling: SamplingParams, n: int) -> list[int]:
        return self.plain.generate(prompt, sampling, max_tokens=n, budget=1, cache_prompt=False).tokens


@pytest.fixture
def pair(model: Model, request: pytest.FixtureRequest) -> Iterator[Pair]:
    made = Pair(model(request.param))
    with made.plain, made.mtp:
        yield made


each = pytest.mark.parametrize("pair", [*NAMES, ASSISTED], indirect=True)


@each
def test_drafted_text_is_plain_text(pair: Pair) -> None:
    assert pair.mtp.info["drafter"]["kind"] == "mtp"
    accepted = 0
    for sampling in (GREEDY, SAMPLED):
        prompt = words(1, 20)
        want = pair.answer(prompt, sampling, 40)
        for budget in (1, 4, 16, "auto"):
            got = pair.mtp.generate(prompt, sampling, max_tokens=40, budget=budget)
            assert got.tokens == want
            assert (got.timings.draft_n > 0) or budget in (1, "auto")
            accepted += got.timings.draft_n_accepted
    assert accepted > 20


@each
def test_slots_do_not_disturb_each_other(pair: Pair) -> None:
    """Of lengths beyond a chunk of the prompt and the window of layers that slide."""
    prompts = [words(seed, n) for seed, n in ((5, 150), (6, 11), (7, 70))]
    running = [pair.mtp.submit(prompt, SAMPLED, max_tokens=30, budget=8) for prompt in prompts]
    for prompt, generation in zip(prompts, running, strict=True):
        got = generation.result()
        assert got.tokens == pair.answer(prompt, SAMPLED, 30)
        assert got.timings.draft_n > 0


@each
def test_prompts_go_on_and_are_cut_back(pair: Pair) -> None:
    prompt = words(8, 90)
    for at, more in ((90, []), (90, words(9, 5)), (60, words(10, 8)), (3, words(11, 40)), (0, words(12, 12))):
        prompt = prompt[:at] + more
        got = pair.mtp.generate(prompt, GREEDY, max_tokens=20, budget=8)
        assert got.tokens == pair.answer(prompt, GREEDY, 20)
        assert got.timings.draft_n > 0
        prompt += got.tokens


@pytest.mark.slow
@each
def test_long_texts(pair: Pair) -> None:
    """Two slots at once, of changing budgets, far beyond windows and compressed cells."""
    for seed in range(4):
        prompts, budgets = [words(seed, 40), words(seed + 10, 200)], [(1, 3, 16)[seed % 3], 8]
        sampling = SamplingParams(temperature=0.3 * seed, seed=seed, ignore_eos=True)
        running = [
            pair.mtp.submit(prompt, sampling, max_tokens=200, budget=budget)
            for prompt, budget in zip(prompts, budgets, strict=True)
        ]
        for prompt, generation in zip(prompts, running, strict=True):
            assert generation.result().tokens == pair.answer(prompt, sampling, 200)


def drafted(path: Path, mtp: Path | None) -> tuple[list[int], int]:
    """A greedy text, and how many of its tokens were drafted."""
    params = {
        "model": str(path),
        "n_ctx": 256,
        "n_threads": 1,
        "warmup": False,
        "draft_kind": draft_kind_id("mtp"),
        "lookup": False,
    }
    native = NativeEngine(params | ({"drafter": str(mtp)} if mtp else {}))
    request = {
        "tokens": words(1, 20),
        "n_predict": 30,
        "budget": 8,
        "sampling": '{"temperature": 0, "ignore_eos": true}',
    }
    native.submit(0, native.prepare(request))
    updates = [update for step in iter(native.step, []) for update in step]
    native.destroy()
    return [token for update in updates for token in update.tokens], sum(update.n_accepted for update in updates)


@pytest.mark.parametrize("name", NAMES)
def test_layers_in_a_file_of_their_own(model: Model, tmp_path: Path, name: str) -> None:
    """They draft what they draft inside the target's file, which may be there without being used."""
    split = tmp_path / f"mtp-{name}.gguf"
    split.write_bytes(without_trunk(gguf_image.read(model(name))).encode()[0])
    inside = drafted(model(name), None)
    assert inside == drafted(model(name), split)
    assert inside[1] > 0
