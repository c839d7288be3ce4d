"""Turn a Hugging Face checkpoint of a drafter and the target's GGUF into a drafter GGUF."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType
from gguf.constants import GGML_QUANT_VERSION

from dflash_local.errors import ConvertError

from . import assistant
from .assistant import AssistantConfig
from .checkpoint import MASK_EMBEDDING, Checkpoint, read_config
from .config import DrafterConfig, check_width
from .gguf_metadata import Value, string, u32
from .gguf_parts import part_paths
from .keys import Keys
from .names import IGNORED, OPTIONAL, metadata, tensors, without_head
from .outtypes import Outtype, RowQuantizer, find_outtype, quantized
from .packaging import recognise
from .safetensors_file import StoredTensor
from .target import Target
from .tensor_spec import TensorSpec
from .writer import Chunks, OutputTensor, Progress, check_output, write_drafter

_EMBEDDINGS, _HEAD = OPTIONAL["token_embd.weight"], OPTIONAL["output.weight"]
_CHUNK_ELEMENTS = 1 << 20  # quantizing takes about ten times a chunk's 4 MiB of float32

Config = DrafterConfig | AssistantConfig


@dataclass(frozen=True)
class Conversion:
    """The result: the file, its configuration, and its tensor data in bytes."""

    path: Path
    config: Config
    n_tensors: int
    n_bytes: int


def convert(
    directory: Path | str,
    target: Path | str,
    output: Path | str,
    *,
    outtype: str = "f16",
    fc_type: str | None = None,
    ggml: RowQuantizer | None = None,
    origin: tuple[str, str] | None = None,
    progress: Progress | None = None,
    hollow: bool = False,
) -> Conversion:
    """Pack the checkpoint in `directory` into the GGUF `output`, for the target whose GGUF is `target`.

    Matrices get `outtype` (one of OUTTYPES; a type of smaller blocks where a row does not divide), vectors and
    convolution kernels stay float32, and the fusion of the taps is `fc_type` (one of FC_TYPES), or bfloat16 or float32.
    Types below 8 bits need `ggml`: `dflash_local.native.quantize_rows`. `origin`: repository and commit of a checkpoint
    from the Hub, stored in the GGUF. Peak memory does not depend on the size of the checkpoint. `output` is written in
    full or not at all; a `hollow` one is sparse, without data, and only headers are read for it, so files may end after
    them. Raises ConvertError (checkpoint, output) or ModelError (target); `field` is the tensor or key.
    """
    chosen = find_outtype(outtype, fc_type)
    if chosen.needs_ggml and ggml is None:
        types = " and ".join(filter(None, (outtype, fc_type)))
        raise ConvertError(f"{types}: quantized by ggml", field="outtype", hint="give ggml=native.quantize_rows")
    checkpoint, model, path = Checkpoint.open(Path(directory)), Target.read(Path(target)), Path(output)
    check_output(path, [*part_paths(model.path), *(tensor.path for tensor in checkpoint.tensors.values())])
    checkpoint, config, specs = _understand(checkpoint, model)
    if fc_type and not any(spec.wide for spec in specs):
        raise ConvertError(f"a {config.title} has no fc to be {fc_type}", field="fc_type", hint="leave out --fc-type")
    outputs = [_output_tensor(spec, checkpoint.tensors.get(spec.source), config, chosen, ggml) for spec in specs]

    keys = _metadata(config, model, origin[0].rpartition("/")[2] if origin else checkpoint.directory.resolve().name)
    keys |= _origin_keys(origin)
    keys["general.file_type"] = u32(chosen.file_type)
    keys["general.quantization_version"] = u32(GGML_QUANT_VERSION)
    total = write_drafter(path, keys, outputs, progress, hollow=hollow)
    return Conversion(path, config, len(outputs), total)


def check(directory: Path | str, target: Path | str) -> Config:
    """The configuration that `convert` would write, or its errors. Reads only headers, so files may end after them."""
    return _understand(Checkpoint.open(Path(directory)), Target.read(Path(target)))[1]


def check_config(directory: Path | str, target: Path | str) -> None:
    """Raise the errors of `check` that `config.json` alone shows: another kind of drafter, or another width. For
    weights whose names and shapes cannot be read before their end is there."""
    config, model = read_config(Path(directory)), Target.read(Path(target))
    if recognise(config, ()).is_assistant:
        AssistantConfig.read(config, model)
    else:
        check_width(Keys(config), model)


def exact_types(directory: Path | str, target: Path | str) -> tuple[str, str | None]:
    """The `outtype` and `fc_type` with which `convert` loses nothing. Reads only headers. Raises its errors."""
    checkpoint, _, specs = _understand(Checkpoint.open(Path(directory)), Target.read(Path(target)))
    found: dict[bool, set[str]] = {False: set(), True: set()}
    for spec in specs:
        if spec.source and spec.type is None:
            found[spec.wide].add(checkpoint.tensors[spec.source].dtype)
    matrices, fc = ("bf16" if dtypes == {"BF16"} else "f32" for dtypes in found.values())
    return matrices, fc if found[True] else None


def _understand(checkpoint: Checkpoint, target: Target) -> tuple[Checkpoint, Config, list[TensorSpec]]:
    """The checkpoint under the authors' names, its configuration, and the tensors to write."""
    packaging = recognise(checkpoint.config, checkpoint.tensors)
    checkpoint = checkpoint.renamed(packaging)
    if packaging.is_assistant:
        settings = AssistantConfig.read(checkpoint.config, target)
        return checkpoint, settings, _match(checkpoint, settings.title, assistant.tensors(settings))
    checkpoint, config = _without_lone_embeddings(checkpoint, target)
    if checkpoint.mask_token not in (None, config.mask_token):
        raise ConvertError(
            f"{MASK_EMBEDDING} is for token {checkpoint.mask_token}, but the mask token is {config.mask_token}",
            field=MASK_EMBEDDING,
        )
    specs = (_as_stored(spec, checkpoint.tensors, config) for spec in tensors(config, checkpoint.tensors))
    return checkpoint, config, _match(checkpoint, config.title, specs)


