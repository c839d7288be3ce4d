"""DSpark checkpoints: whose habits decide the anchor's layout, what is written, and what is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dflash_local.convert import convert
from dflash_local.convert.config import DrafterConfig
from dflash_local.convert.target import Target
from dflash_local.errors import ConvertError

from . import samples

RANK, N_DRAFT = 6, 10
MARKOV = {"markov_rank": RANK, "markov_head_type": "vanilla"}


def heads(n_draft: int = samples.N_VOCAB, width: int = samples.N_EMBD + RANK) -> samples.Tensors:
    rng = np.random.default_rng(5)
    return {
        "markov_head.markov_w1.weight": rng.normal(0, 1, (samples.N_VOCAB, RANK)).astype(np.float32),
        "markov_head.markov_w2.weight": rng.normal(0, 1, (n_draft, RANK)).astype(np.float32),
        "confidence_head.proj.weight": rng.normal(0, 1, (1, width)).astype(np.float32),
        "confidence_head.proj.bias": rng.normal(0, 1, (1,)).astype(np.float32),
    }


def speculators(**more: Any) -> samples.Config:
    """As the speculators library says it: Qwen3's keys one level down, taps as layer inputs."""
    settings = samples.config()
    shape = {key: settings.pop(key) for key in list(settings) if key not in ("architectures", "block_size")}
    shape.pop("dflash_config")
    return settings | {
        "architectures": ["DSparkDraftModel"], "transformer_layer_config": shape, "mask_token_id": samples.MASK,
        "aux_hidden_state_layer_ids": [1, 5], **MARKOV, **more,
    }  # fmt: skip


def deepspec(**more: Any) -> samples.Config:
    settings = samples.config({"architectures": ["Qwen3DSparkModel"]})
    return settings | settings.pop("dflash_config") | MARKOV | more


def proposals(n: int) -> dict[str, Any]:
    return {"speculators_config": {"proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": n}]}}


SPECFORGE = {"dflash_config.projector_type": "dspark", "dflash_config.markov_rank": RANK}
LAYOUTS: dict[str, tuple[samples.Config, bool]] = {
    # what is stated, wherever it stands, comes first
    "stated at the top": (samples.config({"sample_from_anchor": True}, **MARKOV), True),
    "stated inside": (samples.config({"dflash_config.sample_from_anchor": False}, **MARKOV), False),
    "stated against the packaging": (deepspec(sample_from_anchor=False), False),
    "stated twice, the first name counts": (deepspec(sample_from_anchor=True, dspark_bonus_anchor=True), True),
    "bonus anchor": (deepspec(dspark_bonus_anchor=True), False),
    "no bonus anchor": (speculators(dspark_bonus_anchor=False), True),
    "as many tokens as rows": (speculators(**proposals(8)), True),
    "one token less than rows": (speculators(**proposals(7)), False),
    "some other number of tokens": (speculators(**proposals(5)), False),
    "no list of methods": (speculators(speculators_config={"proposal_methods": 1}), False),
    # then who saved it
    "speculators": (speculators(), False),
    "DSparkSpeculator": (speculators(architectures=["DSparkSpeculator"]), False),
    "SpecForge": (samples.config({"architectures": ["DSparkDraftModel"], **SPECFORGE}), True),
    "DeepSpec": (deepspec(), True),
    "LiquidAI": (samples.config({"architectures": ["Lfm2DSparkDraftModel"]}, **MARKOV), True),
    "Ling": (samples.config({"architectures": ["LingDSparkModel"]}, **MARKOV), True),
}


@pytest.fixture
def fitting(target: Path) -> Target:
    return Target.read(target)


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout_of_the_anchor(fitting: Target, name: str) -> None:
    settings, expected = LAYOUTS[name]
    config = DrafterConfig.read(settings, fitting, heads())
    assert config.samples_from_anchor is expected
    assert config.kind.name == "DSpark"
    assert config.taps == (1, 5)


@pytest.mark.parametrize(
    ("settings", "found", "expected"),
    [
        (samples.config(), (), False),
        (samples.config({"dflash_config.sample_from_anchor": True}), (), True),
        (deepspec(markov_rank=0), (), True),  # DeepSpec's "DFlash" releases
        (deepspec(markov_rank=None), (), True),
    ],
)
def test_layout_of_plain_drafters(
    fitting: Target, settings: samples.Config, found: tuple[str, ...], expected: bool
) -> None:
    config = DrafterConfig.read(settings, fitting, found)
    assert (config.samples_from_anchor, config.kind.name) == (expected, "DFlash")


