"""Tiny random f32 models with next-token (MTP) layers, one for each architecture whose MTP graph llama.cpp has. As in
tests/taps only their metadata is here; llama.cpp itself asks for tensors (probe.py)."""

from __future__ import annotations

import random
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tests.fuzz.architectures import EMBD, EXPERT_FF, HEAD, HEADS_KV, Keys, pair
from tests.fuzz.gguf_image import Image, Tensor
from tests.hybrid.models import SSM
from tests.taps.models import COMMON, HYPER, INDEXER, LATENT, MLA
from tests.trees.models import find, tokenizer

Array = npt.NDArray[np.float32] | npt.NDArray[np.float64]

TRUNK = 2  # layers before the MTP layers

KDA: Keys = {"kda.head_dim": HEAD, "kda.gate_lower_bound": -5.0, "kda.safe_gate": True, "ssm.conv_kernel": 4}
# Of few heads, which run faster.
SMALL: Keys = INDEXER | {"attention.indexer.head_count": 4, "attention.indexer.key_length": 64}
MAMBA: Keys = {
    "ssm.conv_kernel": 4, "ssm.inner_size": EMBD, "ssm.state_size": 16, "ssm.time_step_rank": 4, "ssm.group_count": 2,
    "feed_forward_length": [0, 0, EXPERT_FF, 0], "attention.head_count_kv": [0, HEADS_KV, 0, HEADS_KV],
}  # fmt: skip
DELTA: Keys = SSM | {"full_attention_interval": TRUNK}


class Made(NamedTuple):
    """What an architecture has beside COMMON, or instead of it, and the numbers of MTP layers that are tried."""

    keys: Keys = {}  # noqa: RUF012  never changed
    heads: tuple[int, ...] = (1,)
    trunk: int = TRUNK
    multi_rope: bool = True
    rounded: bool = False  # a row's bits depend on the pass it is in, as info["not_bit_exact"] says of two slots


def slides(*layers: bool) -> Keys:
    return {"attention.sliding_window": 8, "attention.sliding_window_pattern": list(layers)}


ARCHS: dict[str, Made] = {
    "bailingmoe3": Made(
        MLA | KDA | {"attention.head_count_kv": [0, 1, 1], "rope.dimension_sections": [2, 3, 3, 0]},
        rounded=True,
    ),
    "cohere2moe": Made(slides(False, True, False), rounded=True),
    "deepseek2": Made(MLA, rounded=True),
    "deepseek32": Made(MLA | SMALL, rounded=True),
    "deepseek4": Made(
        SMALL | HYPER | slides(True, True, True) | {
            "attention.head_count_kv": 1, "attention.key_length": 2 * HEAD, "attention.value_length": 2 * HEAD,
            "attention.q_lora_rank": 24, "attention.output_group_count": 2, "attention.output_lora_rank": 16,
            "attention.compress_ratios": [0, 4, 0], "attention.compress_rope_freq_base": 160000.0,
            "hash_layer_count": 0, "swiglu_clamp_exp": 10.0, "expert_gating_func": 4,
        },
        rounded=True,
    ),
    "glm-dsa": Made(MLA | SMALL, multi_rope=False, rounded=True),
    "glm4moe": Made(multi_rope=False),
    "hy_v3": Made(heads=(1, 2)),
    "mimo2": Made(slides(False, True, True, True, True), heads=(1, 3), rounded=True),
    "nemotron_h_moe": Made(MAMBA, trunk=3, rounded=True),
    "qwen35": Made(DELTA),
    "qwen35moe": Made(DELTA),
    "qwen3next": Made(DELTA),
    "step35": Made(slides(False, True, True, True, True), heads=(1, 3), rounded=True),
}  # fmt: skip
# MTP layers for which llama.cpp has no graph, though it loads them.
WITHOUT_GRAPH: dict[str, Made] = {
    "bailingmoe2": Made(),
    "exaone-moe": Made(slides(True, False, False)),
    "exaone4": Made(),
    "glm4": Made(multi_rope=False),
    "glm5-next": Made(
        MLA | SMALL | HYPER | KDA | {
            "attention.head_count_kv": [0, 1, 1], "attention.key_length": LATENT, "rope.dimension_count": 0,
            "attention.compress_ratios": [4, 4, 4], "attention.indexer.kpool": 4,
            "attention.indexer.kpool_select_tail": True,
        }
    ),
}  # fmt: skip
NAMES = {f"{arch}-{heads}": made for arch, made in ARCHS.items() for heads in made.heads}
ROUNDED = {name for name, made in NAMES.items() if made.rounded}
ASSISTED = "gemma4"  # a target whose layers are a model of their own (assistant.py)


