"""The target as two GGUF files, as llama.cpp reads them: its text model (qwen3vl) and its projector (clip).

Usage: python -m benchmarks.pocket_vl.target_files TARGET_DIR OUT_DIR [--type F16|Q8_0]

writes OUT_DIR/pocket-vl.gguf and OUT_DIR/pocket-vl-mmproj.gguf; the type is that of the text model's matrices.
`read_target()` reads a `transformers` model out of both again, so that tests can compare the two implementations of the
very same numbers.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from gguf import GGMLQuantizationType, GGUFValueType, LlamaFileType, TokenType, quants
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerFast, Qwen3VLConfig, Qwen3VLForConditionalGeneration

from benchmarks.pocket_vl import pictures
from benchmarks.pocket_vl.chats import WORDS
from benchmarks.pocket_vl.pocket_target import make_config
from dflash_local.convert.gguf_metadata import Value, array, boolean, f32, read_metadata, read_model, string, u32
from dflash_local.convert.writer import OutputTensor, write_gguf
from dflash_local.demo.pocket import bundled_pair

ARCH = "qwen3vl"
_TEXT, _TOWER = "model.language_model.", "model.visual."
_TEXT_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_TOWER_LAYER = {
    "norm1": "ln1",
    "norm2": "ln2",
    "attn.qkv": "attn_qkv",
    "attn.proj": "attn_out",
    "mlp.linear_fc1": "ffn_up",
    "mlp.linear_fc2": "ffn_down",
}
_DEEPSTACK = {"norm": "norm", "linear_fc1": "fc1", "linear_fc2": "fc2"}
_TEXT_SIZES = {
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "max_position_embeddings": "context_length",
}
_PATCHES = f"{_TOWER}patch_embed.proj.weight"  # two frames in one tensor there, one tensor each here
_FRAMES = ("v.patch_embd.weight", "v.patch_embd.weight.1")


def text_names(config: Qwen3VLConfig) -> dict[str, str]:
    """The file's name of each tensor of the text model."""
    names = {
        f"{_TEXT}embed_tokens.weight": "token_embd.weight",
        f"{_TEXT}norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    for i in range(config.text_config.num_hidden_layers):
        names |= {f"{_TEXT}layers.{i}.{old}.weight": f"blk.{i}.{new}.weight" for old, new in _TEXT_LAYER.items()}
    return names


def projector_names(config: Qwen3VLConfig) -> dict[str, str]:
    """The file's name of each tensor of the vision tower, without the patches' weights."""
    names = {
        f"{_TOWER}patch_embed.proj.bias": "v.patch_embd.bias",
        f"{_TOWER}pos_embed.weight": "v.position_embd.weight",
    }
    modules = {
        f"{_TOWER}merger.norm": "v.post_ln",
        f"{_TOWER}merger.linear_fc1": "mm.0",
        f"{_TOWER}merger.linear_fc2": "mm.2",
    }
    for i in range(config.vision_config.depth):
        modules |= {f"{_TOWER}blocks.{i}.{old}": f"v.blk.{i}.{new}" for old, new in _TOWER_LAYER.items()}
    for i, layer in enumerate(config.vision_config.deepstack_visual_indexes):
        merger = f"{_TOWER}deepstack_merger_list.{i}"
        modules |= {f"{merger}.{old}": f"v.deepstack.{layer}.{new}" for old, new in _DEEPSTACK.items()}
    for old, new in modules.items():
        names |= {f"{old}.{part}": f"{new}.{part}" for part in ("weight", "bias")}
    return names


def write_target(
    target: Qwen3VLForConditionalGeneration,
    tokens: list[str],
    out: Path,
    type: GGMLQuantizationType = GGMLQuantizationType.F16,
) -> None:
    """Write the text model; its tokenizer is the pocket target's with what more `tokens` there are."""
    old = read_metadata(bundled_pair().target)
    text, prefix = target.config.text_config, "qwen3."
    metadata = {
        ARCH + "." + key.removeprefix(prefix) if key.startswith(prefix) else key: value for key, value in old.items()
    }
    known, types = old["tokenizer.ggml.tokens"].data, old["tokenizer.ggml.token_type"].data
    added = tokens[len(known) :]
    metadata |= {
        "general.architecture": string(ARCH),
        "general.name": string("pocket-vl"),
        "general.file_type": u32(LlamaFileType[f"MOSTLY_{type.name}"]),
        f"{ARCH}.vocab_size": u32(len(tokens)),
        f"{ARCH}.n_deepstack_layers": u32(len(target.config.vision_config.deepstack_visual_indexes)),
        f"{ARCH}.rope.dimension_sections": array(GGUFValueType.INT32, [*text.rope_parameters["mrope_section"], 0]),
        "tokenizer.ggml.tokens": array(GGUFValueType.STRING, [*known, *added]),
        "tokenizer.ggml.token_type": array(GGUFValueType.INT32, [*types, *map(_token_type, added)]),
    }
    weights = target.state_dict()
    write_gguf(out, metadata, [_output(new, weights[old], type) for old, new in text_names(target.config).items()])


def write_projector(target: Qwen3VLForConditionalGeneration, out: Path) -> None:
    """Write the vision tower and its mergers."""
    weights = target.state_dict()
    frames = weights[_PATCHES].unbind(2)
    tensors = [_output(name, frame.contiguous()) for name, frame in zip(_FRAMES, frames, strict=True)]
    tensors += [_output(new, weights[old]) for old, new in projector_names(target.config).items()]
    write_gguf(out, _projector_metadata(target.config), tensors)


def read_target(text_file: Path, projector_file: Path) -> Qwen3VLForConditionalGeneration:
    """The model of two files, in float32. It has the shape of `make_config()` but for its sizes of text."""
    text, projector = _numbers(text_file), _numbers(projector_file)
    config = _config_of(read_metadata(text_file))
    weights = {old: text[new] for old, new in text_names(config).items()}
    weights |= {old: projector[new] for old, new in projector_names(config).items()}
    weights[_PATCHES] = torch.stack([projector[name] for name in _FRAMES], 2)
    target = Qwen3VLForConditionalGeneration(config).float()
    target.load_state_dict(weights)
    return target.eval().requires_grad_(False)


def _token_type(token: str) -> TokenType:
    return TokenType.USER_DEFINED if token in WORDS else TokenType.CONTROL


def _config_of(metadata: Mapping[str, Value]) -> Qwen3VLConfig:
    text = {name: metadata[f"{ARCH}.{key}"].data for name, key in _TEXT_SIZES.items()}
    tokens = [token.decode() for token in metadata["tokenizer.ggml.tokens"].data]
    return make_config(text, metadata[f"{ARCH}.rope.freq_base"].data, tokens)


def _projector_metadata(config: Qwen3VLConfig) -> dict[str, Value]:
    vision = config.vision_config
    sizes = {
        "image_size": int(vision.num_position_embeddings**0.5) * pictures.PATCH,
        "patch_size": vision.patch_size,
        "embedding_length": vision.hidden_size,
        "feed_forward_length": vision.intermediate_size,
        "projection_dim": vision.out_hidden_size,
        "block_count": vision.depth,
        "attention.head_count": vision.num_heads,
        "spatial_merge_size": vision.spatial_merge_size,
    }
    deepstack = [i in vision.deepstack_visual_indexes for i in range(vision.depth)]
    levels = array(GGUFValueType.FLOAT32, [0.5] * 3)  # 0..1 becomes -1..1
    return {
        "general.architecture": string("clip"),
        "general.type": string("mmproj"),
        "general.name": string("pocket-vl"),
        "general.file_type": u32(LlamaFileType.MOSTLY_F16),
        "clip.has_vision_encoder": boolean(True),
        "clip.projector_type": string("qwen3vl_merger"),
        "clip.use_gelu": boolean(True),
        **{f"clip.vision.{key}": u32(size) for key, size in sizes.items()},
        "clip.vision.attention.layer_norm_epsilon": f32(1e-6),
        "clip.vision.image_mean": levels,
        "clip.vision.image_std": levels,
        "clip.vision.is_deepstack_layers": array(GGUFValueType.BOOL, deepstack),
    }


def _output(name: str, weight: torch.Tensor, type: GGMLQuantizationType = GGMLQuantizationType.F16) -> OutputTensor:
    """Matrices in that type; vectors and what is added to a picture's patches as f32."""
    exact = weight.dim() == 1 or name == "v.position_embd.weight"
    type = GGMLQuantizationType.F32 if exact else type
    data = quants.quantize(weight.detach().float().numpy(), type)
    return OutputTensor(name, tuple(weight.shape), type, partial(_once, data))


def _once(data: NDArray[Any]) -> Iterator[NDArray[Any]]:
    yield data


def _numbers(path: Path) -> Mapping[str, torch.Tensor]:
    _, tensors = read_model(path)
    return {name: torch.from_numpy(tensor.numbers().copy()) for name, tensor in tensors.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("target", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--type", choices=("F16", "Q8_0"), default="F16")
    given = parser.parse_args()
    target = Qwen3VLForConditionalGeneration.from_pretrained(given.target, dtype=torch.float32)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(given.target)
    tokens = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    given.out.mkdir(parents=True, exist_ok=True)
    write_target(target, tokens, given.out / "pocket-vl.gguf", GGMLQuantizationType[given.type])
    write_projector(target, given.out / "pocket-vl-mmproj.gguf")


if __name__ == "__main__":
    main()