@pytest.mark.parametrize(
    "settings",
    [
        samples.config(**MARKOV),  # labelled as a plain drafter, with Markov tensors
        samples.config({"architectures": ["DSparkDraftModel"]}, **MARKOV),
        deepspec(markov_rank=None, dspark_markov_rank=RANK, dspark_fixup_head_type="markov"),  # ModelOpt
    ],
    ids=["DFlashDraftModel", "DSparkDraftModel of nobody", "ModelOpt"],
)
def test_layout_that_nobody_states(fitting: Target, settings: samples.Config) -> None:
    with pytest.raises(ConvertError, match="which row of a block proposes first") as error:
        DrafterConfig.read(settings, fitting, heads())
    assert error.value.field == "sample_from_anchor"


def converted(
    tmp_path: Path, target: Path, settings: samples.Config, contents: samples.Tensors, **options: Any
) -> tuple[dict[str, Any], dict[str, tuple[str, samples.Array]]]:
    """Keys and tensors of the GGUF."""
    directory = samples.write_checkpoint(tmp_path / "drafter", settings, contents, dtype="F32")
    path = convert(directory, target, tmp_path / "out.gguf", **options).path
    return samples.read_keys(path), samples.read_tensors(path)


def plain() -> samples.Tensors:
    return samples.tensors(samples.CONFIG)


@pytest.mark.parametrize(("settings", "anchor_first"), [(speculators(), False), (deepspec(), True)])
def test_keys_and_tensors(tmp_path: Path, target: Path, settings: samples.Config, anchor_first: bool) -> None:
    contents = heads()
    keys, tensors = converted(tmp_path, target, settings, plain() | contents, outtype="f32")
    assert keys["dflash.sample_from_anchor"] is anchor_first
    assert keys["dflash.has_confidence_head"] is True
    for name, source in {
        "markov_w1.weight": "markov_head.markov_w1.weight",
        "markov_w2.weight": "markov_head.markov_w2.weight",
        "conf_proj.weight": "confidence_head.proj.weight",
        "conf_proj.bias": "confidence_head.proj.bias",
    }.items():
        np.testing.assert_array_equal(tensors[name][1], contents[source])


def test_plain_drafter_that_proposes_from_the_anchor(tmp_path: Path, target: Path) -> None:
    keys, tensors = converted(tmp_path, target, deepspec(markov_rank=0), plain())
    assert keys["dflash.sample_from_anchor"] is True
    assert "dflash.has_confidence_head" not in keys and "markov_w1.weight" not in tensors


def test_plain_drafter_says_nothing_of_the_anchor(tmp_path: Path, target: Path) -> None:
    assert "dflash.sample_from_anchor" not in converted(tmp_path, target, samples.config(), plain())[0]


def test_heads_keep_their_types(tmp_path: Path, target: Path) -> None:
    tensors = converted(tmp_path, target, deepspec(), plain() | heads(), outtype="q8_0")[1]
    assert tensors["conf_proj.weight"][0] == tensors["conf_proj.bias"][0] == "F32"
    assert tensors["markov_w1.weight"][0] == tensors["markov_w2.weight"][0] == "F16"  # rows of 6 are no q8_0 blocks


def test_confidence_without_the_token_before(tmp_path: Path, target: Path) -> None:
    """SpecForge's default: the dialect's head gets zeros for what it does not read."""
    settings = samples.config({"architectures": ["DSparkDraftModel"], **SPECFORGE})
    contents = heads(width=samples.N_EMBD)
    weights = converted(tmp_path, target, settings, plain() | contents)[1]["conf_proj.weight"][1]
    assert weights.shape == (1, samples.N_EMBD + RANK)
    np.testing.assert_array_equal(weights[:, : samples.N_EMBD], contents["confidence_head.proj.weight"])
    assert not weights[:, samples.N_EMBD :].any()


@pytest.mark.parametrize("lacking", ["bias", "head"])
def test_optional_parts_of_the_confidence_head(tmp_path: Path, target: Path, lacking: str) -> None:
    contents = heads()
    del contents["confidence_head.proj.bias"]
    if lacking == "head":
        del contents["confidence_head.proj.weight"]
    keys, tensors = converted(tmp_path, target, deepspec(), plain() | contents)
    assert keys["dflash.has_confidence_head"] is (lacking == "bias")
    assert ("conf_proj.weight" in tensors) is (lacking == "bias")
    assert "conf_proj.bias" not in tensors


def test_copies_of_the_target_are_left_out(tmp_path: Path, target: Path) -> None:
    """DeepSpec saves the target's embeddings and head along; they were never trained."""
    matrix = np.ones((samples.N_VOCAB, samples.N_EMBD), np.float32)
    copies = {"embed_tokens.weight": matrix, "lm_head.weight": matrix}
    contents = {f"backbone.{name}": values for name, values in (plain() | heads() | copies).items()}
    tensors = converted(tmp_path, target, deepspec(), contents)[1]
    assert {"token_embd.weight", "output.weight"}.isdisjoint(tensors)
    assert "markov_w1.weight" in tensors


