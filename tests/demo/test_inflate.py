"""Inflated pairs compute the function of the small pair: in numpy, without llama.cpp, and through the engine in f32."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from gguf import GGMLQuantizationType, GGUFValueType

from benchmarks import inflate as command
from dflash_local import native
from dflash_local.convert.gguf_metadata import array, f32, read_header
from dflash_local.convert.writer import OutputTensor
from dflash_local.demo import inflate as inflate_module
from dflash_local.demo import quantizer
from dflash_local.demo.inflate import inflate, tensors
from dflash_local.demo.pocket import DRAFTERS, HYBRID, bundled_pair, inflated_pair, shape_of
from dflash_local.demo.shapes import SHAPES, DeltaNet, Experts, Pair, Shape
from dflash_local.errors import DFlashError, ModelError, PairError
from tests.fast import some_fast
from tests.gguf_files import rewritten, stored
from tests.parity.f32 import engine_f32, widen

Array = npt.NDArray[Any]
TOKENS = [4, 300, 17, 950, 1200, 33, 77, 640, 5, 1698]
ROOT = Path(__file__).parents[2]
# Twice the head size, four q heads to one of k and v instead of two, and experts that hold the whole feed-forward or
# half of it.
NARROW = Shape(8, 512, 1024, 8, 4, 2048, 2)
WIDE = Shape(7, 512, 1024, 12, 3, 2048, 3, 128)
# Half again as many key heads with three value heads each instead of two, all heads twice the size, a group of layers
# between the real two.
HYBRID_SHAPE = Shape(12, 512, 1024, 6, 2, 2048, 3, 128, delta=DeltaNet(3, 9, 128))
SMALL_SHAPES = {
    "narrow": NARROW,
    "wide": WIDE,
    "moe": replace(WIDE, experts=Experts(4, 2, 768)),
    "moe-halves": replace(NARROW, n_layer=6, experts=Experts(16, 4, 384)),
    "hybrid": HYBRID_SHAPE,
}


@pytest.fixture(scope="module")
def inflated(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Pair]:
    made: dict[tuple[str, str, str], Pair] = {}

    def get(drafter: str, shape: str = "narrow", ftype: str = "f16") -> Pair:
        key = drafter, shape, ftype
        if key not in made:
            made[key] = inflate(bundled_pair(drafter), tmp_path_factory.mktemp(drafter), SMALL_SHAPES[shape], ftype)
        return made[key]

    return get


class Model:
    """A GGUF in numpy, float64: enough of qwen3 and qwen3moe to compute logits and the inputs of layers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        metadata, self.tensors = read_header(path)
        self.keys = {key.split(".", 1)[-1]: value.data for key, value in metadata.items()}

    def __call__(self, name: str) -> Array:
        return self.tensors[name].numbers().astype(np.float64)

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
        if f"blk.{i}.ffn_gate_inp.weight" in self.tensors:
            return x + self.experts(h, i)
        return x + feed_forward(h, *(self(f"blk.{i}.ffn_{n}.weight") for n in ("gate", "up", "down")))

    def experts(self, h: Array, i: int) -> Array:
        """The best experts of each row, their weights made to add up to 1."""
        logits = h @ self(f"blk.{i}.ffn_gate_inp.weight").T
        gate, up, down = (self(f"blk.{i}.ffn_{n}_exps.weight") for n in ("gate", "up", "down"))
        out = np.zeros_like(h)
        for row, scores in enumerate(logits):
            best = np.argsort(-scores)[: self.keys["expert_used_count"]]
            weights = np.exp(scores[best] - scores[best].max())
            for e, weight in zip(best, weights / weights.sum(), strict=True):
                out[row] += weight * feed_forward(h[row], gate[e], up[e], down[e])
        return out

    def run(self, tokens: list[int]) -> tuple[Array, list[Array]]:
        """(logits [tokens, vocabulary], input of every layer [tokens, width])."""
        x = self("token_embd.weight")[tokens]
        inputs = []
        for i in range(self.keys["block_count"]):
            inputs.append(x)
            x = self.layer(x, i)
        return self.norm(x, self("output_norm.weight")) @ self("output.weight").T, inputs


def feed_forward(h: Array, gate: Array, up: Array, down: Array) -> Array:
    gated = h @ gate.T
    return np.asarray((gated / (1 + np.exp(-gated)) * (h @ up.T)) @ down.T)


