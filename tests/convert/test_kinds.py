"""Checkpoints of other kinds than the authors': what is written of them, and which are refused by name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType

from dflash_local.convert import convert
from dflash_local.convert.kinds import KINDS
from dflash_local.convert.outtypes import find_outtype
from dflash_local.convert.requantize import ReducedHead, requantize
from dflash_local.convert.tensor_spec import TensorSpec
from dflash_local.errors import ConvertError

from . import samples


def test_the_engine_knows_the_same_kinds_with_a_lattice() -> None:
    header = (Path(__file__).parents[2] / "ggml_ops/llama/drafter_kind.h").read_text()
    rows = re.findall(r'drafter_kind::\w+, +"\w+", +"([^"]+)", +\S+, +(true|false),', header)
    assert {name for name, lattice in rows if lattice == "true"} == {kind.name for kind in KINDS if kind.lattice}
    assert ("DFlash", "false") in rows


# ---- DFlare ----

DFLARE = samples.config({"architectures": ["QwenDFlareDraftModel"]})
SHARES = np.array([[0.0, np.log(3.0)], [2.0, 2.0]], np.float32)  # before the softmax: 1/4 and 3/4, 1/2 and 1/2


def dflare_tensors() -> samples.Tensors:
    contents = samples.tensors(samples.CONFIG)
    del contents["fc.weight"]
    for i in range(DFLARE["num_hidden_layers"]):
        for part in ("k", "v"):
            contents[f"layers.{i}.self_attn.{part}_proj_target.weight"] = np.roll(
                contents[f"layers.{i}.self_attn.{part}_proj.weight"], 1, axis=0
            )
    return contents | {"layer_fusion_weights": SHARES}


def converted(
    tmp_path: Path, target: Path, settings: samples.Config, contents: samples.Tensors, **options: Any
) -> Path:
    directory = samples.write_checkpoint(tmp_path / "drafter", settings, contents, dtype="F32")
    return convert(directory, target, tmp_path / "out.gguf", **options).path


def test_dflare_has_shares_of_taps_and_projections_of_their_own(tmp_path: Path, target: Path) -> None:
    contents = dflare_tensors()
    written = samples.read_tensors(converted(tmp_path, target, DFLARE, contents, outtype="f32"))
    assert "fc.weight" not in written
    kind, shares = written["layer_fusion.weight"]
    assert kind == "F32"
    np.testing.assert_allclose(shares, [[0.25, 0.75], [0.5, 0.5]], rtol=1e-6)
    for i in range(2):
        for part in ("k", "v"):
            source = contents[f"layers.{i}.self_attn.{part}_proj_target.weight"]
            np.testing.assert_array_equal(written[f"blk.{i}.attn_{part}_ctx.weight"][1], source)


def test_shares_of_taps_stay_float32(tmp_path: Path, target: Path) -> None:
    written = samples.read_tensors(converted(tmp_path, target, DFLARE, dflare_tensors(), outtype="q8_0"))
    assert written["layer_fusion.weight"][0] == "F32"
    assert written["blk.0.attn_k_ctx.weight"][0] == "Q8_0"
    with pytest.raises(ConvertError, match="a DFlare drafter has no fc to be q8_0"):
        converted(tmp_path, target, DFLARE, dflare_tensors(), fc_type="q8_0")


def test_interleaved_rotation_of_context_keys(tmp_path: Path, target: Path) -> None:
    contents = dflare_tensors()
    settings = DFLARE | {"rope_is_neox_style": False}
    written = samples.read_tensors(converted(tmp_path, target, settings, contents, outtype="f32"))
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    heads = contents["layers.0.self_attn.k_proj_target.weight"].reshape(-1, samples.HEAD_DIM, samples.N_EMBD)
    np.testing.assert_array_equal(written["blk.0.attn_k_ctx.weight"][1], heads[:, order].reshape(-1, samples.N_EMBD))
    np.testing.assert_array_equal(
        written["blk.0.attn_v_ctx.weight"][1], contents["layers.0.self_attn.v_proj_target.weight"]
    )


@pytest.mark.parametrize("name", ["layer_fusion_weights", "layers.1.self_attn.v_proj_target.weight"])
def test_incomplete_dflare(tmp_path: Path, target: Path, name: str) -> None:
    contents = dflare_tensors()
    del contents[name]
    with pytest.raises(ConvertError, match="missing") as error:
        converted(tmp_path, target, DFLARE, contents)
    assert error.value.field == name


def test_dflare_with_a_plain_fusion_is_unknown(tmp_path: Path, target: Path) -> None:
    contents = dflare_tensors() | {"fc.weight": np.ones((samples.N_EMBD, 2 * samples.N_EMBD), np.float32)}
    with pytest.raises(ConvertError, match="no place in a DFlare drafter") as error:
        converted(tmp_path, target, DFLARE, contents)
    assert error.value.field == "fc.weight"


# ---- Domino ----

STATE_SIZE, WIDTH = 5, 32
DOMINO_SETTINGS = {"projector_type": "domino", "gru_hidden_dim": STATE_SIZE, "emb_dim": WIDTH}
DOMINO = samples.config({f"dflash_config.{key}": value for key, value in DOMINO_SETTINGS.items()})


def domino_tensors() -> samples.Tensors:
    shapes = {
        "prefix_gru.weight_ih_l0": (3 * STATE_SIZE, samples.N_EMBD),
        "prefix_gru.weight_hh_l0": (3 * STATE_SIZE, STATE_SIZE),
        "embed_proj.0.weight": (WIDTH, samples.N_EMBD + STATE_SIZE),
        "embed_proj.2.weight": (samples.N_VOCAB, WIDTH),
    }
    rng = np.random.default_rng(7)
    head = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    return samples.tensors(samples.CONFIG) | head


def test_domino_s_head(tmp_path: Path, target: Path) -> None:
    contents = domino_tensors()
    path = converted(tmp_path, target, DOMINO, contents, outtype="f32")
    written = {name: data for name, (_, data) in samples.read_tensors(path).items()}
    np.testing.assert_array_equal(written["domino_gru_ih.weight"], contents["prefix_gru.weight_ih_l0"])
    np.testing.assert_array_equal(written["domino_gru_hh.weight"], contents["prefix_gru.weight_hh_l0"])
    joined = np.concatenate([written["domino_hidden.weight"], written["domino_state.weight"]], axis=1)
    np.testing.assert_array_equal(joined, contents["embed_proj.0.weight"])
    assert written["domino_state.weight"].shape == (WIDTH, STATE_SIZE)
    np.testing.assert_array_equal(written["domino_out.weight"], contents["embed_proj.2.weight"])
    keys = samples.read_keys(path)
    assert keys["dflash.domino_prefix_length"] == 0
    assert "dflash.sample_from_anchor" not in keys


@pytest.mark.parametrize("outtype", ["f16", "q8_0"])
def test_domino_s_matrices_take_the_type_that_fits(tmp_path: Path, target: Path, outtype: str) -> None:
    written = samples.read_tensors(converted(tmp_path, target, DOMINO, domino_tensors(), outtype=outtype))
    assert written["domino_out.weight"][0] == outtype.upper()
    assert written["domino_gru_hh.weight"][0] == "F16"  # 5 columns are no block


def test_corrections_are_read_by_rows_too() -> None:
    """On some devices ggml's get_rows knows nothing below 8 bits."""
    shape = (samples.N_VOCAB, 256)
    assert find_outtype("q4_k").of(TensorSpec("domino_out.weight", shape)) == GGMLQuantizationType.Q8_0
    assert find_outtype("q4_k").of(TensorSpec("domino_state.weight", shape)) == GGMLQuantizationType.Q4_K


