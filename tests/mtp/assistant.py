"""A tiny random f32 target of Gemma 4 with its assistant, which attends to the target's K and V (llama.cpp's
src/models/gemma4-assistant.cpp)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.fuzz.architectures import EMBD, FF, HEAD, HEADS, Keys, Shapes, image
from tests.fuzz.gguf_image import Image
from tests.trees.models import N_VOCAB, WINDOW, fill, find, gemma4, tokenizer

from .models import ASSISTED, numbers, put

WIDTH, LAYERS = EMBD + 32, 3
WINDOWS = [True, False, True]


def target() -> Image:
    """Its next token follows from the last one more than from those before."""
    made = gemma4(tokenizer(), per_layer=32)
    for name, factor in (("token_embd.weight", 20), ("output.weight", 4)):
        put(made, name, numbers(find(made, name)) * factor)
    return made


def assistant(of: Image, windows: Sequence[bool] = WINDOWS) -> Image:
    """It knows that, too: it reads the token's embedding as it is, and the hidden state a little. `windows`: whether a
    layer has one."""
    full = 2 * HEAD
    keys: Keys = {
        "embedding_length": WIDTH, "embedding_length_out": EMBD, "nextn_predict_layers": LAYERS,
        "attention.sliding_window": WINDOW, "attention.sliding_window_pattern": list(windows),
        "attention.key_length": full, "attention.value_length": full, "rope.dimension_count": full,
        "attention.key_length_swa": HEAD, "attention.value_length_swa": HEAD, "rope.dimension_count_swa": HEAD,
    }  # fmt: skip

    def layer(i: int) -> Shapes:
        head = HEAD if windows[i] else full
        return {
            "attn_norm.weight": [WIDTH], "attn_q.weight": [WIDTH, HEADS * head], "attn_q_norm.weight": [head],
            "attn_output.weight": [HEADS * head, WIDTH], "post_attention_norm.weight": [WIDTH],
            "ffn_norm.weight": [WIDTH], "post_ffw_norm.weight": [WIDTH], "layer_output_scale.weight": [1],
            "ffn_gate.weight": [WIDTH, FF], "ffn_up.weight": [WIDTH, FF], "ffn_down.weight": [FF, WIDTH],
        }  # fmt: skip

    others = {"nextn.post_projection.weight": [WIDTH, EMBD]}
    if not all(windows):
        others["rope_freqs.weight"] = [HEAD]
    made = image("gemma4-assistant", tokenizer(), keys, layer, layers=LAYERS, others=others)
    made.tensors = [tensor for tensor in made.tensors if tensor.name != b"output.weight"]
    rng = np.random.default_rng(7)
    put(made, "output_norm.weight", np.ones(WIDTH))
    put(made, "nextn.pre_projection.weight", np.concatenate([
        np.concatenate([np.eye(EMBD), rng.normal(0, 0.05, (EMBD, EMBD))], 1), rng.normal(0, 0.02, (32, 2 * EMBD))
    ]))  # fmt: skip
    put(made, "token_embd.weight",
        np.concatenate([numbers(find(of, "output.weight")), rng.normal(0, 0.1, (N_VOCAB, 32))], 1))  # fmt: skip
    if not all(windows):
        fill(made, "rope_freqs.weight", 1.0)
    for i in range(LAYERS):
        for name, value in (("attn_q_norm", HEAD**-0.5), ("post_ffw_norm", 0.2), ("layer_output_scale", 1.0)):
            fill(made, f"blk.{i}.{name}.weight", value)
    return made


def path_of(target: Path) -> Path | None:
    """The assistant beside a target that write() made; None: it is no such target."""
    return target.with_name(f"{ASSISTED}-assistant.gguf") if target.stem == ASSISTED else None


def write(folder: Path) -> Path:
    """Target and assistant as files; returns the target's."""
    path, made = folder / f"{ASSISTED}.gguf", target()
    path.write_bytes(made.encode()[0])
    path.with_name(f"{ASSISTED}-assistant.gguf").write_bytes(assistant(made).encode()[0])
    return path