@pytest.mark.parametrize("shape", ["wide", "moe-halves"])
def test_target_keeps_its_logits_and_padded_rows_never_win(inflated: Callable[..., Pair], shape: str) -> None:
    small, large = Model(bundled_pair().target), Model(inflated("dflash", shape).target)
    expected, _ = small.run(TOKENS)
    logits, _ = large.run(TOKENS)
    known = expected.shape[1]
    spread = expected.max() - expected.min()
    assert np.abs(logits[:, :known] - expected).max() < 1e-3 * spread
    assert logits[:, known:].max() < expected.min() - 10  # e^-10 below even the least likely real token


def test_routers_differ_from_token_to_token(inflated: Callable[..., Pair]) -> None:
    """A router that always picks the same experts would cost less than a real one. Parts of one feed-forward are picked
    together."""
    model = Model(inflated("dflash", "moe-halves").target)
    n, n_used = model.keys["expert_count"], model.keys["expert_used_count"]
    assert model.tensors["blk.0.ffn_gate_exps.weight"].shape == (n, 384, 512)
    _, inputs = model.run(TOKENS)
    for i, x in enumerate(inputs):
        scores = model.norm(x, model(f"blk.{i}.ffn_norm.weight")) @ model(f"blk.{i}.ffn_gate_inp.weight").T
        best = np.sort(np.argsort(-scores, axis=1)[:, :n_used], axis=1)
        assert (best[:, 1::2] == best[:, ::2] + 1).all() and not (best[:, ::2] % 2).any()
        assert len(np.unique(best)) > n // 2


