"""The pocket-VL: it computes what `transformers` computes, sees what is drawn, and has drafts after pictures."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.pocket_vl import pictures, scenes
from benchmarks.pocket_vl.chats import Chat, Picture, Turn
from benchmarks.pocket_vl.scene_prompts import messages
from dflash_local import Engine, Generation, SamplingParams, bench
from dflash_local.bench import Run
from dflash_local.demo.pocket import SeeingPair, seeing_pair
from dflash_local.native import StepUpdate
from dflash_local.train.evaluation import acceptance_length
from tests.patience import PATIENCE

UNIT = pictures.UNIT
LAYERS = (3, 4, 5)  # behind those to which the tower adds
TOP = 8
WORDS = "Describe the picture."


@pytest.fixture(scope="module")
def pair() -> SeeingPair:
    return seeing_pair()


@pytest.fixture(scope="module")
def engine(pair: SeeingPair) -> Iterator[Engine]:
    with Engine(pair.target, mmproj=pair.mmproj, n_ctx=1024, n_threads=1, warmup=False, lookup=False) as engine:
        yield engine


def drawn(seed: int, width: int, height: int) -> Picture:
    """A held-out scene in the corner of a picture of that size, in units."""
    picture = scenes.draw(scenes.scene(seed))
    canvas = np.full((height * UNIT, width * UNIT, 3), scenes.GROUNDS[seed % 3], np.uint8)
    part = picture[: height * UNIT, : width * UNIT]
    canvas[: part.shape[0], : part.shape[1]] = part
    return canvas


@pytest.mark.parametrize(
    "sizes",
    [(), ((3, 3),), ((4, 3),), ((3, 5),), ((2, 4),), ((9, 2),), ((8, 8),), ((3, 3), (5, 4)), ((4, 4), (4, 4))],
    ids=lambda sizes: "-".join(f"{width}x{height}" for width, height in sizes) or "text",
)
@pytest.mark.parametrize("before", [True, False], ids=["first", "last"])
def test_transformers_computes_the_same(
    engine: Engine, pair: SeeingPair, sizes: tuple[tuple[int, int], ...], before: bool
) -> None:
    """Hidden states of each row, of words and of pictures, and distributions behind the pictures. Weights are f16, and
    so are ggml's activations; its GELU is a table."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from benchmarks.pocket_vl.chats import PAD, collate
    from benchmarks.pocket_vl.pocket_target import hidden_states
    from benchmarks.pocket_vl.target_files import read_target

    shown = tuple(drawn(seed, *size) for seed, size in enumerate(sizes))
    chat = Chat((Turn(shown, scenes.Question("describe", WORDS, ""), before),))
    prompt = engine.chat_tokens(engine.apply_chat({"messages": messages(chat)}))
    tokens = [*prompt, *engine.tokenize("The picture shows 2 shapes: a small red")]
    assert sum(token < 0 for token in tokens) == sum(width * height for width, height in sizes)
    first = len(prompt) - next((at for at, token in enumerate(reversed(prompt)) if token < 0), len(prompt))
    ours = engine.tap(tokens, LAYERS, TOP, first)

    (pad,) = engine.tokenize(PAD)
    ids = [pad if token < 0 else token for token in tokens]
    reference = read_target(pair.target, pair.mmproj)
    with torch.no_grad():
        out = hidden_states(reference, collate([(ids, ids)], shown), output_hidden_states=True)
        wanted = reference.lm_head(out.last_hidden_state).log_softmax(-1)[0, first:].numpy()
    for at, layer in enumerate(LAYERS):
        theirs = out.hidden_states[layer][0].numpy()
        assert np.abs(ours.hidden[:, at] - theirs).max() < 0.01 * np.abs(theirs).max()
    there = np.take_along_axis(wanted, ours.ids.astype(np.int64), 1)
    assert np.abs(there - ours.log_probs).max() < 0.05
    sure = np.sort(wanted, 1)[:, -1] - np.sort(wanted, 1)[:, -2] > 0.05
    assert (ours.ids[sure, 0] == wanted.argmax(1)[sure]).all()


def test_it_sees(engine: Engine) -> None:
    """Of held-out scenes, at least nine in ten questions are answered with the true words."""
    right = asked = 0
    for seed in range(12):
        scene = scenes.scene(seed)
        for question in scenes.questions(scene, seed):
            chat = Chat((Turn((scenes.draw(scene),), question),))
            answer = engine.chat(messages(chat), temperature=0, max_tokens=120).message["content"]
            right += answer == question.answer
            asked += 1
    assert right >= 0.9 * asked


def test_pictures_decide(engine: Engine) -> None:
    """The same words about two pictures have two answers."""
    first, second = scenes.scene(1), scenes.scene(2)
    answers = set()
    for scene in (first, second):
        chat = Chat((Turn((scenes.draw(scene),), scenes.Question("describe", WORDS, "")),))
        answers.add(engine.chat(messages(chat), temperature=0, max_tokens=120).message["content"])
    assert len(answers) == 2


def test_drafts_after_pictures(pair: SeeingPair) -> None:
    """The text is the undrafted one, and blocks are accepted as well as after words alone."""

    def runs(prompts: list[dict[str, Any]], budget: int) -> list[Run]:
        greedy = SamplingParams(temperature=0)
        return [bench.answer(drafting, prompt, greedy, 96, budget, lookup=False) for prompt in prompts]

    about: list[dict[str, Any]] = []
    for seed in range(8):
        scene = scenes.scene(seed)
        about += [
            {"messages": messages(Chat((Turn((scenes.draw(scene),), question),)))}
            for question in scenes.questions(scene, seed)
            if question.kind in ("describe", "list", "side")
        ]
    with Engine(
        pair.target, pair.drafter, mmproj=pair.mmproj, n_ctx=1024, n_threads=1, warmup=False, lookup=False
    ) as drafting:
        drafted, plain = runs(about, 16), runs(about, 1)
    assert [run.text for run in drafted] == [run.text for run in plain]
    assert acceptance_length(drafted) > 3


def test_a_slot_that_ends_within_a_picture(pair: SeeingPair, tmp_path: Path) -> None:
    """Its client has left: what is saved is the text before the picture, which can be restored."""
    canvas = np.full((8 * UNIT, 8 * UNIT, 3), 128, np.uint8)
    chat = Chat((Turn((canvas,), scenes.Question("describe", WORDS, ""), True),))
    with Engine(
        pair.target, mmproj=pair.mmproj, n_ctx=1024, n_ubatch=16, n_threads=1, warmup=False, lookup=False
    ) as engine:
        prompt = engine.chat_tokens(engine.apply_chat({"messages": messages(chat)}))
        rows = [at for at, token in enumerate(prompt) if token < 0]
        step, running = engine._native.step, Future[Generation]()

        def step_and_leave() -> list[StepUpdate]:
            updates = step()
            if any(rows[0] < update.n_past <= rows[-1] for update in updates):
                running.result(PATIENCE).cancel()
            return updates

        engine._native.step = step_and_leave  # type: ignore[method-assign]
        running.set_result(engine.submit(prompt, SamplingParams(temperature=0), max_tokens=10))
        assert running.result().result(PATIENCE).finish_reason == "cancelled"
        assert engine.save_slot(0, tmp_path / "slot").n_tokens == rows[0] > 0
        assert engine.restore_slot(0, tmp_path / "slot").n_tokens == rows[0]
        answer = engine.generate(prompt, SamplingParams(temperature=0), max_tokens=10)
        assert answer.cached_tokens == rows[0]
        assert answer.tokens == engine.generate(prompt, temperature=0, max_tokens=10, cache_prompt=False).tokens
