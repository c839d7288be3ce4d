"""Tiny random pairs of kinds that no bundled model is of: targets that use the graph of another architecture, and its
taps with it; drafters whose layers slide. Each drafts, and answers as without a drafter."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dflash_local import Engine, SamplingParams
from tests.fuzz.architectures import (
    EMBD,
    EXPERT_FF,
    EXPERT_KEYS,
    EXPERTS,
    HEADS_KV,
    Keys,
    Shapes,
    attention,
    dense,
    experts,
    image,
    pair,
    qk_norm,
)
from tests.fuzz.gguf_image import Image
from tests.parity.f32 import engine_f32
from tests.trees.models import N_VOCAB, find, qwen3, tokenizer

BLOCK, MASK, WINDOW = 4, N_VOCAB - 2, 8


def hunyuan_dense(base: Image) -> Image:
    layer = attention() | qk_norm() | dense() | {"ffn_norm.weight": [EMBD]}
    return image("hunyuan-dense", base, {}, lambda _: layer)


def lfm2moe(base: Image) -> Image:
    """Short convolution with a dense layer, then attention with a mixture."""
    conv: Shapes = {
        "attn_norm.weight": [EMBD], "shortconv.conv.weight": [3, EMBD],
        "shortconv.in_proj.weight": [EMBD, 3 * EMBD], "shortconv.out_proj.weight": [EMBD, EMBD],
    }  # fmt: skip
    first = conv | dense() | {"ffn_norm.weight": [EMBD]}
    second = attention() | qk_norm() | experts() | {"exp_probs_b.bias": [EXPERTS], "ffn_norm.weight": [EMBD]}
    keys: Keys = EXPERT_KEYS | {
        "attention.head_count_kv": [0, HEADS_KV], "shortconv.l_cache": 3,
        "leading_dense_block_count": 1, "expert_gating_func": 2,
    }  # fmt: skip
    made = image("lfm2moe", base, keys, lambda i: second if i else first)
    find(made, "output_norm.weight").name = b"token_embd_norm.weight"
    return made


def nemotron_h_moe(base: Image) -> Image:
    """Mamba 2, attention, a mixture: each a layer of its own."""
    inner, state, heads, groups = EMBD, 16, 4, 2
    channels = inner + 2 * groups * state
    mamba: Shapes = {
        "attn_norm.weight": [EMBD], "ssm_in.weight": [EMBD, inner + channels + heads],
        "ssm_conv1d.weight": [4, channels], "ssm_conv1d.bias": [channels], "ssm_dt.bias": [heads],
        "ssm_a": [1, heads], "ssm_d": [1, heads],
        "ssm_norm.weight": [inner // groups, groups], "ssm_out.weight": [inner, EMBD],
    }  # fmt: skip
    mixture: Shapes = {name: dims for name, dims in experts().items() if "gate_exps" not in name} | {
        "attn_norm.weight": [EMBD], "exp_probs_b.bias": [EXPERTS],
        "ffn_up_shexp.weight": [EMBD, EXPERT_FF], "ffn_down_shexp.weight": [EXPERT_FF, EMBD],
    }  # fmt: skip
    keys: Keys = EXPERT_KEYS | {
        "attention.head_count_kv": [0, HEADS_KV, 0], "feed_forward_length": [0, 0, EXPERT_FF],
        "attention.layer_norm_epsilon": 1e-6, "ssm.conv_kernel": 4, "ssm.inner_size": inner, "ssm.state_size": state,
        "ssm.time_step_rank": heads, "ssm.group_count": groups, "expert_weights_norm": True,
        "expert_shared_feed_forward_length": EXPERT_FF, "expert_shared_count": 1,
    }  # fmt: skip
    made = image("nemotron_h_moe", base, keys, lambda i: (mamba, attention(), mixture)[i], layers=3)
    find(made, "blk.0.ssm_a").data = struct.pack("<4f", -0.01, -0.1, -0.5, -1.0)  # states fade
    return made


def prefer(made: Image) -> Image:
    """A preference for some tokens, whatever is before them: all embeddings share a channel that the head reads. A
    drafter that borrows both guesses some tokens right."""
    rng = np.random.default_rng(7)
    for name, channel in (("token_embd.weight", 4.0), ("output.weight", rng.normal(0, 0.5, N_VOCAB))):
        tensor = find(made, name)
        rows = np.frombuffer(tensor.data, np.float32).reshape(N_VOCAB, EMBD).copy()
        rows[:, 0] = channel
        tensor.data = rows.tobytes()
    return made


def drafter(base: Image, taps: list[int], slides: list[bool]) -> Image:
    """A random DFlash drafter that borrows embeddings and head; one layer for each of `slides`."""
    keys: Keys = {"target_layers": taps, "block_size": BLOCK}
    if any(slides):
        keys |= {"attention.sliding_window": WINDOW, "attention.sliding_window_pattern": slides}
    layer = attention() | qk_norm() | dense() | {"ffn_norm.weight": [EMBD]}
    others: Shapes = {"fc.weight": [len(taps) * EMBD, EMBD], "enc.output_norm.weight": [EMBD]}
    made = image("dflash", base, keys, lambda _: layer, layers=len(slides), others=others)
    made.pairs.append(pair("tokenizer.ggml.mask_token_id", MASK))
    made.tensors = [tensor for tensor in made.tensors if tensor.name not in (b"token_embd.weight", b"output.weight")]
    return made


PAIRS: dict[str, tuple[Callable[[Image], Image], list[int], list[bool]]] = {
    "hunyuan-dense": (hunyuan_dense, [0, 1], [False]),
    "lfm2moe": (lfm2moe, [0, 1], [False]),
    "nemotron_h_moe": (nemotron_h_moe, [1, 2, 3], [False]),  # tap 3 is what leaves the last layer
    "some layers slide": (qwen3, [0, 1], [True, False]),
    "all layers slide": (qwen3, [0, 1], [True, True]),
}


@pytest.fixture(params=PAIRS)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Engine:
    make, taps, slides = PAIRS[request.param]
    target, draft = tmp_path / "target.gguf", tmp_path / "drafter.gguf"
    target.write_bytes(prefer(make(tokenizer())).encode()[0])
    draft.write_bytes(drafter(tokenizer(), taps, slides).encode()[0])
    return engine_f32(target, draft, n_ctx=256)


def check_drafted_text(engine: Engine, n_prompts: int) -> None:
    """Drafted text is plain text, and some of the drafts are accepted."""
    accepted = 0
    for seed in range(n_prompts):
        prompt = [int(word) for word in np.random.default_rng(seed).integers(0, MASK, 9)]
        answers = [
            engine.generate(prompt, max_tokens=60, temperature=0.7, seed=seed, ignore_eos=True, budget=budget)
            for budget in (1, BLOCK)
        ]
        assert answers[0].tokens == answers[1].tokens
        assert answers[0].timings.draft_n == 0 < answers[1].timings.draft_n
        accepted += answers[1].timings.draft_n_accepted
    assert accepted > 0


def test_drafted_text_is_plain_text(engine: Engine) -> None:
    with engine:
        check_drafted_text(engine, 6)


def test_all_of_many_slots_draft(tmp_path: Path) -> None:
    """One pass with 64 blocks: each slot's attention in each of the layers has nodes of its own."""
    target, draft = tmp_path / "target.gguf", tmp_path / "drafter.gguf"
    target.write_bytes(prefer(qwen3(tokenizer())).encode()[0])
    draft.write_bytes(drafter(tokenizer(), [0, 1], [False] * 12).encode()[0])
    with engine_f32(target, draft, n_slots=64, n_ctx=64 * 64) as engine:
        sampling = SamplingParams(temperature=0, ignore_eos=True)
        running = [engine.submit([1 + i, 5], sampling, max_tokens=40, budget=BLOCK) for i in range(64)]
        assert all(generation.result().timings.draft_n for generation in running)
        assert "the drafter failed" not in engine.stats()["choices"]["reasons"]


def test_taps_say_what_was_read(engine: Engine) -> None:
    """The drafter sees the target through its taps alone: other words before the same anchor, other hidden states."""
    with engine:
        probes = [engine.draft_probe([*words, 5], BLOCK).hidden for words in ([1, 2, 3], [1, 2, 3], [3, 2, 1])]
        assert np.isfinite(probes[0]).all()
        np.testing.assert_array_equal(probes[0], probes[1])
        assert np.abs(probes[0] - probes[2]).max() > 1e-3
