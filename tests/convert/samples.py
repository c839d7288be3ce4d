"""Small checkpoints and targets to convert: sound ones, and the means to spoil them.

What the converter wrote is read with the `gguf` package, so that a fault in our own reader cannot hide one in what it
reads; all other tests use our reader.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from gguf.quants import dequantize

from dflash_local.convert.gguf_metadata import Value, read_header, u32
from dflash_local.convert.writer import OutputTensor, write_gguf

Array = npt.NDArray[Any]
Config = dict[str, Any]
Tensors = dict[str, Array]

N_VOCAB, N_EMBD, N_FF, N_HEAD, N_HEAD_KV, HEAD_DIM, N_TARGET_LAYER = 40, 32, 64, 4, 2, 8, 6
MASK = 3

CONFIG: Config = {
    "architectures": ["DFlashDraftModel"],
    "block_size": 8,
    "dflash_config": {"mask_token_id": MASK, "target_layer_ids": [0, 4]},
    "hidden_act": "silu",
    "hidden_size": N_EMBD,
    "head_dim": HEAD_DIM,
    "intermediate_size": N_FF,
    "max_position_embeddings": 512,
    "num_attention_heads": N_HEAD,
    "num_hidden_layers": 2,
    "num_key_value_heads": N_HEAD_KV,
    "num_target_layers": N_TARGET_LAYER,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0},
    "vocab_size": N_VOCAB,
}
DFLASH2 = {"conv_kernel_size": 2, "conv_group_size": 8, "selector_rank": 16, "selector_top_k": 4}


def config(changes: Mapping[str, Any] | None = None, /, **more: Any) -> Config:
    """`CONFIG` with other values; "dflash_config.x" names a nested key, None removes one."""
    result: Config = json.loads(json.dumps(CONFIG))
    for path, value in {**(changes or {}), **more}.items():
        place, _, name = path.rpartition(".")
        target = result[place] if place else result
        if value is None:
            target.pop(name, None)
        else:
            target[name] = value
    return result


def dflash2_config() -> Config:
    return config(
        {"architectures": ["DFlash2DraftModel"], **{f"dflash_config.{key}": value for key, value in DFLASH2.items()}}
    )


def tensors(settings: Config, seed: int = 0) -> Tensors:
    """Random weights (float32, exact in bfloat16) for `settings`, under the authors' names."""
    n_taps = len(settings["dflash_config"]["target_layer_ids"])
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (N_EMBD, n_taps * N_EMBD),
        "hidden_norm.weight": (N_EMBD,),
        "norm.weight": (N_EMBD,),
    }
    for i in range(settings["num_hidden_layers"]):
        layer = {
            "input_layernorm.weight": (N_EMBD,),
            "post_attention_layernorm.weight": (N_EMBD,),
            "self_attn.q_proj.weight": (N_HEAD * HEAD_DIM, N_EMBD),
            "self_attn.k_proj.weight": (N_HEAD_KV * HEAD_DIM, N_EMBD),
            "self_attn.v_proj.weight": (N_HEAD_KV * HEAD_DIM, N_EMBD),
            "self_attn.o_proj.weight": (N_EMBD, N_HEAD * HEAD_DIM),
            "self_attn.q_norm.weight": (HEAD_DIM,),
            "self_attn.k_norm.weight": (HEAD_DIM,),
            "mlp.gate_proj.weight": (N_FF, N_EMBD),
            "mlp.up_proj.weight": (N_FF, N_EMBD),
            "mlp.down_proj.weight": (N_EMBD, N_FF),
        }
        if settings["architectures"] == ["DFlash2DraftModel"]:
            n_kernels = 2 * DFLASH2["conv_kernel_size"] * N_EMBD // DFLASH2["conv_group_size"]
            for conv in ("attention_conv", "mlp_conv"):
                layer[f"{conv}.base_kernel"] = (2, DFLASH2["conv_kernel_size"], N_EMBD)
                layer[f"{conv}.kernel_projection.weight"] = (n_kernels, N_EMBD)
        shapes |= {f"layers.{i}.{name}": shape for name, shape in layer.items()}
    if settings["architectures"] == ["DFlash2DraftModel"]:
        rank = DFLASH2["selector_rank"]
        shapes["candidate_selector.predecessor_codebook"] = (N_VOCAB, rank)
        shapes["candidate_selector.successor_codebook"] = (N_VOCAB, rank)
        shapes["candidate_selector.hidden_projection.weight"] = (rank, N_EMBD)
    rng = np.random.default_rng(seed)
    return {name: from_bf16(to_bf16(rng.normal(size=shape).astype(np.float32))) for name, shape in shapes.items()}


