"""Tiny projectors: mmproj files with random weights that mtmd loads, and headers of others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFValueType

from dflash_local.convert.gguf_metadata import Value, array, boolean, f32, string, u32
from dflash_local.convert.writer import write_gguf
from tests.gguf_files import output

WIDTH, LAYERS, FF, IMAGE, PATCH, MERGE = 64, 2, 128, 64, 8, 2


def projector_file(
    path: Path,
    rows: int = 256,
    keys: Mapping[str, Any] | None = None,
    more: Mapping[str, tuple[int, ...]] | None = None,
    without: str = "",
    layers: int = LAYERS,
    image: int = IMAGE,
) -> Path:
    """A projector of the kind gemma3 at `path`, which is returned.

    Args:
        rows: width of the rows that it gives the target; that of the pocket target by default.
        keys: replace those of the file, or are added; None leaves one out.
        more: shapes of other tensors, by their names; they replace those of the file, or are added.
        without: a tensor to leave out.
        layers, image: how deep it is, and the side of the pictures that it reads: what it has to compute.
    """
    rng = np.random.default_rng(0)

    def tensor(name: str, *shape: int) -> Any:
        data = rng.normal(0, 0.05, shape).astype(np.float32)
        return output(name, data if len(shape) == 1 else data.astype(np.float16))

    tensors = [
        tensor("v.patch_embd.weight", WIDTH, 3, PATCH, PATCH),
        tensor("v.patch_embd.bias", WIDTH),
        output("v.position_embd.weight", rng.normal(0, 0.05, ((image // PATCH) ** 2, WIDTH)).astype(np.float32)),
        *(tensor(f"v.post_ln.{kind}", WIDTH) for kind in ("weight", "bias")),
        tensor("mm.soft_emb_norm.weight", WIDTH),
        tensor("mm.input_projection.weight", WIDTH, rows),
    ]
    for layer in range(layers):
        for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
            tensors += [tensor(f"v.blk.{layer}.{name}.weight", WIDTH, WIDTH)]
            tensors += [tensor(f"v.blk.{layer}.{name}.bias", WIDTH)]
        for name in ("ln1", "ln2"):
            tensors += [tensor(f"v.blk.{layer}.{name}.{kind}", WIDTH) for kind in ("weight", "bias")]
        for name, shape in (("ffn_up", (FF, WIDTH)), ("ffn_down", (WIDTH, FF))):
            tensors += [tensor(f"v.blk.{layer}.{name}.weight", *shape), tensor(f"v.blk.{layer}.{name}.bias", shape[0])]
    metadata = {**_keys(rows, layers, image), **{key: _value(data) for key, data in (keys or {}).items()}}
    path.parent.mkdir(parents=True, exist_ok=True)
    found = {made.name: made for made in tensors} | {name: tensor(name, *shape) for name, shape in (more or {}).items()}
    found.pop(without, None)
    write_gguf(path, {key: value for key, value in metadata.items() if value is not None}, [*found.values()])
    return path


def _value(data: Any) -> Value | None:
    kinds = {bool: boolean, int: u32, str: string}
    return data if data is None or isinstance(data, Value) else kinds[type(data)](data)


def _keys(rows: int, layers: int, image: int) -> dict[str, Value | None]:
    sizes = {
        "embedding_length": WIDTH, "feed_forward_length": FF, "block_count": layers, "attention.head_count": 2,
        "projection_dim": rows, "image_size": image, "patch_size": PATCH, "projector.scale_factor": MERGE,
    }  # fmt: skip
    return {
        "general.architecture": string("clip"),
        "general.type": string("mmproj"),
        "general.file_type": u32(1),
        "clip.has_vision_encoder": boolean(True),
        "clip.projector_type": string("gemma3"),
        "clip.use_gelu": boolean(True),
        "clip.vision.attention.layer_norm_epsilon": f32(1e-6),
        "clip.vision.image_mean": array(GGUFValueType.FLOAT32, [0.5, 0.5, 0.5]),
        "clip.vision.image_std": array(GGUFValueType.FLOAT32, [0.5, 0.5, 0.5]),
        **{f"clip.vision.{name}": u32(size) for name, size in sizes.items()},
    }
