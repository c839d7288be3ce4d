"""LiliCorr: a small transformer over all candidates of a block, which scores each pair of neighbours."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import ClassVar

from gguf import GGMLQuantizationType

from ..gguf_metadata import Value, f32, u32
from ..keys import Keys, wrong
from ..tensor_spec import Dimensions, Rows, TensorSpec, matrix, norm, vector
from .dflash2 import DFlash2
from .kind import Kind, KindClues

_HEAD = "lilicorr"
_N_FEATURES = 5  # of a candidate's probability and rank
_FIELDS = (
    "candidate_topk", "hidden_size", "factor_dim", "num_layers", "num_heads", "mlp_ratio", "logit_scale", "vector_eps",
)  # fmt: skip
# What the engine takes (ggml_ops/files/drafter_check.cpp).
_MAX_CANDIDATES, _MAX_LAYERS = 32, 16


@dataclass(frozen=True)
class LiliCorr(Kind):
    """Sources: ModelOpt's exporter; TensorRT-LLM, modeling_lilicorr.py. `width`: of rows between its layers, `n_ff`: of
    rows inside a layer, `n_factor`: of the vectors that are compared. `convolutions`: DFlash 2's, if there are any."""

    name: ClassVar[str] = "LiliCorr"
    key: ClassVar[str] = "lilicorr_top_k"
    lattice: ClassVar[bool] = True
    needs_all_tokens: ClassVar[tuple[str, str] | None] = ("correlator", "lilicorr_hidden.weight")
    trains: ClassVar[bool] = False

    top_k: int
    width: int
    n_factor: int
    n_layer: int
    n_head: int
    n_ff: int
    logit_scale: float
    vector_epsilon: float
    block_size: int
    convolutions: DFlash2 | None

    @classmethod
    def read(cls, clues: KindClues) -> LiliCorr:
        _refuse(clues)
        keys, n_embd = clues.keys, clues.n_embd
        top_k = keys.integer(f"{_HEAD}_candidate_topk")
        most = min(_MAX_CANDIDATES, clues.n_vocab)
        if top_k > most:
            raise wrong(
                f"{_HEAD}_candidate_topk",
                f"{top_k} candidates of a position; at most {most} are supported: use a drafter trained with fewer",
            )
        width = keys.integer(f"{_HEAD}_hidden_size", minimum=0, maximum=65536) or n_embd
        n_head = keys.integer(f"{_HEAD}_num_heads")
        if width % n_head:
            raise wrong(f"{_HEAD}_num_heads", f"{n_head} heads do not divide {_HEAD}_hidden_size {width}")
        epsilon = keys.number(f"{_HEAD}_vector_eps")
        if not 1e-6 <= epsilon <= 0.5:
            raise wrong(f"{_HEAD}_vector_eps", f"{epsilon} is not from 1e-6 to 0.5")
        return cls(
            top_k=top_k,
            width=width,
            n_factor=keys.integer(f"{_HEAD}_factor_dim", maximum=65536),
            n_layer=keys.integer(f"{_HEAD}_num_layers", maximum=_MAX_LAYERS),
            n_head=n_head,
            n_ff=int(width * keys.number(f"{_HEAD}_mlp_ratio")),
            logit_scale=keys.number(f"{_HEAD}_logit_scale"),
            vector_epsilon=epsilon,
            block_size=keys.integer("block_size", minimum=2),
            convolutions=_convolutions(keys, n_embd),
        )

    def metadata(self) -> dict[str, Value]:
        keys = {
            "lilicorr_top_k": u32(self.top_k),
            "lilicorr_block_count": u32(self.n_layer),
            "lilicorr_head_count": u32(self.n_head),
            "lilicorr_logit_scale": f32(self.logit_scale),
            "lilicorr_vector_epsilon": f32(self.vector_epsilon),
        }
        if self.convolutions:
            keys |= {
                "conv_kernel_size": u32(self.convolutions.conv_kernel_size),
                "conv_group_size": u32(self.convolutions.conv_group_size),
            }
        return keys

    def tensors(self, drafter: Dimensions, found: Collection[str]) -> Iterator[TensorSpec]:
        n_embd, width = drafter.n_embd, self.width
        if width != n_embd:
            yield from _affine("token", "token_proj", width, n_embd)
        yield from _affine("hidden", "pass_hidden_proj", width, n_embd)
        yield from _affine("context", "context_proj", width, n_embd)
        yield from self._features(found)
        # of one block and all its candidates: dimensions of one
        dimensions = (1,) * (1 if _is_named(found) else 2)
        yield _floats("position_embd", (self.block_size - 1, width), "slot_embedding", dimensions, (1,))
        yield _floats("rank_embd", (self.top_k, width), "rank_embedding", (*dimensions, 1))
        yield _floats("distance_bias", (self.n_head, 2 * self.block_size - 1), "relative_slot_bias")
        yield _floats("same_bias", (self.n_head,), "same_slot_bias")
        for layer in range(self.n_layer):
            yield from self._layer(layer, found)
        yield norm("lilicorr_output_norm", "lilicorr.output_norm", width)
        yield norm("lilicorr_context_norm", "lilicorr.anchor_norm", width)
        # one matrix in the checkpoint, for a candidate's row, the context row and their product, one after the other
        for i, part in enumerate(("factor", "factor_context", "factor_product")):
            yield TensorSpec(
                f"lilicorr_{part}.weight",
                (width, width),
                "lilicorr.factor_input_proj.weight",
                (width, 3 * width),
                transform=_columns(i * width, width),
            )
        yield vector("lilicorr_factor.bias", "lilicorr.factor_input_proj.bias", width)
        for part, source in (("out", "out_head"), ("in", "in_head"), ("start", "anchor_out_head")):
            yield from _affine(part, source, self.n_factor, width)

    def layer_tensors(self, drafter: Dimensions, layer: int, found: Collection[str]) -> Iterator[TensorSpec]:
        if self.convolutions:
            yield from self.convolutions.layer_tensors(drafter, layer, found)

    def _features(self, found: Collection[str]) -> Iterator[TensorSpec]:
        named = _is_named(found)
        source = "lilicorr.feature_norm" if named else "lilicorr.feature_mlp.0"
        yield norm("lilicorr_feature_norm", source, _N_FEATURES)
        yield vector("lilicorr_feature_norm.bias", f"{source}.bias", _N_FEATURES)
        up, down = ("up_proj", "down_proj") if named else ("1", "3")
        yield from _affine("feature_up", f"feature_mlp.{up}", self.width, _N_FEATURES)
        yield from _affine("feature_down", f"feature_mlp.{down}", self.width, self.width)

    def _layer(self, layer: int, found: Collection[str]) -> Iterator[TensorSpec]:
        blk, source, width = f"blk.{layer}", f"layers.{layer}", self.width
        up, down = ("up_proj", "down_proj") if _is_named(found) else ("0", "2")
        yield norm(f"lilicorr_{blk}.attn_norm", f"lilicorr.{source}.attn_norm", width)
        shape = (3 * width, width)
        yield TensorSpec(f"lilicorr_{blk}.attn_qkv.weight", shape, f"lilicorr.{source}.attn.in_proj_weight", shape)
        yield vector(f"lilicorr_{blk}.attn_qkv.bias", f"lilicorr.{source}.attn.in_proj_bias", 3 * width)
        yield from _affine(f"{blk}.attn_output", f"{source}.attn.out_proj", width, width)
        yield norm(f"lilicorr_{blk}.ffn_norm", f"lilicorr.{source}.mlp_norm", width)
        yield from _affine(f"{blk}.ffn_up", f"{source}.mlp.{up}", self.n_ff, width)
        yield from _affine(f"{blk}.ffn_down", f"{source}.mlp.{down}", width, self.n_ff)


