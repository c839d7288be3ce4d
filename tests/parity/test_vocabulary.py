"""Vocabularies that differ by padding at the end, and candidates that come from a part of the vocabulary: what lies
beyond is never proposed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dflash_local import Engine
from dflash_local.convert.gguf_metadata import read_metadata, u32
from dflash_local.diagnose.pair import check
from dflash_local.errors import PairError
from tests.gguf_files import numbers, rewritten

from .f32 import engine_f32, widen

pytestmark = pytest.mark.parity
TOKENS = list(range(40, 120))
N_VOCAB, N_PADDING, BLOCK = 1699, 5, 16
LISTS = ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.scores")


def padded(source: Path, path: Path, heads: Path, *, loud: bool = True, **keys: Any) -> Path:
    """The model with more tokens, and with embeddings and head of the model `heads` that have rows for them. Rows of a
    loud head are those of the likeliest token, three times as large: they would be proposed before all others."""
    metadata = read_metadata(source)
    filling = {"tokenizer.ggml.tokens": [f"[PAD{i}]" for i in range(N_PADDING)]}
    lists = {
        key: [*metadata[key].data, *filling.get(key, [metadata[key].data[-1]] * N_PADDING)]
        for key in LISTS
        if key in metadata
    }
    codebooks = {name: data for name, data in numbers(source).items() if data.shape[0] == N_VOCAB}
    weights = codebooks | numbers(heads)
    with engine_f32(heads, None, n_ctx=256) as engine:
        likeliest = int(engine.score([*TOKENS, 0], len(TOKENS), 1).best_id[0])
    rows = {name: weights[name][-N_PADDING:] for name in ("token_embd.weight", *codebooks)}
    rows["output.weight"] = np.zeros((N_PADDING, 1), np.float32)
    if loud:
        rows["output.weight"] = 3 * weights["output.weight"][[likeliest] * N_PADDING]
    more = {
        name: np.concatenate([weights[name], np.broadcast_to(row, (N_PADDING, weights[name].shape[1]))]).astype(
            np.float32
        )
        for name, row in rows.items()
    }
    return widen(source, path, lists | keys, more)


def candidates(engine: Engine, tokens: list[int] = TOKENS) -> list[list[int]]:
    return np.sort(engine.draft_probe(tokens, BLOCK).ids[1:]).tolist()


@pytest.fixture(scope="module")
def quiet_target(target_f32: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return padded(target_f32, tmp_path_factory.mktemp("padded") / "target.gguf", target_f32, loud=False)


def test_a_padded_target(target_f32: Path, drafter_f32: Path, quiet_target: Path, tmp_path: Path) -> None:
    """Rows of the target's head beyond the drafter's tokens are no candidates; a token beyond is a possible anchor."""
    loud = padded(target_f32, tmp_path / "loud.gguf", target_f32)
    with engine_f32(target_f32, drafter_f32, n_ctx=1024) as plain, engine_f32(loud, drafter_f32, n_ctx=256) as engine:
        expected, probe = plain.draft_probe(TOKENS, BLOCK), engine.draft_probe(TOKENS, BLOCK)
        np.testing.assert_array_equal(probe.ids[1:], expected.ids[1:])
        np.testing.assert_array_equal(probe.logits[:, :N_VOCAB], expected.logits)
        assert np.isneginf(probe.logits[:, N_VOCAB:]).all() and probe.logits.shape[1] == N_VOCAB + N_PADDING
        assert max(map(max, candidates(engine, [*TOKENS, N_VOCAB + 2]))) < N_VOCAB
        with engine_f32(quiet_target, drafter_f32, n_ctx=1024) as quiet:
            for prompt in ("The river", "A list of colours:"):
                same = [
                    e.generate(prompt, temperature=0, max_tokens=40, budget=BLOCK, draft="chain")
                    for e in (plain, quiet)
                ]
                assert same[0].tokens == same[1].tokens
                assert same[0].acceptance_lengths == same[1].acceptance_lengths
    check(quiet_target, drafter_f32)


def test_a_padded_drafter(target_f32: Path, drafter_f32: Path, tmp_path: Path) -> None:
    """Its own head and embeddings have more rows than the target has tokens."""
    drafter = padded(drafter_f32, tmp_path / "drafter.gguf", target_f32)
    with engine_f32(target_f32, drafter_f32, n_ctx=256) as plain, engine_f32(target_f32, drafter, n_ctx=256) as engine:
        assert candidates(engine) == candidates(plain)
    check(target_f32, drafter)


def test_a_part_of_the_vocabulary(target_f32: Path, drafter_f32: Path, tmp_path: Path) -> None:
    drafter = tmp_path / "drafter.gguf"
    limit = 300
    rewritten(drafter_f32, drafter, {"dflash.selector_vocab_size": u32(limit)})
    with engine_f32(target_f32, drafter_f32, n_ctx=256) as plain, engine_f32(target_f32, drafter, n_ctx=256) as engine:
        logits = plain.draft_probe(TOKENS, BLOCK).logits[1:]
        best = np.argsort(-logits[:, :limit], -1, kind="stable")[:, : len(candidates(engine)[0])]
        assert candidates(engine) == np.sort(best).tolist()
        assert max(map(max, candidates(plain))) >= limit  # it matters


def test_another_vocabulary_is_refused(target_f32: Path, drafter_f32: Path, tmp_path: Path) -> None:
    """Of another length, and not only at the end."""
    metadata = read_metadata(drafter_f32)
    tokens = metadata["tokenizer.ggml.tokens"].data
    drafter = widen(drafter_f32, tmp_path / "drafter.gguf", {
        "tokenizer.ggml.tokens": [*tokens[:500], *tokens[501:]],
        "tokenizer.ggml.token_type": metadata["tokenizer.ggml.token_type"].data[1:],
    })  # fmt: skip
    with pytest.raises(PairError, match="tokens differ"):
        check(target_f32, drafter)
