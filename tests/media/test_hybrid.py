"""A recurrent target with M-RoPE reads pictures, and its drafter and MTP layers draft after them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from dflash_local import Engine, SamplingParams
from dflash_local.demo import pocket
from tests.gguf_files import rewritten

from . import tiny_projectors
from .test_drafts import noise

QUESTIONS = ("Write a function that doubles a price.", "What is 48 plus 24?", "Write a poem about rain.")
SAMPLINGS = (SamplingParams(temperature=0), SamplingParams(temperature=1, seed=5))


@pytest.fixture(scope="module", params=["dflash", "dflash with sections", "mtp"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    projector = tmp_path_factory.mktemp("tiny") / "mmproj.gguf"
    projector.write_bytes(tiny_projectors.projector("qwen2vl_merger-256").encode()[0])
    target, own = pocket.bundled_pair(pocket.HYBRID)
    drafter = pocket.mtp_layer() if request.param == "mtp" else own
    if request.param == "dflash with sections":
        sections = {"dflash.rope.dimension_sections": [12, 10, 10, 0]}
        drafter = rewritten(own, projector.with_name("drafter.gguf"), sections)
    with Engine(target, drafter, mmproj=projector, n_ctx=4096, n_slots=2, n_threads=2, warmup=False) as engine:
        yield engine


def prompt(engine: Engine, question: str, *seeds: int) -> Sequence[int]:
    parts = [{"type": "image", "image": noise(seed, 96, 64)} for seed in seeds]
    chat = engine.apply_chat({"messages": [{"role": "user", "content": [*parts, {"type": "text", "text": question}]}]})
    return engine.tokenize_prompt(chat.prompt, chat.media)


def test_drafted_text_is_plain_text(engine: Engine) -> None:
    for number, question in enumerate(QUESTIONS):
        tokens = prompt(engine, question, *range(number + 1))
        for sampling in SAMPLINGS:
            plain = engine.submit(tokens, max_tokens=40, sampling=sampling, budget=1, cache_prompt=False).result()
            drafted = engine.submit(tokens, max_tokens=40, sampling=sampling, budget=16, cache_prompt=False).result()
            assert drafted.tokens == plain.tokens
            assert drafted.timings.n_passes < plain.timings.n_passes


def test_a_follow_up_goes_on_behind_the_picture(engine: Engine) -> None:
    first = prompt(engine, QUESTIONS[0] + " And test it." * 8, 7)
    engine.submit(first, max_tokens=8).result()
    again = engine.submit(first, max_tokens=40, sampling=SAMPLINGS[0]).result()
    assert again.timings.cache_n > len(first) // 2
    plain = engine.submit(first, max_tokens=40, sampling=SAMPLINGS[0], budget=1, cache_prompt=False).result()
    assert again.tokens == plain.tokens


def test_slot_files(engine: Engine, tmp_path: Path) -> None:
    tokens = prompt(engine, QUESTIONS[1], 8, 9)
    answer = engine.submit(tokens, max_tokens=24, sampling=SAMPLINGS[0], id_slot=0).result()
    saved = engine.save_slot(0, tmp_path / "slot")
    engine.submit(prompt(engine, QUESTIONS[2]), max_tokens=8, id_slot=0).result()
    assert engine.restore_slot(0, tmp_path / "slot").n_tokens == saved.n_tokens
    again = engine.submit(tokens, max_tokens=24, sampling=SAMPLINGS[0], id_slot=0).result()
    assert again.tokens == answer.tokens
