"""Greedy speculative decoding: the same tokens in the same target passes as `dflash_generate`.

Nothing is excused as a tie: over these prompts the closest choice of target or drafter has a margin of 8e-4 between its
best two logits, and the two implementations agree to about 1e-5.
"""

import pytest

from dflash_local import Engine

from .reference import BLOCK_SIZE, END_OF_TURN, Reference

pytestmark = pytest.mark.parity
MAX_TOKENS = 128  # no answer comes within a block of it, so both sides always draft whole blocks


def test_same_tokens_and_acceptance_lengths(engine: Engine, reference: Reference, chats: list[list[int]]) -> None:
    """At temperature 0. What may differ is the last pass: the end-of-turn token is not among our tokens."""
    for prompt in chats:
        theirs = reference.generate(prompt, MAX_TOKENS)
        ours = engine.generate(prompt, temperature=0, max_tokens=MAX_TOKENS, budget=BLOCK_SIZE, draft="chain")
        assert theirs.tokens[-1] == END_OF_TURN
        assert ours.finish_reason == "stop"
        assert ours.tokens == theirs.tokens[:-1]
        assert ours.acceptance_lengths[: len(theirs.acceptance_lengths) - 1] == theirs.acceptance_lengths[:-1]
        assert len(theirs.acceptance_lengths) - 1 <= len(ours.acceptance_lengths) <= len(theirs.acceptance_lengths)
