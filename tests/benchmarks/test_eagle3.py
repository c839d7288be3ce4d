"""The EAGLE-3 comparison: a head made larger gives what the small one gives, training attends as drafting does, and the
table's arithmetic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from benchmarks import train_eagle3
from benchmarks.comparison import Run
from benchmarks.eagle3 import CHAINS, DRAFTS, HEAD, TREES, best, commands, markdown, row, system
from benchmarks.eagle3_head import SmallHead, inflate_head, quantize_head
from benchmarks.systems import PLAIN, Setting
from dflash_local.convert.gguf_metadata import read_metadata
from dflash_local.demo.pocket import bundled_pair
from dflash_local.demo.shapes import SHAPES
from tests.gguf_files import numbers

Array = npt.NDArray[Any]

STEPS = 3


@pytest.fixture(scope="module")
def target() -> Qwen3ForCausalLM:
    """A random model of the pocket target's shape."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=1699, hidden_size=256, intermediate_size=768, num_hidden_layers=6, num_attention_heads=4,
        num_key_value_heads=2, head_dim=64, rms_norm_eps=1e-6, tie_word_embeddings=False,
    )  # fmt: skip
    return Qwen3ForCausalLM(config).eval().requires_grad_(False)


@pytest.fixture(scope="module")
def head(target: Qwen3ForCausalLM) -> train_eagle3.Head:
    torch.manual_seed(1)
    head = train_eagle3.Head(target, [1, 3, 5])
    for name, x in head.w.items():
        if x.ndim == 1:
            x.data += 0.2 * torch.randn_like(x)
        assert name
    return head


