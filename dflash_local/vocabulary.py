"""The reduced vocabulary of a drafter: the most frequent tokens of a corpus."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dflash_local import native
from dflash_local.convert.gguf_metadata import read_metadata
from dflash_local.errors import ModelError, RequestError

_CHUNK_CHARACTERS = 1 << 16
_SHORT = 128  # so few characters never fail in a tokenizer
_NUMBER = re.compile(rb"\d+")
_SERIES = 8  # placeholders at least, which are named alike
_CONTROL = 3  # LLAMA_TOKEN_TYPE_CONTROL, such as the ends of turns and texts


def frequent_tokens(target: Path, corpus: Path, n_tokens: int) -> list[int]:
    """The first `n_tokens` of `token_order`, sorted. Raises the errors of `token_order` and `first_tokens`."""
    return first_tokens(token_order(target, corpus), n_tokens)


def token_order(target: Path, corpus: Path) -> list[int]:
    """The target's tokens in `ordered` by their counts in a corpus.

    Raises:
        RequestError: the corpus cannot be read.
        ModelError: the target has no tokenizer, or is damaged.
        NativeLibraryError: the patched llama.cpp is missing.
    """
    return ordered(target, _counts(target, corpus))


def ordered(target: Path, counts: Counter[int]) -> list[int]:
    """The target's tokens: control tokens, then the most frequent ones, then the others by id, since BPE training finds
    frequent tokens first; last the placeholders among control tokens. Raises ModelError if the target has no
    tokenizer."""
    metadata = read_metadata(target)
    tokens, types = (metadata.get(f"tokenizer.ggml.{name}") for name in ("tokens", "token_type"))
    if tokens is None:
        raise ModelError(f"{target.name} has no tokenizer", field="tokenizer.ggml.tokens")
    control = [token for token, kind in enumerate(types.data) if kind == _CONTROL] if types else []
    placeholders = dict.fromkeys(_placeholders(control, tokens.data))
    named = [token for token in control if token not in placeholders]
    frequent = [token for token, _ in counts.most_common()]
    others = [token for token in range(len(tokens.data)) if token not in placeholders]
    return list(dict.fromkeys([*named, *frequent, *others, *placeholders]))


def _placeholders(control: Sequence[int], names: Sequence[bytes]) -> list[int]:
    """Those whose names differ from many others' only by a number, as <|reserved_special_token_7|>: a target may have a
    thousand, and writes none of them."""
    shapes = {token: _NUMBER.sub(b"#", names[token]) for token in control}
    series = Counter(shapes.values())
    return [token for token in control if series[shapes[token]] >= _SERIES]


def first_tokens(order: Sequence[int], n_tokens: int) -> list[int]:
    """The first `n_tokens`, sorted. Raises RequestError if there are fewer."""
    if n_tokens > len(order):
        raise RequestError(
            f"--draft-vocab {n_tokens} exceeds the {len(order)} tokens of the target", param="--draft-vocab"
        )
    return sorted(order[:n_tokens])


def _counts(target: Path, corpus: Path) -> Counter[int]:
    counts: Counter[int] = Counter()
    with native.vocabulary_of(target) as vocab:
        for text in _texts(corpus):
            for tokens in _tokens(vocab, text):
                counts.update(tokens)
    return counts


def _tokens(vocab: Any, text: str) -> Iterator[list[int]]:
    """The tokens of a text, in pieces if the tokenizer cannot take it whole (a thousand spaces, say)."""
    try:
        yield native.vocab_tokenize(vocab, text, add_special=False, parse_special=False)
    except RequestError:
        if len(text) <= _SHORT:
            raise
        middle = len(text) // 2
        yield from _tokens(vocab, text[:middle])
        yield from _tokens(vocab, text[middle:])


def _texts(corpus: Path) -> Iterator[str]:
    """The corpus in parts that end at line ends, so that few tokens are cut; longer lines are split anywhere."""
    try:
        with corpus.open(encoding="utf-8") as file:
            text = ""
            while line := file.readline(_CHUNK_CHARACTERS):
                text += line
                if len(text) >= _CHUNK_CHARACTERS:
                    yield text
                    text = ""
            yield text
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"cannot read the corpus {corpus}: {error}", param="--corpus") from None