def test_domino_keeps_its_vocabulary(tmp_path: Path, target: Path) -> None:
    path = converted(tmp_path, target, DOMINO, domino_tensors())
    with pytest.raises(ConvertError, match="needs all tokens") as error:
        requantize(path, tmp_path / "reduced.gguf", None, head=ReducedHead.of(range(8), target))
    assert error.value.field == "domino_out.weight"


def test_shifted_labels_begin_at_the_anchor(tmp_path: Path, target: Path) -> None:
    settings = samples.config({
        **{f"dflash_config.{key}": value for key, value in DOMINO_SETTINGS.items()},
        "dflash_config.shift_label": True, "dflash_config.pure_draft_prefix_len": 2,
    })  # fmt: skip
    keys = samples.read_keys(converted(tmp_path, target, settings, domino_tensors()))
    assert keys["dflash.sample_from_anchor"] is True
    assert keys["dflash.domino_prefix_length"] == 2


@pytest.mark.parametrize("architecture", ["DFlashDraftModel", "DominoDraftModel"])
@pytest.mark.parametrize("wrapper", ["", "logit_head."])
def test_names_of_domino(tmp_path: Path, target: Path, architecture: str, wrapper: str) -> None:
    contents = domino_tensors()
    plain = converted(tmp_path, target, DOMINO, contents).read_bytes()
    renamed = {
        wrapper + name if name.startswith(("prefix_gru", "embed_proj")) else name: values
        for name, values in contents.items()
    }
    settings = DOMINO | {"architectures": [architecture]}
    directory = samples.write_checkpoint(tmp_path / "renamed" / "drafter", settings, renamed, dtype="F32")
    assert convert(directory, target, tmp_path / "renamed.gguf").path.read_bytes() == plain