def to_bf16(values: Array) -> Array:
    """The upper halves of float32 values."""
    return (np.ascontiguousarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def from_bf16(halves: Array) -> Array:
    return (halves.astype(np.uint32) << 16).view(np.float32)


def header_of(contents: Tensors, dtype: str = "BF16") -> tuple[dict[str, Any], bytes]:
    """Header entries and data section of a safetensors file; integer tensors are I64, the others `dtype`."""
    entries: dict[str, Any] = {}
    data = b""
    for name, values in contents.items():
        is_integer = values.dtype.kind == "i"
        stored = (
            values.astype("<i8")
            if is_integer
            else to_bf16(values)
            if dtype == "BF16"
            else values.astype({"F16": "<f2", "F64": "<f8"}.get(dtype, "<f4"))
        )
        raw = stored.tobytes()
        entries[name] = {
            "dtype": "I64" if is_integer else dtype,
            "shape": list(values.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    return entries, data


def write_file(path: Path, header: Any, data: bytes) -> Path:
    """A safetensors file with this header: JSON for anything but bytes, which are written as they are."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def write_checkpoint(
    directory: Path, settings: Config, contents: Tensors | None = None, *, dtype: str = "BF16", shards: int = 0
) -> Path:
    """A checkpoint directory; with `shards`, split into that many files with an index."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(settings))
    contents = tensors(settings) if contents is None else contents
    if not shards:
        write_file(directory / "model.safetensors", *header_of(contents, dtype))
        return directory
    names = sorted(contents)
    weight_map = {}
    for i in range(shards):
        shard = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        part = {name: contents[name] for name in names[i::shards]}
        weight_map.update(dict.fromkeys(part, shard))
        write_file(directory / shard, *header_of(part, dtype))
    (directory / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return directory


def write_target(path: Path, changes: Mapping[str, Any] | None = None, arch: str = "qwen3") -> Path:
    """A target's GGUF without tensors: all that a conversion looks at. `changes` replaces keys, None removes them."""
    keys: dict[str, Any] = {
        "general.type": "model",
        f"{arch}.block_count": N_TARGET_LAYER,
        f"{arch}.embedding_length": N_EMBD,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": [f"t{i}" for i in range(N_VOCAB - 1)] + ["é\n"],
        "tokenizer.ggml.token_type": [1] * N_VOCAB,
        "tokenizer.ggml.scores": [0.5] * N_VOCAB,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": "{{ messages }}",
        **(changes or {}),
    }
    writer = gguf.GGUFWriter(path, arch)
    for key, value in keys.items():
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        elif value is not None:
            writer.add_array(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    return path


def write_split(source: Path, stem: Path, part_of: Callable[[str], int], alignment: int = 32, n_parts: int = 2) -> Path:
    """The GGUF `source` in parts, as llama-gguf-split makes them: keys in the first, which is returned; each tensor in
    the part that `part_of` its name gives, from 0. All are aligned as said, the others without saying so if that is the
    default."""
    metadata, tensors = read_header(source)
    outputs = [*map(OutputTensor.of, tensors.values())]
    aligned = {} if alignment == 32 else {"general.alignment": u32(alignment)}
    paths = [stem.with_name(f"{stem.name}-{number:05}-of-{n_parts:05}.gguf") for number in range(1, n_parts + 1)]
    for number, path in enumerate(paths):
        keys = {
            **(metadata if number == 0 else {}),
            **aligned,
            "split.no": Value(gguf.GGUFValueType.UINT16, number),
            "split.count": Value(gguf.GGUFValueType.UINT16, n_parts),
            "split.tensors.count": Value(gguf.GGUFValueType.INT32, len(outputs)),
        }
        write_gguf(path, keys, [output for output in outputs if part_of(output.name) == number])
    return paths[0]


def read_tensors(path: Path) -> dict[str, tuple[str, Array]]:
    """Type name and raw data of every tensor of a GGUF."""
    return {tensor.name: (tensor.tensor_type.name, tensor.data) for tensor in gguf.GGUFReader(path).tensors}


def read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Shape of every tensor of a GGUF, row-major."""
    return {tensor.name: tuple(map(int, reversed(tensor.shape))) for tensor in gguf.GGUFReader(path).tensors}


def read_keys(path: Path) -> dict[str, Any]:
    return {key: field.contents() for key, field in gguf.GGUFReader(path).fields.items() if not key.startswith("GGUF.")}


# GGUF name -> the authors' name
_GLOBAL = {
    "fc.weight": "fc.weight",
    "enc.output_norm.weight": "hidden_norm.weight",
    "output_norm.weight": "norm.weight",
    "selector_predecessor.weight": "candidate_selector.predecessor_codebook.weight",
    "selector_successor.weight": "candidate_selector.successor_codebook",
    "selector_hidden.weight": "candidate_selector.hidden_projection.weight",
}
_LAYER = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "attn_q_norm.weight": "self_attn.q_norm.weight",
    "attn_k_norm.weight": "self_attn.k_norm.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
    "attn_conv_base": "attention_conv.base_kernel",
    "attn_conv_proj.weight": "attention_conv.kernel_projection.weight",
    "ffn_conv_base": "mlp_conv.base_kernel",
    "ffn_conv_proj.weight": "mlp_conv.kernel_projection.weight",
}


def tensors_of_drafter(path: Path) -> Tensors:
    """The checkpoint tensors that a drafter GGUF (f32, f16 or bf16) was made from, as float32."""
    result: Tensors = {}
    for tensor in gguf.GGUFReader(path).tensors:
        name = _GLOBAL.get(tensor.name)
        if name is None:
            _, layer, rest = tensor.name.split(".", 2)
            name = f"layers.{layer}.{_LAYER[rest]}"
        result[name] = np.asarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
    return result