def test_a_lost_layer_is_noticed(
    inflated: Callable[..., Pair], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The test above can fail: put the real layers in the wrong order and the logits differ."""
    monkeypatch.setattr(inflate_module, "_places", lambda n_real, n_all: list(range(n_real))[::-1])
    wrong = inflate(bundled_pair(), tmp_path, NARROW)
    expected, _ = Model(bundled_pair().target).run(TOKENS)
    logits, _ = Model(wrong.target).run(TOKENS)
    assert np.abs(logits[:, : expected.shape[1]] - expected).max() > 0.05 * (expected.max() - expected.min())


def test_taps_move_with_their_layers_and_fuse_to_the_same_features(inflated: Callable[..., Pair]) -> None:
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
def test_drafter_keeps_its_real_values(inflated: Callable[..., Pair], drafter: str) -> None:
    small, large = Model(bundled_pair(drafter).drafter), Model(inflated(drafter).drafter)
    assert large.keys["block_count"] == NARROW.n_layer_drafter
    assert len(large.keys["ggml.tokens"]) == NARROW.n_vocab
    shapes = {name: tensor.shape for name, tensor in large.tensors.items()}
    assert shapes["fc.weight"] == (512, 512 * len(large.keys["target_layers"]))
    # The feed-forward and attention matrices sit in the corner; what leaves new units is zero.
    for name in ("blk.0.attn_q.weight", "blk.0.ffn_gate.weight"):
        rows, columns = small(name).shape
        np.testing.assert_array_equal(large(name)[:rows, :columns], small(name).astype(np.float16))
    down = large("blk.0.ffn_down.weight")
    assert not down[256:].any() and not down[:, 768:].any()


def test_dflash2_convolutions_keep_their_layout(inflated: Callable[..., Pair]) -> None:
    small, large = Model(bundled_pair("dflash2").drafter), Model(inflated("dflash2").drafter)
    np.testing.assert_array_equal(large("blk.1.attn_conv_base")[:, :, :256], small("blk.1.attn_conv_base"))
    assert (large("blk.1.attn_conv_base")[:, 0, 256:] == 1).all() and (
        large("blk.1.attn_conv_base")[:, 1, 256:] == 0
    ).all()
    groups_small, groups_large = 256 // 16, 512 // 16
    before = small("blk.1.ffn_conv_proj.weight").reshape(2, 2, groups_small, 256)
    after = large("blk.1.ffn_conv_proj.weight").reshape(2, 2, groups_large, 512)
    np.testing.assert_array_equal(after[:, :, :groups_small, :256], before.astype(np.float16))
    assert not after[:, :, groups_small:].any()
    np.testing.assert_array_equal(
        large("selector_hidden.weight")[:, :256], small("selector_hidden.weight").astype(np.float16)
    )


def test_new_layers_of_a_drafter_are_the_identity(tmp_path: Path) -> None:
    deeper = replace(NARROW, n_layer_drafter=3)
    large = Model(inflate(bundled_pair("dflash2"), tmp_path, deeper).drafter)
    assert not large("blk.2.attn_output.weight").any() and not large("blk.2.ffn_down.weight").any()
    assert large("blk.2.attn_q.weight").std() == pytest.approx(0.02, rel=0.05)
    assert not large("blk.2.ffn_conv_proj.weight").any()


def test_memory_stays_at_a_few_chunks() -> None:
    """Experts of 192 MiB in f32, made and quantized one chunk at a time."""
    program = (
        "import resource\n"
        "from dataclasses import replace\n"
        "from dflash_local.demo.inflate import _places\n"
        "from dflash_local.demo.inflate.source import SmallModel\n"
        "from dflash_local.demo.inflate.inflated_target import InflatedTarget\n"
        "from dflash_local.demo.pocket import bundled_pair\n"
        "from dflash_local.demo.quantizer import quantized\n"
        "from dflash_local.demo.shapes import SHAPES, Experts\n"
        "shape = replace(SHAPES['35b-a3b'], experts=Experts(48, 8, 512))\n"
        "m = InflatedTarget(SmallModel(bundled_pair().target, 'qwen3'), shape, _places(6, 40))\n"
        "big = next(t for t in m.tensors() if t.name == 'blk.6.ffn_gate_exps.weight')\n"
        "assert big.n_bytes == 192 << 20\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "big = quantized(big, 'q8_0', n_layer=40)\n"
        "assert sum(c.nbytes for c in big.chunks()) == big.n_bytes == 51 << 20\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=ROOT)
    assert int(done.stdout) < 60 << 10  # KiB


def test_chunks_that_come_again_are_quantized_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of 27 billion weights is written in seconds: most of its chunks are the same noise or zeros, and the rows
    of an embedding's padding are equal. The bytes are those of each chunk on its own."""
    monkeypatch.setattr(quantizer, "_kept", {})
    counted: list[int] = []
    quantize_rows = native.quantize_rows

    def counting(kind: int, rows: Array) -> Array:
        counted.append(len(rows))
        return quantize_rows(kind, rows)

    monkeypatch.setattr(native, "quantize_rows", counting)
    shape = (4 * tensors.CHUNK // 1024, 1024)
    column = [tensors.Block(0, 7, np.ones((shape[0], 1), np.float32))]
    layers = [tensors.padded_matrix(f"blk.{i}.ffn_up.weight", shape, list, noise=True) for i in range(4)]
    layers += [tensors.padded_matrix(f"blk.{i}.ffn_down.weight", shape, list) for i in range(4)]
    layers += [tensors.padded_matrix("token_embd.weight", shape, lambda: column)]
    for layer in layers:
        own = b"".join(quantize_rows(GGMLQuantizationType.Q8_0, half(rows)).tobytes() for rows in layer.chunks())
        assert b"".join(rows.tobytes() for rows in quantizer.quantized(layer, "q8_0", n_layer=20).chunks()) == own
    assert sum(counted) <= (tensors.OFFSETS + 2) * tensors.CHUNK // 1024


def half(rows: Array) -> Array:
    return rows.astype(np.float16).astype(np.float32)


TINY = Shape(6, 512, 768, 4, 2, 1792, 2)


@pytest.mark.parametrize(
    ("shape", "ftype"),
    [
        (TINY, "q8_0"),
        (replace(TINY, experts=Experts(3, 3, 256)), "q4_k_m"),
        # llama.cpp has rules of its own for eight experts
        pytest.param(replace(TINY, experts=Experts(8, 8, 96)), "q4_k_m", marks=pytest.mark.slow),
        (replace(TINY, n_embd=288, n_ff=776), "q4_0"),  # and for rows that are no whole blocks
        pytest.param(HYBRID_SHAPE, "q4_k_m", marks=pytest.mark.slow),
    ],
)
def test_quantized_while_written_is_as_llama_quantize_does(tmp_path: Path, shape: Shape, ftype: str) -> None:
    """Types and bytes of every tensor, and the metadata."""
    small = bundled_pair(HYBRID if shape.delta else "dflash2")
    ours, theirs = (inflate(small, tmp_path / str(q), shape, ftype, quantize=q) for q in (None, native.quantize))
    for a, b in zip(ours, theirs, strict=True):
        (our_keys, got), (their_keys, expected) = map(read_header, (a, b))
        assert our_keys == their_keys and got.keys() == expected.keys()
        for name, tensor in expected.items():
            assert got[name].type == tensor.type, name
            assert np.array_equal(stored(got[name]), stored(tensor)), name


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"n_layer": 4}, "block_count"),
        ({"n_embd": 256}, "embedding_length"),
        ({"n_ff": 512}, "feed_forward_length"),
        ({"n_vocab": 1000}, "vocab_size"),
        ({"n_head_kv": 8}, "attention.head_count_kv"),
        ({"n_head_kv": 1}, "attention.head_count_kv"),
        ({"head": 96}, "attention.key_length"),
        ({"experts": Experts(5, 4, 512)}, "feed_forward_length"),
        ({"experts": Experts(4, 3, 512)}, "feed_forward_length"),
        ({"experts": Experts(4, 8, 768)}, "feed_forward_length"),
    ],
)
def test_a_shape_that_does_not_fit_is_refused(tmp_path: Path, change: dict[str, Any], field: str) -> None:
    with pytest.raises(ModelError) as caught:
        inflate(bundled_pair(), tmp_path / "out", replace(NARROW, **change))
    assert caught.value.field == field
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"n_layer": 14}, "attention.recurrent_layers"),
        ({"n_layer": 4}, "block_count"),
        ({"delta": DeltaNet(1, 3, 128)}, "ssm.group_count"),
        ({"delta": DeltaNet(8, 8, 128)}, "ssm.time_step_rank"),
        ({"delta": DeltaNet(3, 9, 32)}, "ssm.state_size"),
        ({"experts": Experts(4, 2, 768)}, "expert_count"),
    ],
)
def test_a_shape_that_does_not_fit_a_hybrid_is_refused(tmp_path: Path, change: dict[str, Any], field: str) -> None:
    with pytest.raises(ModelError) as caught:
        inflate(bundled_pair(HYBRID), tmp_path / "out", replace(HYBRID_SHAPE, **change))
    assert caught.value.field == field
    assert not (tmp_path / "out").exists()


