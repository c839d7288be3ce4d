"""Damaged checkpoints and targets: a DFlashError or a sound file, never another exception, never half a file."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import pytest

from dflash_local.convert import convert
from dflash_local.convert.gguf_metadata import read_header as read_gguf_header
from dflash_local.convert.relabel import relabel
from dflash_local.convert.safetensors_file import read_header
from dflash_local.errors import ConvertError, DFlashError

from . import samples
from .dialect_samples import write_dialect

FEW, MANY = 200, 2000
VALUES = [
    None,
    True,
    -1,
    0,
    1,
    2,
    31,
    2**31,
    2**63,
    2**64,
    0.5,
    1e400,
    "",
    "F32",
    "BF16",
    "F8_E5M2",
    [],
    [0],
    [1, -1],
    [[0]],
    {},
    {"a": 1},
]


def damaged_value(rng: random.Random, value: Any) -> Any:
    """Something else in the place of `value`, sometimes deep inside it."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        copy = dict(value)
        key = rng.choice(list(copy))
        match rng.randrange(5):
            case 0:
                del copy[key]
            case 1:
                copy[rng.choice(["", "norm.weight", "__metadata__", "x" * 300, "\ud800"])] = copy.pop(key)
            case _:
                copy[key] = damaged_value(rng, copy[key])
        return copy
    if isinstance(value, list) and value and rng.random() < 0.7:
        i = rng.randrange(len(value))
        return value[:i] + [damaged_value(rng, value[i])] + value[i + 1 :]
    if type(value) is int and rng.random() < 0.5:
        return value + rng.choice([-64, -2, -1, 1, 2, 64, 2**40])
    return rng.choice(VALUES)


def damaged_bytes(rng: random.Random, raw: bytes) -> bytes:
    """Flipped, removed, added, repeated or cut bytes."""
    at = rng.randrange(len(raw))
    match rng.randrange(5):
        case 0:
            return raw[:at] + bytes([raw[at] ^ 1 << rng.randrange(8)]) + raw[at + 1 :]
        case 1:
            return raw[:at] + raw[at + rng.randrange(1, 40) :]
        case 2:
            return raw[:at] + rng.randbytes(rng.randrange(1, 40)) + raw[at:]
        case 3:
            return raw[:at] + raw[max(0, at - 60) :]
        case _:
            return raw[:at]


def damaged_file(rng: random.Random, header: dict[str, Any], data: bytes) -> bytes:
    """A safetensors file with a lie in its header, its header's length, its header's text, or its size."""
    if rng.random() < 0.6:
        header = damaged_value(rng, header)
    text = json.dumps(header).encode()
    if rng.random() < 0.4:
        text = damaged_bytes(rng, text)
    length = len(text)
    if rng.random() < 0.1:
        length = max(0, length + rng.choice([-1, 1, -length, 8, 2**20, 2**62]))
    raw = struct.pack("<Q", length) + text + data
    return damaged_bytes(rng, raw) if rng.random() < 0.2 else raw


@pytest.mark.parametrize(
    "seeds", [range(FEW), pytest.param(range(FEW, FEW + MANY), marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_safetensors(tmp_path: Path, target: Path, checkpoint: Path, seeds: range) -> None:
    file, output = checkpoint / "model.safetensors", tmp_path / "out.gguf"
    header, data = samples.header_of(samples.tensors(samples.CONFIG))
    refused = 0
    for seed in seeds:
        file.write_bytes(damaged_file(random.Random(seed), header, data))
        refused += expect_error_or_file(lambda: convert(checkpoint, target, output), output, ConvertError, seed)
    assert refused > 0.8 * len(seeds)


@pytest.mark.parametrize(
    "seeds", [range(FEW), pytest.param(range(FEW, FEW + MANY), marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_accepted_headers_are_accepted_by_the_safetensors_package(tmp_path: Path, seeds: range) -> None:
    safe_open = pytest.importorskip("safetensors").safe_open
    path = tmp_path / "x.safetensors"
    header, data = samples.header_of(samples.tensors(samples.CONFIG))
    accepted = 0
    for seed in seeds:
        path.write_bytes(damaged_file(random.Random(seed), header, data))
        try:
            ours = {tensor.name: list(tensor.shape) for tensor in read_header(path)}
        except ConvertError:
            continue
        accepted += 1
        with safe_open(path, framework="numpy") as theirs:
            assert {name: theirs.get_slice(name).get_shape() for name in theirs.keys()} == ours, seed  # noqa: SIM118
    assert accepted


@pytest.mark.parametrize(
    "seeds", [range(FEW), pytest.param(range(FEW, FEW + MANY), marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_config_and_index(tmp_path: Path, target: Path, seeds: range) -> None:
    settings = samples.dflash2_config() | {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 64}
    directory = samples.write_checkpoint(tmp_path / "drafter", settings, shards=2)
    files = [directory / "config.json", directory / "model.safetensors.index.json"]
    output = tmp_path / "out.gguf"
    for seed in seeds:
        rng = random.Random(seed)
        file = rng.choice(files)
        sound = file.read_text()
        file.write_text(json.dumps(damaged_value(rng, json.loads(sound))))
        expect_error_or_file(lambda: convert(directory, target, output), output, ConvertError, seed)
        file.write_text(sound)


@pytest.mark.parametrize(
    "seeds", [range(FEW), pytest.param(range(FEW, FEW + MANY), marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_target(tmp_path: Path, target: Path, checkpoint: Path, seeds: range) -> None:
    output, sound = tmp_path / "out.gguf", target.read_bytes()
    for seed in seeds:
        target.write_bytes(damaged_bytes(random.Random(seed), sound))
        expect_error_or_file(lambda: convert(checkpoint, target, output), output, DFlashError, seed)


@pytest.mark.parametrize("dialect", ["A0", "B", "C", "D", "E"])
@pytest.mark.parametrize(
    "seeds", [range(FEW), pytest.param(range(FEW, FEW + MANY), marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_dialects(tmp_path: Path, target: Path, checkpoint: Path, seeds: range, dialect: str) -> None:
    """A damaged GGUF of another dialect."""
    convert(checkpoint, target, tmp_path / "a.gguf")
    source = write_dialect(tmp_path / "b.gguf", dialect, tmp_path / "a.gguf")
    sound, output = source.read_bytes(), tmp_path / "out.gguf"
    header = min(tensor.offset for tensor in read_gguf_header(source)[1].values())
    refused = 0
    for seed in seeds:
        rng = random.Random(seed)
        # most of the file is weights, which any bytes can be
        source.write_bytes(damaged_bytes(rng, sound[:header]) + sound[header:])
        if rng.random() < 0.1:
            source.write_bytes(damaged_bytes(rng, sound))
        refused += expect_error_or_file(lambda: relabel(source, target).write(output), output, ConvertError, seed)
    assert refused > 0.3 * len(seeds)


def expect_error_or_file(action: Callable[[], object], output: Path, error: type[DFlashError], seed: int) -> bool:
    """Whether `action` was refused; if not, the file it wrote must be readable. Whatever else happens names the
    seed."""
    try:
        action()
    except error as refusal:
        assert refusal.message and not list(output.parent.glob("*out.gguf*")), seed
        return True
    except Exception as other:
        raise AssertionError(f"seed {seed}") from other
    assert gguf.GGUFReader(output).tensors, seed
    output.unlink()
    return False
