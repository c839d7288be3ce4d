"""Tiny random projectors (mmproj files), one for each type that the pinned mtmd knows, and text models that fit them.

Keys and tensors follow llama.cpp's tools/mtmd/clip.cpp and tools/mtmd/models/. Types that write sound are not here:
libdflash refuses them.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests.fuzz.architectures import HEAD, HEADS, HEADS_KV, Keys, Shapes, pair
from tests.fuzz.gguf_image import ARRAY, I32, STRING, Image, Pair, Tensor, array, number, text

EMBD, FF, N_HEAD, LAYERS = 32, 48, 2, 2  # of an encoder
D_HEAD = EMBD // N_HEAD
TEXT = 64  # width of a text model
PATCH = 4
SIDE = 32  # of the image that an encoder of one size takes
PATCHES = (SIDE // PATCH) ** 2

N_WORDS = 128
# What mtmd looks up or writes around media.
PIECES = (
    "\n", "\n\n", "<image>", "</image>", "<slice>", "</slice>", "<|vision_start|>", "<|vision_end|>",
    "<fake_token_around_image>", "<global-img>", "<|image_start|>", "<|image_end|>", "<|img_thumbnail|>", "<im_start>",
    "<im_end>", "<patch_start>", "<patch_end>", "<patch_newline>", "<start_of_image>", "<end_of_image>", "[IMG_END]",
    "<img>", "</img>", "<|media_begin|>", "<|media_end|>", "<|audio_bos|>", "<|audio_eos|>", "[BEGIN_AUDIO]",
    "<|image>", "<image|>", "<|audio>", "<audio|>", "<sound>", "<vision>", "</vision>", "<|img|>", "<|endofimg|>",
)  # fmt: skip


class Made(NamedTuple):
    """A projector: what the header says beside COMMON, its tensors, and the text model that reads its rows."""

    keys: Keys
    shapes: Shapes
    audio: bool = False
    arch: str = "llama"
    text: int = TEXT  # width of the text model
    layers: int = LAYERS


# ---- parts


def norm(name: str, width: int = EMBD, *, bias: bool = True) -> Shapes:
    return {f"{name}.weight": [width]} | ({f"{name}.bias": [width]} if bias else {})


def linear(name: str, n_in: int, n_out: int, *, bias: bool = True) -> Shapes:
    return {f"{name}.weight": [n_in, n_out]} | ({f"{name}.bias": [n_out]} if bias else {})


def conv(name: str, kernel: int, n_in: int, n_out: int, *, bias: bool = False) -> Shapes:
    return {f"{name}.weight": [kernel, kernel, n_in, n_out]} | ({f"{name}.bias": [n_out]} if bias else {})


def layer(
    name: str, *, bias: bool = True, gate: bool = False, fused: bool = False, n_kv: int = N_HEAD, k_bias: bool = True
) -> Shapes:
    """A layer of a vision transformer; `fused`: Q, K and V in one."""
    wide = n_kv * D_HEAD
    if fused:
        shapes = linear(f"{name}.attn_qkv", EMBD, EMBD + 2 * wide, bias=bias)
    else:
        shapes = linear(f"{name}.attn_q", EMBD, EMBD, bias=bias)
        shapes |= linear(f"{name}.attn_k", EMBD, wide, bias=bias and k_bias)
        shapes |= linear(f"{name}.attn_v", EMBD, wide, bias=bias)
    shapes |= linear(f"{name}.attn_out", EMBD, EMBD, bias=bias)
    shapes |= norm(f"{name}.ln1", bias=bias) | norm(f"{name}.ln2", bias=bias)
    shapes |= linear(f"{name}.ffn_up", EMBD, FF, bias=bias) | linear(f"{name}.ffn_down", FF, EMBD, bias=bias)
    return shapes | (linear(f"{name}.ffn_gate", EMBD, FF, bias=bias) if gate else {})


def layers(prefix: str = "v", n: int = LAYERS, **how: bool | int) -> Shapes:
    return {k: v for i in range(n) for k, v in layer(f"{prefix}.blk.{i}", **how).items()}  # type: ignore[arg-type]


def patches(*, bias: bool = True, pair_: bool = False) -> Shapes:
    """The convolution of patches; `pair_`: two frames."""
    shapes: Shapes = {"v.patch_embd.weight": [PATCH, PATCH, 3, EMBD]}
    if pair_:
        shapes["v.patch_embd.weight.1"] = [PATCH, PATCH, 3, EMBD]
    return shapes | ({"v.patch_embd.bias": [EMBD]} if bias else {})


def positions(n: int = PATCHES, *, prefix: str = "v") -> Shapes:
    return {f"{prefix}.position_embd.weight": [EMBD, n]}


CLASS: Shapes = {"v.class_embd": [EMBD]}
POST = norm("v.post_ln")
SIGLIP = patches() | positions() | layers() | POST


def mlp(first: int, second: int, n_in: int, *, bias: bool = True, name: str = "mm", n_out: int = TEXT) -> Shapes:
    return linear(f"{name}.{first}", n_in, FF, bias=bias) | linear(f"{name}.{second}", FF, n_out, bias=bias)


PIXELS: Keys = {"clip.vision.image_min_pixels": 8 * 8, "clip.vision.image_max_pixels": 64 * 64}
MERGE: Keys = {"clip.vision.spatial_merge_size": 2}


def scaled(factor: int) -> Keys:
    return {"clip.vision.projector.scale_factor": factor}


# ---- pictures

MERGED = 4 * EMBD  # four patches in one row


VERSION = "clip.minicpmv_version"  # the only key of a signed type


def resampler() -> Made:
    """MiniCPM-V: heads of 128, as many as the text model's width gives."""
    wide = 128
    shapes = patches() | positions(70 * 70) | layers() | POST
    shapes |= {"resampler.pos_embed_k": [wide, 16], "resampler.query": [wide, 16], "resampler.kv.weight": [EMBD, wide],
               "resampler.proj.weight": [wide, wide]}  # fmt: skip
    for part in ("q", "k", "v", "out"):
        shapes |= linear(f"resampler.attn.{part}", wide, wide)
    for part in ("q", "kv", "post"):
        shapes |= norm(f"resampler.ln_{part}", wide)
    return Made({VERSION: 3, "clip.minicpmv_query_num": 16}, shapes, text=wide)


