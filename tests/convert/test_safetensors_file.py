"""Every way in which a safetensors file can be bad, and the reading of rows."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors

from dflash_local.convert.safetensors_file import ITEM_BITS, StoredTensor, read_header
from dflash_local.errors import ConvertError

from . import samples

ENTRY = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
DATA = bytes(range(24))
deserialize: Any = safetensors.deserialize  # whose annotations lack the result


def read(path: Path) -> dict[str, StoredTensor]:
    return {tensor.name: tensor for tensor in read_header(path)}


def write(tmp_path: Path, header: Any, data: bytes = DATA) -> Path:
    return samples.write_file(tmp_path / "x.safetensors", header, data)


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
def test_rows(tmp_path: Path, dtype: str) -> None:
    values = np.arange(24, dtype=np.float32).reshape(4, 2, 3) / 2
    path = write(tmp_path, *samples.header_of({"other": np.ones(5, np.float32), "x": values}, dtype))
    stored = read(path)["x"]
    assert (stored.shape, stored.n_rows, stored.dtype) == ((4, 2, 3), 8, dtype)
    np.testing.assert_array_equal(stored.rows(0, 8), values.reshape(8, 3))
    np.testing.assert_array_equal(stored.rows(3, 5), values.reshape(8, 3)[3:5])


def test_integers_scalars_and_empty_tensors(tmp_path: Path) -> None:
    contents = {"ids": np.array([3, -4]), "scalar": np.array(2.5, np.float32), "none": np.zeros((0, 4), np.float32)}
    stored = read(write(tmp_path, *samples.header_of(contents, "F32")))
    np.testing.assert_array_equal(stored["ids"].rows(0, 1), [[3, -4]])
    np.testing.assert_array_equal(stored["scalar"].rows(0, 1), [[2.5]])
    assert stored["none"].rows(0, 0).shape == (0, 4)


def test_metadata_is_no_tensor(tmp_path: Path) -> None:
    assert list(read(write(tmp_path, {"__metadata__": {"format": "pt"}, "a": ENTRY}))) == ["a"]


BAD_HEADERS: dict[str, tuple[Any, str | None, str]] = {
    # case: header, field (None: the file), part of the message
    "not JSON": (b"{'a': 1}", None, "not JSON"),
    "not UTF-8": (b'{"\xff": 1}', None, "not JSON"),
    "half a surrogate pair": (b'{"\\ud800": {}}', None, "not JSON"),
    "UTF-16": (json.dumps({"a": ENTRY}).encode("utf-16"), None, "does not begin with '{'"),
    "byte order mark": (b"\xef\xbb\xbf" + json.dumps({"a": ENTRY}).encode(), None, "does not begin with '{'"),
    "zero byte behind": (json.dumps({"a": ENTRY}).encode() + b"\0", None, "not JSON"),
    "NaN": (b'{"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24], "x": NaN}}', None, "no number NaN"),
    "-Infinity": (b'{"__metadata__": {"x": -Infinity}}', None, "no number -Infinity"),
    "infinite number": (b'{"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24], "x": 1e400}}',
                        None, "not JSON"),
    "nested without end": (b'{"a": ' + b"[" * 100_000, None, "nested too deeply"),
    "absurd number": (b'{"a": ' + b"9" * 5000 + b"}", None, "not JSON"),
    "not an object": ([ENTRY], None, "does not begin with '{'"),
    "empty": (b"", None, "does not begin with '{'"),
    "metadata is a text": ({"__metadata__": "pt", "a": ENTRY}, "__metadata__", "not a map of strings"),
    "metadata is a list": ({"__metadata__": [], "a": ENTRY}, "__metadata__", "not a map of strings"),
    "metadata has a number": ({"__metadata__": {"x": 1}, "a": ENTRY}, "__metadata__", "not a map of strings"),
    "metadata has a map": ({"__metadata__": {"x": {}}, "a": ENTRY}, "__metadata__", "not a map of strings"),
    "metadata has null": ({"__metadata__": {"x": None}, "a": ENTRY}, "__metadata__", "not a map of strings"),
    "metadata twice": (b'{"__metadata__": {}, "__metadata__": {}}', "__metadata__", "listed twice"),
    "listed twice": (b'{"a": {"dtype": "F32"}, "a": {"dtype": "F32"}}', "a", "listed twice"),
    "entry is not an object": ({"a": 3}, "a", "lacks dtype, shape or data_offsets"),
    "no dtype": ({"a": {"shape": [2, 3], "data_offsets": [0, 24]}}, "a", "lacks dtype, shape or data_offsets"),
    "unknown dtype": ({"a": {**ENTRY, "dtype": "F12"}}, "a", "unknown dtype 'F12'"),
    "dtype is a list": ({"a": {**ENTRY, "dtype": ["F32"]}}, "a", "is no text"),
    "half as many": ({"a": {"dtype": "F4", "shape": [46], "data_offsets": [0, 24]}}, "a", "but has 24 bytes"),
    "half a byte": ({"a": {"dtype": "F4", "shape": [47], "data_offsets": [0, 24]}}, "a", "but has 24 bytes"),
    "bits left over": ({"a": {"dtype": "F6_E2M3", "shape": [31], "data_offsets": [0, 24]}}, "a", "but has 24 bytes"),
    "negative size": ({"a": {**ENTRY, "shape": [-2, -3]}}, "a", "not a list of sizes"),
    "fractional size": ({"a": {**ENTRY, "shape": [2.0, 3]}}, "a", "not a list of sizes"),
    "boolean size": ({"a": {**ENTRY, "shape": [True, 6]}}, "a", "not a list of sizes"),
    "huge size": ({"a": {**ENTRY, "shape": [2**64]}}, "a", "not a list of sizes"),
    "overflowing shape": ({"a": {**ENTRY, "shape": [2**40, 2**40]}}, "a", "more elements than any"),
    "product of 2^124": ({"a": {**ENTRY, "shape": [2**62, 2**62, 0], "data_offsets": [0, 0]}},
                         "a", "more elements than any"),
    "inside another": ({"a": ENTRY, "b": {**ENTRY, "shape": [0], "data_offsets": [12, 12]}}, "b", "starts at byte 12"),
    "three offsets": ({"a": {**ENTRY, "data_offsets": [0, 24, 24]}}, "a", "not a begin and an end"),
    "offsets backwards": ({"a": {**ENTRY, "data_offsets": [24, 0]}}, "a", "not a begin and an end"),
    "shape against offsets": ({"a": {**ENTRY, "shape": [2, 2]}}, "a", "but has 24 bytes"),
    "hole": ({"a": {**ENTRY, "shape": [5], "data_offsets": [4, 24]}}, "a", "starts at byte 4"),
    "overlap": ({"a": {**ENTRY, "shape": [4], "data_offsets": [0, 16]}, "b": {**ENTRY, "data_offsets": [8, 32]}},
                "b", "starts at byte 8"),
    "left over": ({"a": {**ENTRY, "shape": [5], "data_offsets": [0, 20]}}, None, "4 bytes after the last tensor"),
    "truncated": ({"a": {**ENTRY, "shape": [7], "data_offsets": [0, 28]}}, "a", "truncated"),
    # What the format forbids and the package's 0.8.0 accepts.
    "blank before the header": (b" " + json.dumps({"a": ENTRY}).encode(), None, "does not begin with '{'"),
    "tensor twice": (b'{"a": %s, "a": %s}' % ((json.dumps(ENTRY).encode(),) * 2), "a", "listed twice"),
    "key of metadata twice": (b'{"__metadata__": {"x": "1", "x": "2"}}', "x", "listed twice"),
    "entry is a list": ({"a": ["F32", [2, 3], [0, 24]]}, "a", "lacks dtype, shape or data_offsets"),
}  # fmt: skip
LENIENT = ("blank before the header", "tensor twice", "key of metadata twice", "entry is a list")


@pytest.mark.parametrize("case", BAD_HEADERS)
def test_bad_header(tmp_path: Path, case: str) -> None:
    header, field, message = BAD_HEADERS[case]
    with pytest.raises(ConvertError) as error:
        read(write(tmp_path, header))
    assert message in error.value.message
    assert error.value.field == (field or "x.safetensors")


@pytest.mark.parametrize("case", [case for case in BAD_HEADERS if case not in LENIENT])
def test_the_package_safetensors_refuses_the_same(tmp_path: Path, case: str) -> None:
    raw = write(tmp_path, BAD_HEADERS[case][0]).read_bytes()
    with pytest.raises(safetensors.SafetensorError):
        deserialize(raw)


SOUND: dict[str, Any] = {
    "no metadata": {"__metadata__": None, "a": ENTRY},
    "empty metadata": {"__metadata__": {}, "a": ENTRY},
    "blanks behind": json.dumps({"a": ENTRY}).encode() + b" \n\t ",
    "escaped name": b'{"\\u0061": %s}' % json.dumps(ENTRY).encode(),
    "another field": {"a": {**ENTRY, "x": 1}},
    "empty tensor after one that begins there": {"a": ENTRY, "b": {**ENTRY, "shape": [0], "data_offsets": [0, 0]}},
    **{dtype: {"a": {"dtype": dtype, "shape": [len(DATA) * 8 // bits], "data_offsets": [0, 24]}}
       for dtype, bits in ITEM_BITS.items()},
    "empty tensor at the end": {"b": {**ENTRY, "shape": [0, 2**62], "data_offsets": [24, 24]}, "a": ENTRY},
}  # fmt: skip


@pytest.mark.parametrize("case", SOUND)
def test_both_accept(tmp_path: Path, case: str) -> None:
    path = write(tmp_path, SOUND[case])
    theirs = {name: tuple(tensor["shape"]) for name, tensor in deserialize(path.read_bytes())}
    assert {name: tensor.shape for name, tensor in read(path).items()} == theirs


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "it has 0 bytes"),
        (b"\x10\0\0", "it has 3 bytes"),
        (struct.pack("<Q", 2**63) + b"{}", "the format allows"),
        (struct.pack("<Q", 100) + b"{}", "its header claims 100 bytes but the file has 10"),
    ],
)
def test_bad_length(tmp_path: Path, raw: bytes, message: str) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(raw)
    with pytest.raises(ConvertError, match=message) as error:
        read(path)
    assert error.value.field == "x.safetensors"


def test_file_that_shrinks_while_it_is_read(tmp_path: Path) -> None:
    path = write(tmp_path, {"a": ENTRY})
    stored = read(path)["a"]
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(ConvertError, match="ends inside tensor 'a'"):
        stored.rows(0, 2)
    path.unlink()
    with pytest.raises(ConvertError, match="cannot read x") as error:
        stored.rows(0, 2)
    assert error.value.field == "a"


def test_unreadable_file(tmp_path: Path) -> None:
    with pytest.raises(ConvertError, match="cannot read missing"):
        read(tmp_path / "missing.safetensors")
    with pytest.raises(ConvertError, match="cannot read"):
        read(tmp_path)


READABLE = ("BF16", "F16", "F32", "F64")


@pytest.mark.parametrize("dtype", ITEM_BITS)
def test_dtypes(tmp_path: Path, dtype: str) -> None:
    stored = StoredTensor(tmp_path, "a", dtype, (1,), 0)
    if dtype in READABLE:
        stored.check_dtype()
        return
    with pytest.raises(ConvertError, match=f"tensor 'a' has dtype {dtype}") as error:
        stored.check_dtype()
    assert error.value.hint == "save the checkpoint unquantized, as bfloat16"


def test_a_dtype_that_may_be_newer(tmp_path: Path) -> None:
    with pytest.raises(ConvertError, match="unknown dtype 'F12'") as error:
        read(write(tmp_path, {"a": {**ENTRY, "dtype": "F12"}}))
    assert error.value.hint and "newer" in error.value.hint
