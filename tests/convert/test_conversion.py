"""Whole conversions: what is written, bit by bit; and that nothing is written when something is wrong."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize

from dflash_local.convert import convert
from dflash_local.convert.complete_file import complete_or_absent
from dflash_local.errors import ConvertError, DFlashError

from . import samples

# The pocket drafters' config.json, as published (what transformers adds by itself is left out).
POCKET: samples.Config = {
    "architectures": ["DFlashDraftModel"], "attention_bias": False, "block_size": 16, "head_dim": 64,
    "hidden_act": "silu", "hidden_size": 256, "intermediate_size": 768, "layer_types": ["full_attention"] * 2,
    "max_position_embeddings": 4096, "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 2,
    "num_target_layers": 6, "rms_norm_eps": 1e-6, "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
    "sliding_window": None, "use_sliding_window": False, "vocab_size": 1699,
    "dflash_config": {"mask_token_id": 3, "target_layer_ids": [0, 2, 4]},
}  # fmt: skip
POCKET2 = POCKET | {
    "architectures": ["DFlash2DraftModel"], "is_causal": False,
    "dflash_config": {
        "block_size": 16, "conv_group_size": 16, "conv_kernel_size": 2, "mask_token_id": 3, "selector_rank": 64,
        "selector_top_k": 8, "target_layer_ids": [0, 2, 4],
    },
}  # fmt: skip
POCKET_SMALL = POCKET | {
    "num_hidden_layers": 1, "layer_types": ["full_attention"],
    "dflash_config": {"mask_token_id": 3, "target_layer_ids": [2]},
}  # fmt: skip
POCKET_HYBRID = POCKET | {
    "num_target_layers": 8,
    "dflash_config": {"block_size": 16, "mask_token_id": 3, "target_layer_ids": [1, 3, 5]},
}
# Demo file: name of the checkpoint, its config.json, sha256 of the GGUF. Upstream's converter (convert_hf_to_gguf.py of
# the pinned llama.cpp) makes the same tensors but fc, bit by bit, and the same dflash.* keys of these checkpoints, for
# every outtype.
POCKETS = {
    "dflash": ("pocket-qwen3-DFlash", POCKET, "6ebc2f14ebaa084b82bdaaf5e5f1d429ddce76127be42f8eb30abcedf0a5f208"),
    "dflash2": ("pocket-qwen3-DFlash2", POCKET2, "460ed835fc5cad747b99fd1fe4a5f57c519318f4344cfda069f5aa3284ab1e9b"),
    "dflash-small": (
        "pocket-qwen3-DFlash-small",
        POCKET_SMALL,
        "d10badc698e81d10944f5bb744dd29531ee94576a41d2c54e0a47fcd3c81d266",
    ),
    "hybrid-dflash": (
        "pocket-qwen35-DFlash",
        POCKET_HYBRID,
        "1a49bc54b98e4fe8fbdad4786bd7b3a3fbe8168469fff5e3d393d81f022740dd",
    ),
}


@pytest.mark.parametrize("name", POCKETS)
def test_demo_files_are_what_the_converter_makes(pocket: dict[str, Path], tmp_path: Path, name: str) -> None:
    checkpoint, settings, sha256 = POCKETS[name]
    # float16 keeps less than the bfloat16 of the checkpoint, so the checkpoint is rebuilt from the drafter itself
    directory = samples.write_checkpoint(
        tmp_path / checkpoint, settings, samples.tensors_of_drafter(pocket[name]), dtype="F32"
    )
    path = convert(directory, pocket["hybrid-target" if "hybrid" in name else "target"], tmp_path / "made.gguf").path
    assert hashlib.sha256(pocket[name].read_bytes()).hexdigest() == sha256
    assert samples.read_keys(path) == samples.read_keys(pocket[name])
    made, shipped = samples.read_tensors(path), samples.read_tensors(pocket[name])
    assert list(made) == list(shipped)
    for tensor, (kind, data) in shipped.items():
        # they were made when fc was float16 still, as files that others made are
        assert made[tensor][0] == ("F32" if tensor == "fc.weight" else kind)
        np.testing.assert_array_equal(made[tensor][1], data, err_msg=tensor)


KEYS = {
    "general.architecture": "dflash",
    "general.type": "model",
    "general.name": "drafter",
    "general.file_type": 1,
    "general.quantization_version": 2,
    "dflash.block_count": 2,
    "dflash.context_length": 512,
    "dflash.embedding_length": 32,
    "dflash.feed_forward_length": 64,
    "dflash.attention.head_count": 4,
    "dflash.attention.head_count_kv": 2,
    "dflash.attention.key_length": 8,
    "dflash.attention.value_length": 8,
    "dflash.attention.layer_norm_rms_epsilon": pytest.approx(1e-6),
    "dflash.rope.freq_base": 5000.0,
    "dflash.block_size": 8,
    "dflash.target_layers": [1, 5],
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.tokens": [f"t{i}" for i in range(39)] + ["é\n"],
    "tokenizer.ggml.token_type": [1] * 40,
    "tokenizer.ggml.scores": [0.5] * 40,
    "tokenizer.ggml.add_bos_token": False,
    "tokenizer.chat_template": "{{ messages }}",
    "tokenizer.ggml.mask_token_id": 3,
}
LAYER = {
    "attn_norm.weight": (32,),
    "attn_q.weight": (32, 32),
    "attn_k.weight": (16, 32),
    "attn_v.weight": (16, 32),
    "attn_q_norm.weight": (8,),
    "attn_k_norm.weight": (8,),
    "attn_output.weight": (32, 32),
    "ffn_norm.weight": (32,),
    "ffn_gate.weight": (64, 32),
    "ffn_up.weight": (64, 32),
    "ffn_down.weight": (32, 64),
}
DFLASH2_LAYER = {
    "attn_conv_base": (2, 2, 32),
    "attn_conv_proj.weight": (16, 32),
    "ffn_conv_base": (2, 2, 32),
    "ffn_conv_proj.weight": (16, 32),
}
TENSORS = {"fc.weight": (32, 64), "enc.output_norm.weight": (32,), "output_norm.weight": (32,)} | {
    f"blk.{i}.{name}": shape for i in (0, 1) for name, shape in LAYER.items()
}
DFLASH2_TENSORS = TENSORS | {
    **{f"blk.{i}.{name}": shape for i in (0, 1) for name, shape in DFLASH2_LAYER.items()},
    "selector_predecessor.weight": (40, 16),
    "selector_successor.weight": (40, 16),
    "selector_hidden.weight": (16, 32),
}


def converted(
    tmp_path: Path, target: Path, settings: samples.Config, contents: samples.Tensors | None = None, **options: Any
) -> Path:
    dtype = options.pop("dtype", "BF16")
    directory = samples.write_checkpoint(tmp_path / "drafter", settings, contents, dtype=dtype)
    return convert(directory, target, tmp_path / "out.gguf", **options).path


def test_every_key_and_tensor_of_a_dflash_drafter(tmp_path: Path, target: Path) -> None:
    path = converted(tmp_path, target, samples.config())
    assert samples.read_keys(path) == KEYS
    written = samples.read_tensors(path)
    assert samples.read_shapes(path) == TENSORS
    source, again = samples.tensors(samples.CONFIG), samples.tensors_of_drafter(path)
    assert again.keys() == source.keys()
    for name, values in source.items():
        np.testing.assert_array_equal(
            again[name], values if values.ndim == 1 or name == "fc.weight" else values.astype(np.float16), err_msg=name
        )
    assert {name for name, (kind, _) in written.items() if kind == "F32"} == {
        name for name in TENSORS if "norm" in name
    }


def test_every_key_and_tensor_of_a_dflash2_drafter(tmp_path: Path, target: Path) -> None:
    path = converted(tmp_path, target, samples.dflash2_config())
    assert samples.read_keys(path) == KEYS | {f"dflash.{key}": value for key, value in samples.DFLASH2.items()}
    written = samples.read_tensors(path)
    assert samples.read_shapes(path) == DFLASH2_TENSORS
    assert all(kind == "F32" for name, (kind, _) in written.items() if name.endswith("conv_base"))


OPTIONAL_KEYS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"is_causal": False}, {"attention.causal": False}),
    (
        {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 64},
        {"attention.sliding_window": 64, "attention.sliding_window_pattern": [True, False]},
    ),
    (
        {"dflash_config.backbone_rotary_base": 5e6, "partial_rotary_factor": 0.5},
        {"backbone_rotary_base": 5e6, "rope.dimension_count": 4},
    ),
    ({"dflash_config.selector_vocab_size": 30}, {"selector_vocab_size": 30}),
    ({"hidden_act": "gelu_pytorch_tanh"}, {"hidden_activation": "gelu_pytorch_tanh"}),
    (
        {"dflash_config.input_embedding_scale": 16.0, "output_multiplier": 0.5},
        {"embedding_scale": 16.0, "logit_scale": 0.5},
    ),
    (
        {"final_logit_softcapping": 30.0, "attention_value_scale": 2.0},
        {"final_logit_softcapping": 30.0, "attention.value_scale": 2.0},
    ),
    ({"rope_parameters": {"rope_theta": 5000.0, "partial_rotary_factor": 0.5}}, {}),
    (
        {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 5000.0, "partial_rotary_factor": 0.5}},
        {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0, "rope.dimension_count": 4},
    ),
    (
        {
            "rope_parameters": {
                "rope_type": "yarn",
                "factor": 1.0,
                "attention_factor": 1.5,
                "beta_fast": 16,
                "rope_theta": 5000.0,
            }
        },
        {
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 1.0,
            "rope.scaling.original_context_length": 512,
            "rope.scaling.yarn_beta_fast": 16.0,
            "rope.scaling.attn_factor": 1.5,
        },
    ),
]


@pytest.mark.parametrize(("changes", "keys"), OPTIONAL_KEYS)
def test_optional_keys(tmp_path: Path, target: Path, changes: dict[str, Any], keys: dict[str, Any]) -> None:
    path = converted(tmp_path, target, samples.config(changes))
    assert samples.read_keys(path) == KEYS | {f"dflash.{key}": value for key, value in keys.items()}


def test_drafter_of_an_mrope_target(tmp_path: Path) -> None:
    target = samples.write_target(tmp_path / "t.gguf", {"qwen35.rope.dimension_sections": [2, 1, 1, 0]}, arch="qwen35")
    path = converted(tmp_path, target, samples.config())
    assert samples.read_keys(path)["dflash.rope.dimension_sections"] == [4, 0, 0, 0]


def test_mask_token_replaces_the_target_s(tmp_path: Path) -> None:
    target = samples.write_target(tmp_path / "t.gguf", {"tokenizer.ggml.mask_token_id": 9})
    assert (
        samples.read_keys(converted(tmp_path, target, samples.config()))["tokenizer.ggml.mask_token_id"] == samples.MASK
    )


@pytest.mark.parametrize(("outtype", "tolerance"), [("f32", 0), ("bf16", 0), ("f16", 1e-3), ("q8_0", 1e-2)])
def test_outtypes(tmp_path: Path, target: Path, outtype: str, tolerance: float) -> None:
    settings = samples.dflash2_config()
    written = samples.read_tensors(converted(tmp_path, target, settings, outtype=outtype))
    source = samples.tensors(settings)
    kind, data = written["blk.1.ffn_up.weight"]
    assert kind == outtype.upper()
    np.testing.assert_allclose(
        dequantize(data, GGMLQuantizationType[kind]), source["layers.1.mlp.up_proj.weight"], atol=tolerance * 4
    )
    # rows of 16 do not divide into blocks of 32
    assert written["selector_successor.weight"][0] == ("F16" if outtype == "q8_0" else kind)
    assert written["output_norm.weight"][0] == written["blk.0.ffn_conv_base"][0] == "F32"


def test_what_fuses_the_taps_has_a_type_of_its_own(tmp_path: Path, target: Path) -> None:
    written = samples.read_tensors(converted(tmp_path, target, samples.config(), outtype="f16", fc_type="q8_0"))
    assert (written["fc.weight"][0], written["blk.0.ffn_up.weight"][0]) == ("Q8_0", "F16")
    fc = samples.tensors(samples.CONFIG)["fc.weight"]
    np.testing.assert_allclose(dequantize(written["fc.weight"][1], GGMLQuantizationType.Q8_0), fc, atol=0.04)
    with pytest.raises(ConvertError, match="fc cannot be 'f16'") as caught:
        converted(tmp_path, target, samples.config(), fc_type="f16")
    assert caught.value.field == "fc_type"


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
@pytest.mark.parametrize("outtype", ["f32", "bf16", "f16", "q8_0"])
def test_what_fuses_the_taps_is_never_float16(tmp_path: Path, target: Path, dtype: str, outtype: str) -> None:
    """Hidden states go beyond float16's range, and a product with float16 weights rounds them to it."""
    source = samples.tensors(samples.CONFIG)
    source["fc.weight"][0, 0] = 2**20 if dtype != "F16" else 6e4
    stored = source["fc.weight"].astype(np.float16).astype(np.float32) if dtype == "F16" else source["fc.weight"]
    written = samples.read_tensors(converted(tmp_path, target, samples.config(), source, dtype=dtype, outtype=outtype))
    kind, data = written["fc.weight"]
    assert kind in ("BF16", "F32")
    loss = 0 if dtype == "BF16" or outtype in ("f32", "f16") else 2**-8
    np.testing.assert_allclose(dequantize(data, GGMLQuantizationType[kind]), stored, rtol=loss)
    assert (kind == "BF16") == (outtype in ("bf16", "q8_0") or (outtype, dtype) == ("f16", "BF16"))


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
def test_source_types(tmp_path: Path, target: Path, dtype: str) -> None:
    path = converted(tmp_path, target, samples.config(), dtype=dtype, outtype="f32")
    source = samples.tensors(samples.CONFIG)["fc.weight"]
    expected = source.astype(np.float16).astype(np.float32) if dtype == "F16" else source
    np.testing.assert_array_equal(samples.read_tensors(path)["fc.weight"][1], expected)