@pytest.mark.parametrize("name", sorted(domino_tensors().keys() - samples.tensors(samples.CONFIG).keys()))
def test_incomplete_domino(tmp_path: Path, target: Path, name: str) -> None:
    contents = domino_tensors()
    del contents[name]
    with pytest.raises(ConvertError, match="missing") as error:
        converted(tmp_path, target, DOMINO, contents)
    assert error.value.field == name


@pytest.mark.parametrize("key", ["gru_hidden_dim", "emb_dim"])
def test_domino_keys_are_required(tmp_path: Path, target: Path, key: str) -> None:
    with pytest.raises(ConvertError, match="missing"):
        converted(tmp_path, target, samples.config({
            **{f"dflash_config.{k}": v for k, v in DOMINO_SETTINGS.items() if k != key},
        }), domino_tensors())  # fmt: skip


def test_domino_without_a_word_of_it_is_unknown(tmp_path: Path, target: Path) -> None:
    with pytest.raises(ConvertError, match="no place in a DFlash drafter"):
        converted(tmp_path, target, samples.CONFIG, domino_tensors())


# ---- LiliCorr ----

CORRELATOR = {
    "candidate_topk": 4, "hidden_size": 24, "factor_dim": 6, "num_layers": 2, "num_heads": 3, "mlp_ratio": 1.5,
    "logit_scale": 8.0, "vector_eps": 1e-4,
}  # fmt: skip
CONVOLUTIONS = {"conv_kernel_size": 2, "conv_group_size": 8}


def lilicorr_config(changes: dict[str, Any] | None = None) -> samples.Config:
    """`changes` by the names in `dflash_config`."""
    nested: dict[str, Any] = {f"lilicorr_{key}": value for key, value in CORRELATOR.items()}
    nested |= {"projector_type": "lilicorr", "lilicorr_enabled": True} | (changes or {})
    return samples.config({
        "architectures": ["LiLiCorrDraftModel"], **{f"dflash_config.{key}": value for key, value in nested.items()},
    })  # fmt: skip


