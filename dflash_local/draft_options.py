"""The drafting options of engines and requests: their names and ranges, checked in one place."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Literal

from dflash_local.errors import RequestError

MAX_NODES = 64  # DFLASH_MAX_NODES
FINAL_STATE = -1  # DFLASH_FINAL_STATE: among tapped layers, the hidden state that next-token (MTP) layers read
MIN_DRAFT_VOCAB = 8  # tokens: as many as a place has candidates

Budget = int | Literal["auto"]
DraftVocab = int | Literal["auto", "all"]
DraftKind = Literal["auto", "dflash", "mtp", "lookup"]
Draft = Literal["off", "chain", "tree"]
Accept = Literal["match", "block"]


class DraftMode(IntEnum):
    """dflash_draft_mode: the allowed shape of drafts."""

    OFF = 0
    CHAIN = 1
    TREE = 2


class DrafterChoice(IntEnum):
    """dflash_draft_kind: what drafts, beside lookup."""

    AUTO = 0
    DFLASH = 1
    MTP = 2
    LOOKUP = 3


class AcceptRule(IntEnum):
    """dflash_accept_rule: sample and match, or block verification (arXiv 2403.10444)."""

    MATCH = 0
    BLOCK = 1


def budget_nodes(budget: Budget) -> int:
    """dflash_request_params.budget: 0 is "auto"."""
    if budget == "auto":
        return 0
    if isinstance(budget, bool) or not isinstance(budget, int) or not 1 <= budget <= MAX_NODES:
        raise RequestError(
            f'budget must be "auto" or an integer from 1 to {MAX_NODES}, got {budget!r:.80}', param="budget"
        )
    return budget


def draft_mode(draft: Draft) -> int:
    """dflash_draft_mode."""
    return _named(draft, DraftMode, "draft", "most draft tokens are draft_n_max (--spec-draft-n-max)")


def draft_kind_id(draft_kind: DraftKind) -> int:
    """dflash_draft_kind."""
    return _named(draft_kind, DrafterChoice, "draft_kind")


def accept_rule(accept: Accept) -> int:
    """dflash_accept_rule."""
    return _named(accept, AcceptRule, "accept")


def draft_tokens(draft_n_max: int, param: str = "draft_n_max") -> int:
    """dflash_request_params.draft_n_max: 0 is the drafter's block size, or the engine's setting."""
    if isinstance(draft_n_max, bool) or not isinstance(draft_n_max, int) or not 0 <= draft_n_max < MAX_NODES:
        raise RequestError(
            f"{param} must be an integer from 0 to {MAX_NODES - 1}, got {draft_n_max!r:.80}", param=param
        )
    return draft_n_max


def draft_vocab_tokens(draft_vocab: DraftVocab) -> int:
    """dflash_engine_params.draft_vocab: 0 is "auto", all bits are "all"."""
    if draft_vocab == "auto":
        return 0
    if draft_vocab == "all":
        return 2**32 - 1
    if isinstance(draft_vocab, bool) or not isinstance(draft_vocab, int) or not MIN_DRAFT_VOCAB <= draft_vocab < 2**31:
        raise RequestError(
            f'draft_vocab must be "auto", "all" or an integer from {MIN_DRAFT_VOCAB} on, got {draft_vocab!r:.80}',
            param="draft_vocab",
        )
    return draft_vocab


def _named(value: object, names: Any, param: str, if_number: str | None = None) -> int:
    known = {member.name.lower(): int(member) for member in names}
    if not isinstance(value, str) or value not in known:
        hint = if_number if isinstance(value, int) and not isinstance(value, bool) else None
        raise RequestError(f"{param} must be one of {', '.join(known)}, got {value!r:.80}", param=param, hint=hint)
    return known[value]
