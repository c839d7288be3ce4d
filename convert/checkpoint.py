"""A Hugging Face checkpoint directory: `config.json` and the tensors of its shards, safetensors or torch's."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dflash_local.errors import ConvertError

from .packaging import Packaging
from .safetensors_file import StoredTensor, read_header
from .strict_json import DuplicateKeyError, strict_json
from .torch_file import read_torch_file, read_torch_tensors

_CONFIG = "config.json"
_LARGEST_JSON = 64 << 20  # bytes; an index of 100,000 tensors takes 10 MB
_WHOLE = "download the whole checkpoint"
MASK_EMBEDDING = "mask_embedding.pt"
_PREFIX = "model."  # some checkpoints wrap the drafter once more


@dataclass(frozen=True)
class _Format:
    """A format of weights: the name of a single file, a pattern of several, and a reader."""

    single: str
    pattern: str
    read: Callable[[Path], list[StoredTensor]]

    @property
    def suffix(self) -> str:
        return Path(self.single).suffix

    @property
    def index(self) -> str:
        return self.single + ".index.json"


_SAFETENSORS = _Format("model.safetensors", "*.safetensors", read_header)
_TORCH = _Format("pytorch_model.bin", "pytorch_model*.bin", read_torch_tensors)


@dataclass(frozen=True)
class Checkpoint:
    """`tensors` are keyed by name without a leading "model."; only headers have been read. They include MASK_EMBEDDING
    if there is such a file; `mask_token` is its token."""

    directory: Path
    config: dict[str, Any]
    tensors: dict[str, StoredTensor]
    mask_token: int | None = None

    @classmethod
    def open(cls, directory: Path) -> Checkpoint:
        """Raises ConvertError whose `field` is the file or tensor to blame."""
        if not os.path.isdir(directory):  # noqa: PTH112  pathlib fails where it may not look
            raise ConvertError(
                f"{directory} is not a directory",
                hint="give the directory that holds config.json and the safetensors files",
            )
        config = read_config(directory)
        tensors: dict[str, StoredTensor] = {}
        for tensor in _stored(directory):
            name = tensor.name.removeprefix(_PREFIX)
            if name in tensors:
                where = " and ".join(sorted({tensors[name].path.name, tensor.path.name}))
                raise ConvertError(f"tensor {name!r} is listed twice, in {where}", field=name)
            tensors[name] = tensor
        mask_token = None
        if (directory / MASK_EMBEDDING).exists():
            mask_token, tensors[MASK_EMBEDDING] = _mask_embedding(directory / MASK_EMBEDDING)
        return cls(directory, config, tensors, mask_token)

    def renamed(self, packaging: Packaging) -> Checkpoint:
        """The checkpoint with the authors' tensor names, without copies of the target's tensors. Raises ConvertError if
        two get the same name."""
        tensors: dict[str, StoredTensor] = {}
        for name, tensor in self.tensors.items():
            if tensors.setdefault(packaging.renamed(name), tensor) is not tensor:
                raise ConvertError(f"tensor {packaging.renamed(name)!r} is there twice, also as {name!r}", field=name)
        tensors = {name: tensor for name, tensor in tensors.items() if not packaging.drops(name, tensors)}
        return Checkpoint(self.directory, self.config, tensors, self.mask_token)


def read_config(directory: Path) -> dict[str, Any]:
    """The checkpoint's `config.json`. Raises ConvertError."""
    return _json_object(directory / _CONFIG)


def _mask_embedding(path: Path) -> tuple[int, StoredTensor]:
    """MiMo's drafters save the mask token and its embedding, which the target lacks, beside their weights."""
    contents = read_torch_file(path)
    token, embedding = contents.get("mask_token_id"), contents.get("embedding")
    if type(token) is not int or not isinstance(embedding, StoredTensor):
        raise ConvertError(
            f"{path.name} must hold mask_token_id, a whole number, and embedding, a tensor",
            field=path.name,
            hint=_WHOLE,
        )
    return token, embedding