def lilicorr_tensors(width: int = 24) -> samples.Tensors:
    """With the tensors of a head of 8 rows a block."""
    n_embd, n_ff = samples.N_EMBD, int(1.5 * width)
    shapes: dict[str, tuple[int, ...]] = {
        "feature_mlp.0.weight": (5,), "feature_mlp.0.bias": (5,),
        "slot_embedding": (1, 1, 7, 1, width), "rank_embedding": (1, 1, 1, 4, width),
        "relative_slot_bias": (3, 15), "same_slot_bias": (3,),
        "output_norm.weight": (width,), "anchor_norm.weight": (width,),
    }  # fmt: skip
    pairs = {
        "token_proj": (width, n_embd), "pass_hidden_proj": (width, n_embd), "context_proj": (width, n_embd),
        "feature_mlp.1": (width, 5), "feature_mlp.3": (width, width), "factor_input_proj": (width, 3 * width),
        "out_head": (6, width), "in_head": (6, width), "anchor_out_head": (6, width),
    }  # fmt: skip
    for layer in ("layers.0.", "layers.1."):
        shapes |= {f"{layer}{name}_norm.weight": (width,) for name in ("attn", "mlp")}
        shapes |= {f"{layer}attn.in_proj_weight": (3 * width, width), f"{layer}attn.in_proj_bias": (3 * width,)}
        pairs |= {f"{layer}attn.out_proj": (width, width), f"{layer}mlp.0": (n_ff, width)}
        pairs |= {f"{layer}mlp.2": (width, n_ff)}
    for name, shape in pairs.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    if width == n_embd:
        del shapes["token_proj.weight"], shapes["token_proj.bias"]
    rng = np.random.default_rng(11)
    head = {f"lilicorr.{name}": rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    return samples.tensors(samples.CONFIG) | head


def convolutions() -> samples.Tensors:
    contents = samples.tensors(samples.dflash2_config())
    return {name: values for name, values in contents.items() if "_conv." in name}


def test_lilicorr_s_head(tmp_path: Path, target: Path) -> None:
    contents = lilicorr_tensors()
    path = converted(tmp_path, target, lilicorr_config(), contents, outtype="f32")
    written = {name: data for name, (_, data) in samples.read_tensors(path).items()}
    for name, source in {
        "token.weight": "token_proj.weight", "hidden.bias": "pass_hidden_proj.bias",
        "context.weight": "context_proj.weight", "feature_norm.bias": "feature_mlp.0.bias",
        "feature_up.weight": "feature_mlp.1.weight", "feature_down.bias": "feature_mlp.3.bias",
        "distance_bias": "relative_slot_bias", "same_bias": "same_slot_bias", "factor.bias": "factor_input_proj.bias",
        "blk.1.attn_qkv.weight": "layers.1.attn.in_proj_weight", "blk.1.attn_qkv.bias": "layers.1.attn.in_proj_bias",
        "blk.0.attn_output.weight": "layers.0.attn.out_proj.weight", "context_norm.weight": "anchor_norm.weight",
        "blk.0.ffn_norm.weight": "layers.0.mlp_norm.weight", "blk.0.ffn_up.weight": "layers.0.mlp.0.weight",
        "blk.1.ffn_down.weight": "layers.1.mlp.2.weight", "out.weight": "out_head.weight", "in.bias": "in_head.bias",
        "start.weight": "anchor_out_head.weight",
    }.items():  # fmt: skip
        np.testing.assert_array_equal(written[f"lilicorr_{name}"], contents[f"lilicorr.{source}"])
    np.testing.assert_array_equal(written["lilicorr_position_embd"], contents["lilicorr.slot_embedding"][0, 0, :, 0])
    np.testing.assert_array_equal(written["lilicorr_rank_embd"], contents["lilicorr.rank_embedding"][0, 0, 0])
    parts = [written[f"lilicorr_{part}.weight"] for part in ("factor", "factor_context", "factor_product")]
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), contents["lilicorr.factor_input_proj.weight"])
    keys = {key: value for key, value in samples.read_keys(path).items() if "lilicorr" in key or "conv" in key}
    assert keys == {
        "dflash.lilicorr_top_k": 4, "dflash.lilicorr_block_count": 2, "dflash.lilicorr_head_count": 3,
        "dflash.lilicorr_logit_scale": 8.0, "dflash.lilicorr_vector_epsilon": pytest.approx(1e-4),
    }  # fmt: skip


def test_lilicorr_as_wide_as_its_drafter(tmp_path: Path, target: Path) -> None:
    """The head has no projection of embeddings then."""
    settings = lilicorr_config({"lilicorr_hidden_size": 0, "lilicorr_num_heads": 4})
    contents = lilicorr_tensors(samples.N_EMBD)
    contents["lilicorr.relative_slot_bias"] = np.ones((4, 15), np.float32)
    contents["lilicorr.same_slot_bias"] = np.ones(4, np.float32)
    written = samples.read_tensors(converted(tmp_path, target, settings, contents))
    assert "lilicorr_hidden.weight" in written and "lilicorr_token.weight" not in written


