"""The two readers of GGUF headers, convert/gguf_metadata.py and ggml_ops/files/gguf_file.cpp: the same files pass, and
the same are refused."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest

from dflash_local.convert.gguf_metadata import read_header, u32
from dflash_local.convert.writer import OutputTensor, write_gguf
from dflash_local.errors import ModelError
from dflash_local.native import check_gguf
from tests.fuzz.gguf_image import ARRAY, I32, STRING, U32, U64, Image, Pair, array, number, read, text

NORM = "blk.0.attn_norm.weight"


def place(name: str, shift: int) -> Callable[[Image], None]:
    """A tensor's offset, off by `shift`."""

    def edit(image: Image) -> None:
        at = 0
        for tensor in image.tensors:
            if tensor.name == name.encode():
                tensor.offset = at + shift
                return
            at += len(tensor.data) + -len(tensor.data) % 32
        raise KeyError(name)

    return edit


def key(name: bytes, kind: int, body: bytes) -> Callable[[Image], None]:
    return lambda image: image.pairs.append(Pair(name, kind, body))


def norm(**changes: object) -> Callable[[Image], None]:
    def edit(image: Image) -> None:
        tensor = next(tensor for tensor in image.tensors if tensor.name == NORM.encode())
        for name, value in changes.items():
            setattr(tensor, name, value)

    return edit


def header(**changes: object) -> Callable[[Image], None]:
    def edit(image: Image) -> None:
        for name, value in changes.items():
            setattr(image, name, value)

    return edit


def swapped(image: Image) -> None:
    """The table names two tensors in the other order than their data has."""
    first, second = image.tensors[:2]
    size = len(first.data) + -len(first.data) % 32
    first.offset, second.offset = size, 0


def alignment(kind: int, body: bytes) -> Callable[[Image], None]:
    return key(b"general.alignment", kind, body)


