"""What is taken from the target's GGUF, and every way in which that file can be wrong."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import pytest

from dflash_local.convert.gguf_metadata import read_metadata
from dflash_local.convert.target import Target
from dflash_local.errors import ModelError

from . import samples


def test_pocket_target(pocket: dict[str, Path]) -> None:
    target = Target.read(pocket["target"])
    assert (target.arch, target.n_embd, target.n_layer, target.n_vocab) == ("qwen3", 256, 6, 1699)
    assert target.mask_token is None and not target.uses_mrope
    assert set(target.tokenizer) == {key for key in samples.read_keys(pocket["target"]) if key.startswith("tokenizer.")}


def test_metadata_equals_the_gguf_package_s(pocket: dict[str, Path]) -> None:
    ours = read_metadata(pocket["dflash2"])
    theirs = gguf.GGUFReader(pocket["dflash2"])
    keys = samples.read_keys(pocket["dflash2"])
    assert list(ours) == list(keys)
    for key, value in ours.items():
        assert value.type == theirs.fields[key].types[0]
        assert value.item is None or value.item == theirs.fields[key].types[1]
        data = [
            item.decode() if isinstance(item, bytes) else item
            for item in (value.data if value.item is not None else [value.data])
        ]
        assert data == (keys[key] if value.item is not None else [keys[key]])


def test_appended_prediction_layers_cannot_be_tapped(tmp_path: Path) -> None:
    path = samples.write_target(tmp_path / "t.gguf", {"qwen3.block_count": 7, "qwen3.nextn_predict_layers": 1})
    assert Target.read(path).n_layer == 6


def test_mask_token_and_mrope(tmp_path: Path) -> None:
    path = samples.write_target(
        tmp_path / "t.gguf",
        {"tokenizer.ggml.mask_token_id": 7, "qwen35.rope.dimension_sections": [2, 1, 1, 0]},
        arch="qwen35",
    )
    target = Target.read(path)
    assert target.mask_token == 7 and target.uses_mrope


WRONG_KEYS: dict[str, tuple[dict[str, Any], str, str]] = {
    # case: changes, architecture, field
    "no tokenizer": ({"tokenizer.ggml.tokens": None}, "qwen3", "tokenizer.ggml.tokens"),
    "tokens are numbers": ({"tokenizer.ggml.tokens": [1, 2]}, "qwen3", "tokenizer.ggml.tokens"),
    "no width": ({"qwen3.embedding_length": None}, "qwen3", "qwen3.embedding_length"),
    "width is text": ({"qwen3.embedding_length": "32"}, "qwen3", "qwen3.embedding_length"),
    "no layers": ({"qwen3.block_count": None}, "qwen3", "qwen3.block_count"),
    "zero layers": ({"qwen3.block_count": 0}, "qwen3", "qwen3.block_count"),
    "later part of a split": ({"split.no": 1}, "qwen3", "split.no"),
    "vision projector": ({"general.type": "mmproj"}, "clip", "general.architecture"),
    "adapter": ({"general.type": "adapter"}, "qwen3", "general.architecture"),
    "a drafter": ({}, "dflash", "general.architecture"),
}


@pytest.mark.parametrize("case", WRONG_KEYS)
def test_not_a_target(tmp_path: Path, case: str) -> None:
    changes, arch, field = WRONG_KEYS[case]
    with pytest.raises(ModelError) as error:
        Target.read(samples.write_target(tmp_path / "t.gguf", changes, arch))
    assert error.value.field == field
    assert error.value.hint


def test_no_architecture(tmp_path: Path) -> None:
    path = tmp_path / "t.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 0))
    with pytest.raises(ModelError, match=r"general\.architecture"):
        Target.read(path)


def test_every_truncation_is_found(target: Path, tmp_path: Path) -> None:
    raw = target.read_bytes()
    path = tmp_path / "cut.gguf"
    for length in range(0, len(raw) - gguf.GGUF_DEFAULT_ALIGNMENT, 7):
        path.write_bytes(raw[:length])
        with pytest.raises(ModelError):
            read_metadata(path)


def pair(key: bytes, kind: int, body: bytes) -> bytes:
    return struct.pack("<Q", len(key)) + key + struct.pack("<I", kind) + body


HEAD_OF_ONE = b"GGUF" + struct.pack("<IQQ", 3, 0, 1)
DAMAGE: dict[str, tuple[bytes, str]] = {
    "not a GGUF": (b"GGML" + bytes(40), "not a GGUF file"),
    "big-endian or old version": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "GGUF version"),
    "too many keys": (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60), "ends inside its header"),
    "endless key": (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**60), "at most 65535 are allowed"),
    "key is not UTF-8": (HEAD_OF_ONE + pair(b"\xff", 7, b"\1"), "is not UTF-8"),
    "key listed twice": (b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + pair(b"a", 7, b"\1") * 2, "'a' is listed twice"),
    "unknown type": (HEAD_OF_ONE + pair(b"a", 99, b""), "unknown type 99"),
    "array of arrays": (HEAD_OF_ONE + pair(b"a", 9, struct.pack("<IQ", 9, 1)), "array of arrays"),
    "endless numbers": (HEAD_OF_ONE + pair(b"a", 9, struct.pack("<IQ", 4, 2**62)), "claims 4611686018427387904"),
    "too many numbers": (HEAD_OF_ONE + pair(b"a", 9, struct.pack("<IQ", 4, 2**20)), "at the key 'a'"),
    "endless strings": (HEAD_OF_ONE + pair(b"a", 9, struct.pack("<IQ", 8, 2**60)), "claims 1152921504606846976"),
    "nothing": (b"", "not a GGUF file"),
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGE)
def test_damage(tmp_path: Path, case: str) -> None:
    raw, message = DAMAGE[case]
    path = tmp_path / "t.gguf"
    path.write_bytes(raw)
    with pytest.raises(ModelError, match=message):
        read_metadata(path)


@pytest.mark.parametrize("place", [lambda path: path / "missing.gguf", lambda path: path])
def test_unreadable(tmp_path: Path, place: Callable[[Path], Path]) -> None:
    with pytest.raises(ModelError, match="cannot read"):
        read_metadata(place(tmp_path))