@pytest.mark.parametrize("outtype", ["f16", "q8_0"])
def test_lilicorr_s_matrices_take_the_type_that_fits(tmp_path: Path, target: Path, outtype: str) -> None:
    path = converted(tmp_path, target, lilicorr_config(), lilicorr_tensors(), outtype="f32")
    direct = converted(tmp_path / "direct", target, lilicorr_config(), lilicorr_tensors(), outtype=outtype)
    requantize(path, tmp_path / "again.gguf", find_outtype(outtype))
    for written in map(samples.read_tensors, (direct, tmp_path / "again.gguf")):
        assert written["lilicorr_hidden.weight"][0] == outtype.upper()
        assert written["lilicorr_feature_up.weight"][0] == "F16"  # 5 columns are no block
        assert {written[f"lilicorr_{name}"][0] for name in ("rank_embd", "position_embd", "distance_bias")} == {"F32"}


def test_lilicorr_with_convolutions(tmp_path: Path, target: Path) -> None:
    contents = lilicorr_tensors() | convolutions()
    path = converted(tmp_path, target, lilicorr_config(CONVOLUTIONS), contents, outtype="f32")
    written, keys = samples.read_tensors(path), samples.read_keys(path)
    np.testing.assert_array_equal(written["blk.1.ffn_conv_base"][1], contents["layers.1.mlp_conv.base_kernel"])
    assert {f"dflash.{key}": value for key, value in CONVOLUTIONS.items()}.items() <= keys.items()
    assert "dflash.selector_rank" not in keys


@pytest.mark.parametrize("architecture", ["DFlashDraftModel", "LiLiCorrDraftModel"])
def test_names_of_lilicorr(tmp_path: Path, target: Path, architecture: str) -> None:
    contents = lilicorr_tensors()
    plain = converted(tmp_path, target, lilicorr_config(), contents).read_bytes()
    names = {
        r"feature_mlp\.0\.": "feature_norm.", r"feature_mlp\.1\.": "feature_mlp.up_proj.",
        r"feature_mlp\.3\.": "feature_mlp.down_proj.", r"(\d)\.mlp\.0\.": r"\1.mlp.up_proj.",
        r"(\d)\.mlp\.2\.": r"\1.mlp.down_proj.",
    }  # fmt: skip
    renamed = {}
    for name, values in contents.items():
        if name.startswith("lilicorr."):
            for pattern, other in names.items():
                name = re.sub(pattern, other, name)
        renamed[name] = values[0] if name.endswith("_embedding") else values
    settings = lilicorr_config() | {"architectures": [architecture]}
    directory = samples.write_checkpoint(tmp_path / "renamed" / "drafter", settings, renamed, dtype="F32")
    assert convert(directory, target, tmp_path / "renamed.gguf").path.read_bytes() == plain


@pytest.mark.parametrize("name", sorted(lilicorr_tensors().keys() - samples.tensors(samples.CONFIG).keys()))
def test_incomplete_lilicorr(tmp_path: Path, target: Path, name: str) -> None:
    contents = lilicorr_tensors()
    del contents[name]
    with pytest.raises(ConvertError) as error:
        converted(tmp_path, target, lilicorr_config(), contents)
    assert error.value.field == name


@pytest.mark.parametrize("name", [f"lilicorr_{key}" for key in CORRELATOR])
def test_lilicorr_s_keys_are_required(tmp_path: Path, target: Path, name: str) -> None:
    with pytest.raises(ConvertError, match="missing: export the checkpoint again") as error:
        converted(tmp_path, target, lilicorr_config({name: None}), lilicorr_tensors())
    assert error.value.field == name