def test_reduced_vocabulary(tmp_path: Path, target: Path) -> None:
    """Its head is the drafter's own; the table of tokens before is the target's, that of tokens after the drafter's."""
    more: samples.Tensors = {
        "d2t": np.arange(N_DRAFT), "t2d": np.zeros(samples.N_VOCAB, np.int64),
        "lm_head.weight": np.ones((N_DRAFT, samples.N_EMBD), np.float32),
        "embed_tokens.weight": np.ones((samples.N_VOCAB, samples.N_EMBD), np.float32),
    }  # fmt: skip
    settings = speculators(draft_vocab_size=N_DRAFT)
    tensors = converted(tmp_path, target, settings, plain() | heads(N_DRAFT) | more)[1]
    assert tensors["markov_w1.weight"][1].shape == (samples.N_VOCAB, RANK)
    assert tensors["markov_w2.weight"][1].shape == (N_DRAFT, RANK)
    assert tensors["output.weight"][1].shape == (N_DRAFT, samples.N_EMBD)
    assert list(tensors["d2t"][1]) == list(range(0, 2 * N_DRAFT, 2))
    assert "token_embd.weight" not in tensors


WRONG: dict[str, tuple[samples.Config, samples.Tensors, str, str]] = {
    "a rank without tables": (deepspec(), {}, "markov_rank", "missing"),
    "another rank": (deepspec(markov_rank=5), heads(), "markov_head.markov_w1.weight", "has shape"),
    "no rank": (deepspec(markov_rank=None), heads(), "markov_rank", "missing"),
    "a head of another width": (
        deepspec(confidence_head_with_markov=False), heads(), "confidence_head.proj.weight", "has shape",
    ),
    "an unknown head": (deepspec(markov_head_type="bilinear"), heads(), "markov_head_type", "not one of"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_heads(tmp_path: Path, target: Path, name: str) -> None:
    settings, more, where, what = WRONG[name]
    with pytest.raises(ConvertError, match=what) as error:
        converted(tmp_path, target, settings, plain() | more)
    assert error.value.field == where


def one(*names: str) -> samples.Tensors:
    return {name: np.ones((2, 2), np.float32) for name in names}


REFUSED: list[tuple[samples.Config, samples.Tensors, str, str]] = [
    *[
        (samples.config(architectures=[name]), one("d2t"), "architectures", "is EAGLE, .* token by token")
        for name in ("LlamaForCausalLMEagle3", "Eagle3Speculator", "Eagle3DraftModel", "PEagleSpeculator")
    ],
    *[
        (samples.config(speculators_model_type=name), {}, "speculators_model_type", "eagle3=HEAD.gguf")
        for name in ("eagle", "eagle3", "peagle")
    ],
    (deepspec(markov_head_type="gated"), heads(), "markov_head_type", "depends on hidden states"),
    (speculators(markov_head_type="rnn"), heads(), "markov_head_type", "depends on hidden states"),
    (deepspec(), one("markov_head.gate_proj.weight"), "markov_head.gate_proj.weight", "depends on hidden states"),
    (deepspec(), one("layers.0.mlp.experts.0.up_proj.weight"), "layers.0.mlp.experts.0.up_proj.weight", "experts"),
    (deepspec(log_snr_conditioning=True), {}, "log_snr_conditioning", "how noisy"),
    (deepspec(), one("backbone.log_snr_embed.fc1.weight"), "backbone.log_snr_embed.fc1.weight", "how noisy"),
    (deepspec(), one("layers.0.mlp.up_proj.weight_scale"), "layers.0.mlp.up_proj.weight_scale", "bfloat16"),
    (deepspec(architectures=["Qwen35DSparkModel"]), {}, "architectures", "distance from one"),
    (deepspec(architectures=["DeepseekV4ForCausalLM"]), {}, "architectures", "DeepSeek-V4"),
    (deepspec(dspark_noise_token_id=5), {}, "dspark_noise_token_id", "DeepSeek-V4"),
    (deepspec(), one("mtp.0.attn.wq.weight"), "mtp.0.attn.wq.weight", "DeepSeek-V4"),
    (deepspec(model_type="k3_dspark"), {}, "model_type", "Kimi-K3"),
    (speculators(target_hidden_size=4 * samples.N_EMBD), heads(), "target_hidden_size", "streams"),
]


@pytest.mark.parametrize(("settings", "more", "where", "why"), REFUSED, ids=[f"{c[2]}" for c in REFUSED])
def test_refused_by_name(
    tmp_path: Path, target: Path, settings: samples.Config, more: samples.Tensors, where: str, why: str
) -> None:
    with pytest.raises(ConvertError, match=why) as error:
        converted(tmp_path, target, settings, plain() | more)
    assert error.value.field == where
    assert not (tmp_path / "out.gguf").exists()


def test_flags_of_the_target_do_not_refuse(fitting: Target) -> None:
    """DeepSpec copies the target's settings, experts among them."""
    settings = deepspec(num_experts=128, num_experts_per_tok=8, log_snr_conditioning=False)
    assert DrafterConfig.read(settings, fitting, heads()).kind.name == "DSpark"
