"""Checkpoint directories: which files are read, and what is wrong with the others."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dflash_local.convert.checkpoint import Checkpoint
from dflash_local.convert.safetensors_file import read_header
from dflash_local.errors import ConvertError

from . import samples

INDEX = "model.safetensors.index.json"
SHARD = "model-00002-of-00003.safetensors"


def change_index(directory: Path, change: Callable[[dict[str, Any]], object]) -> None:
    index = json.loads((directory / INDEX).read_text())
    change(index)
    (directory / INDEX).write_text(json.dumps(index))


def add_tensor(directory: Path, name: str, shard: str = SHARD) -> None:
    """Add a tensor to a shard, or make a new file of it."""
    path = directory / shard
    old = (
        {tensor.name: tensor.rows(0, tensor.n_rows).reshape(tensor.shape) for tensor in read_header(path)}
        if path.exists()
        else {}
    )
    samples.write_file(path, *samples.header_of({**old, name: np.ones(4, np.float32)}))


def remove(directory: Path, *patterns: str) -> None:
    for pattern in patterns:
        for path in directory.glob(pattern):
            path.unlink()


def unindexed(directory: Path) -> None:
    """A file too many and no index to tell which it is."""
    remove(directory, INDEX)
    add_tensor(directory, "x", "other.safetensors")


def config_as_directory(directory: Path) -> None:
    remove(directory, "config.json")
    (directory / "config.json").mkdir()


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    return samples.write_checkpoint(tmp_path / "sharded", samples.config(), shards=3)


def test_one_file_shards_and_shards_without_index_are_the_same(checkpoint: Path, sharded: Path) -> None:
    whole, split = Checkpoint.open(checkpoint), Checkpoint.open(sharded)
    (sharded / INDEX).unlink()
    unindexed = Checkpoint.open(sharded)
    assert whole.config == split.config == samples.config()
    assert whole.tensors.keys() == split.tensors.keys() == unindexed.tensors.keys()
    for name, tensor in whole.tensors.items():
        np.testing.assert_array_equal(tensor.rows(0, tensor.n_rows), split.tensors[name].rows(0, tensor.n_rows))


def test_model_prefix_is_dropped(tmp_path: Path) -> None:
    contents = {f"model.{name}": values for name, values in samples.tensors(samples.CONFIG).items()}
    directory = samples.write_checkpoint(tmp_path / "prefixed", samples.config(), contents)
    assert Checkpoint.open(directory).tensors.keys() == samples.tensors(samples.CONFIG).keys()


def test_any_name_will_do_for_the_only_file(checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").rename(checkpoint / "drafter.safetensors")
    assert "fc.weight" in Checkpoint.open(checkpoint).tensors


WRONG: dict[str, tuple[Callable[[Path], object], str | None, str]] = {
    # case: damage to a checkpoint of three shards, field, part of the message
    "no directory": (shutil.rmtree, None, "is not a directory"),
    "no config": (lambda d: remove(d, "config.json"), "config.json", "has no config.json"),
    "config is not JSON": (lambda d: (d / "config.json").write_text("{"), "config.json", "config.json is not JSON"),
    "config in UTF-16": (
        lambda d: (d / "config.json").write_text("{}", encoding="utf-16"),
        "config.json",
        "config.json is not JSON: it is not UTF-8 at byte 0",
    ),
    "config has NaN": (
        lambda d: (d / "config.json").write_text('{"rms_norm_eps": NaN}'),
        "config.json",
        "config.json is not JSON: JSON has no number NaN",
    ),
    "key twice in config": (lambda d: (d / "config.json").write_text('{"a": 1, "a": 2}'), "a", "listed twice"),
    "config is a list": (
        lambda d: (d / "config.json").write_text("[]"),
        "config.json",
        "config.json is not a JSON object",
    ),
    "config is a directory": (config_as_directory, "config.json", "cannot read"),
    "index is not JSON": (lambda d: (d / INDEX).write_bytes(b"\xff"), INDEX, "is not JSON"),
    "index without map": (lambda d: change_index(d, lambda i: i.pop("weight_map")), "weight_map", "has no weight_map"),
    "shard name is a path": (
        lambda d: change_index(d, lambda i: i["weight_map"].update(x="../x.safetensors")),
        "x",
        "is not the name",
    ),
    "shard name is a number": (
        lambda d: change_index(d, lambda i: i["weight_map"].update(x=1)),
        "x",
        "is not the name of a shard",
    ),
    "shard is missing": (lambda d: remove(d, SHARD), SHARD, f"shard {SHARD} is missing"),
    "tensor is not in its shard": (
        lambda d: change_index(d, lambda i: i["weight_map"].update(x=SHARD)),
        "x",
        "is not in",
    ),
    "tensor is in another shard": (
        lambda d: change_index(d, lambda i: i["weight_map"].update({"fc.weight": SHARD})),
        "fc.weight",
        "is not in",
    ),
    "tensor is not in the index": (
        lambda d: change_index(d, lambda i: i["weight_map"].pop("norm.weight")),
        "norm.weight",
        "is not in",
    ),
    "tensor in two shards": (lambda d: add_tensor(d, "fc.weight"), "fc.weight", "listed twice"),
    "shard is truncated": (
        lambda d: (d / SHARD).write_bytes((d / SHARD).read_bytes()[:-1]),
        "layers.1.self_attn.q_proj.weight",
        "truncated",
    ),
    "shard missing, no index": (lambda d: remove(d, INDEX, SHARD), "model-00001-of-00003.safetensors", "2 of 3"),
    "files without index": (unindexed, INDEX, "4 safetensors files"),
    "no tensors at all": (lambda d: remove(d, "model*"), "model.safetensors", "has neither safetensors files"),
    "empty mask embedding": (
        lambda d: (d / "mask_embedding.pt").touch(),
        "mask_embedding.pt",
        "mask_embedding.pt cannot be read",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong(sharded: Path, case: str) -> None:
    damage, field, message = WRONG[case]
    damage(sharded)
    with pytest.raises(ConvertError) as error:
        Checkpoint.open(sharded)
    assert message in error.value.message
    assert error.value.field == field


def test_prefixed_and_plain_name_are_the_same_tensor(tmp_path: Path) -> None:
    contents = {"model.norm.weight": np.ones(4, np.float32), "norm.weight": np.ones(4, np.float32)}
    with pytest.raises(ConvertError, match=r"'norm\.weight' is listed twice"):
        Checkpoint.open(samples.write_checkpoint(tmp_path / "twice", samples.config(), contents))


def test_a_config_that_is_too_large(checkpoint: Path) -> None:
    with (checkpoint / "config.json").open("r+b") as file:
        file.truncate((64 << 20) + 1)  # sparse
    with pytest.raises(ConvertError, match=r"config\.json is larger than 64 MiB") as error:
        Checkpoint.open(checkpoint)
    assert error.value.field == "config.json"
