"""Checkpoints of other kinds than the authors': what is written of them, and which are refused by name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dflash_local.convert import convert
from dflash_local.errors import ConvertError

from . import samples

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
    assert error.value.field in {"architectures", *changes, *more}
    assert not (tmp_path / "out.gguf").exists()
