"""Domino: a recurrent cell over the tokens of a block; its state corrects the logits of later rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import ClassVar

from ..gguf_metadata import Value, u32
from ..keys import wrong
from ..tensor_spec import Dimensions, TensorSpec, matrix
from .kind import Kind, KindClues

_CELL, _INPUT, _OUTPUT = "prefix_gru", "embed_proj.0", "embed_proj.2"


@dataclass(frozen=True)
class Domino(Kind):
    """Source: SpecForge 0.2.0, modeling/draft/domino.py. `prefix_length`: uncorrected proposals at the start of a
    block; `state_size`: of the cell; `width`: of the hidden layer that makes the corrections."""

    name: ClassVar[str] = "Domino"
    key: ClassVar[str] = "domino_prefix_length"
    lattice: ClassVar[bool] = True
    needs_all_tokens: ClassVar[tuple[str, str] | None] = ("recurrent cell", "domino_out.weight")
    tables: ClassVar[tuple[str, ...]] = ("domino_out.weight",)
    trains: ClassVar[bool] = False

    prefix_length: int
    state_size: int
    width: int

    @classmethod
    def read(cls, clues: KindClues) -> Domino:
        keys = clues.keys
        if keys.integer("draft_vocab_size", clues.n_vocab) < clues.n_vocab:
            raise wrong("draft_vocab_size", "no Domino drafter has a reduced vocabulary")
        return cls(
            prefix_length=keys.integer("pure_draft_prefix_len", 0, minimum=0, maximum=64),
            state_size=keys.integer("gru_hidden_dim", maximum=65536),
            width=keys.integer("emb_dim", maximum=65536),
        )

    def metadata(self) -> dict[str, Value]:
        return {"domino_prefix_length": u32(self.prefix_length)}

    def tensors(self, drafter: Dimensions, found: Collection[str]) -> Iterator[TensorSpec]:
        n_embd, n_gates = drafter.n_embd, 3 * self.state_size
        for part, n_in in (("ih", n_embd), ("hh", self.state_size)):
            shape = (n_gates, n_in)
            yield TensorSpec(f"domino_gru_{part}.weight", shape, f"{_CELL}.weight_{part}_l0", shape)
        # one matrix in the checkpoint, for the hidden state and the cell's state concatenated
        both = (self.width, n_embd + self.state_size)
        yield TensorSpec(
            "domino_hidden.weight",
            (self.width, n_embd),
            f"{_INPUT}.weight",
            both,
            transform=lambda rows: rows[:, :n_embd],
        )
        yield TensorSpec(
            "domino_state.weight",
            (self.width, self.state_size),
            f"{_INPUT}.weight",
            both,
            transform=lambda rows: rows[:, n_embd:],
        )
        yield matrix("domino_out", _OUTPUT, drafter.n_vocab, self.width)
