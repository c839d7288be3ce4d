"""Small random hybrids of all three architectures: logits of prompts and of every node of trees within 1e-3 of
transformers' own models.

Made with transformers, saved, and converted by upstream's own converter, the one in the pinned source.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from transformers import Qwen3_5ForCausalLM, Qwen3_5MoeForCausalLM, Qwen3NextConfig, Qwen3NextForCausalLM
from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5TextConfig
from transformers.models.qwen3_5_moe.configuration_qwen3_5_moe import Qwen3_5MoeTextConfig

from dflash_local.native import NativeEngine, TreeRows
from tests.trees.forest import Tree, bush, chain, grow, line, spine, vine, words
from tests.trees.models import N_VOCAB
from tests.trees.twin import F32, Array, distance, engine, feed

from .upstream import convert_all, save_tokenizer

pytestmark = pytest.mark.parity
TOLERANCE = 1e-3  # of a row's spread, from its least to its greatest logit
SEEN = 0.1  # what a mistake must move a row by

SHAPE: dict[str, Any] = {
    "vocab_size": N_VOCAB, "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "linear_conv_kernel_dim": 4, "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "eos_token_id": N_VOCAB - 1, "pad_token_id": None,
    "bos_token_id": None,
}  # fmt: skip
ROPE: dict[str, Any] = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
MROPE = ROPE | {"mrope_section": [3, 3, 2], "mrope_interleaved": True}
EXPERTS = {
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 48,
}


def delta_net(n_key_heads: int, n_value_heads: int, head: int) -> dict[str, int]:
    return {
        "linear_num_key_heads": n_key_heads, "linear_num_value_heads": n_value_heads,
        "linear_key_head_dim": head, "linear_value_head_dim": head,
    }  # fmt: skip


class Kind(NamedTuple):
    """An architecture's classes, and its settings beyond SHAPE."""

    model: Any
    config: Any
    settings: dict[str, Any]


KINDS = {
    "qwen35": Kind(
        Qwen3_5ForCausalLM, Qwen3_5TextConfig, delta_net(2, 4, 64) | {"intermediate_size": 96, "rope_parameters": MROPE}
    ),
    "qwen35moe": Kind(
        Qwen3_5MoeForCausalLM, Qwen3_5MoeTextConfig, delta_net(2, 6, 64) | EXPERTS | {"rope_parameters": MROPE}
    ),
    "qwen3next": Kind(
        Qwen3NextForCausalLM, Qwen3NextConfig, delta_net(2, 4, 128) | EXPERTS | {"rope_parameters": ROPE}
    ),
}


def random_model(name: str) -> Any:
    """A model whose every part tells: norms and logits with a spread, gates that forget within a few to a few hundred
    tokens."""
    torch.manual_seed(len(name))
    kind = KINDS[name]
    model = kind.model(kind.config(**SHAPE | kind.settings))
    for part, values in model.named_parameters():
        if part.endswith("A_log"):
            values.data = torch.tensor([0.01, 0.1, 0.5])[torch.randint(3, values.shape)].log()
        elif part.endswith("conv1d.weight"):
            torch.nn.init.normal_(values, std=0.7)
        elif values.dim() == 1:
            torch.nn.init.normal_(values, mean=float(values.mean()), std=0.3)
        else:
            torch.nn.init.normal_(values, std=values.shape[-1] ** -0.5)
    return model.eval()


class Both(NamedTuple):
    """A model and our engine over its conversion."""

    model: Any
    native: NativeEngine

    def theirs(self, past: list[int], tree: Tree) -> Array:
        """Logits [n_nodes, N_VOCAB] of a tree's paths, each read alone after `past`."""
        paths = [tree.path(leaf) for leaf in tree.leaves()]
        longest = max(map(len, paths))
        # Causal: nothing sees what is after it.
        texts = [past + tree.text(path) + [0] * (longest - len(path)) for path in paths]
        logits = self.model(torch.tensor(texts), use_cache=False).logits.numpy()
        out = np.full((len(tree.tokens), N_VOCAB), np.nan, np.float32)
        for path, found in zip(paths, logits, strict=True):
            out[path] = found[len(past) : len(past) + len(path)]
        return out

    def ours(self, tree: Tree, path: list[int]) -> Array:
        """The same on top of what the slot holds, in one pass; then the commit of a path."""
        (logits,) = self.native.tree_pass([TreeRows(0, tree.tokens, tree.parents, path)], N_VOCAB)
        assert logits is not None
        return logits


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, Path]]:
    """Model and GGUF of each architecture."""
    folder = tmp_path_factory.mktemp("architectures")
    made = {name: random_model(name) for name in KINDS}
    for name, model in made.items():
        model.save_pretrained(folder / name)
        save_tokenizer(folder / name)
    convert_all([folder / name for name in KINDS], folder, "--no-nextn")
    return {name: (model, folder / f"{name}.gguf") for name, model in made.items()}


@pytest.fixture(params=KINDS)
def both(converted: dict[str, tuple[Any, Path]], request: pytest.FixtureRequest) -> Iterator[Both]:
    model, path = converted[request.param]
    native = engine(path, n_slots=1, n_ctx=512, kv_unified=False, flash_attn=0, **F32)
    assert native.info()["target"]["arch"] == request.param and not native.info()["no_tree"]
    yield Both(model, native)
    native.destroy()


def test_prompts_and_trees(both: Both) -> None:
    """A prompt, then trees, of which a path, its beginning or nothing is kept, then more text, and again."""
    rng = random.Random("parity")
    past = words(rng, 80)
    feed(both.native, 0, past, len(past))
    for n_text, trees in (
        (30, ((vine, 64, 9), (bush, 24, 2), (spine, 16, 0))),
        (1, ((line, 8, 5), (bush, 30, 3))),
        (50, ()),
    ):
        text = chain(words(rng, n_text))
        assert distance(both.ours(text, list(range(n_text))), both.theirs(past, text)).max() < TOLERANCE
        past += text.tokens
        for shape, n_nodes, n_kept in trees:
            tree = grow(shape(rng, n_nodes), rng)
            path = tree.path(n_nodes - 1)[:n_kept]
            assert distance(both.ours(tree, path), both.theirs(past, tree)).max() < TOLERANCE
            past += tree.text(path)


def test_mistakes_are_seen(both: Both) -> None:
    """A wrong parent and a wrong path move the logits by far more than the tolerance."""
    rng = random.Random("mistakes")
    past = words(rng, 40)
    feed(both.native, 0, past)
    # 0 -> 1 -> 3 -> 5 -> 7
    #   -> 2 -> 4 -> 6 -> 8; then 5 moves from 3 to 4
    tree = grow([-1, 0, 0, 1, 2, 3, 4, 5, 6], rng)
    moved = distance(both.ours(Tree(tree.tokens, [-1, 0, 0, 1, 2, 4, 4, 5, 6]), [0, 1, 3]), both.theirs(past, tree))
    assert moved[[5, 7]].min() > SEEN and np.delete(moved, [5, 7]).max() < TOLERANCE
    text = chain(words(rng, 3))
    assert distance(both.ours(text, []), both.theirs(past + tree.text([0, 2, 4]), text)).min() > SEEN
    assert distance(both.ours(text, []), both.theirs(past + tree.text([0, 1, 3]), text)).max() < TOLERANCE