def header(arch: str, heads: int) -> Image:
    """The metadata of a model without tensors."""
    made = (ARCHS | WITHOUT_GRAPH)[arch]
    n_layers = made.trunk + heads
    keys = COMMON | made.keys | {"block_count": n_layers, "nextn_predict_layers": heads}
    sections = keys.pop("rope.dimension_sections")
    keys = {key: value[:n_layers] if isinstance(value, list) else value for key, value in keys.items()}
    if made.multi_rope:
        keys["rope.dimension_sections"] = sections
    pairs = [pair("general.architecture", arch)] + [pair(f"{arch}.{key}", value) for key, value in keys.items()]
    return Image(pairs + tokenizer().pairs, [])


def numbers(tensor: Tensor) -> Array:
    return np.frombuffer(tensor.data, np.float32).reshape(tensor.dims[::-1])


def trained(made: Image, arch: str, heads: int) -> Image:
    """The model as if somebody had trained it: each token is followed by some tokens more often than by others, and the
    MTP layers know it, since they read their token's embedding as it is and the hidden state a little. Without tensors
    that only some files have."""
    rare = (b"nextn.embed_tokens.weight", b"shared_head_head.weight", b".scale", b".input_scale")
    made.tensors = [tensor for tensor in made.tensors if not tensor.name.endswith(rare)]
    for name, factor in (("token_embd.weight", 20), ("output.weight", 4)):
        tensor = find(made, name)
        tensor.data = (numbers(tensor) * np.float32(factor)).tobytes()
    rng = np.random.default_rng(random.Random(arch).randrange(1 << 32))
    trunk = (ARCHS | WITHOUT_GRAPH)[arch].trunk
    for i in range(trunk, trunk + heads):
        project = np.concatenate([np.eye(EMBD), rng.normal(0, 0.05, (EMBD, EMBD))], 1)
        put(made, f"blk.{i}.nextn.eh_proj.weight", project)
        for norm in ("enorm", "hnorm"):
            put(made, f"blk.{i}.nextn.{norm}.weight", rng.normal(1, 0.1, EMBD))
        if arch == "mimo2":  # whose MTP graph wants them in one
            parts = [f"blk.{i}.attn_{part}.weight" for part in "qkv"]
            put(made, f"blk.{i}.attn_qkv.weight", np.concatenate([numbers(find(made, part)) for part in parts]))
            made.tensors = [tensor for tensor in made.tensors if tensor.name.decode() not in parts]
    return made


def appended(made: Image, arch: str) -> Image:
    """A model without MTP layers with one behind its last layer: a copy of that, or of the first, dense one."""
    made.pairs = header(arch, 1).pairs
    copied, mtp = f"blk.{0 if arch == 'exaone-moe' else TRUNK - 1}.", f"blk.{TRUNK}."
    made.tensors = [tensor for tensor in made.tensors if tensor.name != b"rope_freqs.weight"]
    for tensor in [tensor for tensor in made.tensors if tensor.name.startswith(copied.encode())]:
        if b".hc_" not in tensor.name:  # a single stream
            put(made, tensor.name.decode().replace(copied, mtp), numbers(tensor))
    if arch == "bailingmoe2":
        put(made, f"{mtp}layer_output_norm.weight", np.ones(EMBD))
    return made


def put(made: Image, name: str, data: Array) -> None:
    """Replace a tensor, or add it."""
    made.tensors = [tensor for tensor in made.tensors if tensor.name != name.encode()]
    made.tensors.append(Tensor(name.encode(), list(data.shape[::-1]), 0, data.astype(np.float32).tobytes()))


def without_trunk(made: Image) -> Image:
    """Only the MTP layers, as files that are split off have them."""
    arch = made.architecture.decode()
    n_trunk = ARCHS[arch].trunk
    made.tensors = [
        tensor for tensor in made.tensors
        if not tensor.name.startswith(b"blk.") or int(tensor.name.split(b".")[1]) >= n_trunk
    ]  # fmt: skip
    return made
