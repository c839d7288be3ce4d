"""GGUFs of other dialects: the same drafter in each becomes the same file."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFValueType

from dflash_local.convert import convert
from dflash_local.convert.gguf_metadata import (
    StoredGgufTensor,
    Value,
    array,
    boolean,
    f32,
    read_header,
    read_metadata,
    string,
    u32,
)
from dflash_local.convert.relabel import Relabelling, relabel
from dflash_local.convert.writer import OutputTensor, write_gguf
from dflash_local.errors import ConvertError, ModelError

from . import samples
from .dialect_samples import DIALECTS, plain, raw, write_dialect, write_tensors

PLAIN = tuple(name for name in DIALECTS if name != "E")
SLIDING = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 64}


@pytest.fixture
def drafter(tmp_path: Path, target: Path) -> Path:
    """A drafter in upstream's dialect, with a sliding and a full layer."""
    return made(tmp_path, target, samples.config(**SLIDING))


def made(tmp_path: Path, target: Path, settings: samples.Config, outtype: str = "q8_0") -> Path:
    directory = samples.write_checkpoint(tmp_path / "checkpoint", settings)
    convert(directory, target, tmp_path / "drafter.gguf", outtype=outtype)
    return tmp_path / "drafter.gguf"


def with_markov(tmp_path: Path, drafter: Path) -> Path:
    """The same with DSpark's heads: a tensor each, of other types than the rest."""
    rng = np.random.default_rng(5)
    metadata, tensors = read_header(drafter)
    outputs = [OutputTensor.of(t, name) for name, t in tensors.items()]
    for name, shape, kind in (
        ("markov_w1.weight", (samples.N_VOCAB, 16), GGMLQuantizationType.BF16),
        ("markov_w2.weight", (samples.N_VOCAB, 16), GGMLQuantizationType.F16),
        ("conf_proj.weight", (1, samples.N_EMBD + 16), GGMLQuantizationType.F32),
        ("conf_proj.bias", (1,), GGMLQuantizationType.F32),
        ("token_embd.weight", (samples.N_VOCAB, samples.N_EMBD), GGMLQuantizationType.Q4_0),
        ("output.weight", (samples.N_VOCAB, samples.N_EMBD), GGMLQuantizationType.Q5_1),
    ):
        data = gguf.quants.quantize(rng.normal(size=shape).astype(np.float32), kind)
        outputs.append(OutputTensor(name, shape, kind, lambda data=data: [data]))  # type: ignore[misc]
    path = tmp_path / "dspark-a.gguf"
    write_gguf(path, metadata, outputs, lambda name, n_bytes: None)
    return path


def relabelled(source: Path, target: Path, ids: tuple[int, ...] | None = None) -> tuple[Relabelling, Path]:
    result = relabel(source, target, ids)
    output = source.with_name(f"new-{source.name}")
    result.write(output)
    return result, output


@pytest.mark.parametrize("dialect", PLAIN)
@pytest.mark.parametrize("outtype", ["q8_0", "bf16"])
def test_each_dialect_becomes_the_same_file(tmp_path: Path, target: Path, dialect: str, outtype: str) -> None:
    drafter = made(tmp_path, target, samples.config(**SLIDING), outtype)
    source = write_dialect(tmp_path / "other.gguf", dialect, drafter)
    result, output = relabelled(source, target)
    assert result.is_needed and result.dialect.name == dialect[0] + ("0" if dialect == "A0" else "")
    assert raw(output) == raw(drafter)
    metadata = read_metadata(output)
    expected = {key: value for key, value in read_metadata(drafter).items() if not key.startswith("general.")}
    expected["dflash.sample_from_anchor"] = boolean(False)
    if dialect == "C gemma4":
        expected |= {
            "dflash.embedding_scale": f32(float(np.sqrt(np.float32(samples.N_EMBD)))),
            "dflash.final_logit_softcapping": f32(30.0),
        }
    assert plain({k: v for k, v in metadata.items() if not k.startswith("general.")}) == plain(expected)
    assert plain(metadata)["general.architecture"] == b"dflash"
    assert next(iter(metadata)) == "general.architecture"
    assert not relabel(output, target).is_needed


