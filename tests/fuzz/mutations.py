"""Mutations of a sound GGUF file, from flipped bytes to files that are well formed and lie about one thing.

``mutate(image, seed)`` is a pure function: the same seed gives the same file, on every machine.
"""

from __future__ import annotations

import contextlib
import random
import re
import struct
from collections.abc import Callable

from .gguf_image import (
    ARRAY,
    BOOL,
    F32,
    F64,
    FORMATS,
    I32,
    STRING,
    TENSOR_TYPES,
    U16,
    U32,
    Image,
    Pair,
    Tensor,
    array,
    number,
    tensor_bytes,
    text,
)
from .words import ARCHITECTURES, FLOATS, GLOBALS, INTEGERS, SUFFIXES, TEMPLATES, TENSORS, TEXTS

Mutation = Callable[[Image, random.Random], str]


# ---- values
# ---------------------------------------------------------------------------------------------------------------


def some_number(rng: random.Random, kind: int, near: float = 4.0) -> float:
    if kind in (F32, F64):
        return rng.choice([*FLOATS, near * 2, -near, rng.uniform(-1e4, 1e4)])
    if rng.random() < 0.4:
        return (
            int(near) + rng.choice([-1, 1])
            if rng.random() < 0.5
            else rng.choice([int(near) * 2, int(near) // 2, -int(near)])
        )
    return rng.choice([*INTEGERS, rng.randrange(1 << 32)])


def some_value(rng: random.Random) -> tuple[int, bytes]:
    """Type and body of a value of any type."""
    kind = rng.choice([*FORMATS, STRING, ARRAY, U32, U32, F32, BOOL])
    if kind == STRING:
        return kind, text(rng.choice(TEXTS))
    if kind == ARRAY:
        item = rng.choice([*FORMATS, STRING, I32, U32, BOOL, ARRAY, 13])
        size = rng.choice([0, 1, 2, 3, 4, 4, 6, 513])
        items = [
            number(item, some_number(rng, item)) if item in FORMATS else text(rng.choice(TEXTS)) for _ in range(size)
        ]
        return kind, array(item, items)
    return kind, number(kind, some_number(rng, kind))


def some_data(rng: random.Random, size: int) -> bytes:
    """Zeros or noise, of at most 16 MB whatever a damaged shape asks for."""
    size = max(0, min(size, 1 << 24))
    return bytes(size) if rng.random() < 0.5 else rng.randbytes(size)


def change_pair(pair: Pair, rng: random.Random) -> str:
    name = pair.key.decode(errors="replace")
    if rng.random() < 0.15:
        pair.kind, pair.body = some_value(rng)
        return f"{name} becomes {pair.kind}: {pair.body[:24]!r}"
    if pair.kind == STRING:
        pair.body = text(rng.choice(TEXTS))
        return f"{name} = {pair.body[8:32]!r}"
    if pair.kind == ARRAY:
        return change_array(pair, rng)
    value = some_number(rng, pair.kind, pair.value())
    pair.body = number(pair.kind, value)
    return f"{name} = {value}"


def change_array(pair: Pair, rng: random.Random) -> str:
    name, item, items = pair.key.decode(errors="replace"), pair.item, pair.items()
    what = rng.choice(["empty", "shorter", "longer", "twins", "element", "element", "lie", "type", "many"])
    count: int | None = None
    if what == "empty":
        items = []
    elif what == "shorter":
        items = items[: rng.randrange(len(items) + 1)]
    elif what == "longer":
        items = items + [rng.choice(items) for _ in range(rng.choice([1, 2, 600]))] if items else items
    elif what == "twins" and len(items) > 1:
        a, b = rng.sample(range(len(items)), 2)
        items[a] = items[b]
    elif what in ("element", "many"):
        for _ in range(1 if what == "element" else 20):
            if items:
                items[rng.randrange(len(items))] = (
                    text(rng.choice(TEXTS)) if item == STRING else number(item, some_number(rng, item))
                )
    elif what == "lie":
        count = rng.choice([0, len(items) - 1, len(items) + 1, 1 << 31, 1 << 32, 1 << 61, (1 << 64) - 1])
    elif what == "type":
        item = rng.randrange(14)
    pair.body = array(item, items, count)
    return f"{name}: array {what}"


# ---- mutations
# ------------------------------------------------------------------------------------------------------------


def change_value(image: Image, rng: random.Random) -> str:
    return change_pair(rng.choice(image.pairs), rng)


def change_hparam(image: Image, rng: random.Random) -> str:
    own = [p for p in image.pairs if p.key.startswith(image.architecture + b".")]
    return change_pair(rng.choice(own or image.pairs), rng)


def change_type(image: Image, rng: random.Random) -> str:
    pair = rng.choice(image.pairs)
    pair.kind = rng.choice([*range(14), 0xFFFFFFFF])
    return f"{pair.key.decode(errors='replace')}: type {pair.kind} over the same bytes"


def remove_key(image: Image, rng: random.Random) -> str:
    pair = image.pairs.pop(rng.randrange(len(image.pairs)))
    return f"without {pair.key.decode(errors='replace')}"


def repeat_key(image: Image, rng: random.Random) -> str:
    pair = rng.choice(image.pairs)
    image.pairs.insert(rng.randrange(len(image.pairs) + 1), Pair(pair.key, pair.kind, pair.body))
    return f"{pair.key.decode(errors='replace')} twice"


def rename_key(image: Image, rng: random.Random) -> str:
    pair = rng.choice(image.pairs)
    old, pair.key = (
        pair.key,
        rng.choice([b"", b"\0", pair.key + b"\0x", pair.key[:-1], b"x" * 70_000, rng.choice(GLOBALS)]),
    )
    return f"{old.decode(errors='replace')} renamed to {pair.key[:20]!r}"


def add_key(image: Image, rng: random.Random) -> str:
    own = rng.random() < 0.8
    key = image.architecture + b"." + rng.choice(SUFFIXES) if own else rng.choice(GLOBALS)
    kind, body = some_value(rng)
    if rng.random() < 0.7:  # the type that loaders mostly want
        kind, body = (
            (U16, number(U16, some_number(rng, U16)))
            if key.startswith(b"split")
            else (U32, number(U32, some_number(rng, U32)))
        )
    image.pairs = [p for p in image.pairs if p.key != key]
    image.pairs.append(Pair(key, kind, body))
    return f"{key.decode()} added: type {kind}, {body[:16]!r}"


def change_architecture(image: Image, rng: random.Random) -> str:
    """The same model under another architecture's name, so that its keys are found."""
    old, new = image.architecture, rng.choice(ARCHITECTURES)
    for pair in image.pairs:
        if pair.key.startswith(old + b"."):
            pair.key = new + pair.key[len(old) :]
    image.find(b"general.architecture").body = text(new)
    return f"architecture {new.decode()}"


def change_architecture_and_keys(image: Image, rng: random.Random) -> str:
    more = rng.choices([add_key, add_key, change_hparam, remove_tensor], k=rng.randrange(1, 6))
    return sequence([change_architecture, *more], image, rng)


def change_template(image: Image, rng: random.Random) -> str:
    pair = image.find(b"tokenizer.chat_template")
    if rng.random() < 0.5:
        source = rng.choice(TEMPLATES)
        pair.body = text(source)
        return f"chat template {source[:30]!r}"
    words = re.findall(rb"\w+|\s+|[^\w\s]", pair.body[8:])
    for _ in range(rng.choice([1, 3, 30])):
        a, b = rng.randrange(len(words)), rng.randrange(len(words))
        words[a] = rng.choice([b"", words[b], words[a] * 2, words[a] + words[b]])
    pair.body = text(b"".join(words))
    return "words of the chat template shuffled"


def change_header(image: Image, rng: random.Random) -> str:
    what = rng.choice(["magic", "version", "pairs", "tensors"])
    if what == "magic":
        image.magic = rng.choice([b"GGUG", b"\0\0\0\0", b"GGML", b"ggjt", b"FUGG"])
    elif what == "version":
        image.version = rng.choice([0, 1, 2, 4, 0x03000000, 0xFFFFFFFF])
    elif what == "pairs":
        image.n_pairs = rng.choice([0, len(image.pairs) - 1, len(image.pairs) + 1, 1 << 32, 1 << 63, -1])
    else:
        image.n_tensors = rng.choice([0, len(image.tensors) - 1, len(image.tensors) + 1, 1 << 32, 1 << 63, -1])
    return f"header {what}: {image.magic!r} {image.version} {image.n_pairs} {image.n_tensors}"


def remove_tensor(image: Image, rng: random.Random) -> str:
    tensor = image.tensors.pop(rng.randrange(len(image.tensors)))
    return f"without tensor {tensor.name.decode(errors='replace')}"


def repeat_tensor(image: Image, rng: random.Random) -> str:
    tensor = rng.choice(image.tensors)
    image.tensors.append(Tensor(tensor.name, list(tensor.dims), tensor.kind, tensor.data))
    return f"tensor {tensor.name.decode(errors='replace')} twice"


def rename_tensor(image: Image, rng: random.Random) -> str:
    tensor = rng.choice(image.tensors)
    old, tensor.name = (
        tensor.name,
        rng.choice([*TENSORS, tensor.name + b"\0", tensor.name[:-1], rng.choice(image.tensors).name]),
    )
    return f"tensor {old.decode(errors='replace')} renamed to {tensor.name!r}"


def add_tensor(image: Image, rng: random.Random) -> str:
    like, name = rng.choice(image.tensors), rng.choice(TENSORS)
    kind = rng.choice([0, 0, 1, 8, 26, 27, 28])
    dims = rng.choice(
        [list(like.dims), [32], [1], [64], like.dims[::-1], [len(image.find(b"tokenizer.ggml.tokens").items())]]
    )
    data = some_data(rng, tensor_bytes(dims, kind))
    image.tensors = [t for t in image.tensors if t.name != name] + [Tensor(name, dims, kind, data)]
    return f"tensor {name!r} added: {dims} type {kind}"


def retype_tensor(image: Image, rng: random.Random) -> str:
    """Another type with data of the right size: well formed, but perhaps not computable."""
    tensor = rng.choice(image.tensors)
    tensor.kind = rng.choice(list(TENSOR_TYPES))
    tensor.data = some_data(rng, tensor_bytes(tensor.dims, tensor.kind))
    return f"tensor {tensor.name.decode(errors='replace')} has type {tensor.kind}"


def retype_all(image: Image, rng: random.Random) -> str:
    """All matrices, or all vectors, in another type."""
    kind, vectors = rng.choice(list(TENSOR_TYPES)), rng.random() < 0.3
    for tensor in image.tensors:
        if (len(tensor.dims) == 1) == vectors and tensor.dims[0] % TENSOR_TYPES[kind][0] == 0:
            tensor.kind = kind
            tensor.data = some_data(rng, tensor_bytes(tensor.dims, kind))
    return f"all {'vectors' if vectors else 'matrices'} have type {kind}"


def mistype_tensor(image: Image, rng: random.Random) -> str:
    tensor = rng.choice(image.tensors)
    tensor.kind = rng.choice([4, 5, 31, 36, 43, 255, -1, *TENSOR_TYPES])
    return f"tensor {tensor.name.decode(errors='replace')} claims type {tensor.kind}"


def reshape_tensor(image: Image, rng: random.Random) -> str:
    tensor = rng.choice(image.tensors)
    what = rng.choice(["dim", "dim", "rank", "swap", "flat", "fit"])
    if what == "dim":
        near = [tensor.dims[0] * 2, tensor.dims[0] + 1]
        tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(
            [0, 1, -1, 1 << 31, 1 << 62, 1 << 63, (1 << 64) - 32, *near]
        )
    elif what == "rank":
        tensor.n_dims = rng.choice([0, 1, 2, 3, 4, 5, 1 << 31])
    elif what == "swap":
        tensor.dims.reverse()
    elif what == "flat":
        tensor.dims = [tensor_bytes(tensor.dims, 24)]
    else:  # well formed, wrong size
        tensor.dims = [max(1, d + rng.choice([-32, 0, 32])) for d in tensor.dims]
        tensor.data = some_data(rng, tensor_bytes(tensor.dims, tensor.kind))
    return f"tensor {tensor.name.decode(errors='replace')}: {what} {tensor.dims} {tensor.n_dims}"


def move_tensor(image: Image, rng: random.Random) -> str:
    tensor = rng.choice(image.tensors)
    tensor.offset = rng.choice([0, 1, 32, 1 << 20, 1 << 40, (1 << 64) - 32, -1])
    return f"tensor {tensor.name.decode(errors='replace')} at {tensor.offset}"


def change_data(image: Image, rng: random.Random) -> str:
    """Weights of any bits: NaN, infinities, noise. A model may be useless, it must not be deadly."""
    chosen = rng.sample(image.tensors, rng.choice([1, 1, 3, len(image.tensors)]))
    what, fill = rng.choice([("nan", b"\xff"), ("inf", b"\x7c"), ("zero", b"\0"), ("big", b"\x7b"), ("noise", b"")])
    for tensor in chosen:
        size = len(tensor.data)
        infinite = struct.pack("<f", float("inf")) if tensor.kind == 0 else b"\x00\x7c"
        tensor.data = (
            rng.randbytes(size) if what == "noise" else (infinite * size)[:size] if what == "inf" else fill * size
        )
    return f"{what} in {len(chosen)} tensors from {chosen[0].name.decode(errors='replace')}"


def spoil_data(image: Image, rng: random.Random) -> str:
    """A few NaNs in one tensor, the rest intact."""
    tensor = rng.choice([t for t in image.tensors if t.kind in (0, 1)])
    data = bytearray(tensor.data)
    for _ in range(rng.choice([1, 10, 1000])):
        at = rng.randrange(len(data) // 4) * 4
        data[at : at + 4] = b"\xff\xff\xff\xff" if rng.random() < 0.5 else b"\x00\x7c\x00\x7c"
    tensor.data = bytes(data)
    return f"spoilt {tensor.name.decode(errors='replace')}"


def sequence(mutations: list[Mutation], image: Image, rng: random.Random) -> str:
    """One after the other; what an earlier one made impossible is left out."""
    done = []
    for mutation in mutations:
        with contextlib.suppress(KeyError, IndexError, ValueError, struct.error):
            done.append(mutation(image, rng))
    return "; ".join(done)


def several(image: Image, rng: random.Random) -> str:
    return sequence(rng.choices(STRUCTURED, k=rng.randrange(2, 5)), image, rng)


STRUCTURED: list[Mutation] = [
    *(
        change_value,
        change_value,
        change_hparam,
        change_hparam,
        change_hparam,
        change_hparam,
        change_type,
        change_template,
    ),
    *(remove_key, repeat_key, rename_key, add_key, add_key, add_key, change_architecture),
    *(
        remove_tensor,
        repeat_tensor,
        rename_tensor,
        add_tensor,
        add_tensor,
        mistype_tensor,
        reshape_tensor,
        reshape_tensor,
        move_tensor,
    ),
    *(retype_tensor, retype_tensor, retype_tensor, retype_all, change_data, spoil_data),
]
MUTATIONS: list[Mutation] = [
    *STRUCTURED,
    change_header,
    change_architecture_and_keys,
    change_architecture_and_keys,
    several,
    several,
]


def flip_bytes(raw: bytes, header: int, rng: random.Random) -> tuple[str, bytes]:
    out = bytearray(raw)
    places = [rng.randrange(min(header, len(out))) for _ in range(rng.choice([1, 1, 2, 8]))]
    for place in places:
        out[place] = rng.choice([out[place] ^ (1 << rng.randrange(8)), 0, 0xFF, rng.randrange(256)])
    return f"bytes {places} changed", bytes(out)


def cut(raw: bytes, header: int, rng: random.Random) -> tuple[str, bytes]:
    size = rng.choice(
        [0, 1, 3, 4, 23, 24, rng.randrange(header), rng.randrange(header), rng.randrange(len(raw)), len(raw) - 1]
    )
    return f"cut to {size} bytes", raw[:size]


def mutate(image: Image, seed: int) -> tuple[str, bytes]:
    """What was done to the file, and the file."""
    rng = random.Random(seed)
    damaged = image.copy()
    roll = rng.random()
    if roll < 0.12:
        return flip_bytes(*damaged.encode(), rng)
    if roll < 0.16:
        return cut(*damaged.encode(), rng)
    what = rng.choice(MUTATIONS)(damaged, rng)
    return what, damaged.encode()[0]
