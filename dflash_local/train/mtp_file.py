"""MtpFile: a target's next-token (MTP) layer in a file of its own, to go on from and to write.

Names and shapes are those of src/models/qwen35.cpp and hy-v3.cpp of the pinned llama.cpp. The file is what its
converter writes with --mtp: all keys of the target, its embeddings and its head, and the layer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from dflash_local.convert.config import DrafterConfig
from dflash_local.convert.dialects import as_text
from dflash_local.convert.gguf_metadata import StoredGgufTensor, Value, read_model, u32
from dflash_local.convert.gguf_parts import is_gguf
from dflash_local.convert.kinds import Kind
from dflash_local.convert.rope import Rope
from dflash_local.convert.target import Target
from dflash_local.convert.tensor_spec import TensorSpec, matrix, norm
from dflash_local.convert.writer import OutputTensor, write_drafter
from dflash_local.draft_options import FINAL_STATE
from dflash_local.errors import ConvertError, ModelError, RequestError
from dflash_local.train.drafter_file import EMBEDDINGS, HEAD, DrafterFile, Values

LENGTH = 8  # of a draft while the layer learns, the anchor counted
_NORM = "output_norm.weight"
_HEAD_NORM = "nextn.shared_head_norm.weight"
_WITH_LAYER = "give a file that has it with --init: the model that yours was made from, or its mtp-*.gguf"


class Form(NamedTuple):
    """What a layer of an architecture is like. `gated`: attention's output passes a gate."""

    gated: bool
    ffn_norm: str


FORMS = {"qwen35": Form(gated=True, ffn_norm="post_attention_norm"), "hy_v3": Form(gated=False, ffn_norm="ffn_norm")}


@dataclass(frozen=True)
class Mtp(Kind):
    """A layer that proposes one token after the other, each with its own hidden state of the token before."""

    name: ClassVar[str] = "MTP"
    needs_all_tokens: ClassVar[tuple[str, str] | None] = ("head", HEAD)


@dataclass(frozen=True)
class MtpFile(DrafterFile):
    """`config.block_size` counts the tokens that a draft proposes; `stored` are the tensors to go on from, by the names
    that they have in this file."""

    stored: dict[str, StoredGgufTensor] = field(default_factory=dict)
    gated: bool = True

    @property
    def kind(self) -> str:
        return "mtp"

    @property
    def block(self) -> int:
        return self.config.block_size + 1

    @classmethod
    def of(cls, path: Path, target: Target, length: int | None) -> MtpFile:
        """The layer of a whole model or of an MTP file, for drafts of `length` tokens, the anchor counted.

        Raises:
            RequestError, ConvertError, ModelError: it has no such layer, or one that is not trained, or not of this
                target.
        """
        if not path.is_file() or not is_gguf(path):
            raise RequestError(f"{path} is no GGUF file", param="--init", hint=_WITH_LAYER)
        keys, of_target = read_model(target.path)
        _check_arch(target.arch, target.path)
        layer = _layer(path, target)
        head_norm = f"blk.{target.n_layer}.{_HEAD_NORM}"
        layer.setdefault(head_norm, of_target[_NORM])  # as llama.cpp does
        form, config = FORMS[target.arch], _config(keys, target, (length or LENGTH) - 1)
        specs = list(_specs(config, form, target.n_layer))
        _check_tensors(path, layer, specs)
        values = {spec.source: layer[spec.name].numbers() for spec in specs}
        frozen = {name: of_target[name] for name in (EMBEDDINGS, HEAD, _NORM) if name in of_target}
        keys = _with_layer(keys, target)
        return cls(config, {}, keys, specs, values, frozen, stored=layer, gated=form.gated)

    def write_stored(self, path: Path) -> None:
        """Write the layer to go on from, as it is. Raises ConvertError."""
        layer = [OutputTensor.of(self.stored[spec.name], spec.name) for spec in self.specs]
        write_drafter(path, self.keys, [*map(OutputTensor.of, self.frozen.values()), *layer], None)

    def write_checkpoint(self, folder: Path, values: Values) -> None:
        raise ConvertError("an MTP layer has no Hugging Face folder of its own", field="--hf")


