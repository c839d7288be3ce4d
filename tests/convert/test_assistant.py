"""Checkpoints of Gemma 4's assistant: what is written of them, and which are refused. That upstream's converter writes
the same, and what is drafted: tests/parity/test_gemma4_assistant.py."""

from __future__ import annotations

import random
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dflash_local.cli import main, parse
from dflash_local.cli.flags.named_models import take_models
from dflash_local.convert import convert
from dflash_local.convert.conversion import check
from dflash_local.errors import ConvertError, DFlashError
from tests.hub.stand_in import stand_in

from . import samples
from .samples import N_EMBD, N_FF, N_HEAD, N_VOCAB
from .test_fuzz import damaged_value

WIDTH, HEAD, FULL_HEAD, WINDOW = 16, 8, 12, 64
SLIDING, FULL = "sliding_attention", "full_attention"
ROPES = {
    FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.5, "rope_theta": 1e6},
    SLIDING: {"rope_type": "default", "rope_theta": 1e4},
}
SETTINGS: samples.Config = {
    "architectures": ["Gemma4AssistantForCausalLM"], "backbone_hidden_size": N_EMBD, "use_ordered_embeddings": True,
    "text_config": {
        "attention_k_eq_v": True, "final_logit_softcapping": None, "global_head_dim": FULL_HEAD, "head_dim": HEAD,
        "hidden_activation": "gelu_pytorch_tanh", "hidden_size": WIDTH, "intermediate_size": N_FF,
        "layer_types": [SLIDING, FULL], "max_position_embeddings": 512, "num_attention_heads": N_HEAD,
        "num_global_key_value_heads": 1, "num_hidden_layers": 2, "num_key_value_heads": 2, "num_kv_shared_layers": 2,
        "rms_norm_eps": 1e-6, "rope_parameters": ROPES, "sliding_window": WINDOW, "vocab_size": N_VOCAB,
    },
}  # fmt: skip
KEYS = {
    "block_count": 2, "nextn_predict_layers": 2, "context_length": 512, "embedding_length": WIDTH,
    "embedding_length_out": N_EMBD, "embedding_length_per_layer_input": 0, "feed_forward_length": N_FF,
    "attention.head_count": N_HEAD, "attention.head_count_kv": [2, 1], "attention.shared_kv_layers": 2,
    "attention.key_length": FULL_HEAD, "attention.value_length": FULL_HEAD, "attention.key_length_swa": HEAD,
    "attention.value_length_swa": HEAD, "attention.layer_norm_rms_epsilon": pytest.approx(1e-6),
    "attention.sliding_window": WINDOW, "attention.sliding_window_pattern": [True, False], "rope.freq_base": 1e6,
    "rope.freq_base_swa": 1e4, "rope.dimension_count": FULL_HEAD, "rope.dimension_count_swa": HEAD,
}  # fmt: skip
LAYER = {
    "attn_norm.weight": "input_layernorm.weight", "attn_q.weight": "self_attn.q_proj.weight",
    "attn_q_norm.weight": "self_attn.q_norm.weight", "attn_output.weight": "self_attn.o_proj.weight",
    "post_attention_norm.weight": "post_attention_layernorm.weight",
    "ffn_norm.weight": "pre_feedforward_layernorm.weight",
    "post_ffw_norm.weight": "post_feedforward_layernorm.weight", "layer_output_scale.weight": "layer_scalar",
    "ffn_gate.weight": "mlp.gate_proj.weight", "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
}  # fmt: skip
NAMES = {
    "token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
    "nextn.pre_projection.weight": "pre_projection.weight", "nextn.post_projection.weight": "post_projection.weight",
    **{f"blk.{i}.{ours}": f"model.layers.{i}.{theirs}" for i in (0, 1) for ours, theirs in LAYER.items()},
}  # fmt: skip


def contents() -> samples.Tensors:
    """As transformers saves them, with the index into the embeddings that some have."""
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (N_VOCAB, WIDTH), "model.norm.weight": (WIDTH,),
        "pre_projection.weight": (WIDTH, 2 * N_EMBD), "post_projection.weight": (N_EMBD, WIDTH),
        "masked_embedding.centroids.weight": (8, WIDTH),
    }  # fmt: skip
    for i, head in enumerate((HEAD, FULL_HEAD)):
        layer = {
            "self_attn.q_proj.weight": (N_HEAD * head, WIDTH), "self_attn.o_proj.weight": (WIDTH, N_HEAD * head),
            "self_attn.q_norm.weight": (head,), "layer_scalar": (1,), "mlp.gate_proj.weight": (N_FF, WIDTH),
            "mlp.up_proj.weight": (N_FF, WIDTH), "mlp.down_proj.weight": (WIDTH, N_FF),
            **{name: (WIDTH,) for name in LAYER.values() if "layernorm" in name},
        }  # fmt: skip
        shapes |= {f"model.layers.{i}.{name}": shape for name, shape in layer.items()}
    rng = np.random.default_rng(0)
    made = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    return made | {"masked_embedding.token_ordering": np.arange(N_VOCAB)}