def _refuse(clues: KindClues) -> None:
    keys = clues.keys
    for name in (f"{_HEAD}_{field}" for field in _FIELDS):
        if keys.find(name)[1] is None:
            raise wrong(name, "it is missing: export the checkpoint again, with the whole dflash_config")
    if keys.integer("draft_vocab_size", clues.n_vocab) < clues.n_vocab:
        raise wrong("draft_vocab_size", "no LiliCorr drafter has a reduced vocabulary")
    if clues.samples_from_anchor:
        raise wrong("sample_from_anchor", "it is true; the anchor of a LiliCorr drafter proposes nothing")
    if keys.flag("has_own_lm_head", False) and "lm_head.weight" not in clues.found:
        raise wrong("has_own_lm_head", "it is true, and lm_head.weight is missing: download the whole checkpoint")


def _convolutions(keys: Keys, n_embd: int) -> DFlash2 | None:
    """Both sizes or neither; 0 means none."""
    kernel, group = (keys.integer(f"conv_{name}_size", 0, minimum=0) for name in ("kernel", "group"))
    if kernel == 0 and group == 0:
        return None
    if kernel == 0 or group == 0 or n_embd % group:
        name = "conv_kernel_size" if kernel == 0 else "conv_group_size"
        raise wrong(name, f"a kernel of {kernel} rows and groups of {group} values do not fit hidden_size {n_embd}")
    return DFlash2(kernel, group, selector_rank=0, selector_top_k=0)


def _is_named(found: Collection[str]) -> bool:
    """Whether the feed-forward parts have names instead of numbers."""
    return "lilicorr.feature_norm.weight" in found


def _affine(name: str, source: str, n_out: int, n_in: int) -> Iterator[TensorSpec]:
    """A matrix of the head and what is added to its products."""
    yield matrix(f"lilicorr_{name}", f"lilicorr.{source}", n_out, n_in)
    yield vector(f"lilicorr_{name}.bias", f"lilicorr.{source}.bias", n_out)


def _floats(
    name: str, shape: tuple[int, ...], source: str, before: tuple[int, ...] = (), between: tuple[int, ...] = ()
) -> TensorSpec:
    """A table that is added element by element. In the checkpoint there may be dimensions of one before its rows, and
    between rows and columns."""
    stored = (*before, *shape[:1], *between, *shape[1:])
    return TensorSpec(f"lilicorr_{name}", shape, f"lilicorr.{source}", stored, type=GGMLQuantizationType.F32)


def _columns(first: int, n: int) -> Callable[[Rows], Rows]:
    return lambda rows: rows[:, first : first + n]