def write_merged(target: Path, layer: Path, output: Path) -> None:
    """Write the whole target with the layer of an MTP file of it. Raises ConvertError."""
    keys, tensors = read_model(target)
    new_keys, of_layer = read_model(layer)
    kept = {key: keys[key] for key in ("general.file_type", "general.quantization_version") if key in keys}
    tensors |= {name: tensor for name, tensor in of_layer.items() if name.startswith("blk.")}
    write_drafter(output, new_keys | kept, [OutputTensor.of(tensor) for tensor in tensors.values()], None)


# ---- what is read ----


def _check_arch(arch: str, path: Path, wanted: Collection[str] = FORMS) -> None:
    if arch not in wanted:
        raise ConvertError(
            f"{path.name} ({arch}): MTP layers are trained for the architectures qwen35 (dense Qwen3.5, 3.6) and hy_v3 "
            "(dense layers) alone, with one of their own",
            field="general.architecture",
            hint="leave --kind mtp out: a DFlash drafter can be trained for any target",
        )


def _layer(path: Path, target: Target) -> dict[str, StoredGgufTensor]:
    """The tensors of a file's MTP layer, named as the one behind the target's last layer."""
    keys, tensors = read_model(path)
    _check_arch(as_text(keys["general.architecture"]), path, (target.arch,))
    n_nextn, n_all = (_number(keys, f"{target.arch}.{key}", path) for key in ("nextn_predict_layers", "block_count"))
    prefix = f"blk.{n_all - n_nextn}."
    found = {name: tensor for name, tensor in tensors.items() if name.startswith(prefix)} if n_nextn else {}
    if f"{prefix}nextn.eh_proj.weight" not in found:
        raise ModelError(
            f"{path.name} has no MTP layer (nextn tensors) to go on from",
            field=f"{target.arch}.nextn_predict_layers",
            hint=_WITH_LAYER,
        )
    if n_nextn > 1:
        raise ConvertError(f"{path.name} has {n_nextn} MTP layers: a single one is trained", field=prefix)
    return {f"blk.{target.n_layer}.{name.removeprefix(prefix)}": tensor for name, tensor in found.items()}


def _check_tensors(path: Path, layer: Mapping[str, StoredGgufTensor], specs: list[TensorSpec]) -> None:
    if strange := sorted(layer.keys() - {spec.name for spec in specs}):
        raise ConvertError(f"{path.name}: the tensor {strange[0]!r} is not one that is trained", field=strange[0])
    for spec in specs:
        if spec.name not in layer:
            raise ModelError(f"{path.name}: the tensor {spec.name!r} is missing", field=spec.name)
        if layer[spec.name].shape != spec.shape:
            raise ModelError(
                f"{path.name}: {spec.name!r} has the shape {layer[spec.name].shape}, with this target {spec.shape}",
                field=spec.name,
                hint=_WITH_LAYER,
            )


def _number(keys: Mapping[str, Value], name: str, path: Path, default: float = 0) -> Any:
    """Raises ModelError."""
    data = keys[name].data if name in keys else default
    if type(data) not in (int, float):
        raise ModelError(f"{path.name}: the key {name!r} is not a number", field=name)
    return data


