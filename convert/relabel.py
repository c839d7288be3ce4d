"""Rewrite a drafter's GGUF of another dialect as upstream's: names and keys change, the data of tensors does not."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFValueType

from dflash_local.errors import ConvertError, ModelError

from . import dialects
from .config import Architecture, checked_mask_token
from .dialects import Dialect
from .gemma4 import borrowed_scales
from .gguf_metadata import INTEGERS, StoredGgufTensor, Value, array, boolean, f32, read_model, string, u32
from .gguf_parts import part_paths
from .kinds import DFlash2, DSpark, Kind
from .names import ARCH, sources, tensors, without_head
from .published_taps import published_taps
from .rope import Rope, yarn_scale
from .target import MASK_TOKEN, Target
from .writer import Chunks, OutputTensor, Progress, check_output, write_drafter

# Increased when the rewriting changes, so that kept results are made again.
VERSION = 2
_F32, _F16, _BF16 = GGMLQuantizationType.F32, GGMLQuantizationType.F16, GGMLQuantizationType.BF16

# Keys (without the architecture's name) that are the same in all dialects.
_SAME = re.compile(
    r"backbone_rotary_base|block_count|block_size|context_length|embedding_length|feed_forward_length|hidden_activation"
    r"|embedding_scale|logit_scale|final_logit_softcapping"
    r"|attention\.(head_count|head_count_kv|key_length|value_length|layer_norm_rms_epsilon|scale|value_scale|causal)"
    r"|attention\.sliding_window(_pattern)?"
    r"|rope\.(freq_base|dimension_count|dimension_sections)"
    r"|rope\.scaling\.(type|factor|original_context_length|attn_factor|finetuned|yarn_ext_factor|yarn_beta_(fast|slow))"
    r"|conv_kernel_size|conv_group_size|selector_rank|selector_top_k|selector_vocab_size"
)
_MAGNITUDE = "rope.scaling.yarn_attn_factor"
# Keys that the tensors imply, or that are written anew.
_IMPLIED = frozenset({
    "confidence_head", "confidence_head_with_markov", "dspark.confidence.enabled", "dspark.confidence_dim",
    "dspark.enabled", "dspark.markov_rank", "dspark.vocab_size", "has_confidence_head", "markov_rank", "mask_token_id",
    "n_target_features", "n_target_layers", "num_target_layers", "sample_from_anchor", "target_layer_ids",
    "target_layers", "vocab_size", _MAGNITUDE,
})  # fmt: skip
_FACTORS, _MASK_ROW, _D2T, _MARKOV = "rope_freqs.weight", "mask_embd.weight", "d2t", "markov_w1.weight"
_WRONG_DIALECT = "the file is not what its architecture says; convert the drafter's checkpoint instead"


@dataclass(frozen=True)
class Relabelling:
    """A file in upstream's dialect, not yet written. `notes` say what the source lacked and where it comes from;
    `is_needed` is False if the source is already in this dialect."""

    source: Path
    target: Path
    dialect: Dialect
    metadata: Mapping[str, Value]
    tensors: list[OutputTensor]
    notes: list[str]
    is_needed: bool

    @property
    def n_bytes(self) -> int:
        return sum(tensor.n_bytes for tensor in self.tensors)

    def write(self, output: Path, progress: Progress | None = None, *, hollow: bool = False) -> None:
        """Write the file, in full or not at all; a `hollow` one is sparse, without data. Peak memory does not depend on
        its size. Raises ConvertError."""
        check_output(output, (*part_paths(self.source), *part_paths(self.target)))
        write_drafter(output, self.metadata, self.tensors, progress, hollow=hollow)


def relabel(
    source: Path, target: Path, target_layer_ids: tuple[int, ...] | None = None, *, non_causal: bool = False
) -> Relabelling:
    """Read the headers of a drafter's GGUF and of its target's, and translate the drafter's to upstream's dialect. Of a
    split file, give the first part.

    `target_layer_ids` are the taps of a file that names none, as in config.json: layers whose output is tapped.
    `non_causal`: in sliding layers, too, the rows of a block see later ones; a file of dialect B cannot express it.
    Raises ConvertError (drafter) or ModelError (target); `field` is the key or tensor to blame.
    """
    try:
        metadata, stored = read_model(source)
    except ModelError as error:
        raise ConvertError(error.message, field=error.field, hint=error.hint) from None
    try:
        return _Reader(source, metadata, stored, Target.read(target), non_causal).relabelling(target_layer_ids)
    except ConvertError as error:
        raise ConvertError(f"{source.name}: {error.message}", field=error.field, hint=error.hint) from None


@dataclass
class _Reader:
    """A drafter's file, read in its dialect."""

    source: Path
    metadata: dict[str, Value]
    stored: dict[str, StoredGgufTensor]
    target: Target
    non_causal: bool
    arch: str = ""
    dialect: Dialect = dialects.A
    keys: dict[str, tuple[str, Value]] = field(default_factory=dict)  # name in upstream -> key in the file, value
    tensors: dict[str, StoredGgufTensor] = field(default_factory=dict)  # name in upstream -> tensor of the file
    notes: list[str] = field(default_factory=list)

    def relabelling(self, target_layer_ids: tuple[int, ...] | None) -> Relabelling:
        metadata = self.metadata
        self.arch = dialects.as_text(metadata.get("general.architecture", u32(0)))
        self.dialect = dialects.recognise(self.arch, metadata, self.stored)
        if self.dialect is dialects.A:
            if self.non_causal:
                raise ConvertError(
                    "a file of llama.cpp's dialect says itself whether it is causal",
                    field=f"{ARCH}.attention.causal", hint="leave out --non-causal",
                )  # fmt: skip
            if target_layer_ids is not None:
                raise _idle_taps(f"{ARCH}.target_layers")
            return self._mended()
        self._read_keys()
        self._read_tensors()
        drafter = self._drafter(target_layer_ids)
        outputs = [_output(name, tensor) for name, tensor in self.tensors.items()]
        return self._result(self._metadata(drafter), outputs, is_needed=True)

    def _result(self, metadata: Mapping[str, Value], outputs: list[OutputTensor], *, is_needed: bool) -> Relabelling:
        return Relabelling(
            self.source, self.target.path, self.dialect, metadata, outputs, self.notes, is_needed=is_needed
        )

    def _mended(self) -> Relabelling:
        """A file of upstream's dialect unchanged, except for a rotation that was copied from the target's config."""
        metadata, is_needed = dict(self.metadata), False
        if has_copied_rotation(metadata, self.target):
            is_needed = True
            self.notes.append(ROTATION_NOTE)
            del metadata[f"{ARCH}.rope.dimension_count"]
            if f"{ARCH}.rope.dimension_sections" in metadata:
                n_dims = int(metadata[f"{ARCH}.attention.key_length"].data)
                metadata[f"{ARCH}.rope.dimension_sections"] = _sections(n_dims)
        outputs = [_output(name, tensor) for name, tensor in self.stored.items()]
        return self._result(metadata, outputs, is_needed=is_needed)

    def _read_keys(self) -> None:
        for key, value in self.metadata.items():
            name = self.dialect.own(self.arch, key)
            if name is None:
                continue
            if not (_SAME.fullmatch(name) or name in _IMPLIED or not value.data):
                raise ConvertError(
                    f"unknown key {key!r}: upstream's dialect has no place for it", field=key, hint=_WRONG_DIALECT
                )
            if name in self.keys and self.keys[name][1] != value:
                raise ConvertError(f"{key} and {self.keys[name][0]} contradict each other", field=key)
            self.keys[name] = (key, value)

    def _read_tensors(self) -> None:
        for name, tensor in self.stored.items():
            new = self.dialect.renamed(name)
            if new in self.tensors:
                what = f"the tensors {self.tensors[new].name!r} and {name!r} would both be {new!r}"
                raise ConvertError(what, field=name, hint=_WRONG_DIALECT)
            self.tensors[new] = tensor
        if "output.weight" not in self.tensors and "token_embd.weight" in self.tensors:
            del self.tensors["token_embd.weight"]
            self.notes.append(without_head("token_embd.weight"))

    # ---- values, typed ----

    def _key(self, name: str) -> str:
        return self.keys[name][0] if name in self.keys else f"{self.arch}.{name}"

    def _bad(self, name: str, what: str, hint: str | None = _WRONG_DIALECT) -> ConvertError:
        return ConvertError(f"{self._key(name)} {what}", field=self._key(name), hint=hint)

    def _value(self, name: str, fits: Callable[[Value], bool], what: str) -> Any:
        """What a key says; None if it is missing. Raises ConvertError if it is not `what`."""
        if name not in self.keys:
            return None
        value = self.keys[name][1]
        if not fits(value):
            raise self._bad(name, f"must be {what}")
        return value.data

    def integer(self, name: str, default: int | None = None, *, low: int = 1, high: int = 2**31 - 1) -> int:
        """A whole number from `low` to `high`. Raises ConvertError if it is missing without a default."""
        what = f"a whole number from {low} to {high}"
        number = self._value(name, lambda v: v.type in INTEGERS and low <= v.data <= high, what)
        if number is None:
            number = default
        if number is None:
            raise self._bad(name, "is missing")
        return int(number)

    def number(self, name: str) -> float:
        f32_type = GGUFValueType.FLOAT32
        number = self._value(name, lambda v: v.type == f32_type and 0 < v.data < 1e30, "a positive number")
        if number is None:
            raise self._bad(name, "is missing, and a guess would cost drafts without an error")
        return float(number)

    def integers(self, name: str) -> tuple[int, ...] | None:
        """An array of whole numbers or flags; None if it is missing."""
        items = {*INTEGERS, GGUFValueType.BOOL}
        found = self._value(name, lambda v: v.item in items and len(v.data) <= 1024, "a list of whole numbers")
        return None if found is None else tuple(map(int, found))

    def flag(self, name: str) -> bool | None:
        return self._value(name, lambda v: v.type == GGUFValueType.BOOL, "true or false")

    # ---- the drafter ----

    def _drafter(self, target_layer_ids: tuple[int, ...] | None) -> dict[str, Value]:
        """The keys that are written anew, checked against the drafter's tensors and the target."""
        n_embd, n_layer = self.integer("embedding_length"), self.integer("block_count", high=512)
        n_head, n_ff = self.integer("attention.head_count"), self.integer("feed_forward_length")
        n_head_kv = self.integer("attention.head_count_kv", n_head)
        if n_embd != self.target.n_embd:
            what = f"is {n_embd}, the target's {self.target.arch}.embedding_length says {self.target.n_embd}"
            raise self._bad("embedding_length", what, "give the GGUF of the model that the drafter was trained for")
        n_taps = max(1, self._tensor("fc.weight").shape[-1] // n_embd)
        head_dim = self.integer("attention.key_length", math.prod(self._tensor("blk.0.attn_q_norm.weight").shape))
        if self.integer("attention.value_length", head_dim) != head_dim:
            raise self._bad("attention.value_length", f"differs from the key length {head_dim}, which no drafter has")
        if head_dim % 2 or n_head % n_head_kv:
            raise self._bad("attention.head_count", f"{n_head} heads of {head_dim} cannot share {n_head_kv} of keys")
        n_vocab = self.target.n_vocab
        self._match(
            Architecture(
                n_layer=n_layer, n_embd=n_embd, n_ff=n_ff, n_head=n_head, n_head_kv=n_head_kv, head_dim=head_dim,
                n_vocab=n_vocab, n_vocab_draft=self.tensors[_D2T].shape[-1] if _D2T in self.tensors else n_vocab,
                taps=(0,) * n_taps,  # here only their number counts
                kind=self._kind(), rope=Rope("default", self.number("rope.freq_base"), head_dim),
            )
        )  # fmt: skip
        self.number("attention.layer_norm_rms_epsilon")
        self.integer("context_length")
        return {
            "attention.head_count_kv": u32(n_head_kv),
            "attention.key_length": u32(head_dim),
            "attention.value_length": u32(head_dim),
            **self._window(n_layer),
            **self._rotation(head_dim),
            **self._magnitude(),
            **self._scales(),
            "block_size": u32(self.integer("block_size", low=2)),
            "target_layers": array(GGUFValueType.INT32, self._taps(n_taps, target_layer_ids)),
            **self._anchor(),
        }

    def _tensor(self, name: str) -> StoredGgufTensor:
        if name not in self.tensors:
            raise ConvertError(f"the tensor {name!r} is missing", field=name, hint=_WRONG_DIALECT)
        return self.tensors[name]

    def _shape(self, name: str, shape: tuple[int, ...]) -> None:
        tensor = self._tensor(name)
        if _trimmed(tensor.shape) != _trimmed(shape):
            what = f"the tensor {tensor.name!r} has shape {list(tensor.shape)}, the keys make it {list(shape)}"
            raise ConvertError(what, field=tensor.name, hint=_WRONG_DIALECT)

    def _kind(self) -> Kind:
        if DFlash2.key in self.keys:
            return DFlash2(*(self.integer(setting.name) for setting in fields(DFlash2)))
        if _MARKOV in self.tensors:
            rank, has_confidence = self.tensors[_MARKOV].shape[-1], "conf_proj.weight" in self.tensors
            return DSpark(rank, samples_from_anchor=False, has_confidence=has_confidence, confidence_sees_markov=True)
        return Kind()

    def _match(self, drafter: Architecture) -> None:
        """Check that the file has every tensor of such a drafter, in its shape, and no others."""
        unknown = {_MASK_ROW} if self.arch == ARCH else {_MASK_ROW, _D2T}
        shapes = {spec.name: spec.shape for spec in tensors(drafter, sources(self.tensors.keys() - unknown))}
        for name, tensor in self.tensors.items():
            if (layer := re.match(r"blk\.(\d+)\.", name)) and int(layer[1]) >= drafter.n_layer:
                what = f"the tensor {tensor.name!r} is of none of the {drafter.n_layer} layers"
                raise ConvertError(what, field=tensor.name)
            if name in unknown or (name not in shapes and name != _FACTORS):
                what = f"unknown tensor {tensor.name!r}: upstream's dialect has no place for it"
                raise ConvertError(what, field=tensor.name, hint=_WRONG_DIALECT)
        for name, shape in shapes.items():
            self._shape(name, shape)

    def _taps(self, n_taps: int, given: tuple[int, ...] | None) -> tuple[int, ...]:
        """Layer inputs. The dialects store ids of layers whose output is tapped, which is the next layer's input."""
        name = "target_layers" if self.dialect.prefix == "dspark." else "target_layer_ids"
        ids, known = self.integers(name), published_taps(self.target, n_taps)
        inputs = self.integers("target_layers") if ids is None and self.arch == ARCH else None
        if given is not None and (ids is not None or inputs is not None):
            raise _idle_taps(self._key(name if inputs is None else "target_layers"))
        if inputs is not None:
            ids = tuple(i - 1 for i in inputs)
        elif ids is None and given is not None:
            ids = given
        elif ids is None and known is not None:
            ids = known[1]
            self.notes.append(f"the file names no taps; they are those of {known[0]}: {_listed(ids)}")
        elif known is not None and ids == tuple(i + 1 for i in known[1]):
            ids = known[1]
            self.notes.append(f"the taps {_listed(i + 1 for i in ids)} are inputs already: those of {known[0]}")
        if ids is None:
            hint = "give them with --target-layer-ids, as the drafter's config.json has them (target_layer_ids)"
            raise self._bad(name, f"is missing: nothing says which {n_taps} layers of the target are tapped", hint)
        if len(ids) != n_taps:
            raise self._bad(name, f"lists {len(ids)} layers, fc.weight takes {n_taps}")
        if not all(-1 <= i < self.target.n_layer for i in ids):
            what = f"{_listed(ids)} is beyond the target's {self.target.n_layer} layers"
            raise self._bad(name, what, "give the GGUF of the model that the drafter was trained for")
        return tuple(i + 1 for i in ids)

    def _window(self, n_layer: int) -> dict[str, Value]:
        """Sliding window and causality. Upstream's key is about all layers; without it, sliding layers are causal and
        full ones are not."""
        causal, window = self.flag("attention.causal"), self.integer("attention.sliding_window", 0, low=0)
        pattern = self.integers("attention.sliding_window_pattern") if window else None
        if window and pattern is None:
            raise self._bad("attention.sliding_window_pattern", "is missing: nothing says which layers slide")
        if pattern is not None and len(pattern) != n_layer:
            raise self._bad("attention.sliding_window_pattern", f"has {len(pattern)} flags for {n_layer} layers")
        if pattern is None or not any(pattern):
            return {"attention.causal": boolean(True)} if causal else {}
        result = {
            "attention.sliding_window": u32(window),
            "attention.sliding_window_pattern": array(GGUFValueType.BOOL, tuple(map(bool, pattern))),
        }
        if self.non_causal or (causal is False and self.dialect.causal_of_all):
            return result | {"attention.causal": boolean(False)}
        if causal is False:
            self.notes.append(_SLIDING_NOTE)
        return result | ({"attention.causal": boolean(True)} if causal or all(pattern) else {})

    def _rotation(self, head_dim: int) -> dict[str, Value]:
        n_dims = self.integer("rope.dimension_count", head_dim, low=2, high=head_dim)
        if n_dims < head_dim and self.target.arch.startswith("qwen35"):
            self.notes.append(ROTATION_NOTE)
            n_dims = head_dim
        result = {} if n_dims == head_dim else {"rope.dimension_count": u32(n_dims)}
        if self.target.uses_mrope:
            result["rope.dimension_sections"] = _sections(n_dims)
        return result

    def _magnitude(self) -> dict[str, Value]:
        """YaRN's factor for queries and keys. ik_llama.cpp stores config.json's value; upstream overwrites that key,
        and reads the factor relative to its own default from another."""
        if _MAGNITUDE not in self.keys:
            return {}
        factor = self.number("rope.scaling.factor")
        return {"rope.scaling.attn_factor": f32(self.number(_MAGNITUDE) / yarn_scale(factor))}

    def _scales(self) -> dict[str, Value]:
        """Gemma 4 scales embeddings and caps logits. Drafters that share both with it do not always have these keys,
        and Lucebox's never do."""
        always = self.arch == "gemma4-dflash-draft"
        if self.target.arch != "gemma4" and not always:
            return {}
        own = () if always else self.tensors
        scales = borrowed_scales(
            self.target, own_embeddings="token_embd.weight" in own, own_head="output.weight" in own
        )
        result = {name: f32(value) for name, value in scales.items() if name not in self.keys}
        if result:
            self.notes.append(f"{' and '.join(result)} are the target's (Gemma 4)")
        return result

    def _anchor(self) -> dict[str, Value]:
        """The explicit key for whether a block's first row proposes, and that of the confidence head, if any."""
        stated = self.flag("sample_from_anchor")
        if _MARKOV not in self.tensors:
            return {"sample_from_anchor": boolean(bool(stated))}
        if stated is None:
            stated = self.dialect.samples_from_anchor
        if stated is None:
            what = "is missing: nothing says which row of a block of this DSpark drafter proposes first"
            raise self._bad("sample_from_anchor", what, "convert the drafter's checkpoint instead")
        has_confidence = "conf_proj.weight" in self.tensors
        return {"sample_from_anchor": boolean(stated), "has_confidence_head": boolean(has_confidence)}

    def _metadata(self, drafter: Mapping[str, Value]) -> dict[str, Value]:
        """The keys of the new file."""
        key, value = self.keys.get("mask_token_id", (MASK_TOKEN, self.metadata.get(MASK_TOKEN)))
        if value is None and self.target.mask_token is None:
            raise ConvertError("no mask token: neither the drafter nor the target names one", field=MASK_TOKEN)
        mask_token = checked_mask_token(key, value and value.data, self.target)
        anew = drafter.keys() | {"attention.causal", "attention.sliding_window", "attention.sliding_window_pattern",
                                 "rope.dimension_count", "rope.dimension_sections"}  # fmt: skip
        general = {
            key: value
            for key, value in self.metadata.items()
            if key.startswith("general.") and key != "general.architecture"
        }
        same = {
            f"{ARCH}.{name}": value
            for name, (_, value) in self.keys.items()
            if _SAME.fullmatch(name) and name not in anew
        }
        return {
            "general.architecture": string(ARCH),
            **general,
            **same,
            **{f"{ARCH}.{name}": value for name, value in drafter.items()},
            **self.target.tokenizer,
            MASK_TOKEN: u32(mask_token),
        }


_SLIDING_NOTE = (
    "attention.causal is false, as in every file of this dialect; sliding layers are taken for causal, as its own "
    "programs compute them. If the drafter's config.json says otherwise (is_causal or causal false, "
    "sliding_window_non_causal true), rewrite it with --non-causal"
)
ROTATION_NOTE = (
    "rope.dimension_count says that a part of each head is rotated: it was copied from the target's configuration, "
    "and the drafter was trained with whole heads; the whole head is rotated now"
)


def has_copied_rotation(metadata: Mapping[str, Value], target: Target) -> bool:
    """Does a file of upstream's dialect wrongly rotate a part of each head, as its target does? Drafters of Qwen3.5 and
    similar models have the target's `partial_rotary_factor`, which the training code ignores; llama.cpp's converter,
    and formerly ours, used it."""
    n_dims, length = metadata.get(f"{ARCH}.rope.dimension_count"), metadata.get(f"{ARCH}.attention.key_length")
    if n_dims is None or length is None or not {n_dims.type, length.type} <= INTEGERS:
        return False
    scaling = metadata.get(f"{ARCH}.rope.scaling.type")
    is_default = scaling is None or dialects.as_text(scaling) in ("", "none")
    return is_default and 0 < n_dims.data < length.data and target.arch.startswith("qwen35")


def _idle_taps(key: str) -> ConvertError:
    return ConvertError(f"the file names its taps itself ({key})", field=key, hint="leave out --target-layer-ids")


def _sections(n_dims: int) -> Value:
    return array(GGUFValueType.INT32, (n_dims // 2, 0, 0, 0))


def _trimmed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Without leading ones: ggml writes a matrix of one row as a vector."""
    return tuple(itertools.dropwhile(lambda n: n == 1, shape))


def _listed(ids: Iterable[int]) -> str:
    return ", ".join(map(str, ids))


def _output(name: str, tensor: StoredGgufTensor) -> OutputTensor:
    """A tensor under its new name. Vectors in half precision, which the engine does not accept, become float32 without
    loss."""
    widened = len(tensor.shape) == 1 and tensor.type in (_F16, _BF16)

    def chunks() -> Chunks:
        for rows in tensor.chunks():
            if not widened:
                yield rows
            elif tensor.type == _F16:
                yield rows.view(np.float16).astype(np.float32)
            else:
                yield (rows.view(np.uint16).astype(np.uint32) << 16).view(np.float32)

    return OutputTensor(name, tensor.shape, _F32 if widened else tensor.type, chunks)
