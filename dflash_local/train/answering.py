"""The stage `answer`: the target writes the training text itself, on all slots at once."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from dflash_local.sampling import SamplingParams
from dflash_local.train.examples import Example
from dflash_local.train.train_settings import TrainSettings, Watcher
from dflash_local.train.workspace import Workspace
from dflash_local.train.written_texts import Text, TextFile, identity, read_texts

if TYPE_CHECKING:
    from dflash_local.engine import Engine, Generation

_AHEAD = 3  # requests in the queue for each slot, so that none waits for an answer to be written down
_LEAST = 16  # tokens of a cancelled answer that is kept


def answer_all(
    engine: Engine,
    examples: Sequence[Example],
    workspace: Workspace,
    settings: TrainSettings,
    deadline: float | None,
    n_most: int,
    watcher: Watcher,
) -> None:
    """Answer every example once in each round, at the round's temperature, until `deadline` (of time.monotonic()), or
    until prompts and answers have nearly `n_most` tokens, for whose hidden states the disk has room."""
    known = [] if not workspace.answers.exists() else _whole(workspace)
    done = {(text.key, text.round) for text in known}
    # Where the time does not last for all, those that are answered are of all kinds; their keys are hashes.
    in_turn = sorted(examples, key=lambda example: example.key)
    wanted = [
        (example, number) for number in range(settings.n_rounds()) for example in in_turn
        if (example.key, number) not in done
    ]  # fmt: skip
    n_all, n_tokens, begin = len(wanted) + len(done), 0, time.monotonic()
    left = n_most - sum(len(text.tokens) for text in known)
    running = settings.length * engine.n_slots  # tokens that the last answers may have

    def is_over() -> bool:
        return left <= running or (deadline is not None and time.monotonic() >= deadline)

    with TextFile(workspace.answers) as file:
        for text in _answers(engine, wanted, settings, is_over):
            file.add(text)
            workspace.keep_time()
            done.add((text.key, text.round))
            n_tokens += len(text.answer)
            left -= len(text.tokens)
            now = time.monotonic()
            share = len(done) / n_all
            if deadline is not None:
                share = max(share, min((now - begin) / max(deadline - begin, 1e-3), 1.0))
            speed = n_tokens / max(now - begin, 1e-3)
            watcher.progress(share, 1.0, f"{len(done)} answers, {n_tokens} tokens, {speed:.0f} tok/s")
    if left <= running and len(done) < n_all:
        watcher.note("the disk has no room for the hidden states of more answers")


def _whole(workspace: Workspace) -> list[Text]:
    with TextFile(workspace.answers):  # cuts off half a line
        pass
    return list(read_texts(workspace.answers, "--work"))


def _answers(
    engine: Engine, wanted: Sequence[tuple[Example, int]], settings: TrainSettings, is_over: Callable[[], bool]
) -> Iterator[Text]:
    target = identity(settings.model)
    running: deque[tuple[Example, int, float, Generation]] = deque()
    left = iter(wanted)
    try:
        while True:
            if over := is_over():
                left = iter(())
                for *_, generation in running:  # what they have is the target's own text, too
                    generation.cancel()
            while len(running) < _AHEAD * engine.n_slots and (one := next(left, None)):
                running.append((*one, *_submit(engine, *one, settings)))
            if not running:
                return
            example, number, temperature, generation = running.popleft()
            completion = generation.result()
            if not over or len(completion.tokens) >= _LEAST:
                yield Text.written(example.key, number, example.tokens, temperature, completion, target)
    finally:
        for *_, generation in running:
            generation.cancel()


def _submit(engine: Engine, example: Example, number: int, settings: TrainSettings) -> tuple[float, Generation]:
    temperature = settings.temperature(number, int(example.key[:8], 16))
    assert temperature is not None
    seed = (int(example.key[:8], 16) + 7919 * number + settings.seed) % (1 << 31)
    n_most = min(settings.n_predict, settings.length - len(example.tokens))
    sampling = SamplingParams(temperature=temperature, seed=seed)
    if "messages" not in example.prompt:
        return temperature, engine.submit(example.tokens, sampling, max_tokens=n_most)
    chat = engine.apply_chat(example.prompt)  # its grammar and stop strings are those with which it is measured
    tokens = example.tokens_for(engine, chat)
    return temperature, engine.submit_chat(chat, sampling, tokens=tokens, max_tokens=n_most)