@pytest.mark.parametrize("dialect", ["C", "E"])
def test_dspark(tmp_path: Path, target: Path, dialect: str) -> None:
    drafter = with_markov(tmp_path, made(tmp_path, target, samples.config()))
    keys = {"dspark.dspark.markov_rank": u32(16), "dspark.dspark.confidence_head": boolean(True)}
    if dialect == "C":
        keys = {"qwen35-dflash-draft.dflash.dspark.enabled": boolean(True)}
    _, output = relabelled(write_dialect(tmp_path / "other.gguf", dialect, drafter, keys), target)
    assert raw(output) == raw(drafter)
    metadata = plain(read_metadata(output))
    assert metadata["dflash.sample_from_anchor"] is (dialect == "E")
    assert metadata["dflash.has_confidence_head"] is True
    assert metadata["dflash.target_layers"] == [1, 5]


def test_a_split_file_is_rewritten_as_one(tmp_path: Path, target: Path, drafter: Path) -> None:
    whole = write_dialect(tmp_path / "whole.gguf", "B", drafter)
    split = samples.write_split(whole, tmp_path / "m", lambda name: name.startswith("blk.1."), 64)
    for name, source in (("whole", whole), ("split", split)):
        relabel(source, target).write(tmp_path / f"{name}-out.gguf")
    assert raw(tmp_path / "split-out.gguf") == raw(tmp_path / "whole-out.gguf")
    assert read_header(tmp_path / "split-out.gguf")[0] == read_header(tmp_path / "whole-out.gguf")[0]
    with pytest.raises(ConvertError, match="is an input"):
        relabel(split, target).write(tmp_path / "m-00002-of-00002.gguf")
    with pytest.raises(ConvertError, match="not the first of 2 parts"):
        relabel(tmp_path / "m-00002-of-00002.gguf", target)


def test_who_proposes_first_is_not_guessed(tmp_path: Path, target: Path) -> None:
    drafter = with_markov(tmp_path, made(tmp_path, target, samples.config()))
    source = write_dialect(tmp_path / "other.gguf", "B", drafter)
    with pytest.raises(ConvertError, match="which row of a block") as error:
        relabel(source, target)
    assert error.value.field == "dflash-draft.sample_from_anchor"
    stated = {"dflash-draft.dflash.sample_from_anchor": boolean(True)}
    _, output = relabelled(write_dialect(source, "B", drafter, stated), target)
    assert plain(read_metadata(output))["dflash.sample_from_anchor"] is True


def test_mimo_rotates_context_keys_with_a_base_of_its_own(tmp_path: Path, target: Path, drafter: Path) -> None:
    source = write_dialect(
        tmp_path / "other.gguf", "B", drafter, {"dflash-draft.dflash.backbone_rotary_base": f32(5e6)}
    )
    assert plain(relabel(source, target).metadata)["dflash.backbone_rotary_base"] == 5e6


def test_dflash2_in_an_early_build(tmp_path: Path, target: Path) -> None:
    drafter = made(tmp_path, target, samples.dflash2_config())
    source = write_dialect(tmp_path / "other.gguf", "A0", drafter)
    _, output = relabelled(source, target)
    assert raw(output) == raw(drafter)
    assert plain(read_metadata(output))["dflash.selector_top_k"] == 4


