"""DFlash 2: grouped dynamic convolutions around each sub-layer, and the candidate selector."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import ClassVar

from gguf import GGMLQuantizationType

from ..gguf_metadata import Value, u32
from ..keys import wrong
from ..tensor_spec import Dimensions, TensorSpec, matrix
from .kind import Kind, KindClues


@dataclass(frozen=True)
class DFlash2(Kind):
    """Source: package `dflash`, DFlash2DraftModel. The fields are keys of both config.json and the GGUF."""

    name: ClassVar[str] = "DFlash 2"
    key: ClassVar[str] = "selector_rank"
    lattice: ClassVar[bool] = True
    needs_all_tokens: ClassVar[tuple[str, str] | None] = ("selector", "selector_hidden.weight")
    tables: ClassVar[tuple[str, ...]] = ("selector_predecessor.weight", "selector_successor.weight")
    trains: ClassVar[bool] = True

    conv_kernel_size: int
    conv_group_size: int
    selector_rank: int
    selector_top_k: int

    @classmethod
    def read(cls, clues: KindClues) -> DFlash2:
        keys, n_embd = clues.keys, clues.n_embd
        kind = cls(
            *(keys.integer(name) for name in ("conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k"))
        )
        if n_embd % kind.conv_group_size:
            raise wrong("conv_group_size", f"{kind.conv_group_size} does not divide hidden_size {n_embd}")
        top_k, n_vocab = kind.selector_top_k, clues.n_vocab
        n_vocab = min(n_vocab, keys.integer("selector_vocab_size", n_vocab))
        if n_embd < top_k * (top_k + 1) or n_vocab < top_k:
            raise wrong(
                "selector_top_k",
                f"the lattice of {top_k} candidates does not fit hidden_size {n_embd} and vocabulary {n_vocab}",
            )
        return kind

    def metadata(self) -> dict[str, Value]:
        return {
            "conv_kernel_size": u32(self.conv_kernel_size),
            "conv_group_size": u32(self.conv_group_size),
            "selector_rank": u32(self.selector_rank),
            "selector_top_k": u32(self.selector_top_k),
        }

    def tensors(self, drafter: Dimensions, found: Collection[str]) -> Iterator[TensorSpec]:
        shape = (drafter.n_vocab, self.selector_rank)
        for name, codebook in (
            ("selector_predecessor", "predecessor_codebook"),
            ("selector_successor", "successor_codebook"),
        ):
            source = f"candidate_selector.{codebook}"
            if source not in found:  # published with and without ".weight"
                source += ".weight"
            yield TensorSpec(f"{name}.weight", shape, source, shape)
        yield matrix("selector_hidden", "candidate_selector.hidden_projection", self.selector_rank, drafter.n_embd)

    def layer_tensors(self, drafter: Dimensions, layer: int, found: Collection[str]) -> Iterator[TensorSpec]:
        n_kernels = 2 * self.conv_kernel_size * (drafter.n_embd // self.conv_group_size)
        base = (2, self.conv_kernel_size, drafter.n_embd)
        for part, conv in (("attn", "attention_conv"), ("ffn", "mlp_conv")):
            name, source = f"blk.{layer}.{part}_conv", f"layers.{layer}.{conv}"
            yield TensorSpec(f"{name}_base", base, f"{source}.base_kernel", base, type=GGMLQuantizationType.F32)
            yield matrix(f"{name}_proj", f"{source}.kernel_projection", n_kernels, drafter.n_embd)
