"""Glance: what the first bytes of a GGUF show, for lists of many files.

Reads at most `MOST_BYTES` of a file and stops at its vocabulary, which is long and is followed by little that a list
needs. Without numpy and gguf, whose imports take longer than a hundred glances. It validates nothing; loading reads the
file strictly (`gguf_metadata.py`, ggml_ops/files/gguf_check.cpp).
Source: docs/gguf.md of ggml; names of types: `llama_ftype` in include/llama.h.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dflash_local.errors import ModelError

from .gguf_parts import MAGIC

FIRST_BYTES = 1 << 15  # enough for nearly all files
MOST_BYTES = 1 << 20
_FAR_BYTES = 1 << 26  # in which what lies behind a vocabulary is looked for
_MOST_ITEMS = 1 << 12  # of an array of strings that is read; vocabularies have more
_TOKENS = "tokenizer.ggml.tokens"
_STRING, _ARRAY = 8, 9
# Types of keys by their numbers in a GGUF.
_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
# The usual name of each general.file_type; "-": not in use.
_FILE_TYPES = (
    "F32", "F16", "Q4_0", "Q4_1", "-", "-", "-", "Q8_0", "Q5_0", "Q5_1", "Q2_K", "Q3_K_S", "Q3_K_M", "Q3_K_L", "Q4_K_S",
    "Q4_K_M", "Q5_K_S", "Q5_K_M", "Q6_K", "IQ2_XXS", "IQ2_XS", "Q2_K_S", "IQ3_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL",
    "IQ3_S", "IQ3_M", "IQ2_S", "IQ2_M", "IQ4_XS", "IQ1_M", "BF16", "-", "-", "-", "TQ1_0", "TQ2_0", "MXFP4", "NVFP4",
    "Q1_0", "Q2_0",
)  # fmt: skip


class _Short(Exception):
    """The bytes that were read end here."""


@dataclass(frozen=True)
class Glance:
    """Keys of a GGUF up to its vocabulary; arrays of numbers are left out. `n_vocab`: 0 if no vocabulary was seen."""

    n_tensors: int
    n_vocab: int = 0
    keys: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, path: Path) -> Glance:
        """Raises ModelError if the file cannot be read, is no GGUF, or is damaged there."""
        try:
            with path.open("rb") as file:
                data = file.read(FIRST_BYTES)
                try:
                    return _read(path, data)
                except _Short:
                    data += file.read(MOST_BYTES - FIRST_BYTES)
                    return _read(path, data)
        except _Short:
            raise _bad(path, f"its header does not end within {len(data)} bytes") from None
        except OSError as error:
            raise ModelError(f"cannot read {path.name}: {error.strerror}", hint="check who may read it") from None

    def text(self, key: str) -> str:
        """A string; "" if it is absent or of another type."""
        value = self.keys.get(key)
        return value.decode(errors="replace") if isinstance(value, bytes) else ""

    def number(self, key: str, default: int = 0) -> int:
        """A whole number."""
        value = self.keys.get(key)
        return value if type(value) is int else default

    @property
    def architecture(self) -> str:
        return self.text("general.architecture")

    def size(self, key: str) -> int:
        """A whole number of the architecture's own."""
        return self.number(f"{self.architecture}.{key}")

    @property
    def n_next_token_layers(self) -> int:
        """Next-token (MTP) layers, at the end of its layers."""
        return self.size("nextn_predict_layers")

    @property
    def shape(self) -> dict[str, object]:
        """As in lists of pairs: architecture, n_embd, n_layer (without next-token layers), n_vocab."""
        n_layer = self.size("block_count") - self.n_next_token_layers
        n_embd = self.size("embedding_length")
        return {"architecture": self.architecture, "n_embd": n_embd, "n_layer": n_layer, "n_vocab": self.n_vocab}

    @property
    def quantization(self) -> str:
        """The name of its file type; "" if it is unknown, or comes after the vocabulary."""
        number = self.number("general.file_type", -1)
        return _FILE_TYPES[number].strip("-") if 0 <= number < len(_FILE_TYPES) else ""


def far_text(path: Path, key: str) -> str:
    """A string that lies behind the vocabulary, which is not read: the key is searched for, with its length and type
    around it. "" if it is not found in the first 64 MiB. Raises ModelError if the file cannot be read or is damaged
    there."""
    mark = struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", _STRING)
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            found = at = data.find(mark, 0, _FAR_BYTES)
            while at >= 0:
                begin = at + len(mark) + 8
                (n_bytes,) = struct.unpack("<Q", data[begin - 8 : begin].ljust(8, b"\xff"))
                if n_bytes <= len(data) - begin:
                    return data[begin : begin + n_bytes].decode(errors="replace")
                at = data.find(mark, begin, _FAR_BYTES)  # that was a token of this name
            if found >= 0:
                raise _bad(path, f"it ends inside {key!r}")
            return ""
    except (OSError, ValueError) as error:  # ValueError: it is empty
        raise ModelError(f"cannot read {path.name}: {error}", hint="check who may read it") from None


def _read(path: Path, data: bytes) -> Glance:
    """Raises ModelError, or _Short."""
    if data[:4] != MAGIC:
        raise ModelError(f"{path.name} is not a GGUF file", hint="give a .gguf file")
    cursor = _Cursor(data)
    version = cursor.number("I")
    if version not in (2, 3):
        raise _bad(path, f"it has GGUF version {version}")
    n_tensors, n_keys = cursor.number("Q"), cursor.number("Q")
    keys: dict[str, Any] = {}
    for _ in range(n_keys):
        key = cursor.string().decode(errors="replace")
        kind = cursor.number("I")
        if kind == _STRING:
            keys[key] = cursor.string()
        elif kind != _ARRAY:
            keys[key] = cursor.number(_format(path, kind))
        elif (count := _skip_array(path, cursor, is_vocabulary=key == _TOKENS)) is not None:
            return Glance(n_tensors, count if key == _TOKENS else 0, keys)
    return Glance(n_tensors, 0, keys)


def _skip_array(path: Path, cursor: _Cursor, *, is_vocabulary: bool) -> int | None:
    """Skip an array. If it is the vocabulary, or too long to be skipped, return its length and stay inside it."""
    kind, count = cursor.number("I"), cursor.number("Q")
    if is_vocabulary or (kind == _STRING and count > _MOST_ITEMS):
        return count
    if kind == _STRING:
        for _ in range(count):
            cursor.string()
    else:
        cursor.skip(count * struct.calcsize("<" + _format(path, kind)))
    return None


def _format(path: Path, kind: int) -> str:
    if kind not in _FORMATS:
        raise _bad(path, f"a key has the unknown type {kind}")
    return _FORMATS[kind]


def _bad(path: Path, what: str) -> ModelError:
    return ModelError(f"{path.name} is damaged: {what}", hint="download the file again")


class _Cursor:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 4

    def skip(self, count: int) -> int:
        at = self._at
        if count > len(self._data) - at:
            raise _Short
        self._at = at + count
        return at

    def number(self, form: str) -> Any:
        return struct.unpack_from("<" + form, self._data, self.skip(struct.calcsize("<" + form)))[0]

    def string(self) -> bytes:
        at = self.skip(self.number("Q"))
        return self._data[at : self._at]