def test_a_tensor_that_would_be_lost_is_refused(tmp_path: Path) -> None:
    extra = OutputTensor("blk.0.attn_q.bias", (256,), GGMLQuantizationType.F32, lambda: [np.zeros(256, np.float32)])
    rewritten(bundled_pair().target, tmp_path / "biased.gguf", {}, {extra.name: extra})
    with pytest.raises(ModelError, match=r"attn_q\.bias") as caught:
        inflate(Pair(tmp_path / "biased.gguf", bundled_pair().drafter), tmp_path / "out", NARROW)
    assert caught.value.field == "blk.0.attn_q.bias"


def test_wrong_files_are_refused(tmp_path: Path) -> None:
    target, drafter = bundled_pair()
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(target.read_bytes()[:-1000])
    other = rewritten(
        drafter, tmp_path / "other.gguf", {"dflash.target_layers": array(GGUFValueType.UINT32, (1, 3, 6))}
    )
    scaled = rewritten(target, tmp_path / "scaled.gguf", {"qwen3.rope.scaling.factor": f32(4.0)})
    larger = inflate(bundled_pair(), tmp_path / "larger", WIDE).drafter
    hybrid = bundled_pair(HYBRID)
    turned = rewritten(
        hybrid.target,
        tmp_path / "turned.gguf",
        {"qwen35.rope.dimension_sections": array(GGUFValueType.INT32, (8, 4, 4, 0))},
    )
    for pair, shape, error, what in (
        (Pair(drafter, target), "narrow", ModelError, "only a qwen3 model"),
        (Pair(target, target), "narrow", ModelError, "only a dflash model"),
        (Pair(cut, drafter), "narrow", ModelError, "cut.gguf"),
        (Pair(tmp_path / "none.gguf", drafter), "narrow", ModelError, "none.gguf"),
        (Pair(target, other), "narrow", ModelError, "no layer 6"),
        (Pair(scaled, drafter), "wide", ModelError, "plain rotation"),
        (hybrid, "narrow", ModelError, "only a qwen3 model"),
        (Pair(target, drafter), "hybrid", ModelError, "only a qwen35 model"),
        (Pair(turned, hybrid.drafter), "hybrid", ModelError, "no thirds of 16"),
        (Pair(target, larger), "4b", PairError, "embedding_length is 512, not 256"),
    ):
        with pytest.raises(error, match=what):
            inflate(pair, tmp_path / "out", SMALL_SHAPES.get(shape) or SHAPES[shape])
    assert not (tmp_path / "out").exists()