def _without_lone_embeddings(checkpoint: Checkpoint, target: Target) -> tuple[Checkpoint, DrafterConfig]:
    """The checkpoint and its configuration; of embeddings without a head only a warning is left, as of a GGUF's."""
    others = dict(checkpoint.tensors)
    embeddings = None if _HEAD in others else others.pop(_EMBEDDINGS, None)
    config = DrafterConfig.read(checkpoint.config, target, others)
    if embeddings is None:
        return checkpoint, config
    _check_shape(embeddings, _EMBEDDINGS, (config.n_vocab_stored, config.n_embd))
    warnings = (*config.warnings, without_head(_EMBEDDINGS))
    return replace(checkpoint, tensors=others), replace(config, warnings=warnings)


def _metadata(config: Config, target: Target, name: str) -> dict[str, Value]:
    if isinstance(config, AssistantConfig):
        return assistant.metadata(config, target, name)
    return metadata(config, target, name)


def _origin_keys(origin: tuple[str, str] | None) -> dict[str, Value]:
    """Keys with repository and commit, since repositories change under the same name."""
    if origin is None:
        return {}
    repository, commit = origin
    return {
        "general.source.huggingface.repository": string(repository),
        "general.source.url": string(f"https://huggingface.co/{repository}/tree/{commit}"),
    }


def _match(checkpoint: Checkpoint, title: str, wanted: Iterable[TensorSpec]) -> list[TensorSpec]:
    """The tensors to write. Checks that the checkpoint has each in the right shape, and no others."""
    found, specs = checkpoint.tensors, list(wanted)
    sources = {spec.source: spec.source_shape for spec in specs if spec.source}
    for name in sorted(found.keys() - sources.keys() - IGNORED):
        raise ConvertError(
            f"unknown tensor {name!r}: it has no place in a {title}",
            field=name,
            hint="check config.json against the checkpoint (architectures, num_hidden_layers)",
        )
    for name, shape in sources.items():
        if name not in found:
            raise ConvertError(f"tensor {name!r} is missing", field=name, hint="download the whole checkpoint")
        _check_shape(found[name], name, shape)
        found[name].check_dtype(integer=name == "d2t")
    return specs


