"""What a request with `return_drafts` is told of its passes: true of the answer, and the answer is the same without."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dflash_local import Engine
from dflash_local.generation import Chunk
from dflash_local.native import Origin

QUESTION = "Write a Python function that adds two numbers."
OPTIONS: dict[str, Any] = {"temperature": 0, "max_tokens": 96}


@pytest.fixture(scope="module")
def engine(pocket: dict[str, Path]) -> Iterator[Engine]:
    with Engine(pocket["target"], pocket["dflash2"], n_ctx=1024, n_threads=1) as engine:
        yield engine


@pytest.fixture(scope="module")
def prompt(engine: Engine) -> list[int]:
    """A question that was answered before, so that lookup has something to say."""
    question = {"role": "user", "content": QUESTION}
    answer = engine.chat([question], **OPTIONS).text
    again = [question, {"role": "assistant", "content": answer}, question]
    return engine.tokenize(engine.apply_chat({"messages": again}).prompt)


def chunks(engine: Engine, prompt: list[int], **options: Any) -> list[Chunk]:
    return list(engine.stream(prompt, return_drafts=True, **{**OPTIONS, **options}))


def told(found: list[Chunk]) -> list[Any]:
    """The verified trees, each with its pass and the tokens that the answer got."""
    return [(chunk.step.tree, chunk.step, chunk.tokens) for chunk in found if chunk.step and chunk.step.tree]


@pytest.mark.parametrize("options", [{}, {"draft": "chain"}, {"budget": 9}, {"temperature": 1.0, "seed": 3}], ids=str)
def test_trees_are_true(engine: Engine, prompt: list[int], options: dict[str, Any]) -> None:
    found = chunks(engine, prompt, **options)
    first, *rest = found
    assert first.step and first.step.n_nodes == 0 and first.step.tree is None
    assert len(told(rest)) == len(rest)
    before = first.tokens[-1]
    for tree, step, tokens in told(rest):
        assert tree.tokens[0] == before and tree.parents[0] == -1 and tree.origins[0] == Origin.TARGET
        assert len(tree.tokens) == step.n_nodes
        assert all(0 <= parent < node for node, parent in enumerate(tree.parents) if node)
        assert all(tree.values[parent] >= tree.values[node] > 0 for node, parent in enumerate(tree.parents) if node)
        origins = zip(tree.probs[1:], tree.origins[1:], strict=True)
        assert all((prob > 0) == (by == Origin.DRAFTER) for prob, by in origins)
        assert tree.path[0] == 0 and len(tree.path) == step.n_accepted + 1
        assert all(tree.parents[node] == parent for parent, node in zip(tree.path, tree.path[1:], strict=False))
        accepted = [tree.tokens[node] for node in tree.path[1:]]
        assert accepted == tokens[: len(accepted)]
        assert len(tokens) <= len(accepted) + 1
        assert step.plain_ms > 0
        before = tokens[-1] if tokens else before
    plain = engine.generate(prompt, **{**OPTIONS, **options, "draft": "off"})
    assert [token for chunk in found for token in chunk.tokens] == plain.tokens


def test_origins(engine: Engine, prompt: list[int]) -> None:
    answer = engine.generate(prompt, draft="off", **OPTIONS)

    def seen(**options: Any) -> set[int]:
        return {origin for tree, _, _ in told(chunks(engine, prompt, **options)) for origin in tree.origins}

    # what the drafter proposes, too, is the drafter's: so lookup alone is seen where it drafts by itself
    quoted = seen(budget=33)
    assert {Origin.TARGET, Origin.DRAFTER} <= quoted
    assert Origin.PREDICTION not in quoted
    without = seen(budget=33, lookup=False)
    assert without == {Origin.TARGET, Origin.DRAFTER}
    assert Origin.LOOKUP in quoted
    assert Origin.PREDICTION in seen(
        budget=33, lookup=False, prediction=[*answer.tokens[:20], 5, 6, *answer.tokens[20:]]
    )


def test_nothing_is_told_unasked(engine: Engine, prompt: list[int]) -> None:
    found = list(engine.stream(prompt, **OPTIONS))
    assert all(chunk.step is None for chunk in found)
    traced = engine.generate(prompt, trace=True, **OPTIONS)
    assert traced.steps and all(step.tree is None for step in traced.steps)


def test_plain_passes_have_an_anchor_alone(engine: Engine, prompt: list[int]) -> None:
    for tree, step, tokens in told(chunks(engine, prompt, draft="off")):
        assert len(tree.tokens) == step.n_nodes == 1 and tree.path == [0]
        assert len(tokens) <= 1