def minicpmv4_6() -> Made:
    shapes = patches() | positions(70 * 70) | layers() | POST
    shapes |= norm("v.vit_merger.ln1") | norm("v.vit_merger.ds_ln", MERGED)
    for part in ("attn_q", "attn_k", "attn_v", "attn_out"):
        shapes |= linear(f"v.vit_merger.{part}", EMBD, EMBD)
    shapes |= linear("v.vit_merger.ds_ffn_up", MERGED, FF) | linear("v.vit_merger.ds_ffn_down", FF, EMBD)
    shapes |= norm("mm.input_norm", MERGED) | linear("mm.up", MERGED, FF) | linear("mm.down", FF, TEXT)
    return Made({"clip.vision.wa_layer_indexes": [0]}, shapes)


def ldp() -> Made:
    shapes = patches() | positions(576) | layers() | POST
    shapes["v.patch_embd.weight"] = [2, 2, 3, EMBD]
    shapes |= linear("mm.model.mlp.1", EMBD, TEXT) | linear("mm.model.mlp.3", TEXT, TEXT)
    for block in (1, 2):
        name = f"mm.model.mb_block.{block}.block"
        shapes |= {f"{name}.0.0.weight": [3, 3, 1, TEXT], f"{name}.2.0.weight": [TEXT, TEXT]}
        shapes |= norm(f"{name}.0.1", TEXT) | norm(f"{name}.2.1", TEXT)
        shapes |= linear(f"{name}.1.fc1", TEXT, 8) | linear(f"{name}.1.fc2", 8, TEXT)
    return Made({"clip.vision.image_size": 48, "clip.vision.patch_size": 2}, shapes)


def ldpv2() -> Made:
    shapes = patches() | positions(576) | layers() | POST
    shapes["v.patch_embd.weight"] = [2, 2, 3, EMBD]
    shapes |= linear("mm.model.mlp.0", EMBD, TEXT) | linear("mm.model.mlp.2", TEXT, TEXT)
    shapes |= {"mm.model.peg.0.weight": [3, 3, 1, TEXT], "mm.model.peg.0.bias": [TEXT]}
    return Made({"clip.vision.image_size": 48, "clip.vision.patch_size": 2}, shapes)


def adapter() -> Made:
    """GLM-Edge."""
    shapes = SIGLIP | conv("adapter.conv", 2, EMBD, EMBD, bias=True)
    shapes |= {"adapter.linear.linear.weight": [EMBD, TEXT], "adapter.boi": [TEXT], "adapter.eoi": [TEXT]}
    shapes |= norm("adapter.linear.norm1", TEXT)
    shapes |= linear("adapter.linear.dense_h_to_4h", TEXT, FF, bias=False)
    shapes |= linear("adapter.linear.gate", TEXT, FF, bias=False)
    shapes |= linear("adapter.linear.dense_4h_to_h", FF, TEXT, bias=False)
    return Made({}, shapes)


def qwen3vl() -> Made:
    shapes = patches(pair_=True) | positions() | layers(fused=True) | POST | mlp(0, 2, MERGED)
    shapes |= norm("v.deepstack.0.norm", MERGED) | linear("v.deepstack.0.fc1", MERGED, FF)
    shapes |= linear("v.deepstack.0.fc2", FF, TEXT)
    return Made(MERGE, shapes, arch="qwen3vl")


def step3vl() -> Made:
    """Cuts pictures into tiles of 504 pixels, whatever the file says."""
    patch = 14
    shapes = patches() | positions(4 * 4) | layers() | POST | {"v.patch_embd.weight": [patch, patch, 3, EMBD]}
    shapes |= conv("mm.0", 3, EMBD, EMBD, bias=True) | conv("mm.1", 3, EMBD, EMBD, bias=True)
    keys: Keys = {"clip.vision.image_size": 4 * patch, "clip.vision.patch_size": patch,
                  "clip.vision.preproc_image_size": 1024}  # fmt: skip
    return Made(keys, shapes | {"mm.model.fc.weight": [EMBD, TEXT]})


def gemma3nv() -> Made:
    """MobileNet v5: a stem and a stage of three kinds of blocks. As wide as the text model, which mtmd expects."""
    shapes = conv("v.conv_stem.conv", 3, 3, 16) | {"v.conv_stem.bn.weight": [16]}
    shapes |= conv("v.blk.0.0.conv_exp", 3, 16, 24) | conv("v.blk.0.0.conv_pwl", 1, 24, 16)
    shapes |= {"v.blk.0.0.bn1.weight": [24], "v.blk.0.0.bn2.weight": [16]}
    shapes |= conv("v.blk.0.1.dw_start.conv", 3, 1, 16) | {"v.blk.0.1.dw_start.bn.weight": [16]}
    shapes |= conv("v.blk.0.1.pw_exp.conv", 1, 16, 24) | {"v.blk.0.1.pw_exp.bn.weight": [24]}
    shapes |= conv("v.blk.0.1.pw_proj.conv", 1, 24, 16) | {"v.blk.0.1.pw_proj.bn.weight": [16]}
    for part, n_out in (("query", 32), ("key", 16), ("value", 16)):
        shapes |= conv(f"v.blk.0.2.attn.{part}.proj", 1, 16, n_out)
    for part in ("key", "value"):
        shapes |= conv(f"v.blk.0.2.attn.{part}.down_conv", 3, 1, 16) | {f"v.blk.0.2.attn.{part}.norm.weight": [16]}
    shapes |= conv("v.blk.0.2.attn.output.proj", 1, 32, 16) | {"v.blk.0.2.norm.weight": [16]}
    shapes |= conv("v.msfa.ffn.pw_exp.conv", 1, 16, 24) | conv("v.msfa.ffn.pw_proj.conv", 1, 24, EMBD)
    shapes |= {"v.msfa.ffn.pw_exp.bn.weight": [24], "v.msfa.ffn.pw_proj.bn.weight": [EMBD]}
    shapes |= {"v.msfa.norm.weight": [EMBD], "mm.input_projection.weight": [EMBD, EMBD]}
    shapes |= {"mm.soft_emb_norm.weight": [EMBD]}
    return Made({"clip.vision.image_size": 256, "clip.vision.patch_size": 1}, shapes, text=EMBD)


