"""While a picture is encoded, another slot goes on: the encoder computes for a part of a step's time, then it waits.

What is measured is what the process computes between two steps, in seconds of its CPUs: with one thread either the
encoder computes or a step, and what else the machine does adds little.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dflash_local.engine import Engine
from dflash_local.media.image_file import read_image
from dflash_local.sampling import SamplingParams
from tests.fuzz.media.files import noise
from tests.media.samples import saved
from tests.patience import wait_until
from tests.projector_files import projector_file

pytestmark = [pytest.mark.slow, pytest.mark.timing]

LAYERS, SIDE = 40, 256  # of an encoder that takes as long as hundreds of steps
STEPS = 100  # of the other slot alone, which are measured before
GREEDY = SamplingParams(temperature=0, ignore_eos=True)


class Clock:
    """Counts the seconds of CPU between the ends of an engine's steps, until it is stopped."""

    def __init__(self, engine: Engine) -> None:
        self._step, self._last, self.pauses = engine._native.step, time.process_time(), list[float]()
        engine._native.step = self._timed  # type: ignore[method-assign]

    def _timed(self, *args: Any) -> Any:
        updates = self._step(*args)
        now = time.process_time()
        self.pauses.append(now - self._last)
        self._last = now
        return updates


@pytest.fixture(scope="module")
def engine(pocket: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    projector = projector_file(tmp_path_factory.mktemp("deep") / "mmproj.gguf", layers=LAYERS, image=SIDE)
    options: dict[str, Any] = {"n_threads": 1, "n_threads_batch": 1, "lookup": False, "cost_cache": False}
    with Engine(pocket["target"], mmproj=projector, n_ctx=8192, n_slots=2, **options) as engine:
        yield engine


SEEDS = itertools.count(1)


def prompt(engine: Engine) -> Sequence[int]:
    """About a picture that no test before has encoded."""
    picture = read_image(saved(noise(SIDE, SIDE, seed=next(SEEDS))), "image")
    return engine.tokenize_prompt(f"Look: {engine.abilities.marker}", [picture])


def test_a_picture_that_nobody_reads_is_not_encoded_to_its_end(engine: Engine) -> None:
    start = time.process_time()
    engine.submit(prompt(engine), GREEDY, max_tokens=1).result()
    encoding = time.process_time() - start
    first, second = prompt(engine), prompt(engine)
    start = time.process_time()
    left = engine.submit(first, GREEDY, max_tokens=1)
    wait_until(lambda: time.process_time() - start > encoding / 8)
    left.cancel()
    engine.submit(second, GREEDY, max_tokens=1).result()
    assert time.process_time() - start < 1.6 * encoding


def test_a_picture_is_encoded_for_who_comes_while_it_is_cancelled(engine: Engine) -> None:
    picture = prompt(engine)
    options: dict[str, Any] = {"max_tokens": 4, "cache_prompt": False}
    answer = engine.submit(picture, GREEDY, **options).result()
    left = engine.submit(picture, GREEDY, **options)
    time.sleep(0.05)
    left.cancel()
    assert engine.submit(picture, GREEDY, **options).result().tokens == answer.tokens


def test_pauses_of_other_slots(engine: Engine) -> None:
    clock, start = Clock(engine), time.process_time()
    engine.submit(prompt(engine), GREEDY, max_tokens=1).result()
    encoding = time.process_time() - start
    layer = encoding / LAYERS  # an op is a part of it: the longest, of attention, about half

    other = engine.submit(engine.tokenize("Once upon a time"), GREEDY, max_tokens=3800)
    wait_until(lambda: other.n_tokens >= 8)
    clock.pauses.clear()
    wait_until(lambda: len(clock.pauses) >= STEPS)
    steps = clock.pauses[:STEPS]
    clock.pauses.clear()
    engine.submit(prompt(engine), GREEDY, max_tokens=1).result()
    pauses = clock.pauses[1:]
    assert not other.done, "the other slot must write for longer"
    other.cancel()
    del pauses[int(np.argmax(pauses)) :]  # the pass that reads the picture's rows, and what came after it
    for name, found in (("alone", steps), ("meanwhile", pauses)):
        usual, most = 1000 * np.median(found), 1000 * max(found)
        print(f"{name}: {len(found)} steps, usually {usual:.2f} ms apart, at most {most:.2f} ms")
    print(f"encoding takes {encoding:.2f} s, a layer of it {1000 * layer:.2f} ms")
    assert encoding > 100 * np.median(steps), "the encoder must take longer"  # which no speed of a machine decides
    assert len(pauses) > LAYERS
    # Of CPU: of the encoder's thread and of the step's. If steps waited for its ops, half of a layer.
    assert np.median(pauses) < 2 * np.median(steps) + layer / 4
    assert np.quantile(pauses, 0.9) < 2 * max(steps) + layer
    # A step that the machine interrupts looks longer to the encoder, which then computes as long.
    assert max(pauses) < 2 * max(steps) + 2 * layer
