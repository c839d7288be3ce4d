"""Which tokens a drafter should be able to propose, if not all: the most frequent ones of a corpus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from dflash_local.convert.gguf_metadata import read_metadata
from dflash_local.errors import ModelError, NativeLibraryError, RequestError

_CHUNK_CHARACTERS = 1 << 16
_CONTROL = 3  # LLAMA_TOKEN_TYPE_CONTROL: ends of turns and of texts are among them


def frequent_tokens(target: Path, corpus: Path, n_tokens: int) -> list[int]:
    """The first `n_tokens` of `token_order`, rising. Raises what that and `first_tokens` raise."""
    return first_tokens(token_order(target, corpus), n_tokens)


def token_order(target: Path, corpus: Path) -> list[int]:
    """The target's tokens: its control tokens, then the corpus' most frequent ones, then those of the lowest ids, which
    a tokenizer that was trained by merging found first.

    Raises:
        RequestError: the corpus cannot be read.
        ModelError: the target has no tokenizer.
    """
    metadata = read_metadata(target)
    tokens, types = (metadata.get(f"tokenizer.ggml.{name}") for name in ("tokens", "token_type"))
    if tokens is None:
        raise ModelError(f"{target.name} has no tokenizer", field="tokenizer.ggml.tokens")
    control = [token for token, kind in enumerate(types.data) if kind == _CONTROL] if types else []
    frequent = [token for token, _ in _counts(target, corpus).most_common()]
    return list(dict.fromkeys([*control, *frequent, *range(len(tokens.data))]))


def first_tokens(order: Sequence[int], n_tokens: int) -> list[int]:
    """The first `n_tokens`, rising. Raises RequestError if there are not so many."""
    if n_tokens > len(order):
        raise RequestError(
            f"--draft-vocab {n_tokens} exceeds the {len(order)} tokens of the target", param="--draft-vocab"
        )
    return sorted(order[:n_tokens])


def _counts(target: Path, corpus: Path) -> Counter[int]:
    try:
        from llama_cpp import Llama
    except ImportError as error:
        raise NativeLibraryError("llama-cpp-python is not installed", hint="run 'dflash-local build'") from error
    vocabulary = Llama(str(target), vocab_only=True, verbose=False)
    try:
        counts: Counter[int] = Counter()
        for text in _texts(corpus):
            counts.update(vocabulary.tokenize(text.encode(), add_bos=False, special=False))
        return counts
    finally:
        vocabulary.close()


def _texts(corpus: Path) -> Iterator[str]:
    """The corpus in parts that end with lines, so that few tokens are cut."""
    try:
        with corpus.open(encoding="utf-8") as file:
            while lines := file.readlines(_CHUNK_CHARACTERS):
                yield "".join(lines)
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"cannot read the corpus {corpus}: {error}", param="--corpus") from None