def _config(keys: Mapping[str, Value], target: Target, n_proposed: int) -> DrafterConfig:
    def number(key: str, default: float = 0) -> Any:
        return _number(keys, f"{target.arch}.{key}", target.path, default)

    scaling = f"{target.arch}.rope.scaling.type"
    if scaling in keys and as_text(keys[scaling]) != "none":
        raise ConvertError(
            f"{target.path.name}: MTP layers with scaled rotary positions are not trained", field=scaling
        )
    n_head, n_embd = number("attention.head_count"), target.n_embd
    head_dim = number("attention.key_length", n_embd // max(n_head, 1))
    return DrafterConfig(
        n_layer=1,
        n_embd=n_embd,
        n_ff=number("feed_forward_length"),
        n_head=n_head,
        n_head_kv=number("attention.head_count_kv", n_head),
        head_dim=head_dim,
        n_vocab=target.n_vocab,
        n_vocab_draft=target.n_vocab,
        taps=(FINAL_STATE,),
        kind=Mtp(),
        # A text's positions are the same in all parts of M-RoPE.
        rope=Rope("default", number("rope.freq_base", 10000.0), number("rope.dimension_count", head_dim)),
        n_ctx=number("context_length"),
        norm_eps=number("attention.layer_norm_rms_epsilon", 1e-6),
        activation="silu",
        block_size=n_proposed,
        mask_token=0,  # there is none
        n_vocab_stored=target.n_vocab,
        n_candidates=target.n_vocab,
        samples_from_anchor=True,
        context_theta=None,
        rope_interleaved=False,
        sliding_window=0,
        is_sliding=(False,),
        causal=None,
        logit_scale=None,
        logit_softcap=None,
        embedding_scale=None,
        value_scale=None,
        warnings=(),
    )


def _specs(c: DrafterConfig, form: Form, n_layer: int) -> Iterator[TensorSpec]:
    """The layer's tensors; sources are the names of Qwen3.5's checkpoints, less "mtp."."""
    of, layer, n_q = f"blk.{n_layer}", "layers.0", c.n_head * c.head_dim
    yield matrix(f"{of}.nextn.eh_proj", "fc", c.n_embd, 2 * c.n_embd)
    yield norm(f"{of}.nextn.enorm", "pre_fc_norm_embedding", c.n_embd)
    yield norm(f"{of}.nextn.hnorm", "pre_fc_norm_hidden", c.n_embd)
    yield norm(f"{of}.attn_norm", f"{layer}.input_layernorm", c.n_embd)
    yield matrix(f"{of}.attn_q", f"{layer}.self_attn.q_proj", 2 * n_q if form.gated else n_q, c.n_embd)
    yield matrix(f"{of}.attn_k", f"{layer}.self_attn.k_proj", c.n_head_kv * c.head_dim, c.n_embd)
    yield matrix(f"{of}.attn_v", f"{layer}.self_attn.v_proj", c.n_head_kv * c.head_dim, c.n_embd)
    yield matrix(f"{of}.attn_output", f"{layer}.self_attn.o_proj", c.n_embd, n_q)
    yield norm(f"{of}.attn_q_norm", f"{layer}.self_attn.q_norm", c.head_dim)
    yield norm(f"{of}.attn_k_norm", f"{layer}.self_attn.k_norm", c.head_dim)
    yield norm(f"{of}.{form.ffn_norm}", f"{layer}.post_attention_layernorm", c.n_embd)
    yield matrix(f"{of}.ffn_gate", f"{layer}.mlp.gate_proj", c.n_ff, c.n_embd)
    yield matrix(f"{of}.ffn_up", f"{layer}.mlp.up_proj", c.n_ff, c.n_embd)
    yield matrix(f"{of}.ffn_down", f"{layer}.mlp.down_proj", c.n_embd, c.n_ff)
    yield norm(f"{of}.{_HEAD_NORM.removesuffix('.weight')}", "norm", c.n_embd)


def _with_layer(keys: dict[str, Value], target: Target) -> dict[str, Value]:
    """A target's keys for a file that has one MTP layer after its layers."""
    arch, n_layer = target.arch, target.n_layer
    keys = keys | {f"{arch}.block_count": u32(n_layer + 1), f"{arch}.nextn_predict_layers": u32(1)}
    recurrent = f"{arch}.attention.recurrent_layers"
    if recurrent in keys:
        keys[recurrent] = replace(keys[recurrent], data=[*keys[recurrent].data[:n_layer], False])
    return keys
