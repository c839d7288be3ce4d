"""One drafter pass: hidden states, logits, candidates and pair scores within 1e-3 of the authors' model."""

from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dflash_local import Engine
from tests.fast import some_fast

from .reference import BLOCK_SIZE, Lattice, Reference

pytestmark = pytest.mark.parity
TOLERANCE = 1e-3


def assert_close(ours: npt.NDArray[np.floating], theirs: npt.NDArray[np.floating]) -> None:
    """Each row within TOLERANCE of its norm, each element within TOLERANCE of the largest."""
    assert ours.shape == theirs.shape
    difference = ours - theirs
    assert (np.linalg.norm(difference, axis=-1) <= TOLERANCE * np.linalg.norm(theirs, axis=-1)).all()
    assert np.abs(difference).max() <= TOLERANCE * np.abs(theirs).max()


def check_lattice(ids: npt.NDArray[Any], scores: npt.NDArray[np.floating], lattice: Lattice) -> None:
    """Candidates ids [n, k], in any order, with pair scores [n, k, k], position 0 the one after the anchor."""
    ours, theirs = np.argsort(ids), np.argsort(lattice.ids)
    np.testing.assert_array_equal(np.take_along_axis(ids, ours, -1), np.take_along_axis(lattice.ids, theirs, -1))
    assert_close(scores[0][:, ours[0]], lattice.scores[0][:, theirs[0]])  # all predecessors are the anchor
    for i in range(1, len(ids)):
        assert_close(scores[i][np.ix_(ours[i - 1], ours[i])], lattice.scores[i][np.ix_(theirs[i - 1], theirs[i])])


@pytest.fixture(scope="module")
def texts(prompts: list[list[int]], reference: Reference) -> list[list[int]]:
    """Tokens of several lengths, 2 to 700: a prompt's beginning, prompts with part of their answer, many chats in a
    row."""
    answered = [prompt + reference.generate(prompt, 40).tokens for prompt in prompts[::9]]
    long = list(chain.from_iterable(prompts))
    return [answered[0][:2], answered[1][:17], *answered[2:], long[:300], long[:700]]


@pytest.mark.parametrize("n_block", [BLOCK_SIZE, 7, 2])
def test_hidden_states_and_logits(engine: Engine, reference: Reference, texts: list[list[int]], n_block: int) -> None:
    for tokens in texts:
        hidden, logits = reference.draft(tokens, n_block)
        probe = engine.draft_probe(tokens, n_block)
        assert_close(probe.hidden, hidden.numpy())
        assert_close(probe.logits, logits.numpy())


def test_candidates_and_scores(engine: Engine, reference: Reference, texts: list[list[int]]) -> None:
    """DFlash: top-k tokens with log-probabilities. DFlash 2: the selector's candidates with all pair scores."""
    for tokens in texts:
        hidden, logits = reference.draft(tokens)
        probe = engine.draft_probe(tokens, BLOCK_SIZE)
        ids, scores = probe.ids[1:].astype(np.int64), probe.scores[1:]  # nothing is predicted at the anchor
        if scores.ndim == 2:
            best = logits[1:].topk(ids.shape[1]).indices.numpy()
            np.testing.assert_array_equal(np.sort(ids), np.sort(best))
            assert_close(scores, np.take_along_axis(logits[1:].log_softmax(-1).numpy(), ids, -1))
            continue
        check_lattice(ids, scores, reference.lattice(tokens[-1], hidden, logits))


# A pass a token takes long.
@pytest.mark.parametrize(
    ("width", "longest"), some_fast([(BLOCK_SIZE, 700), (1, 300), (1, 700)], [(BLOCK_SIZE, 700), (1, 300)])
)
def test_target_logits(engine: Engine, reference: Reference, texts: list[list[int]], width: int, longest: int) -> None:
    """What `score` reports, the ground of the losslessness tests, is the authors' target."""
    for tokens in texts:
        if len(tokens) > longest:
            continue
        logits = reference.target_logits(tokens)[:-1].numpy()
        score = engine.score(tokens, 1, width)
        assert_close(score.logit, np.take_along_axis(logits, np.array(tokens[1:])[:, None], -1)[:, 0])
        assert_close(score.best_logit, logits.max(-1))