@pytest.fixture(scope="module")
def file(target: Qwen3ForCausalLM, head: train_eagle3.Head, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("eagle3") / "head.gguf"
    train_eagle3.save(head, target, bundled_pair().target, path)
    return path


def test_training_attends_as_drafting_does(target: Qwen3ForCausalLM, head: train_eagle3.Head) -> None:
    """Step k of a row is what drafting gives that has read the text up to there, and fed itself k times: here one row
    at a time, with a cache of keys and values as a decoder has it."""
    torch.manual_seed(2)
    x = torch.randint(0, 1699, (1, 12))
    taps = torch.randn(1, 12, 3 * 256)
    rows = 12 - STEPS - 1
    picked = torch.tensor([6, 2])
    with torch.no_grad():
        steps = head(taps, x, STEPS, picked)
        for at, row in enumerate(picked.tolist()):
            # A text that ends here: the last row of its first step, then its own later ones.
            for k in range(STEPS):
                short = head(taps[:, : row + 1 + STEPS + 1], x[:, : row + 1 + STEPS + 1], k + 1 if k else STEPS,
                             torch.tensor([row]))  # fmt: skip
                here = short[k][0, -1]
                there = steps[k][0, at if k else row]
                torch.testing.assert_close(here, there, atol=1e-4, rtol=1e-4)
        assert [step.shape[1] for step in steps] == [rows, 2, 2]
        # What follows a row must not matter, its own words must.
        changed = x.clone()
        changed[0, 9:] = 0
        after = head(taps, changed, STEPS, picked)
        torch.testing.assert_close(after[1][0, 1], steps[1][0, 1])
        assert not torch.allclose(after[2][0, 0], steps[2][0, 0])


def weights(path: Path) -> dict[str, Array]:
    return {name: data.astype(np.float64) for name, data in numbers(path).items()}


def once(w: dict[str, Array], eps: float, heads: int, kv: int, taps: Array, words: Array) -> tuple[Array, Array]:
    """The head's first step without rotation, in numpy: hidden state and normed output of every row."""

    def norm(x: Array, name: str) -> Array:
        return np.asarray(x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * w[name])

    def split(x: Array, n: int) -> Array:
        return x.reshape(len(x), n, 64).transpose(1, 0, 2)

    g = taps @ w["fc.weight"].T
    x = np.concatenate([norm(words, "blk.0.attn_norm.weight"), norm(g, "blk.0.attn_norm_2.weight")], -1)
    q, k, v = (split(x @ w[f"blk.0.attn_{part}.weight"].T, n) for part, n in (("q", heads), ("k", kv), ("v", kv)))
    k, v = np.repeat(k, heads // kv, 0), np.repeat(v, heads // kv, 0)
    p = np.exp(q @ k.transpose(0, 2, 1) / 8)
    p /= p.sum(-1, keepdims=True)
    h = g + (p @ v).transpose(1, 0, 2).reshape(len(x), -1) @ w["blk.0.attn_output.weight"].T
    y = norm(h, "blk.0.ffn_norm.weight")
    gate = y @ w["blk.0.ffn_gate.weight"].T
    h = h + (gate / (1 + np.exp(-gate)) * (y @ w["blk.0.ffn_up.weight"].T)) @ w["blk.0.ffn_down.weight"].T
    return h, norm(h, "output_norm.weight")


def test_a_larger_head_gives_the_same(file: Path, tmp_path: Path) -> None:
    shape = SHAPES["0.1b"]
    small = weights(file)
    large = weights(inflate_head(file, 6, shape, "f32", tmp_path / "large.gguf"))
    rng = np.random.default_rng(0)
    taps, words = rng.normal(size=(5, 3, 256)), rng.normal(size=(5, 256))

    def padded(x: Array) -> Array:
        """In the wider stream, with its constant channel."""
        wide = np.zeros((*x.shape[:-1], shape.n_embd))
        wide[..., :256], wide[..., 256] = x, 1e-3
        return wide

    h, out = once(small, 1e-6, 4, 2, taps.reshape(5, -1), words)
    wide_h, wide_out = once(large, 0.5e-6, shape.n_head, shape.n_head_kv, padded(taps).reshape(5, -1), padded(words))
    np.testing.assert_allclose(wide_h[:, :256], h, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(wide_out[:, :256], out, rtol=1e-4, atol=1e-4)
    assert (wide_h[:, 256] == 1e-3).all() and (wide_out[:, 256] > 1).all() and (wide_h[:, 257:] == 0).all()


def test_a_quantized_head_is_the_same_but_for_rounding(file: Path, tmp_path: Path) -> None:
    path = quantize_head(file, "q8_0", tmp_path / "small.gguf")
    assert path.stat().st_size < 0.6 * file.stat().st_size
    assert read_metadata(path).keys() == read_metadata(file).keys() | {"general.file_type"}
    exact, rounded = SmallHead(file), SmallHead(path)
    for name in ("fc.weight", "blk.0.attn_q.weight", "blk.0.attn_norm_2.weight"):
        want = exact.tensor(name)()
        np.testing.assert_allclose(rounded.tensor(name)(), want, atol=np.abs(want).max() / 100)


def test_the_head_in_the_repository_is_of_the_pocket_target() -> None:
    head, target = read_metadata(HEAD), read_metadata(bundled_pair().target)
    assert head["tokenizer.ggml.tokens"].data == target["tokenizer.ggml.tokens"].data
    assert head["eagle3.target_hidden_size"].data == target["qwen3.embedding_length"].data
    assert HEAD.stat().st_size < 1e6


def test_systems_differ_in_what_drafts(file: Path) -> None:
    found = commands(Setting(bundled_pair(), Path("bin")), file)
    assert list(found) == [PLAIN, *(system(kind, n) for kind, ns in DRAFTS.items() for n in ns), CHAINS, TREES]
    eagle, dflash = found[system("eagle3", 3)], found[system("dflash", 3)]
    assert [a for a, b in zip(eagle, dflash, strict=True) if a != b] == [str(file), "draft-eagle3"]


def run(seconds: float, passes: int) -> Run:
    return Run([10, 90], [0.1 * seconds, 0.9 * seconds], [1.0, 1.0], [0.1, 0.1], [passes, passes], [1, 2])


def test_the_table() -> None:
    plain = [run(10, 50), run(20, 50), run(10, 50)]
    rows = [row(PLAIN, plain, plain)]
    for name, seconds in (("upstream eagle3 2", 5.0), ("upstream eagle3 5", 4.0), ("upstream dflash 7", 2.0)):
        rows.append(row(name, [run(seconds, 20), run(2 * seconds, 20), run(seconds, 20)], plain))
    rows += [row(name, [run(seconds, 10)] * 3, plain) for name, seconds in ((CHAINS, 2.5), (TREES, 1.0))]
    assert rows[1]["speedup"] == 2.0 and rows[1]["al"] == 2.5 and rows[1]["same_as_plain"] == 2
    assert rows[-1]["speedup_range"] == [10.0, 20.0] and rows[-1]["speedup"] == 10.0
    assert best(rows, "upstream eagle3")["system"] == "upstream eagle3 5"
    text = markdown([{"shape": "small", "ftype": "f16", "prompts": 2, "rows": rows}], "Here.")
    assert "upstream eagle3 5, the fastest of its draft lengths: upstream dflash 7: 2.00," in text
    assert f"{TREES}: 4.00" in text
