"""InflatedHybrid: a target of gated delta-net and attention layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from dflash_local.convert.gguf_metadata import Value
from dflash_local.convert.writer import OutputTensor
from dflash_local.demo.inflate.inflated_model import Names
from dflash_local.demo.inflate.inflated_target import InflatedTarget
from dflash_local.demo.inflate.source import Array, SmallModel
from dflash_local.demo.inflate.tensors import Block, Heads, exact_tensor, padded_matrix
from dflash_local.demo.shapes import DeltaNet, Shape

# With an MTP layer, whose norm of the target's final state sees the constant channel: a smaller weight of the final
# norm, and larger ones in the head.
MTP_PUSH, MTP_PADDED_ROW = 1e2, -1e4
# The weight with which an MTP layer's stream gets the constant channel from a token's normalized embedding.
MTP_CONSTANT = 0.05


class InflatedHybrid(InflatedTarget):
    """A qwen35 target: gated delta-net layers, every fourth one attention with a gate; perhaps with an MTP layer."""

    def __init__(self, source: SmallModel, shape: Shape, delta: DeltaNet, place: Sequence[int]) -> None:
        small = DeltaNet(*(source.size(f"ssm.{key}") for key in ("group_count", "time_step_rank", "state_size")))
        # Epsilon must shrink like the square of a head's output; state_norm compensates for the output itself.
        scale = small.head / delta.head * (shape.n_embd / source.size("embedding_length")) ** 0.5
        super().__init__(source, shape, place, scale)
        if shape.experts:
            raise self._unfit("expert_count", "the feed-forward of a hybrid stays dense here")
        self.delta, self.interval = delta, source.size("full_attention_interval")
        self.n_mtp = source.size("nextn_predict_layers", 0)
        if self.n_mtp:
            self.push, self.padded_row = MTP_PUSH, MTP_PADDED_ROW
        per_key, small_per_key = delta.n_head_v // delta.n_head_k, small.n_head_v // small.n_head_k
        for key, low, high in (
            ("ssm.group_count", small.n_head_k, delta.n_head_k),
            ("ssm.time_step_rank", small_per_key, per_key),
            ("ssm.state_size", small.head, delta.head),
        ):
            if low > high:
                raise self._unfit(key, f"{low} > {high}", hint="take a larger shape")
        # Value heads are interleaved: the first of every key head, the second of every key head, ...
        n_k, channels = delta.n_head_k, np.arange(small.head)
        keys = list(range(small.n_head_k))
        values = [nth * n_k + key for nth in range(small_per_key) for key in keys]
        mixed = [*keys, *(n_k + i for i in keys), *(2 * n_k + i for i in values)]
        self.mixed = Heads(2 * n_k + delta.n_head_v, delta.head, mixed, channels)  # q, k and v behind each other
        self.value = Heads(delta.n_head_v, delta.head, values, channels)
        self.gates = Heads(delta.n_head_v, 1, values, np.arange(1))

    def metadata(self, ftype: str) -> dict[str, Value]:
        """Like the base, with the delta-net's sizes."""
        result = super().metadata(ftype)
        for key, data in (
            ("ssm.group_count", self.delta.n_head_k),
            ("ssm.time_step_rank", self.delta.n_head_v),
            ("ssm.state_size", self.delta.head),
            ("ssm.inner_size", self.delta.n_head_v * self.delta.head),
            ("block_count", self.n_layer + self.n_mtp),
            ("attention.recurrent_layers", [self.is_recurrent(i) for i in range(self.n_layer + self.n_mtp)]),
        ):
            name = f"{self.source.arch}.{key}"
            result[name] = replace(result[name], data=data)
        return result

    def is_recurrent(self, index: int) -> bool:
        """Whether the layer is a delta-net layer."""
        return index < self.n_layer and (index + 1) % self.interval != 0

    def tensors(self) -> Iterator[OutputTensor]:
        yield from super().tensors()
        n_real = self.source.size("block_count") - self.n_mtp
        for i in range(self.n_mtp):
            yield from self.layer(self.n_layer + i, n_real + i)
            yield from self.mtp(f"blk.{self.n_layer + i}.nextn", f"blk.{n_real + i}.nextn")

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

    def layer(self, index: int, real: int | None) -> Iterator[OutputTensor]:
        """Like the base, with one of the two kinds of attention."""

        def names(part: str) -> tuple[str, str | None]:
            return f"blk.{index}.{part}", None if real is None else f"blk.{real}.{part}"

        def weights(part: str) -> tuple[str, str | None]:
            return names(f"{part}.weight")

        for part in ("attn_norm", "post_attention_norm"):
            yield self.norm(*weights(part))
        yield from self.delta_net(names) if self.is_recurrent(index) else self.attention(weights)
        yield from self.feed_forward(weights)

    def query(self) -> Heads:
        """The heads of q, each followed by its gate."""
        return replace(self.q, n=2 * self.q.n, places=[2 * place + i for place in self.q.places for i in (0, 1)])

    def delta_net(self, names: Names) -> Iterator[OutputTensor]:
        """A gated delta-net; `names` returns whole names."""
        yield self.heads(*names("attn_qkv.weight"), self.mixed)
        yield self.heads(*names("attn_gate.weight"), self.value)
        yield self.heads(*names("ssm_conv1d.weight"), self.mixed, columns=self.source.size("ssm.conv_kernel"))
        for part in ("ssm_alpha.weight", "ssm_beta.weight"):
            yield self.heads(*names(part), self.gates)
        yield self.per_head(*names("ssm_dt.bias"), 1.0)
        # With the bias of 1, a quarter of the state is left after each token.
        yield self.per_head(*names("ssm_a"), -1.0)
        yield self.state_norm(*names("ssm_norm.weight"))
        yield self.heads(*names("ssm_out.weight"), self.value, output=True)

    def per_head(self, name: str, source: str | None, new: float) -> OutputTensor:
        """A number for each value head, `new` for new ones."""
        small = self.source.tensor(source) if source else None

        def values() -> Array:
            out = np.full(self.gates.n, new)
            if small is not None:
                out[self.gates.places] = small()
            return out

        return exact_tensor(name, (self.gates.n,), values)

    def state_norm(self, name: str, source: str | None) -> OutputTensor:
        """The weights of the norm over a value head's output. The output is smaller by `gain`, because of the scale
        1/sqrt(size); its root mean square by `gain` squared, because of the added zeros."""
        gain = (len(self.value.channels) / self.value.size) ** 0.5
        small = self.source.tensor(source) if source else None

        def values() -> Array:
            out = np.ones(self.value.size)
            if small is not None:
                out[self.value.channels] = small() * gain
            return out

        return exact_tensor(name, (self.value.size,), values)
