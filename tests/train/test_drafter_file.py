"""Drafters in and out: a GGUF or a Hugging Face folder is read, and written again as what it was."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGUFValueType

from dflash_local.convert import convert
from dflash_local.convert.gguf_metadata import array, read_header, read_metadata, u32
from dflash_local.convert.kinds import KINDS as DRAFTER_KINDS
from dflash_local.convert.kinds import Domino, LiliCorr
from dflash_local.convert.target import Target
from dflash_local.convert.writer import OutputTensor, write_gguf
from dflash_local.errors import ConvertError, ModelError, RequestError
from dflash_local.native import check_gguf
from dflash_local.train.draft_vocabulary import write_reduced
from dflash_local.train.drafter_file import (
    FACTORS,
    HISTORY,
    DrafterFile,
    choose_mask_token,
    new_settings,
    spread_taps,
)
from tests.gguf_files import numbers, rewritten
from tests.parity.f32 import engine_f32, widen

KINDS = ["dflash-small", "dflash", "dflash2", "dspark", "dspark-first"]
TOKENS = np.random.default_rng(7).integers(4, 1699, 40).tolist()


@pytest.mark.parametrize("name", KINDS)
def test_gguf_comes_back(name: str, pocket: dict[str, Path], target_f32: Path, tmp_path: Path) -> None:
    """The same keys and numbers, with the history in the metadata."""
    source = widen(pocket[name], tmp_path / "source.gguf")
    file = DrafterFile.read(source, Target.read(target_f32), tmp_path)
    file.write(tmp_path / "again.gguf", file.values, "f32", {"steps": 3})
    check_gguf(tmp_path / "again.gguf")
    before, after = numbers(source), numbers(tmp_path / "again.gguf")
    assert before.keys() == after.keys()
    for tensor, values in before.items():
        np.testing.assert_array_equal(after[tensor], values)
    keys, new = read_metadata(source), read_metadata(tmp_path / "again.gguf")
    assert json.loads(new.pop(HISTORY).data) == {"steps": 3}
    assert {key: value for key, value in keys.items() if "general." not in key} == {
        key: value for key, value in new.items() if "general." not in key
    }


@pytest.mark.parametrize("name", KINDS)
def test_folder_comes_back(name: str, pocket: dict[str, Path], target_f32: Path, tmp_path: Path) -> None:
    """GGUF -> Hugging Face folder -> GGUF by the converter: the same drafts."""
    file = DrafterFile.read(pocket[name], Target.read(target_f32), tmp_path)
    file.write_checkpoint(tmp_path / "folder", file.values)
    convert(tmp_path / "folder", target_f32, tmp_path / "converted.gguf", outtype="f32")
    file.write(tmp_path / "written.gguf", file.values, "f32", {})
    n_block = file.config.block_size
    probes = []
    for path in ("converted.gguf", "written.gguf"):
        with engine_f32(target_f32, tmp_path / path, n_ctx=128) as engine:
            probes.append(engine.draft_probe(TOKENS, n_block))
    np.testing.assert_allclose(probes[0].hidden, probes[1].hidden, atol=0.1)  # the folder is bfloat16
    assert (probes[0].logits.argmax(-1) == probes[1].logits.argmax(-1)).mean() > 0.9
    again = DrafterFile.read(tmp_path / "folder", Target.read(target_f32), tmp_path)
    assert again.kind == file.kind
    assert again.config.taps == file.config.taps
    for source, values in file.values.items():
        np.testing.assert_allclose(again.values[source], values, atol=1e-6, rtol=1 / 128)


@pytest.mark.parametrize("name", KINDS)
def test_units_that_write_nothing_are_cut_first(name: str, pocket: dict[str, Path], tmp_path: Path) -> None:
    """Units that do not gate, read or write: without them the drafter is what it was, and loads."""
    target = Target.read(pocket["target"])
    file = DrafterFile.read(pocket[name], target, tmp_path)
    n_ff, places = file.config.n_ff, np.random.default_rng(1)
    wide = dict(file.values)
    for layer in range(file.config.n_layer):
        at = np.sort(places.integers(0, n_ff, 33))
        for number, part in enumerate(("gate", "up", "down")):
            units = places.standard_normal((33, file.config.n_embd))
            units[number::3] = 0  # each unit has zeros in one of its matrices
            source, is_down = f"layers.{layer}.mlp.{part}_proj.weight", part == "down"
            wide[source] = np.insert(wide[source], at, units.T if is_down else units, int(is_down))
    narrow = replace(file, values=wide).narrowed(n_ff, target)
    for source, values in file.values.items():
        np.testing.assert_array_equal(narrow.values[source], values)
    narrower = file.narrowed(n_ff - 32, target)
    narrower.write(tmp_path / "narrower.gguf", narrower.values, "f16", {})
    assert read_metadata(tmp_path / "narrower.gguf")["dflash.feed_forward_length"].data == n_ff - 32
    with engine_f32(pocket["target"], tmp_path / "narrower.gguf", n_ctx=128) as engine:
        assert engine.generate(TOKENS, max_tokens=8, temperature=0).tokens


@pytest.mark.parametrize("kind", ["dflash2", "dspark"])
def test_a_drafter_grows(kind: str, pocket: dict[str, Path], tmp_path: Path) -> None:
    """A DFlash drafter with the new parts of another kind loads, in the authors' form, too; its hidden states and the
    answers are what they were."""
    target = Target.read(pocket["target"])
    file = DrafterFile.read(pocket["dflash-small"], target, tmp_path)
    grown = file.grown(kind, target, 1)
    assert (grown.kind, grown.kind_before) == (kind, "dflash")
    file.write(tmp_path / "before.gguf", file.values, "f32", {})
    grown.write(tmp_path / "after.gguf", grown.values, "f32", {})
    again = DrafterFile.read(tmp_path / "after.gguf", target, tmp_path)
    assert again.kind == kind and again.values.keys() == grown.values.keys()
    probes, answers = [], []
    for name in ("before", "after"):
        with engine_f32(pocket["target"], tmp_path / f"{name}.gguf", n_ctx=128) as engine:
            probes.append(engine.draft_probe(TOKENS, file.block))
            answers.append(engine.generate(TOKENS, max_tokens=24, temperature=0))
    np.testing.assert_allclose(probes[0].hidden, probes[1].hidden, atol=1e-4)
    assert answers[0].tokens == answers[1].tokens
    grown.write_checkpoint(tmp_path / "folder", grown.values)
    convert(tmp_path / "folder", pocket["target"], tmp_path / "converted.gguf", outtype="f32")
    before, after = numbers(tmp_path / "after.gguf"), numbers(tmp_path / "converted.gguf")
    assert before.keys() == after.keys()
    assert read_metadata(tmp_path / "after.gguf").keys() >= read_metadata(tmp_path / "converted.gguf").keys()


def test_a_selector_needs_all_tokens(pocket: dict[str, Path], tmp_path: Path) -> None:
    """A drafter of few tokens can become a DSpark, and not a DFlash 2."""
    target = Target.read(pocket["target"])
    write_reduced(pocket["dflash"], tmp_path / "few.gguf", pocket["target"], Counter(range(4, 1028)), 1024)
    file = DrafterFile.read(tmp_path / "few.gguf", target, tmp_path)
    with pytest.raises(RequestError, match="--kind dflash2 is not for a drafter that proposes 1024 tokens") as error:
        file.grown("dflash2", target, 1)
    assert error.value.hint and error.value.param == "--kind"
    grown = file.grown("dspark", target, 1)
    assert grown.values["markov_head.markov_w2.weight"].shape[0] == 1024
    grown.write(tmp_path / "grown.gguf", grown.values, "f16", {})
    with engine_f32(pocket["target"], tmp_path / "grown.gguf", n_ctx=128) as engine:
        assert engine.info["drafter"]["kind"] == "dspark"
        assert engine.generate(TOKENS, max_tokens=8, temperature=0).tokens


@pytest.mark.parametrize("kind", ["dflash", "dflash2", "dspark"])
def test_new_drafter_loads(kind: str, pocket: dict[str, Path], tmp_path: Path) -> None:
    """A drafter that knows nothing has the shape of its target and runs."""
    target = Target.read(pocket["target"])
    settings = new_settings(
        target, read_metadata(pocket["target"]), kind, layers=2, block=8, taps=(0, 2, 4), mask_token=3
    )
    file = DrafterFile.new(settings, target, "new", 1)
    assert file.kind == kind
    assert (file.config.n_head, file.config.n_head_kv, file.config.head_dim) == (4, 2, 64)
    assert file.config.n_ff == read_metadata(pocket["target"])["qwen3.feed_forward_length"].data
    file.write(tmp_path / "new.gguf", file.values, "f16", {})
    with engine_f32(pocket["target"], tmp_path / "new.gguf", n_ctx=128) as engine:
        assert engine.info["drafter"]["kind"] == kind
        assert np.isfinite(engine.draft_probe(TOKENS, 8).hidden).all()
        assert engine.generate(TOKENS, max_tokens=8, temperature=0).tokens
    file.write_checkpoint(tmp_path / "folder", file.values)
    convert(tmp_path / "folder", pocket["target"], tmp_path / "converted.gguf")
    assert read_header(tmp_path / "converted.gguf")[1].keys() == read_header(tmp_path / "new.gguf")[1].keys()


def test_authors_load_the_folder(pocket: dict[str, Path], tmp_path: Path) -> None:
    """Their own class takes what is written."""
    from dflash.model import DFlashDraftModel

    file = DrafterFile.read(pocket["dflash"], Target.read(pocket["target"]), tmp_path)
    file.write_checkpoint(tmp_path / "folder", file.values)
    model = DFlashDraftModel.from_pretrained(tmp_path / "folder", dtype=torch.float32)
    assert model.target_layer_ids == [0, 2, 4]
    for name, values in file.values.items():
        np.testing.assert_allclose(model.state_dict()[name].numpy(), values, atol=1e-6, rtol=1 / 128)


def test_refusals(pocket: dict[str, Path], tmp_path: Path) -> None:
    target = Target.read(pocket["target"])
    with pytest.raises(ConvertError, match="not a drafter"):
        DrafterFile.read(pocket["target"], target, tmp_path)
    with pytest.raises(ModelError, match="trained for a target of width"):
        DrafterFile.read(pocket["dflash"], replace(target, n_embd=512), tmp_path)
    sinks = rewritten(
        pocket["dflash"], tmp_path / "sinks.gguf", {}, {"blk.0.attn_sinks.weight": np.zeros(4, np.float32)}
    )
    with pytest.raises(ConvertError, match="attention sinks"):
        DrafterFile.read(sinks, target, tmp_path)
    assert all("trains" in vars(kind) for kind in DRAFTER_KINDS)
    for key, kind in ((Domino.key, "Domino"), (LiliCorr.key, "LiliCorr")):
        other = rewritten(pocket["dflash"], tmp_path / "other.gguf", {f"dflash.{key}": u32(1)})
        with pytest.raises(ConvertError, match=f"a {kind} drafter is not trained here") as error:
            DrafterFile.read(other, target, tmp_path)
        assert error.value.field == key
    with pytest.raises(RequestError, match="is no drafter"):
        DrafterFile.read(tmp_path / "nothing.gguf", target, tmp_path)
    head = read_metadata(pocket["dflash"])["dflash.attention.key_length"].data
    half = {"dflash.rope.dimension_count": u32(head // 2)}
    with pytest.raises(ConvertError, match=f"rotates {head // 2} of a head's {head} dimensions") as error:
        DrafterFile.read(rewritten(pocket["dflash"], tmp_path / "half.gguf", half), target, tmp_path)
    assert error.value.field == "dflash.rope.dimension_count" and error.value.hint
    whole = {"dflash.rope.dimension_count": u32(head)}
    assert DrafterFile.read(rewritten(pocket["dflash"], tmp_path / "whole.gguf", whole), target, tmp_path).values


def test_a_table_of_rotation_factors_stays(pocket: dict[str, Path], tmp_path: Path) -> None:
    """As drafters with the scaling of Llama 3 have it. A Hugging Face folder cannot say it."""
    n_pairs = read_metadata(pocket["dflash"])["dflash.attention.key_length"].data // 2
    factors = {FACTORS: np.geomspace(1, 8, n_pairs, dtype=np.float32)}
    source = rewritten(pocket["dflash"], tmp_path / "factors.gguf", {}, factors)
    file = DrafterFile.read(source, Target.read(pocket["target"]), tmp_path)
    file.write(tmp_path / "again.gguf", file.values, "f16", {})
    np.testing.assert_array_equal(numbers(tmp_path / "again.gguf")[FACTORS], factors[FACTORS])
    with pytest.raises(ConvertError, match="table of rotation factors") as error:
        file.write_checkpoint(tmp_path / "folder", file.values)
    assert error.value.hint == "leave --hf out" and not (tmp_path / "folder").exists()


def test_biases_of_q_k_and_v_alone(pocket: dict[str, Path], tmp_path: Path) -> None:
    """As attention of Qwen2 has them."""
    stored = read_header(pocket["dflash"])[1]
    rows = {name: tensor.n_rows for name, tensor in stored.items() if re.search(r"attn_[qkv]\.weight$", name)}
    biases = {name.replace("weight", "bias"): np.arange(n, dtype=np.float32) for name, n in rows.items()}
    target, source = Target.read(pocket["target"]), rewritten(pocket["dflash"], tmp_path / "biased.gguf", {}, biases)
    file = DrafterFile.read(source, target, tmp_path)
    file.write(tmp_path / "again.gguf", file.values, "f16", {})
    again = numbers(tmp_path / "again.gguf")
    assert biases and all((again[name] == values).all() for name, values in biases.items())
    with pytest.raises(ConvertError, match="biases in a part of its attention"):
        file.write_checkpoint(tmp_path / "folder", file.values)


@pytest.mark.parametrize("layer", [0, 1])
def test_biases_in_a_part_of_the_layers(layer: int, pocket: dict[str, Path], tmp_path: Path) -> None:
    bias = f"blk.{layer}.attn_q.bias"
    n = read_header(pocket["dflash"])[1][f"blk.{layer}.attn_q.weight"].n_rows
    source = rewritten(pocket["dflash"], tmp_path / "biased.gguf", {}, {bias: np.zeros(n, np.float32)})
    with pytest.raises(ConvertError, match="biases in a part of its layers") as error:
        DrafterFile.read(source, Target.read(pocket["target"]), tmp_path)
    assert error.value.field == bias


def test_a_missing_tensor(pocket: dict[str, Path], tmp_path: Path) -> None:
    metadata, stored = read_header(pocket["dflash"])
    outputs = [OutputTensor.of(tensor) for name, tensor in stored.items() if name != "blk.0.attn_norm.weight"]
    write_gguf(tmp_path / "lost.gguf", metadata, outputs)
    with pytest.raises(ConvertError, match=r"the tensor 'blk\.0\.attn_norm\.weight' is missing"):
        DrafterFile.read(tmp_path / "lost.gguf", Target.read(pocket["target"]), tmp_path)


def test_a_target_with_more_tokens(pocket: dict[str, Path], tmp_path: Path) -> None:
    """As of a finetune: a drafter that uses its target's embeddings and head proposes all of them."""
    target = Target.read(pocket["target"])
    tokens = [*target.tokenizer["tokenizer.ggml.tokens"].data, b"<new>"]
    wider = {**target.tokenizer, "tokenizer.ggml.tokens": array(GGUFValueType.STRING, tokens)}
    more = replace(target, n_vocab=target.n_vocab + 1, tokenizer=wider)
    file = DrafterFile.read(pocket["dflash"], more, tmp_path)
    assert file.config.n_vocab == more.n_vocab
    assert len(file.keys["tokenizer.ggml.tokens"].data) == more.n_vocab
    with pytest.raises(ModelError, match=r"has 1699 tokens and 'selector_\w+.weight' for them, .* has 1700 tokens"):
        DrafterFile.read(pocket["dflash2"], more, tmp_path)


def test_spread_taps() -> None:
    """The authors' rule for large targets; small ones have fewer."""
    assert spread_taps(36) == (1, 9, 17, 25, 33)
    assert spread_taps(30) == (1, 8, 14, 20, 27)
    assert spread_taps(6) == (0, 2, 4)
    assert spread_taps(1) == (0,)


def test_mask_token_is_in_no_text(pocket: dict[str, Path]) -> None:
    target = Target.read(pocket["target"])
    bare = replace(target, mask_token=None)
    first = choose_mask_token(bare, set())
    assert choose_mask_token(bare, {first}) != first