PEAK = """
import re, sys
from pathlib import Path
from dflash_local.convert.relabel import relabel

def peak():
    return int(re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024

before = peak()
relabel(Path(sys.argv[1]), Path(sys.argv[2])).write(Path(sys.argv[3]))
print(peak() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc/self/status")
def test_peak_memory(tmp_path: Path, target: Path) -> None:
    """A file of 230 MB, with tensors of 38 MB."""
    metadata, tensors = read_header(made(tmp_path, target, samples.config()))
    metadata["dflash.feed_forward_length"] = u32(300_000)
    outputs = []
    for name, tensor in tensors.items():
        if ".ffn_" in name and "norm" not in name:
            shape = (300_000, 32) if "down" not in name else (32, 300_000)
            zeros = np.zeros((1000, 9600), np.float32)
            chunk = (GGMLQuantizationType.F32, lambda zeros=zeros: [zeros])
            outputs.append(OutputTensor(name, shape, *chunk))
        else:
            outputs.append(OutputTensor.of(tensor, name))
    write_gguf(tmp_path / "large.gguf", metadata, outputs, lambda name, n_bytes: None)
    source = write_dialect(tmp_path / "other.gguf", "B", tmp_path / "large.gguf")
    assert source.stat().st_size > 200e6
    command = [sys.executable, "-c", PEAK, str(source), str(target), str(tmp_path / "new.gguf")]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (tmp_path / "new.gguf").stat().st_size > 200e6
    assert float(run.stdout) < 40


# ---- what the dialects leave out -------------------------------------------------------------------------------------


FULL, SLIDES = "full_attention", "sliding_attention"


@pytest.mark.parametrize("dialect", ["A0", "B", "C", "D"])
def test_causality(tmp_path: Path, target: Path, dialect: str) -> None:
    """Every file of dialect B says `attention.causal: false`, whatever the drafter is, and its programs compute sliding
    layers causally; that of llama.cpp's own architecture is about all layers."""
    of_all = dialect in ("A0", "D")
    cases = {
        ((SLIDES, FULL), False): False if of_all else None,
        ((SLIDES, FULL), True): True,
        ((SLIDES, FULL), None): None,
        ((SLIDES, SLIDES), False): not of_all,
        ((SLIDES, SLIDES), None): True,
        ((FULL, FULL), False): None,
        ((FULL, FULL), True): True,
    }
    for (types, causal), expected in cases.items():
        drafter = made(tmp_path, target, samples.config(layer_types=list(types), sliding_window=64))
        key = {"A0": "dflash", "B": "dflash-draft", "C": "qwen35-dflash-draft", "D": "dflash"}[dialect]
        changes = {f"{key}.attention.causal": None if causal is None else boolean(causal)}
        source = write_dialect(tmp_path / "other.gguf", dialect, drafter, changes)
        result, output = relabelled(source, target)
        assert plain(read_metadata(output)).get("dflash.attention.causal") is expected, (types, causal)
        told = any("--non-causal" in note for note in result.notes)
        assert told == (causal is False and SLIDES in types and not of_all)
        if told:  # the word of whoever knows
            said = relabel(source, target, non_causal=True)
            assert plain(said.metadata)["dflash.attention.causal"] is False and not said.notes


def test_causality_of_upstreams_own_dialect_is_its_own(tmp_path: Path, target: Path, drafter: Path) -> None:
    with pytest.raises(ConvertError, match=r"says itself .*leave out --non-causal"):
        relabel(drafter, target, non_causal=True)


RICH = {
    **SLIDING,
    "is_causal": False,
    "attention_value_scale": 0.5,
    "backbone_rotary_base": 3e6,
    "hidden_act": "gelu_pytorch_tanh",
    "input_embedding_scale": 2.0,
    "output_multiplier": 3.0,
    "final_logit_softcapping": 20.0,
    "rope_parameters": {
        "rope_type": "yarn", "rope_theta": 7000.0, "factor": 4.0, "original_max_position_embeddings": 64,
        "beta_fast": 8.0, "beta_slow": 0.5, "attention_factor": 1.5,
    },
}  # fmt: skip


@pytest.mark.parametrize("dialect", ["A0", "B", "C", "D", "E"])
def test_no_key_is_lost(tmp_path: Path, target: Path, dialect: str) -> None:
    drafter = made(tmp_path, target, samples.config(RICH))
    changes = {"dflash.selector_vocab_size": u32(30)} if dialect == "A0" else {}
    source = write_dialect(tmp_path / "other.gguf", dialect, drafter, changes)
    found, expected = (plain(keys) for keys in (relabel(source, target, non_causal=dialect not in ("A0", "D")).metadata,
                                                read_metadata(drafter) | changes))  # fmt: skip
    expected["dflash.sample_from_anchor"] = False
    assert {key: value for key, value in found.items() if key.startswith("dflash.")} == {
        key: value for key, value in expected.items() if key.startswith("dflash.")
    }
    assert len([key for key in found if key.startswith("dflash.")]) > 25


def test_yarns_magnitude_is_translated(tmp_path: Path, target: Path) -> None:
    drafter = made(tmp_path, target, samples.config(RICH))
    b = "dflash-draft.rope.scaling."
    changes = {f"{b}attn_factor": None, f"{b}yarn_attn_factor": f32(1.5)}
    source = write_dialect(tmp_path / "other.gguf", "B", drafter, changes)
    found = plain(relabel(source, target).metadata)
    assert found["dflash.rope.scaling.attn_factor"] == plain(read_metadata(drafter))["dflash.rope.scaling.attn_factor"]
    assert "dflash.rope.scaling.yarn_attn_factor" not in found
    source = write_dialect(tmp_path / "log.gguf", "B", drafter, {f"{b}yarn_log_multiplier": f32(0.1)})
    with pytest.raises(ConvertError, match="unknown key"):
        relabel(source, target)


