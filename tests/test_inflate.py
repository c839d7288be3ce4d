"""Inflated pairs compute the function of the small pair: checked with a forward pass of the target in numpy, no llama.cpp involved."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from gguf import GGMLQuantizationType, GGUFReader, ReaderTensor
from gguf.quants import dequantize

from dflash_local import inflate as inflate_module
from dflash_local.convert.gguf_metadata import read_metadata
from dflash_local.convert.writer import OutputTensor, write_gguf
from dflash_local.demo import pocket
from dflash_local.demo.pocket import DRAFTERS, bundled_pair, inflated_pair
from dflash_local.engine import Engine
from dflash_local.errors import DFlashError, ModelError
from dflash_local.inflate import SHAPES, Pair, inflate

Array = npt.NDArray[Any]
TOKENS = [4, 300, 17, 950, 1200, 33, 77, 640, 5, 1698]
ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def inflated(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Pair]:
    made: dict[str, Pair] = {}

    def get(drafter: str) -> Pair:
        if drafter not in made:
            made[drafter] = inflate(bundled_pair(drafter), tmp_path_factory.mktemp(drafter), SHAPES["0.1b"])
        return made[drafter]

    return get


class Model:
    """A GGUF in numpy, float64: enough of qwen3 to compute logits and the inputs of layers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.keys = {key.split(".", 1)[-1]: value.data for key, value in read_metadata(path).items()}
        self.tensors = {tensor.name: tensor for tensor in GGUFReader(path).tensors}

    def __call__(self, name: str) -> Array:
        tensor = self.tensors[name]
        return np.asarray(dequantize(tensor.data, tensor.tensor_type), np.float64)

    def norm(self, x: Array, weight: Array) -> Array:
        eps = self.keys["attention.layer_norm_rms_epsilon"]
        return np.asarray(x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight)

    def rope(self, x: Array) -> Array:
        """Rotate halves (NeoX) of [tokens, heads, size]."""
        half = x.shape[-1] // 2
        angle = np.arange(len(x))[:, None] * self.keys["rope.freq_base"] ** (-np.arange(half) / half)
        cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * cos - b * sin, a * sin + b * cos], -1)

    def layer(self, x: Array, i: int) -> Array:
        heads, heads_kv, size = (self.keys[f"attention.{k}"] for k in ("head_count", "head_count_kv", "key_length"))
        h = self.norm(x, self(f"blk.{i}.attn_norm.weight"))
        q, k, v = ((h @ self(f"blk.{i}.attn_{n}.weight").T).reshape(len(x), -1, size) for n in "qkv")
        q = self.rope(self.norm(q, self(f"blk.{i}.attn_q_norm.weight")))
        k = self.rope(self.norm(k, self(f"blk.{i}.attn_k_norm.weight")))
        k, v = (np.repeat(m, heads // heads_kv, axis=1) for m in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, k) / size**0.5
        scores[:, np.triu(np.ones((len(x), len(x)), bool), 1)] = -np.inf
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        x = x + np.einsum("hqk,khd->qhd", weights, v).reshape(len(x), -1) @ self(f"blk.{i}.attn_output.weight").T
        h = self.norm(x, self(f"blk.{i}.ffn_norm.weight"))
        gate = h @ self(f"blk.{i}.ffn_gate.weight").T
        return np.asarray(x + (gate / (1 + np.exp(-gate)) * (h @ self(f"blk.{i}.ffn_up.weight").T)) @ self(f"blk.{i}.ffn_down.weight").T)

    def run(self, tokens: list[int]) -> tuple[Array, list[Array]]:
        """(logits [tokens, vocabulary], input of every layer [tokens, width])."""
        x = self("token_embd.weight")[tokens]
        inputs = []
        for i in range(self.keys["block_count"]):
            inputs.append(x)
            x = self.layer(x, i)
        return self.norm(x, self("output_norm.weight")) @ self("output.weight").T, inputs


def test_target_keeps_its_logits_and_padded_rows_never_win(inflated: Callable[[str], Pair]) -> None:
    small, large = Model(bundled_pair().target), Model(inflated("dflash").target)
    expected, _ = small.run(TOKENS)
    logits, _ = large.run(TOKENS)
    known = expected.shape[1]
    spread = expected.max() - expected.min()
    assert np.abs(logits[:, :known] - expected).max() < 1e-3 * spread
    assert logits[:, known:].max() < expected.min() - 10  # e^-10 below even the least likely real token


def test_a_lost_layer_is_noticed(inflated: Callable[[str], Pair], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The test above can fail: put the real layers in the wrong order and the logits differ."""
    monkeypatch.setattr(inflate_module, "_places", lambda n_real, n_all: list(range(n_real))[::-1])
    wrong = inflate(bundled_pair(), tmp_path, SHAPES["0.1b"])
    expected, _ = Model(bundled_pair().target).run(TOKENS)
    logits, _ = Model(wrong.target).run(TOKENS)
    assert np.abs(logits[:, : expected.shape[1]] - expected).max() > 0.05 * (expected.max() - expected.min())


def test_taps_move_with_their_layers_and_fuse_to_the_same_features(inflated: Callable[[str], Pair]) -> None:
    """fc over the tapped layer inputs, then the encoder's norm: what the drafter sees of the target."""
    features = []
    for pair in (bundled_pair(), inflated("dflash")):
        target, drafter = Model(pair.target), Model(pair.drafter)
        inputs = target.run(TOKENS)[1]
        taps = np.concatenate([inputs[layer] for layer in drafter.keys["target_layers"]], axis=1)
        features.append(drafter.norm(taps @ drafter("fc.weight").T, drafter("enc.output_norm.weight")))
    small, large = features
    width = small.shape[1]
    # Norm weights of the wider stream carry the gain that undoes the larger mean.
    assert np.abs(large[:, :width] - small).max() < 1e-3 * np.abs(small).max()
    assert np.abs(large[:, width:]).max() == 0


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_drafter_keeps_its_real_values(inflated: Callable[[str], Pair], drafter: str) -> None:
    small, large = Model(bundled_pair(drafter).drafter), Model(inflated(drafter).drafter)
    assert large.keys["block_count"] == SHAPES["0.1b"].n_layer_drafter
    assert len(large.keys["ggml.tokens"]) == SHAPES["0.1b"].n_vocab
    shapes = {name: tensor.data.shape for name, tensor in large.tensors.items()}
    assert shapes["fc.weight"] == (512, 512 * len(large.keys["target_layers"]))
    # The feed-forward and attention matrices sit in the corner; what leaves new units is zero.
    for name in ("blk.0.attn_q.weight", "blk.0.ffn_gate.weight"):
        rows, columns = small(name).shape
        np.testing.assert_array_equal(large(name)[:rows, :columns], small(name).astype(np.float16))
    down = large("blk.0.ffn_down.weight")
    assert not down[256:].any() and not down[:, 768:].any()


def test_dflash2_convolutions_keep_their_layout(inflated: Callable[[str], Pair]) -> None:
    small, large = Model(bundled_pair("dflash2").drafter), Model(inflated("dflash2").drafter)
    np.testing.assert_array_equal(large("blk.1.attn_conv_base")[:, :, :256], small("blk.1.attn_conv_base"))
    assert (large("blk.1.attn_conv_base")[:, 0, 256:] == 1).all() and (large("blk.1.attn_conv_base")[:, 1, 256:] == 0).all()
    groups_small, groups_large = 256 // 16, 512 // 16
    before = small("blk.1.ffn_conv_proj.weight").reshape(2, 2, groups_small, 256)
    after = large("blk.1.ffn_conv_proj.weight").reshape(2, 2, groups_large, 512)
    np.testing.assert_array_equal(after[:, :, :groups_small, :256], before.astype(np.float16))
    assert not after[:, :, groups_small:].any()
    np.testing.assert_array_equal(large("selector_hidden.weight")[:, :256], small("selector_hidden.weight").astype(np.float16))


def test_new_layers_of_a_drafter_are_the_identity(tmp_path: Path) -> None:
    deeper = replace(SHAPES["0.1b"], n_layer_drafter=3)
    large = Model(inflate(bundled_pair("dflash2"), tmp_path, deeper).drafter)
    assert not large("blk.2.attn_output.weight").any() and not large("blk.2.ffn_down.weight").any()
    assert large("blk.2.attn_q.weight").std() == pytest.approx(0.02, rel=0.05)
    assert not large("blk.2.ffn_conv_proj.weight").any()


def test_memory_stays_at_a_few_chunks() -> None:
    """The 0.6b target has 84 MiB tensors and 800 MiB in all; its tensors are made one chunk at a time."""
    program = (
        "import resource, sys; from pathlib import Path; from dflash_local.inflate import *; from dflash_local.inflate import _Source, "
        "_InflatedTarget, _places; from dflash_local.demo.pocket import bundled_pair\n"
        "m = _InflatedTarget(_Source(bundled_pair().target, 'qwen3'), SHAPES['0.6b'], _places(6, 28))\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "big = max(m.tensors(), key=lambda t: t.n_bytes)\n"
        "assert sum(c.nbytes for c in big.chunks()) == big.n_bytes > 60 << 20\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=ROOT)
    assert int(done.stdout) < 60 << 10  # KiB


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"n_layer": 4}, "block_count"),
        ({"n_embd": 256}, "embedding_length"),
        ({"n_vocab": 1000}, "vocab_size"),
        ({"n_head_kv": 8}, "attention.head_count_kv"),
    ],
)
def test_a_shape_that_is_too_small_is_refused(tmp_path: Path, change: dict[str, int], field: str) -> None:
    with pytest.raises(ModelError) as caught:
        inflate(bundled_pair(), tmp_path / "out", replace(SHAPES["0.1b"], **change))
    assert caught.value.field == field


