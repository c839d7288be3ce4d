"""DSpark: a Markov head, which scores each token by the one before it, and a confidence head."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from gguf import GGMLQuantizationType

from ..gguf_metadata import Value, boolean
from ..keys import wrong
from ..tensor_spec import Dimensions, Rows, TensorSpec, matrix, vector
from .kind import Kind, KindClues

PREV, NEXT = "markov_head.markov_w1", "markov_head.markov_w2"
CONFIDENCE = "confidence_head.proj"
_HEAD_TYPES = ("vanilla", "markov")  # of speculators and DeepSpec, of ModelOpt


@dataclass(frozen=True)
class DSpark(Kind):
    """Sources: speculators 0.9.0, models/dspark; DeepSpec. `rank`: of the Markov tables.
    `confidence_sees_markov`: the confidence head reads the embedding of the token before beside the hidden state."""

    name: ClassVar[str] = "DSpark"
    key: ClassVar[str] = "has_confidence_head"
    lattice: ClassVar[bool] = True
    tables: ClassVar[tuple[str, ...]] = ("markov_w1.weight", "markov_w2.weight")
    optional: ClassVar[Mapping[str, str]] = {
        "markov_w1.weight": f"{PREV}.weight",
        "markov_w2.weight": f"{NEXT}.weight",
        "conf_proj.weight": f"{CONFIDENCE}.weight",
        "conf_proj.bias": f"{CONFIDENCE}.bias",
    }
    trains: ClassVar[bool] = True

    rank: int
    samples_from_anchor: bool
    has_confidence: bool
    confidence_sees_markov: bool

    @classmethod
    def is_kind_of(cls, clues: KindClues) -> bool:
        if f"{PREV}.weight" in clues.found:
            return True
        for name in ("markov_rank", "dspark_markov_rank"):
            key, rank = clues.keys.find(name)
            if rank:
                raise wrong(key, f"it is not 0, and tensor '{PREV}.weight' is missing")
        return False

    @classmethod
    def read(cls, clues: KindClues) -> DSpark:
        keys, sees_markov = clues.keys, clues.packaging.confidence_sees_markov
        for name in ("markov_head_type", "dspark_fixup_head_type"):
            if (kind := keys.text(name, "vanilla")) not in _HEAD_TYPES:
                raise wrong(keys.find(name)[0], f"{kind!r} is not one of {', '.join(_HEAD_TYPES)}")
        rank = "markov_rank" if keys.find("dspark_markov_rank")[1] is None else "dspark_markov_rank"
        return cls(
            rank=keys.integer(rank, maximum=65536),
            samples_from_anchor=clues.samples_from_anchor,
            has_confidence=f"{CONFIDENCE}.weight" in clues.found,
            confidence_sees_markov=keys.flag("confidence_head_with_markov", sees_markov),
        )

    def metadata(self) -> dict[str, Value]:
        # written even if it is the dialect's default: other programs have other defaults
        return {
            "sample_from_anchor": boolean(self.samples_from_anchor),
            "has_confidence_head": boolean(self.has_confidence),
        }

    def tensors(self, drafter: Dimensions, found: Collection[str]) -> Iterator[TensorSpec]:
        yield matrix("markov_w1", PREV, drafter.n_vocab, self.rank)
        yield matrix("markov_w2", NEXT, drafter.n_vocab_draft, self.rank)
        if not self.has_confidence:
            return
        width = drafter.n_embd + self.rank
        yield TensorSpec(
            "conf_proj.weight",
            (1, width),
            f"{CONFIDENCE}.weight",
            (1, width if self.confidence_sees_markov else drafter.n_embd),
            type=GGMLQuantizationType.F32,
            transform=None if self.confidence_sees_markov else self._blind,
        )
        if f"{CONFIDENCE}.bias" in found:
            yield vector("conf_proj.bias", f"{CONFIDENCE}.bias", 1)

    def _blind(self, rows: Rows) -> Rows:
        """The dialect's head always reads the token before, so its weights become zero."""
        return np.pad(rows, ((0, 0), (0, self.rank)))
