"""InflatedTarget: a dense target, or one with experts; perhaps with an MTP layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dflash_local.convert.gguf_metadata import Value, string, u32
from dflash_local.convert.writer import OutputTensor
from dflash_local.demo.inflate.inflated_model import PUSH, InflatedModel, Names
from dflash_local.demo.inflate.source import SmallModel
from dflash_local.demo.inflate.tensors import Block, exact_tensor, padded_matrix
from dflash_local.demo.shapes import Shape

MOE_ARCH = "qwen3moe"
# The constant channel's value in the embedding, and the padded head rows' weight on it.
CONSTANT, PADDED_ROW = 1e-3, -100.0
# With an MTP layer, whose norm of the target's final state sees the constant channel: a smaller weight of the final
# norm, and larger ones in the head.
MTP_PUSH, MTP_PADDED_ROW = 1e2, -1e4
# The weight with which an MTP layer's stream gets the constant channel from a token's normalized embedding.
MTP_CONSTANT = 0.05


class InflatedTarget(InflatedModel):
    push, padded_row = PUSH, PADDED_ROW

    def __init__(self, source: SmallModel, shape: Shape, place: Sequence[int], scale: float = 1.0) -> None:
        super().__init__(source, shape, shape.n_layer, scale)
        self.real = {index: i for i, index in enumerate(place)}
        self.experts = shape.experts
        if shape.experts and source.arch == "qwen3vl":
            raise self._unfit("expert_count", "the feed-forward of a target that reads images stays dense here")
        if source.n_mtp:
            self.push, self.padded_row = MTP_PUSH, MTP_PADDED_ROW

    def metadata(self, ftype: str) -> dict[str, Value]:
        """Like the base; with experts, the keys of another architecture."""
        result = super().metadata(ftype)
        if self.experts is None:
            return result
        old_prefix, new_prefix = f"{self.source.arch}.", f"{MOE_ARCH}."
        return {
            **{
                (new_prefix + key.removeprefix(old_prefix) if key.startswith(old_prefix) else key): value
                for key, value in result.items()
            },
            "general.architecture": string(MOE_ARCH),
            f"{new_prefix}expert_count": u32(self.experts.n),
            f"{new_prefix}expert_used_count": u32(self.experts.n_used),
            f"{new_prefix}expert_feed_forward_length": u32(self.experts.n_ff),
        }

    def tensors(self) -> Iterator[OutputTensor]:
        n_vocab, n_embd, constant = self.shape.n_vocab, self.shape.n_embd, self.n_embd
        embedding = self.source.tensor("token_embd.weight")
        # A tied head becomes a separate copy.
        head = self.source.tensor("output.weight") if self.source.has("output.weight") else embedding
        yield padded_matrix(
            "token_embd.weight",
            (n_vocab, n_embd),
            lambda: [
                Block(0, 0, embedding() * self.scale),
                Block(0, constant, np.full((n_vocab, 1), CONSTANT * self.scale)),
            ],
        )
        yield padded_matrix(
            "output.weight",
            (n_vocab, n_embd),
            lambda: [
                Block(0, 0, head()),
                Block(self.n_vocab, constant, np.full((n_vocab - self.n_vocab, 1), self.padded_row)),
            ],
        )
        yield self.norm("output_norm.weight", "output_norm.weight", self.push)
        for index in range(self.n_layer):
            yield from self.layer(index, self.real.get(index))
        for i in range(self.source.n_mtp):
            yield from self.layer(self.n_layer + i, self.source.n_layer + i)
            yield from self.mtp(f"blk.{self.n_layer + i}.nextn", f"blk.{self.source.n_layer + i}.nextn")

    def mtp(self, name: str, source: str) -> Iterator[OutputTensor]:
        """What an MTP layer has beside a layer: its stream is made of a token's embedding and the final state before
        it, each normalized."""
        joined, small, large = self.source.tensor(f"{source}.eh_proj.weight"), self.n_embd, self.shape.n_embd
        yield self.norm(f"{name}.enorm.weight", f"{source}.enorm.weight", 1.0)
        yield self.norm(f"{name}.hnorm.weight", f"{source}.hnorm.weight")
        yield self.norm(f"{name}.shared_head_norm.weight", f"{source}.shared_head_norm.weight", self.push)

        def blocks() -> list[Block]:
            of_token, of_state = np.split(joined() * self.scale, 2, axis=1)
            constant = np.full((1, 1), MTP_CONSTANT * self.scale)
            return [Block(0, 0, of_token), Block(0, large, of_state), Block(small, small, constant)]

        yield padded_matrix(f"{name}.eh_proj.weight", (large, 2 * large), blocks)

    def feed_forward(self, names: Names) -> Iterator[OutputTensor]:
        """Like the base, or experts: expert e holds part e % n_parts of the small feed-forward's units."""
        if self.experts is None:
            yield from super().feed_forward(names)
            return
        n, n_used, n_ff = self.experts
        n_parts = -(-self.n_ff // n_ff)
        if n % n_parts or n_used % n_parts or n_used > n:
            raise self._unfit(
                "feed_forward_length",
                f"{self.n_ff} units fill {n_parts} experts of {n_ff}, and {n_used} used ones of {n} are no whole "
                "number of those",
            )
        n_embd = self.shape.n_embd
        router = padded_matrix(names("ffn_gate_inp")[0], (n // n_parts, n_embd), list, noise=True)
        yield exact_tensor(
            router.name, (n, n_embd), lambda: np.repeat(np.concatenate(list(router.chunks())), n_parts, axis=0)
        )

        def copies(part: str, rows: int, columns: int, axis: int) -> OutputTensor:
            name, source = names(f"{part}_exps")[0], names(part)[1]
            small = self.source.tensor(source) if source else None

            def blocks() -> list[Block]:
                if small is None:
                    return []
                parts = np.array_split(small(), n_parts, axis)
                # A part gets 1 / n_parts of the router's weight.
                return [Block(e * rows, 0, parts[e % n_parts] * (n_parts if axis else 1)) for e in range(n)]

            return padded_matrix(name, (n, rows, columns), blocks, noise=axis == 0)

        for part in ("ffn_gate", "ffn_up"):
            yield copies(part, n_ff, n_embd, 0)
        yield copies("ffn_down", n_embd, n_ff, 1)
