"""AngelSpec's checkpoints: names and meanings of its own, a frozen copy of the target's embedding, torch's format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dflash_local.convert import convert
from dflash_local.convert.config import DrafterConfig
from dflash_local.errors import ConvertError

from . import samples

# Its DFlashConfig writes all settings flat; the number of taps stands where the authors have the target's depth.
SETTINGS: dict[str, Any] = {
    "dflash_config": None,
    "model_type": "dflash",
    "model_arch": "dflash",
    "fusion_type": "concat_fc",
    "mask_token_id": samples.MASK,
    "target_layer_ids": [0, 4],
    "num_target_layers": 2,
    "target_num_hidden_layers": samples.N_TARGET_LAYER,
    "target_hidden_size": samples.N_EMBD,
}
NAMES = {
    "fc.weight": "context_proj.weight",
    "hidden_norm.weight": "context_norm.weight",
    "norm.weight": "final_norm.weight",
}


def write(tmp_path: Path, changes: dict[str, Any] | None = None, prefix: str = "draft_model.") -> Path:
    tensors = {prefix + NAMES.get(name, name): values for name, values in samples.tensors(samples.CONFIG).items()}
    tensors[f"{prefix}embed_tokens.weight"] = np.ones((samples.N_VOCAB, samples.N_EMBD), np.float32)
    return samples.write_checkpoint(tmp_path / "drafter", samples.config({**SETTINGS, **(changes or {})}), tensors)


@pytest.mark.parametrize("prefix", ["", "draft_model."])
def test_it_becomes_the_same_file(tmp_path: Path, target: Path, checkpoint: Path, prefix: str) -> None:
    """As the same weights under the authors' names: the embedding is the target's own."""
    convert(checkpoint, target, tmp_path / "authors.gguf")
    (tmp_path / "angelspec").mkdir()
    convert(write(tmp_path / "angelspec", prefix=prefix), target, tmp_path / "angelspec.gguf")
    assert (tmp_path / "angelspec.gguf").read_bytes() == (tmp_path / "authors.gguf").read_bytes()


def test_as_it_is_published(tmp_path: Path, target: Path) -> None:
    """In torch's format, without a block size."""
    torch = pytest.importorskip("torch")
    directory = write(tmp_path)
    convert(directory, target, tmp_path / "a.gguf")
    (directory / "model.safetensors").unlink()
    torch.save(
        {
            "draft_model." + NAMES.get(name, name): torch.from_numpy(values).bfloat16()
            for name, values in samples.tensors(samples.CONFIG).items()
        },
        directory / "pytorch_model.bin",
    )
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | {"block_size": None}))
    read = convert(directory, target, tmp_path / "b.gguf").config
    assert isinstance(read, DrafterConfig) and read.block_size == 16
    ours, theirs = samples.read_tensors(tmp_path / "b.gguf"), samples.read_tensors(tmp_path / "a.gguf")
    assert ours.keys() == theirs.keys()
    assert all(np.array_equal(ours[name][1], theirs[name][1]) for name in ours)


def test_refused(tmp_path: Path, target: Path) -> None:
    with pytest.raises(ConvertError, match="gated sum") as error:
        convert(write(tmp_path, {"fusion_type": "gated_sum"}), target, tmp_path / "x.gguf")
    assert error.value.field == "fusion_type"
    (warning,) = convert(write(tmp_path, {"target_num_hidden_layers": 36}), target, tmp_path / "x.gguf").config.warnings
    assert "target_num_hidden_layers is 36" in warning


def test_without_the_mark_its_names_mean_nothing(tmp_path: Path, target: Path) -> None:
    with pytest.raises(ConvertError, match="unknown tensor"):
        convert(write(tmp_path, {"model_arch": None, "num_target_layers": None}), target, tmp_path / "x.gguf")
