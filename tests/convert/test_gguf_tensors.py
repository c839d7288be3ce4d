"""The table of a GGUF file's tensors: what `gguf` reads, and one error for each way in which it can be wrong."""

from __future__ import annotations

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest

from dflash_local.convert.gguf_metadata import read_header, read_metadata
from dflash_local.demo.pocket import bundled_pair
from dflash_local.errors import ModelError


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


def entry(name: bytes, shape: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    return struct.pack(f"<Q{len(name)}sI{len(shape)}QIQ", len(name), name, len(shape), *shape, kind, offset)


@pytest.mark.parametrize(
    ("entries", "data", "field", "message"),
    [
        ([entry(b"a", (8,))], 31, "a", "ends before the data"),
        ([entry(b"a", (8,), offset=2**63)], 32, "a", "ends before the data"),
        ([entry(b"a", (8,)), entry(b"a", (8,))], 32, "a", "listed twice"),
        ([entry(b"a", (8,), kind=99)], 32, "a", "unknown type 99"),
        ([entry(b"a", (8,), kind=2)], 32, "a", "which Q4_0 cannot have"),
        ([entry(b"a", (0, 2))], 32, "a", "which F32 cannot have"),
        ([entry(b"a", (1, 1, 1, 1, 1))], 32, "a", "has 5 dimensions"),
        ([entry(b"\xff", (8,))], 32, None, "is not UTF-8"),
        ([struct.pack("<Q", 2**60)], 32, None, "ends inside its header"),
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


def test_alignment(tmp_path: Path) -> None:
    key = b"general.alignment"
    for alignment, sound in ((64, True), (0, False), (12, False)):
        header = b"GGUF" + struct.pack("<IQQ", 3, 1, 1)
        header += struct.pack(f"<Q{len(key)}sII", len(key), key, 4, alignment) + entry(b"a", (1,))
        path = tmp_path / "model.gguf"
        path.write_bytes(header + bytes(-len(header) % 64) + struct.pack("<f", 1.5))
        if sound:
            assert read_header(path)[1]["a"].rows(0, 1).view(np.float32).tolist() == [[1.5]]
        else:
            with pytest.raises(ModelError, match="alignment"):
                read_header(path)