def test_a_tensor_that_would_be_lost_is_refused(tmp_path: Path) -> None:
    path = bundled_pair().target

    def copied(tensor: ReaderTensor) -> OutputTensor:
        return OutputTensor(tensor.name, tuple(reversed(tensor.shape.tolist())), tensor.tensor_type, lambda: [tensor.data])

    tensors = [copied(tensor) for tensor in GGUFReader(path).tensors]
    extra = OutputTensor("blk.0.attn_q.bias", (256,), GGMLQuantizationType.F32, lambda: [np.zeros(256, np.float32)])
    keys = read_metadata(path)
    keys["general.architecture"] = replace(keys["general.architecture"], data="qwen3")
    write_gguf(tmp_path / "biased.gguf", keys, [*tensors, extra], lambda name, n: None)
    with pytest.raises(ModelError, match=r"attn_q\.bias") as caught:
        inflate(Pair(tmp_path / "biased.gguf", bundled_pair().drafter), tmp_path / "out", SHAPES["0.1b"])
    assert caught.value.field == "blk.0.attn_q.bias"


def test_swapped_files_are_refused(tmp_path: Path) -> None:
    target, drafter = bundled_pair()
    with pytest.raises(ModelError, match="qwen3"):
        inflate(Pair(drafter, target), tmp_path, SHAPES["0.1b"])