def test_the_mask_token_comes_from_the_drafter_or_else_the_target(tmp_path: Path, target: Path, drafter: Path) -> None:
    source, key = tmp_path / "other.gguf", "qwen35-dflash-draft.dflash.mask_token_id"
    write_dialect(source, "C", drafter, {key: None})
    with pytest.raises(ConvertError, match="no mask token"):
        relabel(source, target)
    samples.write_target(target, {"tokenizer.ggml.mask_token_id": 7})
    assert plain(relabel(source, target).metadata)["tokenizer.ggml.mask_token_id"] == 7
    write_dialect(source, "C", drafter)
    assert plain(relabel(source, target).metadata)["tokenizer.ggml.mask_token_id"] == samples.MASK


def test_missing_taps(tmp_path: Path, target: Path, drafter: Path) -> None:
    source = tmp_path / "other.gguf"
    for dialect, key in (
        ("C", "qwen35-dflash-draft.dflash.target_layer_ids"),
        ("A0", "dflash.dflash.target_layer_ids"),
    ):
        write_dialect(source, dialect, drafter, {key: None})
        with pytest.raises(ConvertError, match="which 2 layers of the target") as error:
            relabel(source, target)
        assert "--target-layer-ids" in str(error.value)
        assert plain(relabel(source, target, (0, 4)).metadata)["dflash.target_layers"] == [1, 5]
        with pytest.raises(ConvertError, match="lists 3 layers"):
            relabel(source, target, (0, 1, 2))


def test_taps_of_a_file_that_names_its_own(tmp_path: Path, target: Path, drafter: Path) -> None:
    source = write_dialect(tmp_path / "other.gguf", "C", drafter)
    for path, key in ((source, "qwen35-dflash-draft.dflash.target_layer_ids"), (drafter, "dflash.target_layers")):
        with pytest.raises(ConvertError, match="the file names its taps itself") as error:
            relabel(path, target, (0, 4))
        assert (error.value.field, error.value.hint) == (key, "leave out --target-layer-ids")