def test_a_small_disk_is_said_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sizes are those of the real shapes."""
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=2**30))
    sizes = [
        ("27b", "f16", "56.9"),
        ("27b", "q4_0", "16.4"),
        ("35b-a3b", "q8_0", "34.0"),
        ("hybrid-27b", "q4_0", "15.3"),
    ]
    for shape, ftype, size in sizes:
        with pytest.raises(DFlashError, match=rf"has 1.0 GiB free; the pair needs {size} GiB"):
            inflate(bundled_pair(HYBRID if SHAPES[shape].delta else "dflash"), tmp_path, SHAPES[shape], ftype)
    assert not list(tmp_path.iterdir())


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(SHAPES, "0.6b", WIDE)  # the default
    small = bundled_pair("dflash-small")
    assert command.main(["--type", "q4_0", "--drafter", "dflash-small", str(tmp_path / "a")]) == 0
    assert (
        command.main(
            ["--type", "q4_0", "--target", str(small.target), "--drafter", str(small.drafter), str(tmp_path / "b")]
        )
        == 0
    )
    for name in ("target.gguf", "drafter.gguf"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert "drafter.gguf" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        command.main(["--drafter", str(small.drafter), str(tmp_path / "c")])
    assert "needs --target too" in capsys.readouterr().err


def test_the_hybrid_pair_takes_the_hybrid_shape_of_a_size() -> None:
    assert shape_of("0.6b", HYBRID) is shape_of("hybrid-0.6b", HYBRID) is SHAPES["hybrid-0.6b"]
    # inflate() refuses the second one later.
    assert shape_of("0.6b", "dflash") is SHAPES["0.6b"] and shape_of("8b", HYBRID) is SHAPES["8b"]


def test_cached_pair_is_made_once_and_atomically(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DFLASH_CACHE", str(tmp_path))
    left = tmp_path / "pocket" / ".scratch-of-a-killed-process"
    left.mkdir(parents=True)
    os.utime(left, (0, 0))
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


KINDS = [*((drafter, "wide") for drafter in DRAFTERS), ("dflash", "moe"), ("dflash2", "moe-halves"), (HYBRID, "hybrid")]
QUESTIONS = ("Count from 11 in steps of 3, 14 numbers.", "Write a Python function that filters limits above 37.")


FAST_KINDS = (("dspark", "wide"), ("dflash2", "moe-halves"), (HYBRID, "hybrid"))


@pytest.mark.parametrize(("drafter", "shape"), some_fast(KINDS, FAST_KINDS))
def test_the_engine_answers_as_with_the_small_pair(
    inflated: Callable[..., Pair], tmp_path: Path, drafter: str, shape: str
) -> None:
    """In f32: the target's logits, the drafts (taps, fusion, injection, block, head, convolutions, selector), the text,
    the AL."""
    small = Pair(*(widen(path, tmp_path / path.name) for path in bundled_pair(drafter)))
    seen = []
    for pair in (small, inflated(drafter, shape, "f32")):
        with engine_f32(*pair, n_ctx=512) as engine:
            prompts = [
                engine.tokenize(engine.apply_chat({"messages": [{"role": "user", "content": q}]}).prompt)
                for q in QUESTIONS
            ]
            probe = engine.draft_probe([*prompts[0], *engine.tokenize("11, 14,")], engine.info["drafter"]["block_size"])
            answers = [engine.generate(p, max_tokens=80, temperature=0.0, budget=16) for p in prompts]
            seen.append((engine.score(TOKENS * 4, 1), probe, answers))
    (score, probe, answers), (large_score, large_probe, large_answers) = seen
    spread = np.ptp(score.best_logit - score.logit)
    assert np.abs(large_score.logit - score.logit).max() < 1e-3 * spread
    assert np.abs(large_score.best_logit - score.best_logit).max() < 1e-3 * spread
    n_vocab = probe.logits.shape[1]
    assert np.abs(large_probe.logits[:, :n_vocab] - probe.logits).max() < 1e-3 * np.ptp(probe.logits)
    assert large_probe.logits[:, n_vocab:].max() < probe.logits.max() - 10
    assert [answer.tokens for answer in large_answers] == [answer.tokens for answer in answers]
    lengths, large_lengths = (
        [answer.timings.acceptance_length or 0 for answer in group] for group in (answers, large_answers)
    )
    assert min(lengths) > 2 and large_lengths == pytest.approx(lengths, rel=0.05)
