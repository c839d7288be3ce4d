"""ReplyExtras: what a reply has beyond its text, for requests that ask for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dflash_local.engine import Engine
from dflash_local.generation import Completion, Generation
from dflash_local.server.fields.request import RequestFields
from dflash_local.server.formats.details import details_of
from dflash_local.server.formats.passes import ChoicePasses, choice_passes
from dflash_local.server.formats.probs import ChoiceProbs, choice_probs
from dflash_local.server.shapes.native import NativeCompletion


@dataclass(frozen=True)
class ReplyExtras:
    """What a request wants beyond the text; what it does not want is empty.

    Attributes:
        probs: probabilities of each choice's tokens.
        passes: passes of each choice, with `return_drafts`.
        verbose: gives a finished choice as llama-server's own completion has it, for `__verbose`.
    """

    probs: Sequence[ChoiceProbs] = ()
    passes: Sequence[ChoicePasses] = ()
    verbose: Callable[[int, Completion], NativeCompletion] | None = None


NO_EXTRAS = ReplyExtras()


def extras_of(engine: Engine, model: str, fields: RequestFields, generations: Sequence[Generation]) -> ReplyExtras:
    """The extras of running generations; slow for long prompts with `verbose`."""
    return ReplyExtras(
        choice_probs(engine, fields.probs, generations),
        choice_passes(engine, generations),
        details_of(engine, model, fields, generations).whole if fields.verbose else None,
    )
