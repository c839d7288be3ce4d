"""The table of a GGUF file's tensors: what `gguf` reads, and one error for each way in which it can be wrong."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest

from dflash_local.convert.gguf_metadata import StoredGgufTensor, Value, read_header, read_metadata, read_model, u32
from dflash_local.demo.pocket import bundled_pair
from dflash_local.errors import ModelError

from . import samples
from .dialect_samples import write_tensors

DRAFTER = Path(bundled_pair("dflash").drafter)


def test_rows_are_those_that_gguf_reads() -> None:
    path = Path(bundled_pair("dflash2").drafter)
    metadata, tensors = read_header(path)
    assert list(metadata) == list(read_metadata(path))
    expected = gguf.GGUFReader(path).tensors
    assert [tensor.name for tensor in expected] == list(tensors)
    for tensor in expected:
        found = tensors[tensor.name]
        assert (found.shape, found.type) == (tuple(int(n) for n in reversed(tensor.shape)), tensor.tensor_type)
        data = np.concatenate(list(found.chunks(1000)))
        np.testing.assert_array_equal(data.ravel(), np.ascontiguousarray(tensor.data).view(np.uint8).ravel())
        np.testing.assert_array_equal(found.rows(found.n_rows - 1, found.n_rows)[0], data[-1])


def test_a_file_that_shrinks_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    shutil.copy(DRAFTER, path)
    tensor = list(read_header(path)[1].values())[-1]
    with path.open("r+b") as file:
        file.truncate(tensor.offset + tensor.n_bytes - 1)
    last = tensor.n_rows - 1
    for read in (lambda: tensor.rows(last, last + 1), lambda: tensor.picked_rows([last]), tensor.numbers):
        with pytest.raises(ModelError, match="ends inside tensor") as error:
            read()
        assert error.value.field == tensor.name
    path.unlink()
    with pytest.raises(ModelError, match="cannot read x"):
        tensor.rows(0, 1)


def entry(name: bytes, shape: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    return struct.pack(f"<Q{len(name)}sI{len(shape)}QIQ", len(name), name, len(shape), *shape, kind, offset)


@pytest.mark.parametrize(
    ("entries", "data", "field", "message"),
    [
        ([entry(b"a", (8,))], 31, "a", "ends before the data"),
        ([entry(b"a", (8,), offset=2**63)], 32, "a", "lies at offset"),
        ([entry(b"a", (8,)), entry(b"b", (8,), offset=64)], 96, "b", "lies at offset 64 of the data, expected 32"),
        ([entry(b"a", (8,)), entry(b"b", (8,))], 64, "b", "lies at offset 0 of the data, expected 32"),
        ([entry(b"a", (8,)), entry(b"a", (8,))], 32, "a", "listed twice"),
        ([entry(b"a", (8,), kind=99)], 32, "a", "type 99, which the package gguf does not know"),
        ([entry(b"a", (8,), kind=2)], 32, "a", "which Q4_0 cannot have"),
        ([entry(b"a", (0, 2))], 32, "a", "which F32 cannot have"),
        ([entry(b"a", (1, 1, 1, 1, 1))], 32, "a", "has 5 dimensions"),
        ([entry(b"\xff", (8,))], 32, None, "is not UTF-8"),
        ([entry(b"", (8,))], 32, None, "is empty or has a zero byte"),
        ([entry(b"a\0b", (8,))], 32, None, "is empty or has a zero byte"),
        ([entry(b"a" * 64, (8,))], 32, None, "64 bytes long, at most 63"),
        ([struct.pack("<Q", 2**60)], 32, None, "at most 63"),
        ([struct.pack("<Q", 60)], 0, None, "ends inside its header"),
    ],
)
def test_damaged(tmp_path: Path, entries: list[bytes], data: int, field: str | None, message: str) -> None:
    header = b"GGUF" + struct.pack("<IQQ", 3, len(entries), 0) + b"".join(entries)
    path = tmp_path / "model.gguf"
    path.write_bytes(header + bytes(-len(header) % 32 + data))
    with pytest.raises(ModelError) as error:
        read_header(path)
    assert message in error.value.message
    assert field is None or error.value.field == field
    assert "gguf does not know" not in message or "damaged" not in error.value.message  # llama.cpp may well know it


def test_a_type_whose_numbers_gguf_cannot_read(tmp_path: Path) -> None:
    tensor = StoredGgufTensor(tmp_path / "model.gguf", "a", (1, 128), gguf.GGMLQuantizationType.Q1_0, 0)
    tensor.path.write_bytes(bytes(tensor.n_bytes))
    with pytest.raises(ModelError, match="the tensor 'a' is Q1_0, whose numbers the package gguf cannot read") as error:
        tensor.numbers()
    assert error.value.field == "a" and error.value.hint


def test_alignment(tmp_path: Path) -> None:
    key = b"general.alignment"
    for alignment, sound in ((64, True), (0, False), (12, False), (8, False), (48, False), (1 << 21, False)):
        header = b"GGUF" + struct.pack("<IQQ", 3, 1, 1)
        header += struct.pack(f"<Q{len(key)}sII", len(key), key, 4, alignment) + entry(b"a", (1,))
        path = tmp_path / "model.gguf"
        path.write_bytes(header + bytes(-len(header) % 64) + struct.pack("<f", 1.5))
        if sound:
            assert read_header(path)[1]["a"].rows(0, 1).view(np.float32).tolist() == [[1.5]]
        else:
            with pytest.raises(ModelError, match="alignment"):
                read_header(path)


@pytest.mark.parametrize("alignment", [8, 32, 64, 4096])
def test_a_file_is_aligned_as_it_says(tmp_path: Path, alignment: int) -> None:
    metadata, tensors = read_header(DRAFTER)
    metadata["general.alignment"] = u32(alignment)
    write_tensors(tmp_path / "aligned.gguf", metadata, tensors)
    reader = gguf.GGUFReader(tmp_path / "aligned.gguf")
    assert reader.alignment == alignment and all(tensor.data_offset % alignment == 0 for tensor in reader.tensors)
    for tensor in reader.tensors:
        np.testing.assert_array_equal(np.concatenate(list(tensors[tensor.name].chunks())).ravel(),
                                      np.ascontiguousarray(tensor.data).view(np.uint8).ravel())  # fmt: skip


def is_later(name: str) -> bool:
    return name.startswith("blk.1.") or name == "output_norm.weight"


@pytest.mark.parametrize("alignment", [32, 64])
def test_a_split_model_is_read_whole(tmp_path: Path, alignment: int) -> None:
    first = samples.write_split(DRAFTER, tmp_path / "m", is_later, alignment)
    metadata, tensors = read_model(first)
    expected_metadata, expected = read_model(DRAFTER)
    assert metadata == expected_metadata and tensors.keys() == expected.keys()
    assert {tensor.path for name, tensor in tensors.items() if is_later(name)} == {tmp_path / "m-00002-of-00002.gguf"}
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(
            np.concatenate(list(tensor.chunks())), np.concatenate(list(expected[name].chunks()))
        )


def edit(path: Path, key: str, value: Value | None) -> None:
    """Another value of a key in place."""
    metadata, tensors = read_header(path)
    metadata.pop(key, None)
    write_tensors(path, metadata | ({key: value} if value else {}), tensors)


def test_damaged_splits(tmp_path: Path) -> None:
    def refused(path: Path) -> tuple[str, str | None]:
        with pytest.raises(ModelError) as error:
            read_model(path)
        return error.value.message, error.value.field

    first = samples.write_split(DRAFTER, tmp_path / "m", is_later)
    second = tmp_path / "m-00002-of-00002.gguf"
    assert refused(second)[1] == "split.count"
    alone = Path(shutil.copy(first, tmp_path / "alone.gguf"))
    assert refused(alone)[1] == "split.count"
    edit(first, "split.tensors.count", Value(gguf.GGUFValueType.INT32, 99))
    assert refused(first) == (f"the parts of {first.name} have {len(read_header(DRAFTER)[1])} tensors, not 99",
                              "split.tensors.count")  # fmt: skip
    edit(first, "split.count", Value(gguf.GGUFValueType.STRING, b"2"))
    assert refused(first)[1] == "split.count"
    edit(first, "split.count", Value(gguf.GGUFValueType.UINT16, 2))
    edit(second, "split.no", None)
    assert refused(first)[1] == "split.no"
    shutil.copy(first, second)
    edit(second, "split.no", Value(gguf.GGUFValueType.UINT16, 1))
    assert "is in an earlier part too" in refused(first)[0]
    second.unlink()
    assert "m-00002-of-00002.gguf: No such file" in refused(first)[0]