@pytest.mark.parametrize(
    ("changes", "field", "what"),
    [
        ({"lilicorr_candidate_topk": 33}, "lilicorr_candidate_topk", "at most 32"),
        ({"lilicorr_candidate_topk": 0}, "dflash_config.lilicorr_candidate_topk", "whole number from 1"),
        ({"lilicorr_candidate_topk": 5}, "lilicorr.rank_embedding", "has shape"),
        ({"lilicorr_num_heads": 5}, "lilicorr_num_heads", "do not divide"),
        ({"lilicorr_num_heads": 4}, "lilicorr.relative_slot_bias", "has shape"),
        ({"lilicorr_num_layers": 17}, "dflash_config.lilicorr_num_layers", "from 1 to 16"),
        ({"lilicorr_num_layers": 1}, "lilicorr.layers.1.attn.in_proj_bias", "no place in a LiliCorr drafter"),
        ({"lilicorr_hidden_size": 12}, "lilicorr.token_proj.weight", "has shape"),
        ({"lilicorr_mlp_ratio": 2.0}, "lilicorr.layers.0.mlp.0.weight", "has shape"),
        ({"lilicorr_mlp_ratio": -1.0}, "dflash_config.lilicorr_mlp_ratio", "positive"),
        ({"lilicorr_vector_eps": 0.7}, "lilicorr_vector_eps", "from 1e-6 to 0.5"),
        ({"lilicorr_logit_scale": "8"}, "dflash_config.lilicorr_logit_scale", "positive"),
        ({"conv_kernel_size": 2}, "conv_group_size", "do not fit"),
        ({"conv_group_size": 8}, "conv_kernel_size", "do not fit"),
        ({"conv_kernel_size": 2, "conv_group_size": 5}, "conv_group_size", "do not fit"),
        (CONVOLUTIONS, "layers.0.attention_conv.base_kernel", "missing"),
        ({"sample_from_anchor": True}, "sample_from_anchor", "proposes nothing"),
        ({"has_own_lm_head": True}, "has_own_lm_head", "download the whole checkpoint"),
        ({"draft_vocab_size": 16}, "draft_vocab_size", "reduced vocabulary"),
    ],
)
def test_wrong_settings_of_lilicorr(
    tmp_path: Path, target: Path, changes: dict[str, Any], field: str, what: str
) -> None:
    with pytest.raises(ConvertError, match=what) as error:
        converted(tmp_path, target, lilicorr_config(changes), lilicorr_tensors())
    assert error.value.field == field
    assert not (tmp_path / "out.gguf").exists()


def test_lilicorr_keeps_its_vocabulary(tmp_path: Path, target: Path) -> None:
    path = converted(tmp_path, target, lilicorr_config(), lilicorr_tensors())
    with pytest.raises(ConvertError, match="correlator needs all tokens") as error:
        requantize(path, tmp_path / "reduced.gguf", None, head=ReducedHead.of(range(8), target))
    assert error.value.field == "lilicorr_hidden.weight"


# ---- Gemma 4's layers ----

GEMMA4 = samples.config({
    "architectures": ["Gemma4DSparkModel"], "attention_k_eq_v": True, "hidden_activation": "gelu_pytorch_tanh",
    "global_head_dim": samples.HEAD_DIM, "num_global_key_value_heads": samples.N_HEAD_KV, "head_dim": 2,
    "num_key_value_heads": 1, "hidden_act": None, "final_logit_softcapping": 30.0, "sliding_window": 16,
    "layer_types": ["full_attention"] * 2,
    "rope_parameters": {
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.5, "rope_theta": 5000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1.5},
    },
})  # fmt: skip


def gemma4_tensors() -> samples.Tensors:
    contents = samples.tensors(samples.CONFIG)
    for i in range(2):
        layer = f"layers.{i}."
        del contents[layer + "self_attn.v_proj.weight"]
        for name in ("pre_feedforward_layernorm.weight", "post_feedforward_layernorm.weight"):
            contents[layer + name] = np.full(samples.N_EMBD, 2.0 + i, np.float32)
        contents[layer + "layer_scalar"] = np.full(1, 0.5 + i, np.float32)
    return contents