def test_chunks_do_not_show(tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = samples.config(rope_is_neox_style=False)
    whole = converted(tmp_path, target, settings, outtype="q8_0").read_bytes()
    monkeypatch.setattr("dflash_local.convert.conversion._CHUNK_ELEMENTS", 96)
    assert converted(tmp_path, target, settings, outtype="q8_0").read_bytes() == whole


def test_neighbouring_rotation_becomes_rotation_of_halves(tmp_path: Path, target: Path) -> None:
    source = samples.tensors(samples.CONFIG)
    settings = samples.config(rope_is_neox_style=False)
    written = samples.tensors_of_drafter(converted(tmp_path, target, settings, outtype="f32"))
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    heads = source["layers.1.self_attn.k_proj.weight"].reshape(2, 8, 32)
    np.testing.assert_array_equal(written["layers.1.self_attn.k_proj.weight"], heads[:, order].reshape(16, 32))
    np.testing.assert_array_equal(
        written["layers.0.self_attn.q_norm.weight"], source["layers.0.self_attn.q_norm.weight"][order]
    )
    np.testing.assert_array_equal(
        written["layers.0.self_attn.v_proj.weight"], source["layers.0.self_attn.v_proj.weight"]
    )


def attention_biases() -> samples.Tensors:
    sizes = {"q_proj": 32, "k_proj": 16, "v_proj": 16, "o_proj": 32}
    return {
        f"layers.{i}.self_attn.{part}.bias": np.arange(n, dtype=np.float32) + 100 * i
        for i in (0, 1)
        for part, n in sizes.items()
    }


def test_attention_biases(tmp_path: Path, target: Path) -> None:
    """They are taken along whether config.json says that they are there or not, and turn as their weights do."""
    biases = attention_biases()
    contents = samples.tensors(samples.CONFIG) | biases
    stated = converted(tmp_path, target, samples.config(attention_bias=True), contents).read_bytes()
    assert converted(tmp_path, target, samples.config(), contents).read_bytes() == stated
    written = samples.read_tensors(
        converted(tmp_path, target, samples.config(rope_is_neox_style=False), contents, outtype="q8_0")
    )
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    for part, name in (("q", "q_proj"), ("k", "k_proj"), ("v", "v_proj"), ("output", "o_proj")):
        kind, data = written[f"blk.1.attn_{part}.bias"]
        assert kind == "F32"
        source = biases[f"layers.1.self_attn.{name}.bias"]
        turned = source.reshape(-1, 8)[:, order].reshape(-1)
        np.testing.assert_array_equal(data, turned if part in "qk" else source)


def test_announced_attention_biases_must_be_there(tmp_path: Path, target: Path) -> None:
    with pytest.raises(ConvertError, match="is missing") as error:
        converted(tmp_path, target, samples.config(attention_bias=True))
    assert error.value.field == "layers.0.self_attn.q_proj.bias"


def test_fused_projection(tmp_path: Path, target: Path) -> None:
    contents = samples.tensors(samples.CONFIG)
    expected = converted(tmp_path, target, samples.config(), contents).read_bytes()
    for i in (0, 1):
        parts = [contents.pop(f"layers.{i}.self_attn.{part}_proj.weight") for part in "qkv"]
        contents[f"layers.{i}.self_attn.qkv_proj.weight"] = np.concatenate(parts)
    assert converted(tmp_path, target, samples.config(), contents).read_bytes() == expected


def test_codebooks_with_and_without_weight(tmp_path: Path, target: Path) -> None:
    settings = samples.dflash2_config()
    contents = samples.tensors(settings)
    expected = converted(tmp_path, target, settings, contents).read_bytes()
    for name in ("predecessor_codebook", "successor_codebook"):
        contents[f"candidate_selector.{name}.weight"] = contents.pop(f"candidate_selector.{name}")
    assert converted(tmp_path, target, settings, contents).read_bytes() == expected


def test_attention_sinks(tmp_path: Path, target: Path) -> None:
    sinks = np.arange(4, dtype=np.float32)
    contents = samples.tensors(samples.CONFIG) | {
        "layers.0.self_attn.sinks": sinks,
        "layers.1.self_attn.attention_sink_bias": sinks,
    }
    written = samples.read_tensors(converted(tmp_path, target, samples.config(), contents))
    for i in (0, 1):
        kind, data = written[f"blk.{i}.attn_sinks.weight"]
        assert kind == "F32"
        np.testing.assert_array_equal(data, sinks)


def test_llama3_factors_are_a_tensor(tmp_path: Path, target: Path) -> None:
    rope = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    for partial, tail in ((None, []), (0.5, [1.0, 1.0])):
        settings = samples.config(rope_parameters={**rope, "partial_rotary_factor": partial})
        kind, factors = samples.read_tensors(converted(tmp_path, target, settings))["rope_freqs.weight"]
        assert kind == "F32" and factors.shape == (4,)
        assert factors[0] == 1.0
        assert list(factors[4 - len(tail) :]) == tail if tail else factors[3] == 8.0


def reduced_vocabulary(offsets: list[int]) -> tuple[samples.Config, samples.Tensors]:
    settings = samples.config(draft_vocab_size=len(offsets))
    head = np.ones((len(offsets), samples.N_EMBD), np.float32)
    mapping = {"d2t": np.array(offsets), "t2d": np.zeros(samples.N_VOCAB, np.int64), "lm_head.weight": head}
    return settings, samples.tensors(settings) | mapping


def test_reduced_vocabulary(tmp_path: Path, target: Path) -> None:
    written = samples.read_tensors(converted(tmp_path, target, *reduced_vocabulary([0, 0, 5, 30])))
    assert written["d2t"][0] == "I64"
    assert list(written["d2t"][1]) == [0, 1, 7, 33]
    assert written["output.weight"][1].shape == (4, samples.N_EMBD)


@pytest.mark.parametrize(
    "offsets", [[0, 39], [-1, 0], [1, 0]], ids=["beyond the vocabulary", "negative", "same token twice"]
)
def test_bad_reduced_vocabulary(tmp_path: Path, target: Path, offsets: list[int]) -> None:
    with pytest.raises(ConvertError, match="d2t does not map") as error:
        converted(tmp_path, target, *reduced_vocabulary(offsets))
    assert error.value.field == "d2t"
    assert_nothing_written(tmp_path)


def test_own_embedding_and_head(tmp_path: Path, target: Path) -> None:
    matrix = np.ones((samples.N_VOCAB, samples.N_EMBD), np.float32)
    contents = samples.tensors(samples.CONFIG) | {"lm_head.weight": matrix, "embed_tokens.weight": 2 * matrix}
    written = samples.read_tensors(converted(tmp_path, target, samples.config(), contents))
    assert written["output.weight"][1].max() == 1 and written["token_embd.weight"][1].min() == 2


@pytest.mark.parametrize("prefix", ["", "model."])
def test_an_embedding_without_a_head_is_left_out(tmp_path: Path, target: Path, prefix: str) -> None:
    """It is a copy of the target's: ModelOpt saves such drafters. Rows beyond the target's tokens are padding."""
    settings = samples.config(vocab_size=42)
    contents = samples.tensors(settings)
    expected = converted(tmp_path, target, settings, contents).read_bytes()
    contents[prefix + "embed_tokens.weight"] = np.ones((42, samples.N_EMBD), np.float32)
    directory = samples.write_checkpoint(tmp_path / "drafter", settings, contents)
    done = convert(directory, target, tmp_path / "out.gguf")
    assert done.path.read_bytes() == expected
    (warning,) = (text for text in done.config.warnings if "embed" in text)
    assert warning == "embed_tokens.weight is left out: without a head of its own, the drafter uses the target's"


def test_a_lone_embedding_takes_the_scale_of_the_target_s(tmp_path: Path) -> None:
    target = samples.write_target(tmp_path / "target.gguf", arch="gemma4")
    contents = samples.tensors(samples.CONFIG)
    contents["embed_tokens.weight"] = np.ones((samples.N_VOCAB, samples.N_EMBD), np.float32)
    keys = samples.read_keys(converted(tmp_path, target, samples.config(), contents))
    assert keys["dflash.embedding_scale"] == pytest.approx(samples.N_EMBD**0.5)


@pytest.mark.parametrize("stored", [38, 42])
def test_padding_rows_are_cut_or_added(tmp_path: Path, target: Path, stored: int) -> None:
    """The GGUF has the target's tokens; rows of the checkpoint beyond them go, and missing ones are zeros."""
    settings = samples.dflash2_config() | {"vocab_size": stored}
    random = np.random.default_rng(0)
    contents = samples.tensors(settings)
    rows = {
        "token_embd.weight": ("embed_tokens.weight", samples.N_EMBD),
        "output.weight": ("lm_head.weight", samples.N_EMBD),
        "selector_predecessor.weight": ("candidate_selector.predecessor_codebook", 16),
        "selector_successor.weight": ("candidate_selector.successor_codebook", 16),
    }
    for source, width in rows.values():
        contents[source] = random.standard_normal((stored, width)).astype(np.float32)
    path = converted(tmp_path, target, settings, contents, dtype="F32", outtype="f32")
    written, n = samples.read_tensors(path), min(stored, samples.N_VOCAB)
    for name, (source, width) in rows.items():
        assert written[name][1].shape == (samples.N_VOCAB, width)
        np.testing.assert_array_equal(written[name][1][:n], contents[source][:n])
        assert not written[name][1][n:].any()
    limit = samples.read_keys(path).get("dflash.selector_vocab_size")
    assert limit == (stored if stored < samples.N_VOCAB else None)


def write_mask_embedding(directory: Path, **contents: object) -> None:
    torch = pytest.importorskip("torch")
    vector = torch.arange(samples.N_EMBD, dtype=torch.bfloat16)
    torch.save({"mask_token_id": samples.MASK, "embedding": vector} | contents, directory / "mask_embedding.pt")


def test_mask_embedding(tmp_path: Path, target: Path, checkpoint: Path) -> None:
    write_mask_embedding(checkpoint)
    path = convert(checkpoint, target, tmp_path / "out.gguf", outtype="q8_0").path
    kind, data = samples.read_tensors(path)["mask_embd.weight"]
    assert kind == "F32"
    np.testing.assert_array_equal(data, np.arange(samples.N_EMBD))


@pytest.mark.parametrize(
    ("contents", "message"),
    [({"mask_token_id": 4}, "is for token 4"), ({"mask_token_id": None}, "must hold"), ({"embedding": 1}, "must hold")],
)
def test_wrong_mask_embedding(
    tmp_path: Path, target: Path, checkpoint: Path, contents: dict[str, object], message: str
) -> None:
    write_mask_embedding(checkpoint, **contents)
    with pytest.raises(ConvertError, match=message) as error:
        convert(checkpoint, target, tmp_path / "out.gguf")
    assert error.value.field == "mask_embedding.pt"
    assert_nothing_written(tmp_path)


def assert_nothing_written(directory: Path, *allowed: str) -> None:
    assert {path.name for path in directory.iterdir() if ".gguf" in path.name} <= {"target.gguf", *allowed}


def without(name: str) -> Callable[[samples.Tensors], object]:
    return lambda contents: contents.pop(name)


def reshaped(name: str, shape: tuple[int, ...]) -> Callable[[samples.Tensors], object]:
    return lambda contents: contents.update({name: np.zeros(shape, np.float32)})


WRONG_TENSORS: list[tuple[Callable[[samples.Tensors], object], str, str]] = [
    (without("norm.weight"), "norm.weight", "is missing"),
    (without("layers.1.mlp.up_proj.weight"), "layers.1.mlp.up_proj.weight", "is missing"),
    (without("candidate_selector.successor_codebook"), "candidate_selector.successor_codebook.weight", "is missing"),
    (reshaped("layers.2.mlp.up_proj.weight", (64, 32)), "layers.2.mlp.up_proj.weight", "unknown tensor"),
    (reshaped("layers.0.mlp.up_proj.bias", (64,)), "layers.0.mlp.up_proj.bias", "unknown tensor"),
    (reshaped("layers.0.self_attn.q_proj.bias", (16,)), "layers.0.self_attn.q_proj.bias", r"has shape \[16\]"),
    (reshaped("embed_tokens.weight", (41, 32)), "embed_tokens.weight", r"has shape \[41, 32\]"),
    (
        reshaped("fc.weight", (32, 96)),
        "fc.weight",
        r"has shape \[32, 96\], config.json and the target make it \[32, 64\]",
    ),
    (
        reshaped("candidate_selector.predecessor_codebook", (41, 16)),
        "candidate_selector.predecessor_codebook",
        r"has shape \[41, 16\]",
    ),
    (reshaped("norm.weight", (32, 1)), "norm.weight", "has shape"),
    (lambda contents: contents.update({"norm.weight": np.zeros(32, np.int64)}), "norm.weight", "has dtype I64"),
    (
        lambda contents: contents.update({"layers.1.mlp.down_proj.weight": np.full((32, 64), 1e6, np.float32)}),
        "layers.1.mlp.down_proj.weight",
        "beyond float16's range",
    ),
]


@pytest.mark.parametrize("outtype", ["f32", "f16", "q8_0"])
@pytest.mark.parametrize("name", ["fc.weight", "norm.weight", "layers.1.mlp.up_proj.weight"])
@pytest.mark.parametrize(("number", "dtype"), [(np.nan, "F32"), (np.inf, "BF16"), (1e300, "F64")])
def test_weights_that_are_no_numbers(
    tmp_path: Path, target: Path, number: float, dtype: str, name: str, outtype: str
) -> None:
    """The file would load, and nothing would ever be drafted."""
    contents = samples.tensors(samples.CONFIG)
    contents[name] = contents[name].astype(np.float64)
    contents[name].flat[-1] = number
    with pytest.raises(ConvertError, match="NaN or infinite") as error:
        converted(tmp_path, target, samples.config(), contents, dtype=dtype, outtype=outtype)
    assert error.value.field == name
    assert_nothing_written(tmp_path)


@pytest.mark.parametrize(
    ("change", "field", "message"),
    WRONG_TENSORS,
    ids=[f"{field} {message[:16]}" for _, field, message in WRONG_TENSORS],
)
def test_wrong_tensors(
    tmp_path: Path, target: Path, change: Callable[[samples.Tensors], object], field: str, message: str
) -> None:
    contents = samples.tensors(samples.dflash2_config())
    change(contents)
    with pytest.raises(ConvertError, match=message) as error:
        converted(tmp_path, target, samples.dflash2_config(), contents)
    assert error.value.field == field
    assert_nothing_written(tmp_path)


def test_selector_in_a_dflash_checkpoint_is_unknown(tmp_path: Path, target: Path) -> None:
    with pytest.raises(ConvertError, match="it has no place in a DFlash drafter"):
        converted(tmp_path, target, samples.config(), samples.tensors(samples.dflash2_config()))


def test_shard_cut_while_converting(tmp_path: Path, target: Path, checkpoint: Path) -> None:
    file = checkpoint / "model.safetensors"

    def cut(_name: str, _done: int, _total: int) -> None:
        os.truncate(file, 5000)

    with pytest.raises(ConvertError, match=r"model\.safetensors ends inside tensor") as error:
        convert(checkpoint, target, tmp_path / "out.gguf", progress=cut)
    assert error.value.field in samples.tensors(samples.CONFIG)
    assert_nothing_written(tmp_path)


def test_ctrl_c_leaves_the_old_file(tmp_path: Path, target: Path, checkpoint: Path) -> None:
    output = tmp_path / "out.gguf"
    output.write_text("old")

    def interrupt(_name: str, done: int, total: int) -> None:
        if done > total / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(checkpoint, target, output, progress=interrupt)
    assert output.read_text() == "old"
    assert_nothing_written(tmp_path, "out.gguf")


def test_full_disk(tmp_path: Path, target: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(_descriptor: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("os.fsync", no_space)
    with pytest.raises(ConvertError, match="No space left"):
        convert(checkpoint, target, tmp_path / "out.gguf")
    assert_nothing_written(tmp_path)


@pytest.mark.parametrize("output", ["", "missing/out.gguf", "target.gguf", "drafter/model.safetensors"])
def test_wrong_output(tmp_path: Path, target: Path, checkpoint: Path, output: str) -> None:
    before = target.read_bytes(), (checkpoint / "model.safetensors").read_bytes()
    with pytest.raises(ConvertError, match=r"cannot write|is an input"):
        convert(checkpoint, target, tmp_path / output)
    assert (target.read_bytes(), (checkpoint / "model.safetensors").read_bytes()) == before


def test_unknown_outtype(tmp_path: Path, target: Path, checkpoint: Path) -> None:
    with pytest.raises(ConvertError, match="unknown outtype 'q4_9'"):
        convert(checkpoint, target, tmp_path / "out.gguf", outtype="q4_9")
    with pytest.raises(ConvertError, match="quantized by ggml"):
        convert(checkpoint, target, tmp_path / "out.gguf", outtype="q4_k")


def test_progress_ends_at_the_total(tmp_path: Path, target: Path, checkpoint: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    done = convert(checkpoint, target, tmp_path / "out.gguf", progress=lambda *step: seen.append(step))
    counts = [step[1] for step in seen]
    assert counts == sorted(counts) and counts[-1] == seen[-1][2] == done.n_bytes
    assert {step[0] for step in seen} == set(TENSORS) and done.n_tensors == len(TENSORS)


def test_errors_are_ours(checkpoint: Path, tmp_path: Path) -> None:
    """A target that is no target is a DFlashError too, so that the command line can show it."""
    with pytest.raises(DFlashError, match="is not a GGUF file"):
        convert(checkpoint, checkpoint / "config.json", tmp_path / "out.gguf")
    assert_nothing_written(tmp_path)


def test_two_writers_of_one_file(tmp_path: Path) -> None:
    """Processes in two containers may have the same number."""
    path = tmp_path / "x.gguf"
    with complete_or_absent(path) as first:
        first.write(b"first")
        with complete_or_absent(path) as second:
            second.write(b"second")
        assert path.read_bytes() == b"second"
    assert path.read_bytes() == b"first" and list(tmp_path.iterdir()) == [path]