def settings(changes: dict[str, Any] | None = None) -> samples.Config:
    """`SETTINGS` with other values, by their paths."""
    made = deepcopy(SETTINGS)
    for path, value in (changes or {}).items():
        *places, name = path.split(".")
        place = made
        for part in places:
            place = place[part]
        place[name] = value
    return made


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return samples.write_target(tmp_path / "gemma.gguf", arch="gemma4")


def saved(folder: Path, changes: dict[str, Any] | None = None, tensors: samples.Tensors | None = None) -> Path:
    return samples.write_checkpoint(folder, settings(changes), contents() if tensors is None else tensors, dtype="F32")


@pytest.mark.parametrize("name", ["Gemma4AssistantForCausalLM", "Gemma4UnifiedAssistantForCausalLM"])
def test_every_key_and_tensor(name: str, tmp_path: Path, target: Path) -> None:
    directory = saved(tmp_path / "assistant", {"architectures": [name]})
    path = convert(directory, target, tmp_path / "out.gguf").path
    keys = samples.read_keys(path)
    assert {key: value for key, value in keys.items() if key.startswith("gemma4-assistant.")} == {
        f"gemma4-assistant.{key}": value for key, value in KEYS.items()
    }
    assert next(iter(keys)) == "general.architecture" and keys["general.architecture"] == "gemma4-assistant"
    assert keys["general.name"] == "assistant" and keys["general.file_type"] == 1
    tokenizer = {key: value for key, value in samples.read_keys(target).items() if key.startswith("tokenizer.")}
    assert {key: value for key, value in keys.items() if key.startswith("tokenizer.")} == tokenizer
    written, given = samples.read_tensors(path), contents()
    assert written.pop("rope_freqs.weight")[1].tolist() == [1, 1, 1, *[np.float32(1e30)] * 3]
    assert written.keys() == NAMES.keys()
    for ours, theirs in NAMES.items():
        values = given[theirs]
        assert written[ours][0] == ("F32" if values.ndim == 1 else "F16")
        np.testing.assert_array_equal(written[ours][1], values.astype(written[ours][1].dtype), err_msg=ours)


OTHERS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"text_config.num_global_key_value_heads": None}, {"attention.head_count_kv": 2}),
    # newer versions of transformers
    (
        {
            "text_config.num_global_key_value_heads": None, "text_config.global_head_dim": None,
            "text_config.per_layer_config": {"1": {"head_dim": FULL_HEAD, "num_key_value_heads": 1}},
        },
        {},
    ),
    ({"text_config.final_logit_softcapping": 30.0}, {"final_logit_softcapping": 30.0}),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "keys"), OTHERS)
def test_other_settings(changes: dict[str, Any], keys: dict[str, Any], tmp_path: Path, target: Path) -> None:
    written = samples.read_keys(convert(saved(tmp_path / "a", changes), target, tmp_path / "out.gguf").path)
    expected = {f"gemma4-assistant.{key}": value for key, value in (KEYS | keys).items()}
    assert {key: value for key, value in written.items() if key.startswith("gemma4-assistant.")} == expected


def test_rows_beyond_the_tokens_are_cut(tmp_path: Path, target: Path) -> None:
    tensors = contents()
    rows = tensors["model.embed_tokens.weight"]
    tensors["model.embed_tokens.weight"] = np.concatenate([rows, rows[:2]])
    directory = saved(tmp_path / "a", {"text_config.vocab_size": N_VOCAB + 2}, tensors)
    written = samples.read_tensors(convert(directory, target, tmp_path / "out.gguf", outtype="f32").path)
    np.testing.assert_array_equal(written["token_embd.weight"][1], rows)