def test_layers_of_gemma4(tmp_path: Path, target: Path) -> None:
    contents = gemma4_tensors()
    path = converted(tmp_path, target, GEMMA4, contents)
    written = samples.read_tensors(path)
    for i in range(2):
        assert f"blk.{i}.attn_v.weight" not in written
        for name, source in (
            ("post_attention_norm.weight", "post_attention_layernorm.weight"),
            ("ffn_norm.weight", "pre_feedforward_layernorm.weight"),
            ("post_ffw_norm.weight", "post_feedforward_layernorm.weight"),
            ("layer_output_scale.weight", "layer_scalar"),
        ):
            np.testing.assert_array_equal(written[f"blk.{i}.{name}"][1], contents[f"layers.{i}.{source}"])
    np.testing.assert_allclose(written["rope_freqs.weight"][1], [1.0, 1.0, 1e30, 1e30])
    keys = samples.read_keys(path)
    assert keys["dflash.attention.scale"] == 1.0
    assert keys["dflash.attention.key_length"] == samples.HEAD_DIM
    assert keys["dflash.attention.head_count_kv"] == samples.N_HEAD_KV
    assert keys["dflash.hidden_activation"] == "gelu_pytorch_tanh"
    assert keys["dflash.embedding_scale"] == pytest.approx(samples.N_EMBD**0.5)
    assert keys["dflash.final_logit_softcapping"] == 30.0
    assert keys["dflash.sample_from_anchor"] is True
    assert "dflash.attention.sliding_window" not in keys
    assert "dflash.rope.dimension_count" not in keys


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"attention_k_eq_v": False}, "attention_k_eq_v"),
        ({"enable_moe_block": True}, "enable_moe_block"),
        ({"hidden_size_per_layer_input": 256}, "hidden_size_per_layer_input"),
        ({"global_head_dim": None}, "global_head_dim"),
        ({"num_global_key_value_heads": None}, "num_global_key_value_heads"),
    ],
)
def test_other_layers_of_gemma4(tmp_path: Path, target: Path, changes: dict[str, Any], field: str) -> None:
    settings = {key: value for key, value in (GEMMA4 | changes).items() if value is not None}
    with pytest.raises(ConvertError) as error:
        converted(tmp_path, target, settings, gemma4_tensors())
    assert error.value.field == field


# ---- AngelSpec's names ----

ANGELSPEC = {
    "fc.weight": "context_proj.weight",
    "hidden_norm.weight": "context_norm.weight",
    "norm.weight": "final_norm.weight",
}


@pytest.mark.parametrize("kind", ["dflash", "dflare"])
@pytest.mark.parametrize("prefix", ["", "draft_model."])
def test_names_of_angelspec(tmp_path: Path, target: Path, kind: str, prefix: str) -> None:
    contents = samples.tensors(samples.CONFIG) if kind == "dflash" else dflare_tensors()
    plain = converted(tmp_path, target, samples.CONFIG if kind == "dflash" else DFLARE, contents).read_bytes()
    renamed = {prefix + ANGELSPEC.get(name, name): values for name, values in contents.items()}
    settings = samples.config({"model_arch": kind, "model_type": "dflash"})
    directory = samples.write_checkpoint(tmp_path / "renamed" / "drafter", settings, renamed, dtype="F32")
    assert convert(directory, target, tmp_path / "renamed.gguf").path.read_bytes() == plain


# ---- refused ----

FUSED: samples.Tensors = {"layer_fusion_weights": SHARES}
REFUSED: list[tuple[str, dict[str, Any], samples.Tensors]] = [
    ("DFly", {"architectures": ["Qwen3DFlyModel"]}, FUSED),
    ("DFly", {"architectures": ["Qwen3DSparkDFlareV2Model"]}, FUSED),
    ("DFly", {}, {"hidden_correction.gate_proj.weight": np.ones((4, 8), np.float32)}),
    ("Laguna", {"architectures": ["DFlashLagunaForCausalLM"]}, {}),
    ("Laguna", {}, {"aux_hidden_norms.0.weight": np.ones(4, np.float32)}),
    ("Muse Glimmer", {"architectures": ["MuseGlimmerAssistantModel"]}, {}),
    ("xpress", {"architectures": ["XPressSpeculator"]}, {}),
    ("xpress", {"speculators_model_type": "xpress"}, {}),
    ("xpress", {}, {"refiner_head.down_h.weight": np.ones((4, 8), np.float32)}),
    ("gated sum", {"model_arch": "dflash", "fusion_type": "gated_sum"}, {}),
    ("older Domino", {}, {"domino_gru.bias_ih": np.ones(12, np.float32)}),
    ("older Domino", {}, {"prefix_gru.bias_ih_l0": np.ones(12, np.float32)}),
]


@pytest.mark.parametrize(("name", "changes", "more"), REFUSED)
def test_refused_by_name(
    tmp_path: Path, target: Path, name: str, changes: dict[str, Any], more: samples.Tensors
) -> None:
    with pytest.raises(ConvertError, match=rf"^the checkpoint is [^,]*{re.escape(name)}[^:]*: \w") as error:
        converted(tmp_path, target, samples.config(changes), samples.tensors(samples.CONFIG) | more)
    assert error.value.field in {*changes, *more}
    assert not (tmp_path / "out.gguf").exists()