# What is wrong, and the key or tensor that both errors must name; "" where none is known.
BAD: dict[str, tuple[Callable[[Image], None], str]] = {
    "magic": (header(magic=b"GGML"), ""),
    "version 1": (header(version=1), ""),
    "version 4": (header(version=4), ""),
    "big endian": (header(version=0x03000000), ""),
    "more keys than bytes": (header(n_pairs=1 << 60), ""),
    "more tensors than bytes": (header(n_tensors=1 << 60), ""),
    "key twice": (lambda image: image.pairs.append(image.pairs[0]), "general.architecture"),
    "empty key": (key(b"", U32, number(U32, 1)), ""),
    "zero byte in a key": (key(b"a\0b", U32, number(U32, 1)), ""),
    "key of 65536 bytes": (key(b"x" * 65536, U32, number(U32, 1)), "65536 bytes"),
    "unknown type": (key(b"x", 13, b""), "'x'"),
    "array of arrays": (key(b"x", ARRAY, array(ARRAY, [])), "'x'"),
    "text of 2^63 bytes": (key(b"x", STRING, struct.pack("<Q", 1 << 63)), ""),
    "text beyond the file": (key(b"x", STRING, struct.pack("<Q", 1 << 27)), ""),
    "array beyond the file": (key(b"x", ARRAY, array(U64, [], 1 << 61)), ""),
    "texts beyond the file": (key(b"x", ARRAY, array(STRING, [], 1 << 40)), "'x'"),
    **{f"alignment {size}": (alignment(U32, number(U32, size)), "general.alignment")
       for size in (0, 1, 8, 16, 33, 48, 1 << 21, 1 << 31)},
    "alignment as text": (alignment(STRING, text(b"32")), "general.alignment"),
    "alignment as u64": (alignment(U64, number(U64, 32)), "general.alignment"),
    "alignment as i32": (alignment(I32, number(I32, 32)), "general.alignment"),
    "alignments": (alignment(ARRAY, array(U32, [number(U32, 32)])), "general.alignment"),
    "tensor twice": (lambda image: image.tensors.append(image.tensors[1]), ""),
    "empty name": (norm(name=b""), ""),
    "zero byte in a name": (norm(name=b"a\0b"), ""),
    "name of 64 bytes": (norm(name=b"x" * 64), "64 bytes"),
    "five dimensions": (norm(dims=[1] * 5), NORM),
    "dimension 0": (norm(dims=[0]), NORM),
    "dimension -1": (norm(dims=[-1]), NORM),
    "product of 2^64": (norm(dims=[1 << 32, 1 << 32]), NORM),
    "removed type": (norm(kind=31), NORM),
    "unknown tensor type": (norm(kind=1000), NORM),
    "half a block": (norm(kind=2, dims=[48]), NORM),
    "gap": (place(NORM, 32), NORM),
    "overlap": (place(NORM, -32), NORM),
    "offset without alignment": (place(NORM, 4), NORM),
    "offset 2^64 - 32": (norm(offset=-32), NORM),
    "offset beyond the file": (norm(offset=1 << 62), NORM),
    "other order": (swapped, ""),
    "data cut off": (lambda image: image.tensors[-1].dims.append(1000), ""),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_both_refuse(tmp_path: Path, pocket: dict[str, Path], case: str) -> None:
    edit, named = BAD[case]
    image = read(pocket["target"])
    edit(image)
    path = tmp_path / "bad.gguf"
    path.write_bytes(image.encode()[0])
    for reader in (read_header, check_gguf):
        with pytest.raises(ModelError) as error:
            reader(path)
        assert named.strip("'") in str(error.value), reader


def test_both_accept_what_our_writer_writes(tmp_path: Path, pocket: dict[str, Path]) -> None:
    path = tmp_path / "target.gguf"
    metadata, tensors = read_header(pocket["target"])
    for size in (32, 64, 4096, 1 << 20):
        write_gguf(path, metadata | {"general.alignment": u32(size)}, [*map(OutputTensor.of, tensors.values())])
        check_gguf(path)
        again = read_header(path)[1]
        assert all(tensor.offset % size == 0 for tensor in again.values())
        np.testing.assert_array_equal(again[NORM].numbers(), tensors[NORM].numbers())


@pytest.mark.parametrize("size", [32, 256])
def test_both_accept_what_the_package_gguf_writes(tmp_path: Path, pocket: dict[str, Path], size: int) -> None:
    path, source = tmp_path / "target.gguf", gguf.GGUFReader(pocket["target"])
    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_custom_alignment(size)
    for name, field in source.fields.items():
        if not name.startswith("GGUF.") and name not in ("general.architecture", "general.alignment"):
            item = field.types[1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], item)
    for tensor in source.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    check_gguf(path)
    found = read_header(path)[1]
    assert len(found) == len(source.tensors)
    for tensor in source.tensors:
        stored = np.concatenate(list(found[tensor.name].chunks()))
        np.testing.assert_array_equal(stored.ravel(), np.ascontiguousarray(tensor.data).view(np.uint8).ravel())


def test_the_pocket_models_pass_both(pocket: dict[str, Path]) -> None:
    for path in pocket.values():
        assert read_header(path)[1]
        check_gguf(path)


@pytest.mark.parametrize("item", [STRING, U32])
def test_an_array_of_too_many_items_is_refused_before_it_is_read(tmp_path: Path, item: int) -> None:
    """Each would be an object of Python: a file of 8 GB without data would fill 64 GB of memory."""
    path, count = tmp_path / "many.gguf", (1 << 24) + 1
    body = struct.pack("<4sIQQ", b"GGUF", 3, 0, 1) + struct.pack("<Q1sIIQ", 1, b"k", ARRAY, item, count)
    with path.open("wb") as file:
        file.write(body)
        file.truncate(len(body) + 8 * count)  # sparse
    with pytest.raises(ModelError, match="'k' claims 16777217 "):
        read_header(path)
