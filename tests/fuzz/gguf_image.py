"""A GGUF file as editable parts: what the fuzzer takes apart, damages and puts together again.

Unlike the ``gguf`` package it writes nonsense without complaint: every count, length, type and offset can be
overridden.
Format: docs/gguf.md of llama.cpp.
"""

from __future__ import annotations

import copy
import struct
from dataclasses import dataclass, field
from pathlib import Path

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
FORMATS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q", I64: "q", F64: "d"}
ALIGNMENT = 32

# ggml type number -> (elements per block, bytes per block)
TENSOR_TYPES = {
    0: (1, 4),
    1: (1, 2),
    2: (32, 18),
    3: (32, 20),
    6: (32, 22),
    7: (32, 24),
    8: (32, 34),
    9: (32, 36),
    10: (256, 84),
    11: (256, 110),
    12: (256, 144),
    13: (256, 176),
    14: (256, 210),
    15: (256, 292),
    16: (256, 66),
    17: (256, 74),
    18: (256, 98),
    19: (256, 50),
    20: (32, 18),
    21: (256, 110),
    22: (256, 82),
    23: (256, 136),
    24: (1, 1),
    25: (1, 2),
    26: (1, 4),
    27: (1, 8),
    28: (1, 8),
    29: (256, 56),
    30: (1, 2),
    34: (256, 54),
    35: (256, 66),
    39: (32, 17),
    40: (64, 36),
    41: (128, 18),
    42: (64, 18),
}


def text(value: bytes) -> bytes:
    """A length-prefixed string."""
    return struct.pack("<Q", len(value)) + value


def number(kind: int, value: float) -> bytes:
    """One number of a GGUF type; integers wrap, so that -1 can be written as a u32."""
    if kind in (F32, F64):
        try:
            return struct.pack("<" + FORMATS[kind], float(value))
        except OverflowError:
            return struct.pack("<" + FORMATS[kind], float("inf"))
    size = struct.calcsize(FORMATS[kind])
    return (int(value) % (1 << 8 * size)).to_bytes(size, "little")


def array(kind: int, items: list[bytes], count: int | None = None) -> bytes:
    """An array body: element type, count (true unless given) and the encoded items."""
    return struct.pack("<IQ", kind, len(items) if count is None else count % (1 << 64)) + b"".join(items)


@dataclass
class Pair:
    """One key with its value, kept encoded: ``body`` is what follows the value's type in the file."""

    key: bytes
    kind: int
    body: bytes

    @property
    def item(self) -> int:
        """The element type of an array."""
        return int(struct.unpack_from("<I", self.body)[0])

    def items(self) -> list[bytes]:
        """The encoded elements of an array."""
        kind, count = struct.unpack_from("<IQ", self.body)
        at, out = 12, []
        for _ in range(count):
            size = 8 + struct.unpack_from("<Q", self.body, at)[0] if kind == STRING else struct.calcsize(FORMATS[kind])
            out.append(self.body[at : at + size])
            at += size
        return out

    def value(self) -> float:
        """A scalar number."""
        return float(struct.unpack("<" + FORMATS[self.kind], self.body)[0])


@dataclass
class Tensor:
    name: bytes
    dims: list[int]
    kind: int
    data: bytes
    n_dims: int | None = None  # written instead of len(dims)
    offset: int | None = None  # written instead of the true one


@dataclass
class Image:
    pairs: list[Pair] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    magic: bytes = b"GGUF"
    version: int = 3
    n_pairs: int | None = None
    n_tensors: int | None = None

    def find(self, key: bytes) -> Pair:
        """The pair of a key. Raises KeyError."""
        for pair in self.pairs:
            if pair.key == key:
                return pair
        raise KeyError(key)

    @property
    def architecture(self) -> bytes:
        return self.find(b"general.architecture").body[8:]

    def copy(self) -> Image:
        """A copy whose parts can be edited; tensor data is shared until replaced."""
        return Image(
            [copy.copy(p) for p in self.pairs],
            [Tensor(t.name, list(t.dims), t.kind, t.data) for t in self.tensors],
            self.magic,
            self.version,
        )

    def encode(self) -> tuple[bytes, int]:
        """The file and the length of its header."""

        def count(given: int | None, true: int) -> int:
            return (true if given is None else given) % (1 << 64)

        out = bytearray(self.magic + struct.pack("<I", self.version % (1 << 32)))
        out += struct.pack("<QQ", count(self.n_tensors, len(self.tensors)), count(self.n_pairs, len(self.pairs)))
        for pair in self.pairs:
            out += text(pair.key) + struct.pack("<I", pair.kind % (1 << 32)) + pair.body
        at = 0
        for tensor in self.tensors:
            out += text(tensor.name) + struct.pack("<I", count(tensor.n_dims, len(tensor.dims)) % (1 << 32))
            out += b"".join(struct.pack("<Q", d % (1 << 64)) for d in tensor.dims)
            out += struct.pack(
                "<IQ", tensor.kind % (1 << 32), (at if tensor.offset is None else tensor.offset) % (1 << 64)
            )
            at += len(tensor.data) + -len(tensor.data) % ALIGNMENT
        header = len(out)
        out += bytes(-len(out) % ALIGNMENT)
        for tensor in self.tensors:
            out += tensor.data + bytes(-len(tensor.data) % ALIGNMENT)
        return bytes(out), header


def read(path: Path) -> Image:
    """Take a sound file with the default alignment apart."""
    raw = path.read_bytes()
    at = 0

    def take(form: str) -> int:
        nonlocal at
        (value,) = struct.unpack_from("<" + form, raw, at)
        at += struct.calcsize("<" + form)
        return int(value)

    def take_text() -> bytes:
        nonlocal at
        size = take("Q")
        at += size
        return raw[at - size : at]

    def skip_value(kind: int) -> None:
        nonlocal at
        if kind == STRING:
            take_text()
        elif kind == ARRAY:
            item, n = take("I"), take("Q")
            for _ in range(n):
                skip_value(item)
        else:
            at += struct.calcsize(FORMATS[kind])

    image = Image()
    if take("I") != int.from_bytes(b"GGUF", "little"):
        raise ValueError(f"{path} is not a GGUF file")
    image.version, n_tensors, n_pairs = take("I"), take("Q"), take("Q")
    for _ in range(n_pairs):
        key, kind = take_text(), take("I")
        start = at
        skip_value(kind)
        image.pairs.append(Pair(key, kind, raw[start:at]))
    places = []
    for _ in range(n_tensors):
        name = take_text()
        dims = [take("Q") for _ in range(take("I"))]
        image.tensors.append(Tensor(name, dims, take("I"), b""))
        places.append(take("Q"))
    start = at + -at % ALIGNMENT
    for tensor, place in zip(image.tensors, places, strict=True):
        tensor.data = raw[start + place : start + place + tensor_bytes(tensor.dims, tensor.kind)]
    return image


def tensor_bytes(dims: list[int], kind: int) -> int:
    """Size of a tensor's data, or 0 if rows do not fill whole blocks."""
    block, size = TENSOR_TYPES[kind]
    elements = 1
    for d in dims:
        elements *= d
    return elements // block * size