def test_published_taps(tmp_path: Path, target: Path, drafter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file without taps takes those of the published drafter; one whose ids are already inputs is not shifted."""
    from dflash_local.convert import published_taps

    shape = ("qwen3", samples.N_EMBD, samples.N_TARGET_LAYER)
    monkeypatch.setattr(published_taps, "_PUBLISHED", ((shape, "someone/drafter", (0, 4)),))
    source, key = tmp_path / "other.gguf", "qwen35-dflash-draft.dflash.target_layer_ids"
    for ids, note in ((None, "names no taps"), ((1, 5), "are inputs already"), ((0, 4), "")):
        changes = {key: None if ids is None else array(GGUFValueType.INT32, ids)}
        result = relabel(write_dialect(source, "C", drafter, changes), target)
        assert plain(result.metadata)["dflash.target_layers"] == [1, 5]
        assert note in " ".join(result.notes)


def test_the_table_of_published_taps() -> None:
    from dflash_local.convert.published_taps import _PUBLISHED

    assert len({(key, len(ids)) for key, _, ids in _PUBLISHED}) == len(_PUBLISHED)  # never two answers
    for (_, _, n_layer), name, ids in _PUBLISHED:
        assert list(ids) == sorted(set(ids)) and ids[0] >= 0 and ids[-1] < n_layer, name


def test_gemma4_scales(tmp_path: Path, drafter: Path) -> None:
    target = samples.write_target(tmp_path / "gemma.gguf", arch="gemma4")
    source = write_dialect(tmp_path / "other.gguf", "B", drafter)
    result = relabel(source, target)
    metadata = plain(result.metadata)
    assert metadata["dflash.embedding_scale"] == np.sqrt(np.float32(samples.N_EMBD))
    assert metadata["dflash.final_logit_softcapping"] == 30.0
    assert "Gemma 4" in " ".join(result.notes)
    stated = {"dflash-draft.embedding_scale": f32(2.0), "dflash-draft.final_logit_softcapping": f32(20.0)}
    metadata = plain(relabel(write_dialect(source, "B", drafter, stated), target).metadata)
    assert (metadata["dflash.embedding_scale"], metadata["dflash.final_logit_softcapping"]) == (2.0, 20.0)
    # what the drafter brings along was trained with its own
    keys, tensors = read_header(with_markov(tmp_path, drafter))
    keep = {n: t for n, t in tensors.items() if not n.startswith(("markov", "conf"))}
    write_tensors(tmp_path / "own.gguf", keys, keep)
    own = plain(relabel(write_dialect(source, "B", tmp_path / "own.gguf"), target).metadata)
    assert not {"dflash.embedding_scale", "dflash.final_logit_softcapping"} & own.keys()


def test_inputs_beside_keys_of_an_early_build(tmp_path: Path, target: Path, drafter: Path) -> None:
    """Written by hand: upstream's key for the taps, which are inputs, and an early build's for the rest."""
    changes: dict[str, Value | None] = {
        "dflash.dflash.target_layer_ids": None,
        "dflash.target_layers": array(GGUFValueType.INT32, (1, 5)),
    }
    source = write_dialect(tmp_path / "other.gguf", "D", drafter, changes)
    assert plain(relabel(source, target).metadata)["dflash.target_layers"] == [1, 5]
    with pytest.raises(ConvertError, match=r"names its taps itself \(dflash.target_layers\)"):
        relabel(source, target, (2, 3))


def test_rotation_copied_from_the_target(tmp_path: Path, drafter: Path, target: Path) -> None:
    """A part of each head: noise where the target is a Qwen3.5, meant elsewhere."""
    sections = {"qwen35.rope.dimension_sections": [2, 1, 1, 0]}
    qwen35 = samples.write_target(tmp_path / "qwen35.gguf", sections, arch="qwen35")
    metadata, tensors = read_header(drafter)
    old = {**metadata, "dflash.rope.dimension_count": u32(2)}
    old["dflash.rope.dimension_sections"] = array(GGUFValueType.INT32, (1, 0, 0, 0))
    made_before = tmp_path / "a.gguf"
    write_tensors(made_before, old, tensors)
    assert not relabel(made_before, target).is_needed
    result, output = relabelled(made_before, qwen35)
    assert result.is_needed and "whole head" in result.notes[0]
    expected = {**metadata, "dflash.rope.dimension_sections": array(GGUFValueType.INT32, (4, 0, 0, 0))}
    assert plain(read_metadata(output)) == plain(expected) and raw(output) == raw(drafter)

    source = write_dialect(tmp_path / "b.gguf", "B", made_before)
    assert "dflash.rope.dimension_count" not in relabel(source, qwen35).metadata
    assert plain(relabel(source, target).metadata)["dflash.rope.dimension_count"] == 2


def test_vectors_in_half_precision_become_float32(tmp_path: Path, target: Path, drafter: Path) -> None:
    """As qvac's converter writes norms."""
    for kind in (GGMLQuantizationType.F16, GGMLQuantizationType.BF16):
        metadata, tensors = read_header(write_dialect(tmp_path / "d.gguf", "D", drafter))
        outputs = []
        for name, tensor in tensors.items():
            if tensor.type == GGMLQuantizationType.F32:
                values = gguf.quants.quantize(tensor.rows(0, 1).view(np.float32)[0], kind)
                outputs.append(OutputTensor(name, tensor.shape, kind, lambda values=values: [values]))  # type: ignore[misc]
            else:
                outputs.append(OutputTensor.of(tensor, name))
        write_gguf(tmp_path / "half.gguf", metadata, outputs, lambda name, n_bytes: None)
        _, output = relabelled(tmp_path / "half.gguf", target)
        halves = {name for name, (t, *_) in raw(tmp_path / "half.gguf").items() if t in ("F16", "BF16")}
        assert halves
        new, old = raw(output), raw(drafter)
        assert {name: tensor[:2] for name, tensor in new.items()} == {name: t[:2] for name, t in old.items()}
        ours, theirs = (np.frombuffer(r["blk.0.attn_norm.weight"][2], np.float32) for r in (new, old))
        # bfloat16 held the samples exactly
        np.testing.assert_allclose(ours, theirs, rtol=0 if kind == GGMLQuantizationType.BF16 else 1e-3)


def test_an_embedding_without_a_head_is_left_out(tmp_path: Path, target: Path, drafter: Path) -> None:
    metadata, tensors = read_header(with_markov(tmp_path, drafter))
    keep = {n: t for n, t in tensors.items() if not n.startswith(("output.", "markov", "conf"))}
    write_tensors(tmp_path / "a.gguf", metadata, keep)
    result, output = relabelled(write_dialect(tmp_path / "b.gguf", "B", tmp_path / "a.gguf"), target)
    assert "token_embd.weight" not in raw(output) and "left out" in result.notes[0]


# ---- what is refused -------------------------------------------------------------------------------------------------

Tensors = dict[str, StoredGgufTensor]


def rename(tensors: Tensors, old: str, new: str) -> None:
    tensors[new] = tensors.pop(old)


def reshape(tensors: Tensors, name: str, *shape: int) -> None:
    tensors[name] = dataclasses.replace(tensors[name], shape=shape)


B, KEY = "dflash-draft", "dflash-draft.dflash."
REFUSED_KEYS: dict[str, tuple[dict[str, Value | None], str, str]] = {
    # case: keys of dialect B that change, field, part of the message
    "EAGLE-3": ({"general.architecture": string("eagle3")}, "general.architecture", "EAGLE-3"),
    "DeepSeek-V4": ({"general.architecture": string("deepseek4-dspark")}, "general.architecture", "DeepSeek-V4"),
    "unknown architecture": ({"general.architecture": string("llama")}, "general.architecture", "no dialect"),
    "no architecture": ({"general.architecture": None}, "general.architecture", "no dialect"),
    "hyper-connections": ({f"{B}.hyper_connection.count": u32(4)}, f"{B}.hyper_connection.count", "DeepSeek-V4"),
    "Laguna": ({f"{KEY}laguna": boolean(True)}, f"{KEY}laguna", "Laguna"),
    "Laguna's layers": ({f"{B}.decoder_arch": string("laguna")}, f"{B}.decoder_arch", "'laguna'"),
    "Domino": ({f"{KEY}domino.enabled": boolean(True)}, f"{KEY}domino.enabled", "Domino"),
    "noise level": ({f"{KEY}log_snr_conditioning": boolean(True)}, f"{KEY}log_snr_conditioning", "log_snr"),
    "unknown key": ({f"{B}.attention.surprise": u32(1)}, f"{B}.attention.surprise", "unknown key"),
    "no rope base": ({f"{B}.rope.freq_base": None}, f"{B}.rope.freq_base", "a guess would cost drafts"),
    "no epsilon": ({f"{B}.attention.layer_norm_rms_epsilon": None}, f"{B}.attention.layer_norm_rms_epsilon", "missing"),
    "no block size": ({f"{KEY}block_size": None}, f"{B}.block_size", "is missing"),
    "two block sizes": ({f"{B}.block_size": u32(4)}, f"{B}.block_size", "contradict"),
    "odd block size": ({f"{KEY}block_size": u32(1)}, f"{KEY}block_size", "from 2"),
    "block size is a text": ({f"{KEY}block_size": string("8")}, f"{KEY}block_size", "whole number"),
    "another target": ({f"{B}.embedding_length": u32(64)}, f"{B}.embedding_length", "the target's"),
    "too few taps": (
        {f"{KEY}target_layer_ids": array(GGUFValueType.UINT32, (1,))},
        f"{KEY}target_layer_ids",
        "lists 1",
    ),
    "tap out of range": (
        {f"{KEY}target_layer_ids": array(GGUFValueType.UINT32, (0, 6))},
        f"{KEY}target_layer_ids",
        "beyond the target's 6 layers",
    ),
    "taps are texts": (
        {f"{KEY}target_layer_ids": array(GGUFValueType.STRING, ["0", "4"])},
        f"{KEY}target_layer_ids",
        "list of whole numbers",
    ),
    "mask token": ({f"{KEY}mask_token_id": u32(40)}, f"{KEY}mask_token_id", "outside the target's vocabulary"),
    "mask token is a list": ({f"{KEY}mask_token_id": array(GGUFValueType.UINT32, (1,))}, f"{KEY}mask_token_id", "mask"),
    "layers": ({f"{B}.block_count": u32(1)}, "blk.1.attn_norm.weight", "none of the 1 layers"),
    "more layers": ({f"{B}.block_count": u32(3)}, "blk.2.attn_norm.weight", "missing"),
    "heads": ({f"{B}.attention.head_count": u32(8)}, "blk.0.attn_q.weight", "the keys make it"),
    "heads of keys": ({f"{B}.attention.head_count_kv": u32(3)}, f"{B}.attention.head_count", "cannot share"),
    "head size": ({f"{B}.attention.key_length": u32(16), f"{B}.attention.value_length": u32(16)},
                  "blk.0.attn_q.weight", "the keys make it"),
    "head size of values": ({f"{B}.attention.value_length": u32(16)}, f"{B}.attention.value_length", "differs"),
    "no pattern": ({f"{B}.attention.sliding_window_pattern": None}, f"{B}.attention.sliding_window_pattern", "missing"),
    "short pattern": (
        {f"{B}.attention.sliding_window_pattern": array(GGUFValueType.BOOL, (True,))},
        f"{B}.attention.sliding_window_pattern",
        "1 flags for 2 layers",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED_KEYS)
def test_refused_keys(tmp_path: Path, target: Path, drafter: Path, case: str) -> None:
    changes, field, message = REFUSED_KEYS[case]
    source = write_dialect(tmp_path / "other.gguf", "B", drafter, changes)
    with pytest.raises(ConvertError) as error:
        relabel(source, target)
    assert message in error.value.message
    assert error.value.field == field
    assert error.value.message.startswith("other.gguf: ")


REFUSED_TENSORS: dict[str, tuple[Callable[[Tensors], object], str, str]] = {
    # case: damage to the tensors of dialect B, field, part of the message
    "both norms": (
        lambda t: rename(t, "blk.0.attn_norm.weight", "blk.0.ffn_norm.weight"),
        "blk.0.ffn_norm.weight",
        "would both be 'blk.0.ffn_norm.weight'",
    ),
    "sandwich norms": (
        lambda t: rename(t, "blk.0.attn_norm.weight", "blk.0.post_ffw_norm.weight"),
        "blk.0.post_ffw_norm.weight",
        "unknown tensor",
    ),
    "no norm": (lambda t: t.pop("blk.1.post_attention_norm.weight"), "blk.1.ffn_norm.weight", "missing"),
    "no fc": (lambda t: t.pop("dflash_fc.weight"), "fc.weight", "missing"),
    "fc transposed": (lambda t: reshape(t, "dflash_fc.weight", 64, 32), "dflash_fc.weight", "the keys make it"),
    "q norm": (lambda t: reshape(t, "blk.0.attn_q_norm.weight", 4), "blk.0.attn_q_norm.weight", "the keys make it"),
    "Laguna's gate": (
        lambda t: rename(t, "blk.0.attn_norm.weight", "blk.0.attn_gate.weight"),
        "blk.0.attn_gate.weight",
        "Laguna",
    ),
    "Laguna's norms": (
        lambda t: rename(t, "output_norm.weight", "dflash_aux_hidden_norm.0.weight"),
        "dflash_aux_hidden_norm.0.weight",
        "Laguna",
    ),
    "second head": (lambda t: rename(t, "output_norm.weight", "output_extra.weight"), "output_extra.weight", "second"),
    "unknown": (lambda t: rename(t, "output_norm.weight", "x.weight"), "x.weight", "unknown tensor"),
    "reduced vocabulary": (lambda t: rename(t, "output_norm.weight", "d2t"), "d2t", "unknown tensor"),
}


@pytest.mark.parametrize("case", REFUSED_TENSORS)
def test_refused_tensors(tmp_path: Path, target: Path, drafter: Path, case: str) -> None:
    damage, field, message = REFUSED_TENSORS[case]
    metadata, tensors = read_header(write_dialect(tmp_path / "whole.gguf", "B", drafter))
    damage(tensors)
    write_tensors(tmp_path / "other.gguf", metadata, tensors)
    with pytest.raises(ConvertError) as error:
        relabel(tmp_path / "other.gguf", target)
    assert message in error.value.message
    assert error.value.field == field


def test_a_head_for_another_vocabulary(tmp_path: Path, drafter: Path) -> None:
    target = samples.write_target(
        tmp_path / "more.gguf", {"tokenizer.ggml.tokens": [f"t{i}" for i in range(samples.N_VOCAB + 1)]}
    )
    metadata, tensors = read_header(with_markov(tmp_path, drafter))
    keep = {n: t for n, t in tensors.items() if not n.startswith(("markov", "conf"))}
    write_tensors(tmp_path / "a.gguf", metadata, keep)
    with pytest.raises(ConvertError, match="has shape"):
        relabel(write_dialect(tmp_path / "b.gguf", "B", tmp_path / "a.gguf"), target)


def test_post_attention_norm_of_upstream_is_another_thing(tmp_path: Path, target: Path, drafter: Path) -> None:
    """By the architecture, never by the tensor's name: in dialect D it stays unknown instead of becoming ffn_norm."""
    metadata, tensors = read_header(write_dialect(tmp_path / "whole.gguf", "D", drafter))
    rename(tensors, "blk.0.ffn_norm.weight", "blk.0.post_attention_norm.weight")
    write_tensors(tmp_path / "other.gguf", metadata, tensors)
    with pytest.raises(ConvertError, match="unknown tensor") as error:
        relabel(tmp_path / "other.gguf", target)
    assert error.value.field == "blk.0.post_attention_norm.weight"


def test_what_upstream_can_say_but_no_engine_of_ours_runs(tmp_path: Path, target: Path, drafter: Path) -> None:
    metadata, tensors = read_header(drafter)
    cases = {
        "dflash.hyper_connection.count": (u32(4), "DeepSeek-V4"),
        "dflash.decoder_arch": (string("laguna"), "laguna"),
    }
    for key, (value, message) in cases.items():
        write_tensors(tmp_path / "a.gguf", {**metadata, key: value}, tensors)
        with pytest.raises(ConvertError, match=message) as error:
            relabel(tmp_path / "a.gguf", target)
        assert error.value.field == key
    # the rest of it is the engine's to refuse
    rename(tensors, "fc.weight", "domino.weight")
    write_tensors(tmp_path / "a.gguf", metadata, tensors)
    assert not relabel(tmp_path / "a.gguf", target).is_needed


def test_what_is_no_file(tmp_path: Path, target: Path, drafter: Path) -> None:
    with pytest.raises(ConvertError, match="cannot read"):
        relabel(tmp_path / "missing.gguf", target)
    (tmp_path / "x.gguf").write_bytes(b"nothing")
    with pytest.raises(ConvertError, match="not a GGUF"):
        relabel(tmp_path / "x.gguf", target)
    source = write_dialect(tmp_path / "b.gguf", "B", drafter)
    with pytest.raises(ModelError, match="is not a target"):
        relabel(source, drafter)
    for output in (source, target, tmp_path, tmp_path / "no" / "x.gguf"):
        before = source.read_bytes(), target.read_bytes()
        with pytest.raises(ConvertError, match=r"input of this conversion|cannot write"):
            relabel(source, target).write(output)
        assert (source.read_bytes(), target.read_bytes()) == before


def test_a_full_disk(tmp_path: Path, target: Path, drafter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno
    import os

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    source, output = write_dialect(tmp_path / "b.gguf", "B", drafter), tmp_path / "new.gguf"
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConvertError, match="No space left on device"):
        relabel(source, target).write(output)
    assert not list(tmp_path.glob("*new.gguf*"))


def test_shapes_of_tensors_that_not_all_have(tmp_path: Path, target: Path) -> None:
    drafter = with_markov(tmp_path, made(tmp_path, target, samples.config()))
    metadata, tensors = read_header(write_dialect(tmp_path / "whole.gguf", "E", drafter))
    reshape(tensors, "dspark.confidence_head.weight", samples.N_EMBD + 16)  # as ggml writes a matrix of one row
    write_tensors(tmp_path / "other.gguf", metadata, tensors)
    assert relabel(tmp_path / "other.gguf", target).is_needed
    reshape(tensors, "dspark.markov_head_b.weight", samples.N_VOCAB // 2, 32)
    write_tensors(tmp_path / "other.gguf", metadata, tensors)
    with pytest.raises(ConvertError, match="the keys make it") as error:
        relabel(tmp_path / "other.gguf", target)
    assert error.value.field == "dspark.markov_head_b.weight"