REFUSED = [
    ({"backbone_hidden_size": 64}, "backbone_hidden_size is 64, the target's gemma4.embedding_length says 32"),
    ({"backbone_hidden_size": None}, "backbone_hidden_size: it is missing"),
    ({"text_config": None}, "text_config: it must be an object"),
    ({"text_config.vocab_size": N_VOCAB - 1}, f"vocab_size is 39, the target's tokenizer.ggml.tokens says {N_VOCAB}"),
    ({"text_config.vocab_size": 99}, "vocab_size is 99"),
    ({"text_config.hidden_activation": "silu"}, "text_config.hidden_activation: 'silu' is not gelu_pytorch_tanh"),
    ({"text_config.layer_types": [FULL, FULL]}, "layers with a window and layers without one"),
    ({"text_config.layer_types": None}, "layers with a window and layers without one"),
    ({"text_config.layer_types": [SLIDING]}, "text_config.layer_types: it must list 2 layers"),
    ({"text_config.global_head_dim": None}, "global_head_dim: it is missing"),
    ({f"text_config.rope_parameters.{FULL}.rope_type": "new"}, "rope_parameters.rope_type: 'new' is not one of"),
    (
        {f"text_config.rope_parameters.{FULL}.rope_type": "default"},
        f"text_config.rope_parameters.{FULL}.rope_type: 'default' is not proportional",
    ),
    ({f"text_config.rope_parameters.{SLIDING}.rope_type": "proportional"}, "'proportional' is not default"),
    ({"text_config.intermediate_size": 60}, r"'layers.0.mlp.gate_proj.weight' has shape \[64, 16\]"),
    ({"text_config.head_dim": 65538}, "text_config.head_dim: 65538 is not a whole number from 1 to 65536"),
    ({"text_config.global_head_dim": 65538}, "text_config.global_head_dim: 65538 is not a whole number from 1 to"),
    (
        {"text_config.per_layer_config": {"1": {"head_dim": 65538}}},
        "per_layer_config.1.head_dim: 65538 is not a whole number from 1 to 65536",
    ),
    ({"text_config.head_dim": 16}, "'layers.0.self_attn.q_proj.weight' has shape"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_settings_that_do_not_fit(changes: dict[str, Any], message: str, tmp_path: Path, target: Path) -> None:
    directory = saved(tmp_path / "a", changes)
    for look in (lambda: check(directory, target), lambda: convert(directory, target, tmp_path / "out.gguf")):
        with pytest.raises(ConvertError, match=message):
            look()
    assert not (tmp_path / "out.gguf").exists()


def test_another_target(tmp_path: Path) -> None:
    with pytest.raises(ConvertError, match="an assistant of Gemma 4, and the target is qwen3") as error:
        check(saved(tmp_path / "a"), samples.write_target(tmp_path / "target.gguf"))
    assert error.value.field == "general.architecture" and "Gemma 4 model" in (error.value.hint or "")


def test_all_tensors_and_no_others(tmp_path: Path, target: Path) -> None:
    whole = contents()
    for i, name in enumerate(NAMES.values()):
        cut = {other: values for other, values in whole.items() if other != name}
        with pytest.raises(ConvertError, match=f"tensor '{name.removeprefix('model.')}' is missing"):
            check(saved(tmp_path / str(i), tensors=cut), target)
    for name in ("layers.0.self_attn.k_proj.weight", "lm_head.weight"):
        with pytest.raises(ConvertError, match=f"unknown tensor '{name}': it has no place in a Gemma 4 assistant"):
            check(saved(tmp_path / "a", tensors=whole | {name: np.ones((4, 4), np.float32)}), target)
    quantized = whole | {"model.layers.0.mlp.up_proj.weight_scale": np.ones(1, np.float32)}
    with pytest.raises(ConvertError, match="NVFP4 or FP8 weights"):
        check(saved(tmp_path / "a", tensors=quantized), target)


def test_damaged_settings(tmp_path: Path, target: Path) -> None:
    """A DFlashError or a file, never another exception."""
    rng = random.Random("assistant")
    for _ in range(150):
        directory = samples.write_checkpoint(tmp_path / "a", damaged_value(rng, settings()), contents(), dtype="F32")
        with suppress(DFlashError):
            convert(directory, target, tmp_path / "out.gguf")


def test_on_the_command_line(tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory, output = saved(tmp_path / "a"), tmp_path / "out.gguf"
    assert main(["convert", str(directory), "--target", str(target), "-o", str(output), "--outtype", "q8_0"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith(f"{output}: Gemma 4 assistant, 27 tensors, ") and shown[0].endswith("MB as q8_0")
    assert shown[1] == "  2 layers, hidden states of 32 numbers"


def test_from_the_hub(tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """-hfd checks its headers, converts it, and keeps the conversion."""
    files = {path.name: path.read_bytes() for path in saved(tmp_path / "a").iterdir()}
    monkeypatch.setenv("DFLASH_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("LLAMA_CACHE", str(tmp_path / "cache"))
    flags = ["serve", "-m", str(target), "-hfd", "lab/gemma-4-it-assistant"]
    with stand_in() as endpoint:
        monkeypatch.setenv("MODEL_ENDPOINT", endpoint.endpoint + "/")
        endpoint.add("lab/gemma-4-it-assistant", files)
        drafter = take_models(parse(flags)[1]).drafter
        assert drafter and Path(drafter).parent == tmp_path / "own" / "drafters"
        assert samples.read_keys(Path(drafter))["general.name"] == "gemma-4-it-assistant"
        other = samples.write_target(tmp_path / "other.gguf")
        with pytest.raises(ConvertError, match="an assistant of Gemma 4"):
            take_models(parse([*flags[:2], str(other), *flags[3:]])[1])