def test_cached_pair_is_made_once_and_atomically(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DFLASH_CACHE", str(tmp_path))
    calls = []

    def quantize(source: Path, target: Path, ftype: str) -> None:
        calls.append(ftype)
        target.write_bytes(source.read_bytes())

    first = inflated_pair("0.1b", "q4_0", quantize=quantize)
    assert calls == ["q4_0", "q4_0"] and first.target.is_file() and first.drafter.is_file()
    assert inflated_pair("0.1b", "q4_0", quantize=quantize) == first and len(calls) == 2
    assert sorted(p.name for p in first.target.parent.iterdir()) == ["drafter.gguf", "target.gguf"]

    def broken(source: Path, target: Path, ftype: str) -> None:
        raise DFlashError("no")

    with pytest.raises(DFlashError):
        inflated_pair("0.1b", "q8_0", quantize=broken)
    assert [p.name for p in (tmp_path / "pocket").iterdir()] == [first.target.parent.name]


def test_a_full_disk_is_said_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DFLASH_CACHE", str(tmp_path))
    monkeypatch.setattr(pocket, "_F16_BYTES", {"0.1b": 1e9})
    with pytest.raises(DFlashError, match="free"):
        inflated_pair("0.1b", "f16")


def test_engine_target_logits_are_the_small_ones(inflated: Callable[[str], Pair]) -> None:
    tokens = TOKENS * 4
    scores = []
    for pair in (bundled_pair(), inflated("dflash")):
        with Engine(pair.target, n_ctx=256, n_threads=2, warmup=False) as engine:
            scores.append(engine.score(tokens, 1))
    small, large = scores
    spread = np.ptp(small.best_logit - small.logit)
    assert np.abs(large.logit - small.logit).max() < 0.01 * spread
    assert np.abs(large.best_logit - small.best_logit).max() < 0.01 * spread


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_engine_drafts_are_the_small_ones(inflated: Callable[[str], Pair], drafter: str) -> None:
    """The whole path of a draft: taps, fusion, injection, block, head (and convolutions and selector of DFlash 2)."""
    probes = []
    for pair in (bundled_pair(drafter), inflated(drafter)):
        with Engine(*pair, n_ctx=256, n_threads=2, warmup=False) as engine:
            prompt = engine.apply_chat({"messages": [{"role": "user", "content": "Count from 11 in steps of 3, 14 numbers."}]}).prompt
            probes.append(engine.draft_probe(engine.tokenize(prompt + "11, 14,"), 16))
    small, large = probes
    n_vocab = small.logits.shape[1]
    assert np.abs(large.logits[:, :n_vocab] - small.logits).max() < 0.02 * np.ptp(small.logits)
    assert large.logits[:, n_vocab:].max() < small.logits.max() - 10
    assert (large.logits.argmax(1) == small.logits.argmax(1)).mean() > 0.9
