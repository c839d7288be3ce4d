"""Text that was drafted after media is plain text, bit for bit, whatever holds the beginning."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dflash_local import Engine, SamplingParams
from dflash_local.errors import RequestError
from dflash_local.media.media_prompt import MediaPrompt
from dflash_local.media.medium import Medium

from . import samples, tiny_projectors

WORDS = "<img></img><vision></vision><sound><img></img><vision></vision>"  # of the tiny tokenizer, one token each
GREEDY = SamplingParams(temperature=0)
# M-RoPE with deepstack; M-RoPE; rows that see each other; a row for each position; several media of one image; audio.
PROJECTORS = ("qwen3vl_merger", "qwen2vl_merger", "gemma3", "mlp", "resampler", "qwen2a")


def noise(seed: int, width: int = 64, height: int = 48) -> Medium:
    """A picture of random pixels."""
    data = np.random.default_rng(seed).integers(0, 255, (height, width, 3), np.uint8).tobytes()
    return Medium("image", data, width, height, sha256(data).digest())


def hiss(seed: int) -> Medium:
    """A second of noise."""
    rng = random.Random(seed)
    data = samples.wav(samples=rng.randbytes(32_000))
    return Medium("audio", data, 0, 0, sha256(data).digest())


class Reader:
    """An engine over a tiny target, and prompts with media for it."""

    def __init__(self, engine: Engine, *, deepstack: bool) -> None:
        self.engine, self.deepstack = engine, deepstack

    def prompt(self, *seeds: int, end: str = WORDS) -> MediaPrompt:
        abilities = self.engine.abilities
        media = [hiss(seed) if abilities.audio else noise(seed) for seed in seeds]
        shown = "".join(f"{abilities.marker}<sound><img>" for _ in seeds)
        prompt = self.engine.tokenize_prompt(WORDS + shown + end, media)
        assert isinstance(prompt, MediaPrompt)
        return prompt

    def plain(self, tokens: Sequence[int], sampling: SamplingParams = GREEDY) -> list[int]:
        return self.answer(tokens, sampling, budget=1, cache_prompt=False)

    def answer(self, tokens: Sequence[int], sampling: SamplingParams = GREEDY, **options: Any) -> list[int]:
        return self.engine.submit(tokens, max_tokens=32, sampling=sampling, **options).result().tokens


@pytest.fixture(scope="module", params=PROJECTORS)
def reader(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    files = tiny_projectors.write(request.param, tmp_path_factory.mktemp("tiny"))
    options: dict[str, Any] = {"n_slots": 3, "n_ctx": 6144, "n_threads": 2, "warmup": False, "cost_cache": False}
    with Engine(files.model, mmproj=files.mmproj, **options) as engine:
        yield Reader(engine, deepstack=request.param.startswith("qwen3vl"))


def test_drafted_text_is_plain_text(reader: Reader) -> None:
    for seeds in ((1,), (1, 2), (3, 3)):
        prompt = reader.prompt(*seeds)
        for sampling in (GREEDY, SamplingParams(temperature=1, seed=7)):
            plain = reader.plain(prompt, sampling)
            for budget in (4, 32):
                assert reader.answer(prompt, sampling, budget=budget, cache_prompt=False) == plain


def test_media_count(reader: Reader) -> None:
    other, same = reader.prompt(4), reader.prompt(5)
    assert {token for token in other if token < 0} != {token for token in same if token < 0}
    assert reader.prompt(4).tokens == other.tokens
    assert sum(other.rows.values()) == sum(token < 0 for token in other) > 0


def test_a_follow_up_reads_no_medium_again(reader: Reader) -> None:
    first, follow_up = reader.prompt(6, 7), reader.prompt(6, 7, end=WORDS + "<sound>" + WORDS)
    reader.answer(first)
    completion = reader.engine.submit(follow_up, max_tokens=32, sampling=GREEDY).result()
    assert len(first) - 1 <= completion.timings.cache_n < len(follow_up)
    assert completion.tokens == reader.plain(follow_up)


def test_a_prompt_that_differs_within_a_medium_reads_it_whole(reader: Reader) -> None:
    first, other = reader.prompt(8, 9), reader.prompt(8, 10)
    reader.answer(first)
    completion = reader.engine.submit(other, max_tokens=32, sampling=GREEDY).result()
    assert 0 < completion.timings.cache_n <= other.tokens.index(min(other.tokens))
    assert completion.tokens == reader.plain(other)


def test_slots_that_share_a_picture(reader: Reader) -> None:
    prompts = [reader.prompt(11, end=WORDS + "<sound>" * k) for k in range(5)]
    plain = [reader.plain(prompt) for prompt in prompts]
    for _ in range(2):
        running = [reader.engine.submit(prompt, max_tokens=32, sampling=GREEDY) for prompt in prompts]
        assert [generation.result().tokens for generation in running] == plain


def test_a_cancelled_prompt_leaves_what_can_be_reused(reader: Reader) -> None:
    prompt = reader.prompt(12, 13)
    plain = reader.plain(prompt)
    for _ in range(4):
        reader.engine.submit(prompt, max_tokens=32, sampling=GREEDY).cancel()
        assert reader.answer(prompt) == plain


def test_slot_files(reader: Reader, tmp_path: Path) -> None:
    prompt = reader.prompt(14, 15)
    completion = reader.engine.submit(prompt, max_tokens=32, sampling=GREEDY, id_slot=1).result()
    saved = reader.engine.save_slot(1, tmp_path / "slot")
    reader.engine.erase_slot_soon(1).result()
    reader.answer(reader.prompt(16), id_slot=1)
    assert reader.engine.restore_slot(1, tmp_path / "slot").n_tokens == saved.n_tokens
    again = reader.engine.submit(prompt, max_tokens=32, sampling=GREEDY, id_slot=1).result()
    assert again.timings.cache_n == len(prompt) - 1
    assert again.tokens == completion.tokens


def test_a_layer_that_cannot_be_tapped_is_refused(reader: Reader) -> None:
    """With deepstack the first layer's input is wider than the model."""
    prompt = reader.prompt(17)
    hidden, _, _ = reader.engine.tap(prompt, [1], 0, 0)
    assert len(hidden) == len(prompt) and np.isfinite(hidden).all()
    if reader.deepstack:
        with pytest.raises(RequestError, match="does not offer"):
            reader.engine.tap(prompt, [0], 0, 0)