def _check_shape(tensor: StoredTensor, name: str, shape: tuple[int, ...]) -> None:
    if tensor.shape != shape:
        raise ConvertError(
            f"tensor {name!r} has shape {list(tensor.shape)}, config.json and the target make it {list(shape)}",
            field=name,
        )


def _as_stored(spec: TensorSpec, found: Mapping[str, StoredTensor], config: DrafterConfig) -> TensorSpec:
    """Vocabulary tensors may have more or fewer rows in the checkpoint, by padding."""
    shape = spec.source_shape
    if spec.shape == shape and len(shape) > 1 and shape[0] == config.n_vocab and spec.source in found:
        return replace(spec, source_shape=(config.n_vocab_stored, *shape[1:]))
    return spec


def _output_tensor(
    spec: TensorSpec, stored: StoredTensor | None, config: Config, outtype: Outtype, ggml: RowQuantizer | None
) -> OutputTensor:
    kind = outtype.of(spec, None if stored is None else stored.dtype)

    def chunks() -> Chunks:
        if stored is None:
            yield np.array(spec.values, dtype=np.float32)
        elif kind == GGMLQuantizationType.I64:
            yield _draft_to_target(stored, config.n_vocab)
        else:
            for rows in _float_rows(spec, stored, config):
                yield quantized(rows, kind, stored.name, ggml)

    return OutputTensor(spec.name, spec.shape, kind, chunks)


def _float_rows(spec: TensorSpec, stored: StoredTensor, config: Config) -> Iterator[npt.NDArray[np.float32]]:
    """The tensor's rows as float32, a chunk at a time; chunks of rotated rows end between heads."""
    n_rows, width = math.prod(spec.shape[:-1]), spec.shape[-1]
    n_stored = min(n_rows, math.prod(stored.shape[:-1]) - spec.first_row)
    order = _rotation_order(config) if spec.rotated else None
    if order is not None and len(spec.shape) == 1:  # elements of one head, or of several
        yield stored.rows(0, 1).reshape(-1, order.size)[:, order].reshape(1, -1)
        return
    unit = order.size if order is not None else 1
    step = max(1, _CHUNK_ELEMENTS // (width * unit)) * unit
    for start in range(0, n_stored, step):
        rows = stored.rows(spec.first_row + start, spec.first_row + min(start + step, n_stored))
        if order is not None:
            rows = rows.reshape(-1, unit, width)[:, order].reshape(-1, width)
        yield spec.transform(rows) if spec.transform else rows
    for start in range(n_stored, n_rows, step):
        yield np.zeros((min(step, n_rows - start), width), np.float32)


def _rotation_order(config: Config) -> npt.NDArray[np.intp] | None:
    """The order of a head's dimensions that turns interleaved rotation, (0,1), (2,3), ..., into NeoX's of halves; None:
    it is NeoX's."""
    if isinstance(config, AssistantConfig) or not config.rope_interleaved:
        return None
    rotated = np.arange(config.rope.n_dims)
    return np.concatenate([rotated[0::2], rotated[1::2], np.arange(config.rope.n_dims, config.head_dim)])


def _draft_to_target(stored: StoredTensor, n_vocab: int) -> npt.NDArray[np.int64]:
    """Target token of each draft token; checkpoints store it as the distance from the draft token's own id."""
    offsets = stored.rows(0, 1)[0]
    tokens: npt.NDArray[np.int64] = offsets + np.arange(offsets.size)
    if tokens.size and (tokens.min() < 0 or tokens.max() >= n_vocab or np.unique(tokens).size != tokens.size):
        raise ConvertError("d2t does not map draft tokens to different tokens of the target", field="d2t")
    return tokens