def gemma4v() -> Made:
    shapes = patches(bias=False) | {"v.position_embd.weight": [EMBD, 256, 2]} | layers(bias=False, gate=True)
    for i in range(LAYERS):
        for part in ("attn_q_norm", "attn_k_norm"):
            shapes |= norm(f"v.blk.{i}.{part}", D_HEAD, bias=False)
        for part in ("attn_post_norm", "ffn_post_norm", "out_scale"):
            shapes |= norm(f"v.blk.{i}.{part}", bias=False)
    shapes |= {"v.std_bias": [EMBD], "v.std_scale": [EMBD], "mm.input_projection.weight": [EMBD, TEXT]}
    shapes |= {f"v.blk.0.attn_q.{side}": [1] for side in ("input_min", "input_max", "output_min", "output_max")}
    return Made({}, shapes)


def gemma4uv() -> Made:
    wide = (3 * PATCH) ** 2 * 3
    shapes: Shapes = {"v.patch_embd.weight": [wide, EMBD], "v.patch_embd.bias": [EMBD]}
    shapes |= {"v.position_embd.weight": [EMBD, 256, 2], "mm.input_projection.weight": [EMBD, TEXT]}
    shapes |= norm("v.patch_norm.1", wide) | norm("v.patch_norm.2") | norm("v.patch_norm.3")
    return Made({}, shapes, layers=0)


def pixtral(*, breaks: bool) -> Made:
    shapes = patches(bias=False) | layers(bias=False, gate=True) | norm("v.pre_ln", bias=False) | mlp(1, 2, EMBD)
    shapes |= {"mm.input_norm.weight": [EMBD], "mm.patch_merger.weight": [MERGED, EMBD]}
    keys = MERGE | ({} if breaks else {"clip.vision.preproc_image_size": 64})
    return Made(keys, shapes | ({"v.token_embd.img_break": [TEXT]} if breaks else {}))


def internvl() -> Made:
    shapes = patches() | CLASS | positions(PATCHES + 1) | layers()
    for i in range(LAYERS):
        shapes |= norm(f"v.blk.{i}.ls1", bias=False) | norm(f"v.blk.{i}.ls2", bias=False)
    shapes |= norm("mm.model.mlp.0", MERGED) | mlp(1, 3, MERGED, name="mm.model.mlp")
    return Made(scaled(2) | {"clip.vision.preproc_min_tiles": 1, "clip.vision.preproc_max_tiles": 4}, shapes)


def nemotron() -> Made:
    shapes = patches() | {"v.class_embd": [EMBD, 2]} | positions() | layers()
    return Made(scaled(2), shapes | norm("mm.model.mlp.0", MERGED, bias=False)
                | mlp(1, 3, MERGED, name="mm.model.mlp", bias=False))  # fmt: skip


def llama4() -> Made:
    shapes = positions(PATCHES + 1) | CLASS | layers() | norm("v.pre_ln") | POST
    shapes |= {"v.patch_embd.weight": [PATCH * PATCH * 3, EMBD]}
    shapes |= {
        "mm.model.mlp.1.weight": [MERGED, FF],
        "mm.model.mlp.2.weight": [FF, FF],
        "mm.model.fc.weight": [FF, TEXT],
    }
    return Made(scaled(2), shapes)


def kimi(*, cube: bool) -> Made:
    where: Shapes = {"v.position_embd.weight": [EMBD, 8, 8]} if cube else positions()
    return Made(scaled(2), patches() | where | layers() | POST | norm("mm.input_norm") | mlp(1, 2, MERGED))


def cogvlm() -> Made:
    shapes = patches() | CLASS | positions(PATCHES + 1) | layers(fused=True)
    shapes |= {"mm.model.fc.weight": [EMBD, TEXT], "v.boi": [TEXT], "v.eoi": [TEXT]} | norm("mm.post_fc_norm", TEXT)
    shapes |= linear("mm.up", TEXT, FF, bias=False) | linear("mm.gate", TEXT, FF, bias=False)
    return Made({}, shapes | linear("mm.down", FF, TEXT, bias=False))


def dots3note_v() -> Made:
    shapes = patches(bias=False) | layers(bias=False, gate=True, fused=True) | norm("mm.input_norm") | mlp(0, 2, MERGED)
    shapes |= norm("mm.post_norm", bias=False)
    for part in ("ffn_up", "ffn_gate", "ffn_down"):
        n_in, n_out = shapes.pop(f"v.blk.1.{part}.weight")
        shapes[f"v.blk.1.{part}_exps.weight"] = [n_in, n_out, 4]
    shapes |= {"v.blk.1.ffn_gate_inp.weight": [EMBD, 4], "v.blk.1.exp_probs_b.weight": [4]}
    return Made(MERGE | PIXELS | {"clip.vision.expert_used_count": 2, "clip.use_silu": True}, shapes)


