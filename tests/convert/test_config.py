"""Settings are found wherever the published formats put them; what is missing, wrong or unfit is named."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dflash_local.convert.config import DrafterConfig
from dflash_local.convert.keys import Keys
from dflash_local.convert.rope import Rope, yarn_scale
from dflash_local.convert.target import Target
from dflash_local.errors import ConvertError

from . import samples
from .test_dspark import deepspec, heads
from .test_kinds import DOMINO


@pytest.fixture
def fitting(target: Path) -> Target:
    return Target.read(target)


MIMO = {"dflash_config.backbone_rotary_base": 5e6}


def speculators(changes: dict[str, Any] | None = None) -> samples.Config:
    """`samples.CONFIG` as the speculators library writes it."""
    inner = samples.config(
        {"architectures": None, "block_size": None, "dflash_config": None, "num_target_layers": None}
    )
    return {
        "architectures": ["DFlashDraftModel"],
        "speculators_model_type": "dflash",
        "transformer_layer_config": inner,
        "draft_vocab_size": samples.N_VOCAB,
        "block_size": 8,
        "aux_hidden_state_layer_ids": [1, 5],
        "mask_token_id": samples.MASK,
        "sample_from_anchor": False,
        **(changes or {}),
    }


def test_the_three_layouts_say_the_same(fitting: Target) -> None:
    authors = DrafterConfig.read(samples.CONFIG, fitting)
    nested = samples.config({"block_size": None, "dflash_config.block_size": 8})
    older = samples.config({"dflash_config": None}, mask_token_id=samples.MASK, target_layer_ids=[0, 4])
    assert (
        authors
        == DrafterConfig.read(nested, fitting)
        == DrafterConfig.read(older, fitting)
        == DrafterConfig.read(speculators(), fitting)
    )
    assert (authors.block_size, authors.mask_token, authors.taps) == (8, samples.MASK, (1, 5))


def test_nested_settings_go_before_top_level_ones(fitting: Target) -> None:
    assert DrafterConfig.read(samples.config({"dflash_config.block_size": 4}), fitting).block_size == 4


def test_defaults_of_the_authors_implementation(fitting: Target) -> None:
    settings = samples.config(
        block_size=None,
        num_key_value_heads=None,
        head_dim=None,
        hidden_act=None,
        rope_parameters=None,
    )
    config = DrafterConfig.read(settings, replace(fitting, n_layer=6))
    assert (config.block_size, config.n_head_kv, config.head_dim, config.activation, config.rope.theta) == (
        16,
        4,
        8,
        "silu",
        10000.0,
    )


def test_mask_token_of_the_target(fitting: Target) -> None:
    settings = samples.config({"dflash_config.mask_token_id": None})
    assert DrafterConfig.read(settings, replace(fitting, mask_token=9)).mask_token == 9


def test_first_and_last_tap(fitting: Target) -> None:
    assert DrafterConfig.read(samples.config({"dflash_config.target_layer_ids": [-1, 4]}), fitting).taps == (0, 5)
    assert DrafterConfig.read(speculators({"aux_hidden_state_layer_ids": [0, 5]}), fitting).taps == (0, 5)
    # what leaves the last layer: some architectures give it out, which pairing checks
    assert DrafterConfig.read(samples.config({"dflash_config.target_layer_ids": [5]}), fitting).taps == (6,)


def test_another_number_of_target_layers_is_a_warning(fitting: Target) -> None:
    """Some trainers write the number of taps, others copy it from another target."""
    assert DrafterConfig.read(samples.config(), fitting).warnings == ()
    config = DrafterConfig.read(samples.config(num_target_layers=2), fitting)
    assert config.taps == (1, 5)
    assert len(config.warnings) == 1 and "num_target_layers is 2, but target.gguf has 6 layers" in config.warnings[0]


@pytest.mark.parametrize(
    ("stored", "tokens", "candidates"), [(42, 40, 40), (40, 42, 40), (200064, 200055, 200055), (200019, 201088, 200019)]
)
def test_padding_of_the_vocabulary(fitting: Target, stored: int, tokens: int, candidates: int) -> None:
    config = DrafterConfig.read(samples.config(vocab_size=stored), replace(fitting, n_vocab=tokens))
    assert (config.n_vocab, config.n_vocab_draft, config.n_candidates) == (tokens, tokens, candidates)
    assert len(config.warnings) == 1 and "taken for padding" in config.warnings[0]
    # a head of all stored rows is not a reduced one
    full = DrafterConfig.read(
        samples.config(vocab_size=stored, draft_vocab_size=stored), replace(fitting, n_vocab=tokens)
    )
    assert full == config


def test_candidates_of_a_part_of_the_vocabulary(fitting: Target) -> None:
    settings = samples.config({"dflash_config.selector_vocab_size": 30})
    assert DrafterConfig.read(settings, fitting).n_candidates == 30
    assert DrafterConfig.read(samples.config(), fitting).n_candidates == samples.N_VOCAB


def test_gemma4_embeds_and_caps_as_gemma_does(fitting: Target) -> None:
    """Older drafters borrow both and do not say it."""
    gemma = replace(fitting, arch="gemma4")
    borrowing = DrafterConfig.read(samples.config(), gemma)
    assert (borrowing.embedding_scale, borrowing.logit_softcap) == (math.sqrt(samples.N_EMBD), 30.0)
    assert [warning.split(" ")[0] for warning in borrowing.warnings] == [
        "input_embedding_scale", "final_logit_softcapping"
    ]  # fmt: skip
    assert DrafterConfig.read(samples.config(), replace(gemma, logit_softcap=20.0)).logit_softcap == 20.0  # the head's
    stated = samples.config(final_logit_softcapping=0, input_embedding_scale=2.0)
    saying = DrafterConfig.read(stated, gemma)
    assert (saying.embedding_scale, saying.logit_softcap, saying.warnings) == (2.0, None, ())
    own = DrafterConfig.read(samples.config(), gemma, {"embed_tokens.weight", "lm_head.weight"})
    assert (own.embedding_scale, own.logit_softcap, own.warnings) == (None, None, ())
    plain = DrafterConfig.read(speculators(), gemma)  # trained on embeddings and logits as they are
    assert (plain.embedding_scale, plain.logit_softcap, plain.warnings) == (None, None, ())


def test_base_of_the_injected_keys(fitting: Target) -> None:
    assert DrafterConfig.read(samples.config(), fitting).context_theta is None
    assert DrafterConfig.read(samples.config(MIMO), fitting).context_theta == 5e6
    with pytest.raises(ConvertError, match="M-RoPE") as error:
        DrafterConfig.read(samples.config(MIMO), replace(fitting, uses_mrope=True))
    assert error.value.field == "dflash_config.backbone_rotary_base"


SLIDING = ["sliding_attention", "full_attention"]


@pytest.mark.parametrize(
    ("changes", "window", "is_sliding", "causal"),
    [
        ({}, 0, (False, False), None),
        ({"layer_types": SLIDING, "sliding_window": 64, "use_sliding_window": True}, 64, (True, False), None),
        ({"layer_types": SLIDING, "sliding_window": 64}, 64, (True, False), None),
        ({"layer_types": SLIDING, "sliding_window": 64, "use_sliding_window": False}, 0, (False, False), None),
        ({"layer_types": ["sliding_attention"] * 2, "sliding_window": 64}, 64, (True, True), True),
        ({"layer_types": ["sliding_attention"] * 2, "sliding_window": 64, "is_causal": False}, 64, (True, True), False),
        ({"layer_types": SLIDING, "sliding_window": 64, "sliding_window_non_causal": True}, 64, (True, False), False),
        ({"sliding_window": 64, "use_sliding_window": True, "max_window_layers": 1}, 64, (False, True), None),
        ({"layer_types": ["full_attention"] * 2, "sliding_window": 64}, 0, (False, False), None),
        (
            {"dflash_config.use_swa": True, "dflash_config.swa_window_size": 32, "dflash_config.causal": False},
            32,
            (True, True),
            False,
        ),
        ({"dflash_config.use_swa": True, "sliding_window": 48}, 48, (True, True), False),
        ({"is_causal": False}, 0, (False, False), False),
        ({"is_causal": True, "dflash_config.causal": False}, 0, (False, False), True),
        ({"dflash_config.causal": True}, 0, (False, False), True),
    ],
)
def test_windows_and_causality(
    fitting: Target, changes: dict[str, Any], window: int, is_sliding: tuple[bool, ...], causal: bool | None
) -> None:
    config = DrafterConfig.read(samples.config(changes), fitting)
    assert (config.sliding_window, config.is_sliding, config.causal) == (window, is_sliding, causal)


@pytest.mark.parametrize(
    ("changes", "rope"),
    [
        ({"rope_parameters": None, "rope_theta": 7000.0}, Rope("default", 7000.0, 8)),
        ({"rope_parameters": None, "rope_theta": 7000, "rope_scaling": None}, Rope("default", 7000.0, 8)),
        ({"rope_parameters": {"rope_theta": 7000.0}}, Rope("default", 7000.0, 8)),
        ({"rope_parameters": {"rope_theta": 7000.0, "type": "mrope", "mrope_section": [2, 1, 1]}},
         Rope("default", 7000.0, 8)),
        ({"rope_parameters": {"rope_theta": 7000.0, "partial_rotary_factor": 0.5}}, Rope("default", 7000.0, 8)),
        ({"rope_parameters": {"rope_theta": 7000.0}, "partial_rotary_factor": 0.5}, Rope("default", 7000.0, 8)),
        ({"rope_parameters": {"rope_theta": 7000.0, "rope_type": "mrope"}, "partial_rotary_factor": 0.5},
         Rope("default", 7000.0, 8)),
        ({"rope_parameters": {"rope_theta": 7000.0}, "partial_rotary_factor": 0.5, **MIMO}, Rope("default", 7000.0, 4)),
        (
            {"rope_parameters": {"full_attention": {"rope_theta": 7000.0}, "sliding_attention": {"rope_theta": 1.0}}},
            Rope("default", 7000.0, 8),
        ),
        (
            {"rope_parameters": None, "rope_theta": 7000.0, "rope_scaling": {"type": "linear", "factor": 4}},
            Rope("linear", 7000.0, 8, factor=4.0, n_ctx_original=512),
        ),
        (
            {"rope_parameters": {"rope_theta": 7000.0, "type": "linear", "factor": 4, "partial_rotary_factor": 0.5}},
            Rope("linear", 7000.0, 4, factor=4.0, n_ctx_original=512),
        ),
    ],
)  # fmt: skip
def test_rope(fitting: Target, changes: dict[str, Any], rope: Rope) -> None:
    assert DrafterConfig.read(samples.config(changes), fitting).rope == rope


@pytest.mark.parametrize("layer_types", [["full_attention"] * 2, ["full_attention", "sliding_attention"]])
def test_speculators_rotates_all_layers_as_sliding_ones(fitting: Target, layer_types: list[str]) -> None:
    settings = speculators()
    settings["transformer_layer_config"] |= {
        "layer_types": layer_types, "sliding_window": 16,
        "rope_parameters": {"full_attention": {"rope_theta": 7000.0}, "sliding_attention": {"rope_theta": 500.0}},
    }  # fmt: skip
    assert DrafterConfig.read(settings, fitting).rope == Rope("default", 500.0, 8)


def yarn(**changes: Any) -> dict[str, Any]:
    return {
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 5000.0,
            "factor": 4.0,
            "original_max_position_embeddings": 128,
            **changes,
        }
    }


def llama3(**changes: Any) -> dict[str, Any]:
    bounds = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    return {
        "rope_parameters": {
            "rope_type": "llama3",
            "factor": 8.0,
            "original_max_position_embeddings": 64,
            **bounds,
            **changes,
        }
    }


def test_yarn_scale_of_what_is_not_stretched() -> None:
    assert (yarn_scale(1.0), yarn_scale(0.5), yarn_scale(math.e)) == (1.0, 1.0, 1.1)


@pytest.mark.parametrize(
    ("changes", "attention_factor"),
    [
        ({}, None),
        ({"attention_factor": 1.5}, 1.5),
        ({"mscale": 2.0, "mscale_all_dim": 1.0}, (0.2 * math.log(4) + 1) / (0.1 * math.log(4) + 1)),
    ],
)
def test_yarn_scale_is_relative_to_the_default(
    fitting: Target, changes: dict[str, Any], attention_factor: float | None
) -> None:
    rope = DrafterConfig.read(samples.config(yarn(beta_fast=16.0, **changes)), fitting).rope
    assert (rope.kind, rope.factor, rope.n_ctx_original) == ("yarn", 4.0, 128)
    assert rope.yarn and (rope.yarn.beta_fast, rope.yarn.beta_slow) == (16.0, None)
    if attention_factor is None:
        assert rope.yarn.attention_scale is None
    else:
        assert rope.yarn.attention_scale == pytest.approx(attention_factor / (0.1 * math.log(4) + 1))


@pytest.mark.parity
@pytest.mark.parametrize(
    "changes",
    [
        llama3(rope_theta=5000.0),
        yarn(truncate=False),
        yarn(truncate=False, factor=32.0, beta_fast=16.0, beta_slow=2.0, attention_factor=1.5),
    ],
)
def test_frequencies_are_those_of_transformers(fitting: Target, changes: dict[str, Any]) -> None:
    """What a table of factors says: llama3's scaling, and YaRN's whose bounds are no whole dimensions."""
    from transformers import Qwen3Config
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    settings = samples.config({**changes, "head_dim": 64})
    rope = DrafterConfig.read(settings, fitting).rope
    reference = Qwen3Config(head_dim=64, max_position_embeddings=512, rope_parameters=settings["rope_parameters"])
    frequencies, magnitude = ROPE_INIT_FUNCTIONS[rope.kind](reference, "cpu")
    assert rope.has_factors
    assert rope.yarn is None or rope.magnitude == pytest.approx(magnitude)
    ours = [5000.0 ** (-2 * i / 64) / factor for i, factor in enumerate(rope.frequency_factors())]
    assert ours == pytest.approx(frequencies.tolist(), rel=1e-5)
    assert len(set(rope.frequency_factors())) > 3  # all three ranges occur


ROTATIONS: list[dict[str, Any] | None] = [
    None,
    {},
    {"rope_type": "default", "rope_theta": 5000.0},
    {"rope_type": "linear", "factor": 4.0, "partial_rotary_factor": 0.25},
    {"type": "linear", "factor": 2.0, "rope_theta": 300.0},
    {"rope_type": "yarn", "factor": 8.0, "truncate": False, "original_max_position_embeddings": 128},
    {"rope_type": "yarn", "factor": 4.0, "truncate": False, "mscale": 0.8, "mscale_all_dim": 0.5, "beta_fast": 20.0},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_theta": 500.0},
]
BESIDE: list[dict[str, Any]] = [
    {},
    {"rope_theta": 7000.0},
    {"partial_rotary_factor": 0.5, "original_max_position_embeddings": 256},
    # of no meaning outside of the object
    {
        "factor": 3.0,
        "beta_fast": 2.0,
        "attention_factor": 9.0,
        "truncate": True,
        "low_freq_factor": 2.0,
        "type": "yarn",
    },
]


@pytest.mark.parity
def test_which_rotation_counts_is_as_in_transformers(fitting: Target) -> None:
    """Two objects may hold settings, and the top level some beside them."""
    from transformers import Qwen3Config
    from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

    for scaling, parameters, beside in itertools.product(ROTATIONS, ROTATIONS, BESIDE):
        given = copy.deepcopy({"rope_scaling": scaling, "rope_parameters": parameters, **beside})
        settings = samples.config(given, head_dim=64)
        rope = DrafterConfig.read(settings, fitting).rope
        reference = Qwen3RotaryEmbedding(Qwen3Config(head_dim=64, max_position_embeddings=512, **copy.deepcopy(given)))
        factors = rope.frequency_factors() if rope.has_factors else (rope.factor,) * (rope.n_dims // 2)
        ours = [rope.theta ** (-2 * i / rope.n_dims) / factor for i, factor in enumerate(factors)]
        assert ours == pytest.approx(reference.inv_freq.tolist(), rel=1e-5), given
        assert (rope.magnitude if rope.yarn else 1.0) == pytest.approx(reference.attention_scaling), given


SCALES = {
    "output_multiplier": 0.5,
    "final_logit_softcapping": 30.0,
    "input_embedding_scale": 16.0,
    "attention_value_scale": 2.0,
}


@pytest.mark.parametrize("prefix", ["", "dflash_config."])
def test_scales(fitting: Target, prefix: str) -> None:
    config = DrafterConfig.read(samples.config({prefix + key: value for key, value in SCALES.items()}), fitting)
    assert (config.logit_scale, config.logit_softcap, config.embedding_scale, config.value_scale) == (
        0.5,
        30.0,
        16.0,
        2.0,
    )


def test_no_softcap(fitting: Target) -> None:
    assert DrafterConfig.read(samples.config(final_logit_softcapping=0), fitting).logit_softcap is None


TWO_ROTATIONS = {"full_attention": {"rope_theta": 1.0}, "sliding_attention": {"rope_theta": 2.0}}
REQUIRED = [
    "num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "rms_norm_eps",
    "max_position_embeddings",
]  # fmt: skip
WRONG: list[tuple[dict[str, Any], str, str]] = [
    # changes, field, part of the message
    *[({key: None}, key, "it is missing") for key in REQUIRED],
    *[({key: "4"}, key, "'4' is not") for key in REQUIRED],
    *[({key: 0}, key, "0 is not") for key in REQUIRED],
    *[({key: True}, key, "True is not") for key in REQUIRED],
    ({"architectures": ["Qwen3ForCausalLM"]}, "architectures",
     "is Qwen3ForCausalLM; this converter takes DFlashDraftModel"),
    ({"architectures": None}, "architectures", "the architecture is not given"),
    ({"architectures": [["DFlashDraftModel"]]}, "architectures", "this converter takes"),
    ({"dflash_config": [1]}, "dflash_config", "must be an object"),
    ({"num_hidden_layers": 10**9}, "num_hidden_layers", "from 1 to 512"),
    ({"head_dim": 7}, "head_dim", "cannot be rotated"),
    ({"head_dim": 10**9}, "head_dim", "from 1 to 65536"),
    ({"num_key_value_heads": 3}, "num_key_value_heads", "cannot share"),
    ({"rms_norm_eps": math.inf}, "rms_norm_eps", "not a positive number"),
    ({"attention_bias": 1}, "attention_bias", "not true or false"),
    ({"hidden_act": "relu"}, "hidden_act", "'relu' is not one of silu"),
    ({"hidden_act": 3}, "hidden_act", "not a string"),
    ({"block_size": 1}, "block_size", "from 2"),
    ({"dflash_config.block_size": 2.5}, "dflash_config.block_size", "not a whole number"),
    ({"hidden_size": 64}, "hidden_size", "hidden_size is 64, the target's qwen3.embedding_length says 32"),
    ({"vocab_size": 43}, "vocab_size", "does not fit the target"),
    ({"vocab_size": 37}, "vocab_size", "does not fit the target"),
    ({"draft_vocab_size": 41}, "draft_vocab_size", "exceeds the vocabulary"),
    ({"dflash_config.mask_token_id": None}, "mask_token_id",
     "config.json lacks dflash_config.mask_token_id and the target lacks"),
    ({"dflash_config.mask_token_id": 40}, "dflash_config.mask_token_id",
     "outside the target's vocabulary of 40 tokens"),
    ({"dflash_config.mask_token_id": -1}, "dflash_config.mask_token_id", "outside the target's vocabulary"),
    ({"dflash_config.mask_token_id": "3"}, "dflash_config.mask_token_id", "outside the target's vocabulary"),
    ({"dflash_config.target_layer_ids": [0, 6]}, "dflash_config.target_layer_ids",
     "layer 6 is out of range: a target of 6 layers can be"),
    ({"dflash_config.target_layer_ids": [-2]}, "dflash_config.target_layer_ids", "layer -2 is out of range"),
    ({"dflash_config.target_layer_ids": []}, "dflash_config.target_layer_ids", "names no layer"),
    ({"dflash_config.target_layer_ids": None}, "target_layer_ids", "names no layer"),
    ({"dflash_config.selector_vocab_size": 0}, "dflash_config.selector_vocab_size", "0 is not"),
    ({"dflash_config.target_layer_ids": 4}, "dflash_config.target_layer_ids", "not a list of whole numbers"),
    ({"aux_hidden_state_layer_ids": [7]}, "aux_hidden_state_layer_ids", "6 layers can be tapped at 0 to 6"),
    ({"layer_types": ["full_attention"]}, "layer_types", "must list 2 layers"),
    ({"layer_types": ["full_attention", "linear_attention"]}, "layer_types", "'linear_attention' is neither"),
    ({"layer_types": SLIDING}, "sliding_window", "it is missing"),
    ({"layer_types": SLIDING, "sliding_window": 0}, "sliding_window", "0 is not"),
    ({"is_causal": "no"}, "is_causal", "not true or false"),
    ({"rope_parameters": 3}, "rope_parameters", "must be an object"),
    ({"rope_parameters": {"rope_theta": -1.0}}, "rope_parameters.rope_theta", "not a positive number"),
    ({"rope_parameters": {"rope_type": "longrope"}}, "rope_parameters.rope_type",
     "'longrope' is not one of default, linear, yarn, llama3"),
    ({"rope_parameters": {"rope_type": ["yarn"]}}, "rope_parameters.rope_type", "is not one of"),
    ({"rope_parameters": {"rope_type": "linear"}}, "factor", "it is missing"),
    ({"rope_parameters": {"partial_rotary_factor": 0.4}, **MIMO}, "rope_parameters.partial_rotary_factor",
     "3 of 8 dimensions"),
    (yarn(partial_rotary_factor=2), "rope_parameters.partial_rotary_factor", "16 of 8 dimensions"),
    (llama3(high_freq_factor=0.5), "rope_parameters.high_freq_factor", "must exceed low_freq_factor"),
    (yarn(truncate=False, beta_fast=-32.0), "rope_parameters.beta_fast", "-32.0 is not a positive number"),
    (yarn(truncate=False, rope_theta=1.0), "rope_parameters.rope_theta", "1 must exceed 1"),
    (yarn(attention_factor="1"), "rope_parameters.attention_factor", "not a number"),
    *[(yarn(attention_factor=n), "rope_parameters.attention_factor", "not a positive number") for n in (-1.0, 0.0)],
    (yarn(factor=math.e, mscale=1, mscale_all_dim=-10), "rope_parameters.mscale_all_dim", "not a positive number"),
    (yarn(mscale=-1, mscale_all_dim=1), "rope_parameters.mscale", "not a positive number"),
    ({"layer_types": SLIDING, "sliding_window": 8, "rope_parameters": TWO_ROTATIONS}, "rope_parameters",
     "one rotation"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "field", "message"), WRONG, ids=[f"{field} {message[:24]}" for _, field, message in WRONG]
)
def test_wrong(fitting: Target, changes: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(ConvertError) as error:
        DrafterConfig.read(samples.config(changes), fitting)
    assert message in error.value.message
    assert error.value.field == field


def test_every_key_that_is_read_is_in_the_table(fitting: Target, repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: set[str] = set()
    places = Keys._all

    def recorded(keys: Keys, name: str) -> Iterator[tuple[str, Any]]:
        read.add(name)
        return places(keys, name)

    monkeypatch.setattr(Keys, "_all", recorded)
    for settings in (
        samples.config(layer_types=SLIDING, sliding_window=8), samples.config(use_swa=True, sliding_window=8),
        samples.config(use_sliding_window=True, sliding_window=8), samples.config(yarn(mscale=1.0, mscale_all_dim=1.0)),
        samples.config(llama3()), samples.config(MIMO), samples.dflash2_config(), speculators(), DOMINO,
    ):  # fmt: skip
        DrafterConfig.read(settings, fitting)
    DrafterConfig.read(deepspec(), fitting, heads())
    page = (repo / "docs" / "converting.md").read_text(encoding="utf-8")
    table = page.partition("## Where settings are found")[2].partition("\n## ")[0]
    assert {"dflash_query_causal", "target_hidden_size", "hidden_size", "emb_dim", "markov_rank"} <= read
    assert not [name for name in read if f"`{name}`" not in table]


@pytest.mark.parametrize("key", samples.DFLASH2)
def test_dflash2_keys_are_required(fitting: Target, key: str) -> None:
    settings = samples.dflash2_config()
    del settings["dflash_config"][key]
    with pytest.raises(ConvertError, match=f"{key}: it is missing") as error:
        DrafterConfig.read(settings, fitting)
    assert error.value.field == key


@pytest.mark.parametrize(("key", "value"), [("conv_group_size", 5), ("selector_top_k", 6), ("selector_rank", 0)])
def test_dflash2_keys_must_fit(fitting: Target, key: str, value: int) -> None:
    settings = samples.dflash2_config()
    settings["dflash_config"][key] = value
    with pytest.raises(ConvertError, match=key):
        DrafterConfig.read(settings, fitting)
