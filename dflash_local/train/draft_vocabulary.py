"""The tokens that a trained drafter may propose: those of which its target's answers consist."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from dflash_local.convert.config import DrafterConfig
from dflash_local.convert.requantize import ReducedHead, requantize
from dflash_local.errors import RequestError
from dflash_local.train.drafter_file import D2T, DrafterFile
from dflash_local.vocabulary import first_tokens, ordered

_COVERED = 0.999  # of the answers' tokens
_LEAST = 4096  # tokens
_STEP = 1024


def may_be_reduced(file: DrafterFile) -> bool:
    """Does the drafter propose all tokens, and does its kind allow fewer?"""
    return D2T not in file.frozen and file.config.kind.needs_all_tokens is None


def check_head(n_tokens: int, config: DrafterConfig) -> None:
    """Raise RequestError if a drafter of this form can have no head of `n_tokens` tokens."""
    if n_tokens > config.n_vocab:
        why = f"exceeds the {config.n_vocab} tokens of the target"
    elif config.n_vocab_draft < config.n_vocab:
        why = f"is for a whole drafter: this one proposes {config.n_vocab_draft} tokens already"
    elif config.kind.needs_all_tokens is not None:
        why = f"is not for a {config.kind.name} drafter, whose {config.kind.needs_all_tokens[0]} needs all tokens"
    else:
        return
    raise RequestError(f"--draft-vocab {n_tokens} {why}", param="--draft-vocab", hint="leave --draft-vocab out")


def enough_tokens(counts: Counter[int], n_vocab: int) -> int | None:
    """How many of the most frequent tokens make up nearly all of the answers; None if that is most of the vocabulary,
    so that a smaller head would save little."""
    left, n = (1 - _COVERED) * counts.total(), len(counts)
    for _, count in reversed(counts.most_common()):
        left -= count
        if left < 0:
            break
        n -= 1
    n = max(-(-n // _STEP) * _STEP, _LEAST)
    return n if n <= n_vocab // 2 else None


def write_reduced(drafter: Path, output: Path, target: Path, counts: Counter[int], n_tokens: int) -> None:
    """Write the drafter with a head of `n_tokens` tokens. Raises RequestError if the target has fewer, ConvertError."""
    head = ReducedHead.of(first_tokens(ordered(target, counts), n_tokens), target)
    requantize(drafter, output, None, head=head)