def deepseekocr(version: int) -> Made:
    sam, neck = 32, 16
    shapes: Shapes = {"v.sam.pos_embd.weight": [sam, 64, 64], "v.sam.patch_embd.weight": [16, 16, 3, sam]}
    shapes |= {"v.sam.patch_embd.bias": [sam]}
    for i in range(3):  # the third attends to all patches
        name = f"v.sam.blk.{i}"
        shapes |= linear(f"{name}.attn.qkv", sam, 3 * sam) | linear(f"{name}.attn.out", sam, sam)
        shapes |= norm(f"{name}.pre_ln", sam) | norm(f"{name}.post_ln", sam)
        shapes |= {f"{name}.attn.pos_h.weight": [sam // 2, 27], f"{name}.attn.pos_w.weight": [sam // 2, 27]}
        shapes |= linear(f"{name}.mlp.lin1", sam, FF) | linear(f"{name}.mlp.lin2", FF, sam)
    shapes |= conv("v.sam.neck.0", 1, sam, neck) | norm("v.sam.neck.1", neck)
    shapes |= conv("v.sam.neck.2", 3, neck, neck) | norm("v.sam.neck.3", neck)
    shapes |= conv("v.sam.net_2", 3, neck, neck) | conv("v.sam.net_3", 3, neck, EMBD)
    shapes |= {"v.view_seperator": [TEXT]}
    keys: Keys = {"clip.vision.sam.block_count": 3, "clip.vision.sam.head_count": 2,
                  "clip.vision.sam.embedding_length": sam, "clip.vision.window_size": 14}  # fmt: skip
    if version == 1:
        shapes |= CLASS | positions(257) | layers() | norm("v.pre_ln") | {"v.image_newline": [TEXT]}
        return Made(keys, shapes | linear("mm.model.fc", 2 * EMBD, TEXT))
    shapes |= layers(bias=False, gate=True) | norm("v.post_ln", bias=False)
    shapes |= {"v.resample_query_1024.weight": [EMBD, 256], "v.resample_query_768.weight": [EMBD, 144]}
    return Made(keys | {"clip.vision.attention.head_count_kv": N_HEAD}, shapes | linear("mm.model.fc", EMBD, TEXT))


def deepseek4v() -> Made:
    shapes = patches(bias=False) | layers(bias=False, gate=True) | norm("v.post_ln", bias=False) | mlp(1, 2, 9 * EMBD)
    shapes |= {f"v.{name}": [TEXT] for name in
               ("image_newline", "token_embd.img_start", "token_embd.img_end", "token_embd.img_pad")}  # fmt: skip
    return Made(scaled(3) | {"clip.vision.image_min_pixels": 144, "clip.use_silu": True}, shapes)


def glm(*, clamped: bool) -> Made:
    shapes = (
        patches(pair_=True) | positions() | layers(bias=False, gate=True, fused=True) | norm("v.post_ln", bias=False)
    )
    shapes |= norm("v.norm_embd", bias=False) | conv("mm.patch_merger", 2, EMBD, TEXT, bias=True)
    shapes |= {"mm.model.fc.weight": [TEXT, TEXT]} | norm("mm.post_norm", TEXT)
    shapes |= linear("mm.up", TEXT, FF, bias=False) | linear("mm.gate", TEXT, FF, bias=False)
    keys = MERGE | {"clip.use_silu": True}
    if clamped:
        keys |= PIXELS | {"clip.vision.swiglu_clamp": 7.0}
    return Made(keys, shapes | linear("mm.down", FF, TEXT, bias=False), arch="qwen2vl")


def youtuvl() -> Made:
    shapes: Shapes = {"v.patch_embd.weight": [PATCH * PATCH * 3, EMBD], "v.patch_embd.bias": [EMBD]}
    shapes |= layers() | POST | {"mm.input_norm.weight": [EMBD]} | mlp(0, 2, MERGED)
    return Made(MERGE | {"clip.vision.window_size": 16, "clip.vision.wa_layer_indexes": [1]}, shapes)


def yasa2() -> Made:
    shapes = patches() | norm("v.patch_ln") | norm("v.backbone_ln") | {"v.vision_pos_embed": [EMBD, 256]}
    name = "v.stage.0.blk.0"
    shapes |= conv(f"{name}.dw", 7, 1, EMBD, bias=True) | norm(f"{name}.ln") | norm(f"{name}.grn", FF)
    shapes |= linear(f"{name}.pw1", EMBD, FF) | linear(f"{name}.pw2", FF, EMBD) | mlp(0, 2, EMBD)
    return Made({"clip.vision.image_size": 64}, shapes, layers=0)


def hunyuanvl() -> Made:
    shapes = (
        patches() | positions() | layers() | conv("mm.0", 2, EMBD, FF, bias=True) | conv("mm.2", 1, FF, FF, bias=True)
    )
    shapes |= linear("mm.model.fc", FF, TEXT) | norm("mm.pre_norm", bias=False) | norm("mm.post_norm", TEXT, bias=False)
    shapes |= {"mm.image_begin": [TEXT], "mm.image_end": [TEXT], "v.image_newline": [FF]}
    return Made(MERGE | PIXELS, shapes, arch="qwen2vl")


def qwen2vl(*, windows: bool) -> Made:
    """2.5 has windows, no biases in its norms and a gate."""
    shapes = patches(bias=False, pair_=True) | layers(gate=windows) | POST | mlp(0, 2, MERGED)
    if windows:
        shapes = {k: v for k, v in shapes.items() if not ("ln" in k and k.endswith("bias"))}
    keys: Keys = MERGE | ({"clip.vision.n_wa_pattern": 2, "clip.vision.window_size": 16} if windows else {})
    return Made(keys, shapes, arch="qwen2vl")


def exaone4_5() -> Made:
    shapes = patches(bias=False, pair_=True) | layers(gate=True, fused=True, n_kv=1) | norm("v.post_ln", bias=False)
    shapes = {k: v for k, v in shapes.items() if not ("ln" in k and k.endswith("bias"))}
    keys = MERGE | PIXELS | {"clip.vision.n_wa_pattern": 2, "clip.vision.attention.head_count_kv": 1}
    return Made(keys, shapes | mlp(0, 2, MERGED), arch="qwen2vl")


def mimovl() -> Made:
    shapes = patches(bias=False, pair_=True) | layers(gate=True, fused=True, n_kv=1) | POST
    shapes = {k: v for k, v in shapes.items() if not ("blk" in k and "ln" in k and k.endswith("bias"))}
    shapes |= {"v.blk.1.attn_sinks": [N_HEAD]} | mlp(0, 2, MERGED, bias=False)
    keys = MERGE | PIXELS | {"clip.vision.attention.head_count_kv": 1, "clip.vision.window_size": 8,
                             "clip.vision.wa_pattern_mode": [-1, 1]}  # fmt: skip
    return Made(keys, shapes, arch="qwen2vl")


def minimax_m3() -> Made:
    shapes = patches(bias=False, pair_=True) | layers() | norm("v.pre_ln") | mlp(1, 2, EMBD)
    shapes |= linear("mm.merger.fc1", 4 * TEXT, FF) | linear("mm.merger.fc2", FF, TEXT)
    return Made(MERGE, shapes)


def muse_glimmer() -> Made:
    shapes = patches() | positions() | layers() | norm("v.pre_ln") | POST
    shapes |= {"mm.0.weight": [MERGED, FF], "mm.1.weight": [FF, FF], "mm.2.weight": [FF, TEXT]}
    return Made(MERGE, shapes)


def granite4_vision() -> Made:
    """One window former over heads of 64."""
    wide, query, window = 64, 2, 4
    shapes = patches() | positions() | layers() | {"v.image_newline": [TEXT]}
    shapes = {name: [wide if n == EMBD else n for n in dims] for name, dims in shapes.items()}
    name = "v.proj_blk.0"
    shapes |= {f"{name}.img_pos": [wide, window * window], f"{name}.query": [wide, query * query]}
    shapes |= linear(f"{name}.linear", wide, TEXT) | norm(f"{name}.norm", wide) | norm(f"{name}.post_norm", wide)
    shapes |= former(name, wide)
    keys: Keys = {"clip.vision.embedding_length": wide, "clip.vision.feature_layer": [1],
                  "clip.vision.projector.spatial_offsets": [0], "clip.vision.projector.query_side": query,
                  "clip.vision.projector.window_side": window,
                  "clip.vision.image_grid_pinpoints": [32, 64, 64, 32]}  # fmt: skip
    return Made(keys, shapes, arch="granite")


def former(name: str, wide: int, n_in: int | None = None) -> Shapes:
    """A layer of a query transformer; `n_in`: width of what it looks at."""
    shapes = (
        norm(f"{name}.self_attn_norm", wide) | norm(f"{name}.cross_attn_norm", wide) | norm(f"{name}.ffn_norm", wide)
    )
    for part in ("self_attn_q", "self_attn_k", "self_attn_v", "self_attn_out", "cross_attn_q", "cross_attn_out"):
        shapes |= linear(f"{name}.{part}", wide, wide)
    for part in ("cross_attn_k", "cross_attn_v"):
        shapes |= linear(f"{name}.{part}", n_in or wide, wide)
    return shapes | linear(f"{name}.ffn_up", wide, FF) | linear(f"{name}.ffn_down", FF, wide)


VISION: dict[str, Made] = {
    "mlp": Made({}, SIGLIP | mlp(0, 2, EMBD)),
    "mlp-norm": Made({}, SIGLIP | linear("mm.0", EMBD, FF) | norm("mm.1", FF) | linear("mm.3", FF, TEXT)
                     | norm("mm.4", TEXT)),
    "mlp-tiles": Made({"clip.vision.image_grid_pinpoints": [32, 64, 64, 32]}, SIGLIP | mlp(0, 2, EMBD)),
    "ldp": ldp(),
    "ldpv2": ldpv2(),
    "resampler": resampler(),
    "adapter": adapter(),
    "qwen2vl_merger": qwen2vl(windows=False),
    "qwen2.5vl_merger": qwen2vl(windows=True),
    "qwen3vl_merger": qwen3vl(),
    "ling3vl": Made(MERGE, patches(pair_=True) | positions() | layers(fused=True) | norm("mm.input_norm")
                    | mlp(0, 2, MERGED), arch="qwen2vl"),
    "step3vl": step3vl(),
    "gemma3": Made(scaled(2), SIGLIP | {"mm.input_projection.weight": [TEXT, EMBD], "mm.soft_emb_norm.weight": [EMBD]}),
    "gemma3nv": gemma3nv(),
    "gemma4v": gemma4v(),
    "gemma4uv": gemma4uv(),
    "phi4": Made(PIXELS, SIGLIP | mlp(0, 2, EMBD)),
    "idefics3": Made(scaled(2) | {"clip.vision.preproc_image_size": 64},
                     SIGLIP | {"mm.model.fc.weight": [MERGED, TEXT]}),
    "pixtral": pixtral(breaks=True),
    "lightonocr": pixtral(breaks=False),
    "internvl": internvl(),
    "nemotron_v2_vl": nemotron(),
    "llama4": llama4(),
    "lfm2": Made(scaled(2), SIGLIP | norm("mm.input_norm", MERGED) | mlp(1, 2, MERGED)),
    "kimivl": kimi(cube=False),
    "kimik25": kimi(cube=True),
    "paddleocr": Made(PIXELS, SIGLIP | norm("mm.input_norm") | mlp(1, 2, MERGED), arch="qwen2vl"),
    "cogvlm": cogvlm(),
    "janus_pro": Made({}, SIGLIP | mlp(0, 1, EMBD)),
    "dots_ocr": Made(scaled(2) | PIXELS | {"clip.use_silu": True},
                     patches(bias=False) | layers(bias=False, gate=True, fused=True) | norm("mm.input_norm")
                     | norm("mm.post_norm", bias=False) | mlp(0, 2, MERGED)),
    "dots3note_v": dots3note_v(),
    "deepseekocr": deepseekocr(1),
    "deepseekocr2": deepseekocr(2),
    "deepseek4v": deepseek4v(),
    "glm4v": glm(clamped=False),
    "glm5v": glm(clamped=True),
    "youtuvl": youtuvl(),
    "yasa2": yasa2(),
    "hunyuanvl": hunyuanvl(),
    "exaone4_5": exaone4_5(),
    "minicpmv4_6": minicpmv4_6(),
    "mimovl": mimovl(),
    "minimax_m3": minimax_m3(),
    "granite4_vision": granite4_vision(),
    "muse-glimmer": muse_glimmer(),
}  # fmt: skip


# ---- sound

MEL = 16
CONVOLVED: Shapes = {"a.conv1d.1.weight": [3, MEL, EMBD], "a.conv1d.1.bias": [1, EMBD],
                     "a.conv1d.2.weight": [3, EMBD, EMBD], "a.conv1d.2.bias": [1, EMBD]}  # fmt: skip
WHISPER = CONVOLVED | positions(1500, prefix="a") | layers("a", k_bias=False) | norm("a.post_ln")
STACK: Keys = {"clip.audio.projector.stack_factor": 2}
STACKED = 2 * EMBD


def sound(kind: str) -> Made:
    """Whisper's encoder with another projection for each type."""
    up = "mm.a.mlp"
    if kind == "ultravox":
        shapes = {f"{up}.1.weight": [STACKED, 2 * FF], f"{up}.2.weight": [FF, TEXT]}
        shapes |= {"mm.a.norm_pre.weight": [STACKED], "mm.a.norm_mid.weight": [FF]}
    elif kind == "qwen2a":
        shapes = linear("mm.a.fc", EMBD, TEXT)
    elif kind == "voxtral":
        shapes = mlp(1, 2, STACKED, name=up, bias=False)
    elif kind == "musicflamingo":
        shapes = mlp(1, 2, EMBD, name=up)
    elif kind == "meralion":
        shapes = norm("mm.a.norm_pre", STACKED) | linear(f"{up}.0", STACKED, FF) | linear(f"{up}.1", FF, FF)
        shapes |= linear(f"{up}.2", FF, FF) | linear(f"{up}.3", FF, TEXT)
    else:  # glma
        shapes = norm("mm.a.norm_pre") | mlp(1, 2, STACKED, name=up) | {"v.boi": [TEXT], "v.eoi": [TEXT]}
    return Made({} if kind in ("qwen2a", "musicflamingo") else STACK, WHISPER | shapes, audio=True)


def stem(width: int) -> Shapes:
    """Three convolutions that halve time and frequency, and a projection of what is left."""
    shapes: Shapes = {}
    for i, n_in in ((1, 1), (2, 8), (3, 8)):
        shapes |= {f"a.conv2d.{i}.weight": [3, 3, n_in, 8], f"a.conv2d.{i}.bias": [8]}
    return shapes | {"a.conv_out.weight": [MEL // 8 * 8, width]}


def subsampling(width: int) -> Shapes:
    """NeMo's: five convolutions, of which two are depthwise."""
    shapes: Shapes = {"a.conv1d.0.weight": [3, 3, 1, 8], "a.conv1d.0.bias": [1, 1, 8]}
    for i, kernel, n_in in ((2, 3, 1), (3, 1, 8), (5, 3, 1), (6, 1, 8)):
        shapes |= {f"a.conv1d.{i}.weight": [kernel, kernel, n_in, 8], f"a.conv1d.{i}.bias": [1, 1, 8]}
    return shapes | linear("a.pre_encode.out", MEL // 8 * 8, width)


def conformer(name: str, width: int, *, kernel: int, bias: bool = True) -> Shapes:
    """What a layer has beside layer()."""
    shapes = norm(f"{name}.ffn_norm", width) | norm(f"{name}.ffn_norm_1", width)
    shapes |= linear(f"{name}.ffn_up_1", width, FF, bias=bias) | linear(f"{name}.ffn_down_1", FF, width, bias=bias)
    shapes |= norm(f"{name}.norm_conv", width) | norm(f"{name}.conv_norm", width)
    shapes |= linear(f"{name}.conv_pw1", width, 2 * width, bias=bias) | linear(
        f"{name}.conv_pw2", width, width, bias=bias
    )
    return shapes | {f"{name}.conv_dw.weight": [kernel, width]}


def lfm2a() -> Made:
    """Its table of positions, as wide as the text model, gives the projector's width. Positions are 512 wide."""
    shapes = subsampling(EMBD) | {"a.position_embd.weight": [TEXT, 4096]} | layers("a")
    for i in range(LAYERS):
        name = f"a.blk.{i}"
        shapes |= conformer(name, EMBD, kernel=9) | {f"{name}.conv_dw.bias": [EMBD]}
        shapes |= {f"{name}.pos_bias_u": [D_HEAD, N_HEAD], f"{name}.pos_bias_v": [D_HEAD, N_HEAD],
                   f"{name}.linear_pos.weight": [512, EMBD]}  # fmt: skip
    return Made({}, shapes | norm("mm.a.mlp.0") | mlp(1, 3, EMBD, name="mm.a.mlp"), audio=True)


def parakeet() -> Made:
    shapes = subsampling(EMBD) | layers("a", bias=False) | {"a.mel_filters": [257, MEL], "a.window": [400]}
    for i in range(LAYERS):
        name = f"a.blk.{i}"
        shapes |= conformer(name, EMBD, kernel=9, bias=False) | norm(f"{name}.ln1") | norm(f"{name}.ln2")
        shapes |= {f"{name}.pos_bias_u": [D_HEAD, N_HEAD], f"{name}.pos_bias_v": [D_HEAD, N_HEAD],
                   f"{name}.linear_pos.weight": [EMBD, EMBD], f"{name}.conv_norm_mean": [EMBD],
                   f"{name}.conv_norm_var": [EMBD]}  # fmt: skip
    shapes |= {"mm.a.norm_pre.weight": [EMBD]} | mlp(1, 2, EMBD, name="mm.a.mlp", bias=False)
    shapes |= {f"mm.model.mlp.{i}.weight": [EMBD, EMBD] for i in (0, 1, 3)}
    return Made({"clip.audio.subsampling_factor": 8, "clip.audio.conv_kernel_size": 9}, shapes, audio=True)


def granite_speech() -> Made:
    shapes = linear("a.input_projection", MEL, EMBD) | linear("a.enc_ctc_out", EMBD, 24)
    shapes |= linear("a.enc_ctc_out_mid", 24, EMBD) | layers("a", n=LAYERS)
    for i in range(LAYERS):
        name = f"a.blk.{i}"
        shapes |= conformer(name, EMBD, kernel=9) | {f"{name}.attn_rel_pos_emb": [D_HEAD, 129]}
    shapes |= {"a.proj_query": [EMBD, 3]} | norm("a.proj_norm") | linear("a.proj_linear", EMBD, TEXT)
    for i in range(2):
        shapes |= former(f"a.proj_blk.{i}", EMBD)
    keys: Keys = {"clip.audio.chunk_size": 16, "clip.audio.conv_kernel_size": 9, "clip.audio.max_pos_emb": 64,
                  "clip.audio.projector.window_size": 15, "clip.audio.projector.downsample_rate": 5,
                  "clip.audio.projector.head_count": 2}  # fmt: skip
    return Made(keys, shapes, audio=True)


def gemma4a() -> Made:
    shapes: Shapes = {"a.conv1d.0.weight": [3, 3, 1, 8], "a.conv1d.1.weight": [3, 3, 8, 8],
                      "a.conv1d.0.norm.weight": [8], "a.conv1d.1.norm.weight": [8],
                      "a.input_projection.weight": [MEL // 4 * 8, EMBD]}  # fmt: skip
    shapes |= layers("a", bias=False)
    for i in range(LAYERS):
        name = f"a.blk.{i}"
        shapes |= {k: v for k, v in conformer(name, EMBD, kernel=5, bias=False).items() if not k.endswith("bias")}
        for part in ("attn_pre_norm", "attn_post_norm", "ffn_post_norm", "ffn_post_norm_1"):
            shapes |= norm(f"{name}.{part}", bias=False)
        shapes |= {f"{name}.per_dim_scale.weight": [D_HEAD], f"{name}.per_dim_k_scale.weight": [D_HEAD],
                   f"{name}.attn_k_rel.weight": [EMBD, EMBD]}  # fmt: skip
    shapes |= linear("a.pre_encode.out", EMBD, FF) | {"mm.a.soft_emb_norm.weight": [FF]}
    return Made({}, shapes | {"mm.a.input_projection.weight": [FF, TEXT]}, audio=True)


def mimo_audio() -> Made:
    n_layer, books, bins, group = 3, 2, 16, 4
    shapes = CONVOLVED | layers("a", n=n_layer) | norm("a.post_ln") | {"a.downsample.conv.weight": [2, EMBD, EMBD]}
    shapes |= norm("a.downsample.norm") | {"a.rvq.codebook.weight": [EMBD, bins, books]}
    shapes |= {"mm.a.code_embd.weight": [EMBD, bins, books]}
    own = layer("mm.a.local_blk.0", gate=True)
    shapes |= {
        k: v for k, v in own.items() if k.endswith("weight") or k.rsplit(".", 2)[1] in ("attn_q", "attn_k", "attn_v")
    }
    shapes |= {"mm.a.local_norm.weight": [EMBD]} | mlp(1, 2, group * EMBD, name="mm.a.mlp", bias=False)
    keys: Keys = {"clip.audio.rvq.num_quantizers": books, "clip.audio.rvq.codebook_size": [bins] * books,
                  "clip.audio.window_size": 8, "clip.audio.wa_pattern_mode": [-1, 0, -1],
                  "clip.audio.local_block_count": 1, "clip.audio.local_group_size": group}  # fmt: skip
    return Made(keys, shapes, audio=True, layers=n_layer)


AUDIO: dict[str, Made] = {
    **{kind: sound(kind) for kind in ("ultravox", "qwen2a", "voxtral", "meralion", "musicflamingo", "glma")},
    "qwen3a": Made({}, stem(EMBD) | positions(16, prefix="a") | layers("a") | norm("a.post_ln")
                   | mlp(1, 2, EMBD, name="mm.a.mlp"), audio=True),
    "dots3note_a": Made({"clip.use_silu": True}, stem(EMBD) | layers("a", bias=False, gate=True)
                        | norm("a.post_ln", bias=False) | norm("mm.a.norm_pre")
                        | mlp(1, 3, EMBD, name="mm.a.mlp"), audio=True),
    "lfm2a": lfm2a(),
    "parakeet": parakeet(),
    "granite_speech": granite_speech(),
    "gemma4a": gemma4a(),
    "gemma4ua": Made({}, {"mm.a.input_projection.weight": [640, TEXT]}, audio=True, layers=0),
    "mimo_audio": mimo_audio(),
}  # fmt: skip


def qwen25o() -> Made:
    """Both encoders in one file, as Qwen2.5-Omni's."""
    vision, audio = VISION["qwen2.5vl_merger"], AUDIO["qwen2a"]
    return Made(vision.keys | audio.keys, vision.shapes | audio.shapes, arch="qwen2vl")


def wide(made: Made, width: int) -> Made:
    """The same for a text model of that width."""
    last = {name: dims for name, dims in made.shapes.items() if name.startswith("mm.2.")}
    last = {name: [width if n == TEXT else n for n in dims] for name, dims in last.items()}
    return made._replace(shapes=made.shapes | last, text=width)


PROJECTORS: dict[str, Made] = VISION | AUDIO | {"qwen2.5o": qwen25o()}
PROJECTORS["qwen2vl_merger-256"] = wide(VISION["qwen2vl_merger"], 256)  # the width of the pocket targets


# ---- files


def floats(key: str, values: list[float]) -> Pair:
    return Pair(key.encode(), ARRAY, array(6, [number(6, value) for value in values]))


def encoder_keys(part: str, made: Made) -> Keys:
    keys: Keys = {"embedding_length": EMBD, "attention.head_count": N_HEAD, "feed_forward_length": FF,
                  "block_count": made.layers, "projection_dim": made.text,
                  "attention.layer_norm_epsilon": 1e-6}  # fmt: skip
    keys |= {"image_size": SIDE, "patch_size": PATCH} if part == "vision" else {"num_mel_bins": MEL}
    return {f"clip.{part}.{key}": value for key, value in keys.items()}


def projector(name: str) -> Image:
    """The mmproj file of a type; after a `-` comes a variant of it."""
    made = PROJECTORS[name]
    parts = ("vision", "audio") if name == "qwen2.5o" else ("audio",) if made.audio else ("vision",)
    kind = name if name == "muse-glimmer" else name.split("-")[0]
    keys: Keys = {"general.architecture": "clip", "general.type": "mmproj", "clip.projector_type": kind}
    if "silu" not in str(made.keys):
        keys["clip.use_gelu"] = True
    for part in parts:
        keys |= {f"clip.has_{part}_encoder": True} | encoder_keys(part, made)
    pairs = [pair(key, value) for key, value in (keys | made.keys).items()]
    pairs = [Pair(p.key, I32, p.body) if p.key == VERSION.encode() else p for p in pairs]
    if "vision" in parts:
        pairs += [floats("clip.vision.image_mean", [0.5] * 3), floats("clip.vision.image_std", [0.5] * 3)]
    return Image(pairs, [weight(name, tensor, dims) for tensor, dims in made.shapes.items()])


def weight(name: str, tensor: str, dims: list[int]) -> Tensor:
    """F32 around 0, norms around 1; kernels of depthwise convolutions are F16, as ggml wants them."""
    rng = np.random.default_rng(random.Random(f"{name} {tensor}").randrange(1 << 32))
    middle = 1.0 if "norm" in tensor or "ln" in tensor or tensor.endswith((".output_max", ".input_max")) else 0.0
    data = rng.normal(middle, 0.1, int(np.prod(dims))).astype(np.float32)
    if tensor.endswith("conv_norm_var"):
        data = np.abs(data) + np.float32(0.1)
    if tensor.endswith(("input_min", "output_min")):
        data -= np.float32(1)
    kind = 1 if len(dims) >= 3 and tensor.endswith("weight") and is_kernel(tensor) else 0
    return Tensor(tensor.encode(), dims, kind, (data.astype(np.float16) if kind else data).tobytes())


def is_kernel(tensor: str) -> bool:
    return not tensor.startswith(("v.position", "v.sam.pos", "a.rvq", "mm.a.code")) and "exps" not in tensor


def tokenizer() -> list[Pair]:
    """A byte-pair tokenizer without merges; the last words are the pieces that mtmd looks up."""
    words = [f"w{i}" for i in range(N_WORDS)] + list(PIECES) + ["<end>"]
    # "\n" is written as byte-pair vocabularies write it; lookups compare the decoded piece
    words = [word.replace("\n", "\u010a") if word.strip() == "" else word for word in words]
    kinds = [1] * (N_WORDS + 2) + [3] * (len(words) - N_WORDS - 2)
    return [
        pair("tokenizer.ggml.model", "gpt2"),
        pair("tokenizer.ggml.pre", "qwen2"),
        Pair(b"tokenizer.ggml.tokens", ARRAY, array(STRING, [text(word.encode()) for word in words])),
        Pair(b"tokenizer.ggml.token_type", ARRAY, array(I32, [number(I32, kind) for kind in kinds])),
        Pair(b"tokenizer.ggml.merges", ARRAY, array(STRING, [text(b"w 0")])),
        pair("tokenizer.ggml.eos_token_id", len(words) - 1),
        pair("tokenizer.ggml.bos_token_id", len(words) - 1),
        pair("tokenizer.ggml.add_bos_token", False),
    ]


def text_model(arch: str = "llama", width: int = TEXT) -> Image:
    """A model of two layers that reads rows of a projector."""
    n_vocab = N_WORDS + len(PIECES) + 1
    n_heads = HEADS * width // TEXT  # Qwen2-VL's have no length of their own
    keys: Keys = {"block_count": 2, "context_length": 4096, "embedding_length": width, "feed_forward_length": FF,
                  "rope.freq_base": 1e4, "attention.head_count": n_heads, "attention.head_count_kv": HEADS_KV,
                  "attention.layer_norm_rms_epsilon": 1e-6, "attention.key_length": HEAD,
                  "attention.value_length": HEAD, "rope.dimension_count": HEAD}  # fmt: skip
    if arch.endswith("vl"):
        keys["rope.dimension_sections"] = [4, 2, 2, 0]
    if arch == "qwen3vl":
        keys["n_deepstack_layers"] = 1
    if arch == "granite":
        keys |= {f"{part}_scale": 1.0 for part in ("attention", "embedding", "residual", "logit")}
    shapes: Shapes = {
        "token_embd.weight": [width, n_vocab],
        "output_norm.weight": [width],
        "output.weight": [width, n_vocab],
    }
    for i in range(2):
        name = f"blk.{i}"
        shapes |= {f"{name}.attn_norm.weight": [width], f"{name}.ffn_norm.weight": [width]}
        bias = arch == "qwen2vl"
        shapes |= linear(f"{name}.attn_q", width, n_heads * HEAD, bias=bias)
        shapes |= linear(f"{name}.attn_k", width, HEADS_KV * HEAD, bias=bias)
        shapes |= linear(f"{name}.attn_v", width, HEADS_KV * HEAD, bias=bias)
        shapes |= {f"{name}.attn_output.weight": [n_heads * HEAD, width]}
        shapes |= {f"{name}.{part}.weight": [width, FF] for part in ("ffn_gate", "ffn_up")}
        shapes |= {f"{name}.ffn_down.weight": [FF, width]}
        if arch == "qwen3vl":
            shapes |= {f"{name}.attn_q_norm.weight": [HEAD], f"{name}.attn_k_norm.weight": [HEAD]}
    pairs = [pair("general.architecture", arch), *(pair(f"{arch}.{key}", value) for key, value in keys.items())]
    return Image(pairs + tokenizer(), [weight(arch, tensor, dims) for tensor, dims in shapes.items()])


class Files(NamedTuple):
    model: Path
    mmproj: Path


def write(name: str, folder: Path) -> Files:
    """Write the projector of a type and its text model."""
    made = PROJECTORS[name]
    files = Files(folder / f"{made.arch}-{made.text}.gguf", folder / f"mmproj-{name}.gguf")
    if not files.model.exists():
        files.model.write_bytes(text_model(made.arch, made.text).encode()[0])
    files.mmproj.write_bytes(projector(name).encode()[0])
    return files
