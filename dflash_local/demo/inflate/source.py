"""SmallModel: the trained model to inflate."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy.typing as npt

from dflash_local import native
from dflash_local.convert.gguf_metadata import Value, read_model
from dflash_local.errors import ModelError

Array = npt.NDArray[Any]
PROJECTOR_ARCH = "clip"


class SmallModel:
    """A small model: its metadata, and its tensors as float32 arrays in row-major shape."""

    def __init__(self, path: Path, *archs: str) -> None:
        """Raises ModelError: its architecture is none of `archs`."""
        self.path = path
        self.metadata, self._tensors = read_model(path)
        architecture = self.metadata.get("general.architecture")
        self.arch = next((arch for arch in archs if architecture and architecture.data == arch.encode()), "")
        if not self.arch:
            raise ModelError(
                f"{path.name}: only a {archs[0]} model can be inflated to this shape", field="general.architecture"
            )
        if self.arch != PROJECTOR_ARCH:
            native.check_gguf(path)  # so all shapes agree with the keys
        self._used: set[str] = set()

    def size(self, key: str, default: int | None = None) -> int:
        """The integer of an architecture's key."""
        if default is not None and f"{self.arch}.{key}" not in self.metadata:
            return default
        return int(self.value(key).data)

    def value(self, key: str) -> Value:
        name = f"{self.arch}.{key}"
        if name not in self.metadata:
            raise ModelError(f"{self.path.name} lacks the key {name!r}", field=name)
        return self.metadata[name]

    @property
    def n_mtp(self) -> int:
        """Next-token (MTP) layers, at the end of its layers."""
        return self.size("nextn_predict_layers", 0)

    @property
    def n_layer(self) -> int:
        """Layers without MTP layers."""
        return self.size("block_count") - self.n_mtp

    @property
    def n_vocab(self) -> int:
        return len(self.metadata["tokenizer.ggml.tokens"].data)

    def has(self, name: str) -> bool:
        return name in self._tensors

    def tensor(self, name: str) -> Callable[[], Array]:
        """A reader of the tensor, to be called later, also repeatedly. A missing tensor is an error at once."""
        if name not in self._tensors:
            raise ModelError(f"{self.path.name} lacks the tensor {name!r}", field=name)
        self._used.add(name)
        tensor = self._tensors[name]
        return tensor.numbers

    def check_all_used(self) -> None:
        """Raise an error for unused tensors, which would be silently lost."""
        if unknown := sorted(self._tensors.keys() - self._used):
            raise ModelError(f"{self.path.name}: the tensor {unknown[0]!r} cannot be inflated", field=unknown[0])