def _json_object(path: Path) -> dict[str, Any]:
    try:
        value = strict_json(_small_file(path))
    except FileNotFoundError:
        raise ConvertError(f"{path.parent} has no {path.name}", field=path.name, hint=_WHOLE) from None
    except OSError as error:
        raise ConvertError(f"cannot read {path}: {error.strerror}", field=path.name) from error
    except DuplicateKeyError as error:
        raise ConvertError(f"{path.name}: the key {error.key!r} is listed twice", field=error.key) from None
    except ValueError as error:
        raise ConvertError(
            f"{path.name} is not JSON: {error}", field=path.name, hint="download the file again"
        ) from None
    if not isinstance(value, dict):
        raise ConvertError(f"{path.name} is not a JSON object", field=path.name, hint="download the file again")
    return value


def _small_file(path: Path) -> bytes:
    """Raises OSError, or ConvertError if it is too large to be a file of settings."""
    with path.open("rb") as file:
        content = file.read(_LARGEST_JSON + 1)
    if len(content) > _LARGEST_JSON:
        what = f"is larger than {_LARGEST_JSON >> 20} MiB, as no file of settings is"
        raise ConvertError(f"{path.name} {what}", field=path.name, hint="download the file again")
    return content


def _stored(directory: Path) -> list[StoredTensor]:
    """The tensors of all files; of the safetensors files if there are any."""
    for form in (_SAFETENSORS, _TORCH):
        if (directory / form.index).exists():
            return _indexed(directory / form.index, form)
        if found := sorted(directory.glob(form.pattern)):
            return _unindexed(directory, found, form)
    raise ConvertError(
        f"{directory} has neither safetensors files nor a {_TORCH.single}", field=_SAFETENSORS.single, hint=_WHOLE
    )


def _unindexed(directory: Path, found: list[Path], form: _Format) -> list[StoredTensor]:
    """Tensors of a checkpoint without an index: one file, or a full set of `model-0000i-of-0000n.safetensors`."""
    if directory / form.single in found:
        found = [directory / form.single]
    shard = re.compile(rf"-of-(\d{{1,9}}){re.escape(form.suffix)}$")
    totals = {int(match[1]) if (match := shard.search(path.name)) else 1 for path in found}
    if len(totals) > 1 or (len(found) > 1 and totals == {1}):
        raise ConvertError(
            f"{directory} has {len(found)} {form.suffix[1:]} files and no {form.index}", field=form.index, hint=_WHOLE
        )
    if totals != {len(found)}:
        raise ConvertError(
            f"{len(found)} of {max(totals)} shards are there", field=found[0].name, hint="download the missing shards"
        )
    return [tensor for path in found for tensor in form.read(path)]


def _indexed(index: Path, form: _Format) -> list[StoredTensor]:
    """Tensors of a sharded checkpoint; index and shards must agree."""
    weight_map = _json_object(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ConvertError(f"{index.name} has no weight_map", field="weight_map", hint="download the file again")
    for name, shard in weight_map.items():
        if not isinstance(shard, str) or Path(shard).name != shard or not shard.endswith(form.suffix):
            raise ConvertError(f"{index.name}: {shard!r} is not the name of a shard", field=name)
        if not os.path.isfile(index.parent / shard):  # noqa: PTH113  pathlib fails if the name is too long
            raise ConvertError(f"shard {shard} is missing", field=shard, hint="download the missing shard")
    tensors = [tensor for shard in sorted(set(weight_map.values())) for tensor in form.read(index.parent / shard)]
    for tensor in tensors:
        if tensor.name not in weight_map:
            raise ConvertError(
                f"tensor {tensor.name!r} in {tensor.path.name} is not in {index.name}", field=tensor.name
            )
    absent = weight_map.items() - {(tensor.name, tensor.path.name) for tensor in tensors}
    if absent:
        name, shard = min(absent)
        raise ConvertError(f"tensor {name!r} is not in {shard}, where {index.name} says it is", field=name, hint=_WHOLE)
    return tensors
