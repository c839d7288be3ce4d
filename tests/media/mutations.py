"""Damage of projectors that leaves the file well formed: keys, tensors, shapes and types that lie.

``damage(image, seed)`` is a pure function, as in tests/fuzz/mutations.py, which damages the form of a file.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import numpy as np

from tests.fuzz.gguf_image import (
    ARRAY,
    BOOL,
    F32,
    I32,
    STRING,
    TENSOR_TYPES,
    U32,
    Image,
    Pair,
    Tensor,
    array,
    number,
    tensor_bytes,
    text,
)

from .tiny_projectors import PROJECTORS

Damage = Callable[[Image, random.Random], str]

INTEGERS = (
    0,
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    16,
    64,
    100,
    1000,
    8192,
    65535,
    1 << 20,
    1 << 30,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
)
FLOATS = (0.0, -1.0, 1e30, float("inf"), float("nan"), 1e-30)
TYPES = (0, 0, 0, 1, 1, 30, 8, 2, 12, 24, 25, 26, 27, 28)
KINDS = [name for name in PROJECTORS if "-" not in name]
# Tensors of which some file has a use; a graph may take any that is there.
NAMES = sorted({tensor for made in PROJECTORS.values() for tensor in made.shapes})
KEYS = sorted(
    {key for made in PROJECTORS.values() for key in made.keys}
    | {f"clip.has_{part}_encoder" for part in ("vision", "audio", "gen_audio")}
    | {f"clip.{part}.{key}" for part in ("vision", "audio") for key in ("attention.head_dim", "feature_layer")}
)


def change_key(image: Image, rng: random.Random) -> str:
    pair = rng.choice([p for p in image.pairs if not p.key.startswith(b"general.")])
    name = pair.key.decode()
    if pair.kind == STRING:
        value = rng.choice(KINDS)
        pair.body = text(value.encode())
    elif pair.kind == ARRAY:
        items = pair.items()
        kind = pair.item
        for _ in range(rng.choice([1, 1, 2])):
            if items and rng.random() < 0.5:
                items[rng.randrange(len(items))] = number(kind, rng.choice(FLOATS if kind == F32 else INTEGERS))
            elif rng.random() < 0.5:
                items = items[: len(items) // 2]
            else:
                items = items + items[:1] * rng.choice([1, 3])
        pair.body = array(kind, items)
        value = str(len(items))
    else:
        old = pair.value()
        near = (old + 1, old - 1, old * 2, old // 2, old * 3)
        new = rng.choice(FLOATS if pair.kind == F32 else near if rng.random() < 0.5 else INTEGERS)
        pair.body = number(pair.kind, new)
        value = str(new)
    return f"{name} = {value}"


def retype_key(image: Image, rng: random.Random) -> str:
    pair = rng.choice(image.pairs)
    pair.kind, pair.body = rng.choice(
        [(U32, number(U32, 1)), (I32, number(I32, 1)), (F32, number(F32, 1)), (BOOL, b"\1"), (STRING, text(b"x")),
         (ARRAY, array(I32, [number(I32, 1)] * 3)), (ARRAY, array(STRING, [text(b"x")]))]
    )  # fmt: skip
    return f"{pair.key.decode()} becomes of type {pair.kind}"


def remove_key(image: Image, rng: random.Random) -> str:
    pair = rng.choice(image.pairs)
    image.pairs.remove(pair)
    return f"no {pair.key.decode()}"


def add_key(image: Image, rng: random.Random) -> str:
    name = rng.choice(KEYS)
    if any(pair.key == name.encode() for pair in image.pairs):
        return change_key(image, rng)
    if name.startswith("clip.has"):
        image.pairs.append(Pair(name.encode(), BOOL, b"\1"))
    elif name.endswith(("layer", "pinpoints", "indexes", "mode", "offsets", "codebook_size")):
        items = [number(I32, rng.choice(INTEGERS)) for _ in range(rng.choice([1, 2, 4]))]
        image.pairs.append(Pair(name.encode(), ARRAY, array(I32, items)))
    else:
        image.pairs.append(Pair(name.encode(), U32, number(U32, rng.choice(INTEGERS))))
    return f"also {name}"


def remove_tensor(image: Image, rng: random.Random) -> str:
    tensor = rng.choice(image.tensors)
    image.tensors.remove(tensor)
    return f"no {tensor.name.decode()}"


def rename_tensor(image: Image, rng: random.Random) -> str:
    tensor = rng.choice(image.tensors)
    old, free = (
        tensor.name.decode(),
        [name for name in NAMES if not any(t.name == name.encode() for t in image.tensors)],
    )
    tensor.name = rng.choice(free).encode()
    return f"{old} is called {tensor.name.decode()}"


def add_tensor(image: Image, rng: random.Random) -> str:
    free = [name for name in NAMES if not any(t.name == name.encode() for t in image.tensors)]
    like = rng.choice(image.tensors)
    image.tensors.append(Tensor(rng.choice(free).encode(), list(like.dims), like.kind, like.data))
    return f"also {image.tensors[-1].name.decode()} {like.dims}"


def filled(dims: list[int], kind: int, rng: random.Random) -> bytes:
    size = tensor_bytes(dims, kind)
    if kind == 0:
        return np.random.default_rng(rng.randrange(1 << 32)).normal(0, 0.1, size // 4).astype(np.float32).tobytes()
    if kind == 1:
        return np.random.default_rng(rng.randrange(1 << 32)).normal(0, 0.1, size // 2).astype(np.float16).tobytes()
    return bytes(size)


def reshape_tensor(image: Image, rng: random.Random) -> str:
    tensor = rng.choice(image.tensors)
    dims = list(tensor.dims)
    way = rng.randrange(5)
    if way == 0:
        rng.shuffle(dims)
    elif way == 1:
        i = rng.randrange(len(dims))
        dims[i] = max(1, rng.choice([dims[i] + 1, dims[i] - 1, dims[i] * 2, dims[i] // 2, 1, 3, 512]))
    elif way == 2 and len(dims) < 4:
        dims.insert(rng.randrange(len(dims) + 1), rng.choice([1, 1, 2]))
    elif way == 3 and len(dims) > 1:
        dims.pop(rng.randrange(len(dims)))
    else:
        dims = list(rng.choice(image.tensors).dims)
    if np.prod([float(d) for d in dims]) > 1 << 22:
        dims = [1]
    if tensor.kind not in (0, 1):
        tensor.kind = 0
    what = f"{tensor.name.decode()} {tensor.dims} becomes {dims}"
    tensor.dims, tensor.data = dims, filled(dims, tensor.kind, rng)
    return what


def retype_tensor(image: Image, rng: random.Random) -> str:
    tensor = rng.choice(image.tensors)
    kind = rng.choice(TYPES)
    if tensor.dims[0] % TENSOR_TYPES[kind][0]:
        kind = rng.choice([0, 1, 30, 26])
    tensor.kind, tensor.data = kind, filled(tensor.dims, kind, rng)
    return f"{tensor.name.decode()} becomes of type {kind}"


def poison_tensor(image: Image, rng: random.Random) -> str:
    tensor = rng.choice([t for t in image.tensors if t.kind == 0] or image.tensors)
    value = rng.choice([float("nan"), float("inf"), 1e38, -1e38, 0.0])
    tensor.data = struct.pack("<f", value) * (len(tensor.data) // 4)
    return f"{tensor.name.decode()} is {value}"


DAMAGES: tuple[tuple[Damage, int], ...] = (
    (change_key, 8), (retype_key, 1), (remove_key, 2), (add_key, 3), (remove_tensor, 5), (rename_tensor, 2),
    (add_tensor, 2), (reshape_tensor, 7), (retype_tensor, 5), (poison_tensor, 1),
)  # fmt: skip


def damage(sound: Image, seed: int) -> tuple[str, bytes]:
    """A description and the file."""
    rng = random.Random(seed)
    image = sound.copy()
    for tensor in image.tensors:
        tensor.dims = list(tensor.dims)
    kinds, weights = zip(*DAMAGES, strict=True)
    chosen = rng.choices(kinds, weights, k=rng.choice([1, 1, 1, 2]))
    what = [how(image, rng) for how in chosen if image.tensors]  # else the one that it had is gone
    return "; ".join(what), image.encode()[0]
