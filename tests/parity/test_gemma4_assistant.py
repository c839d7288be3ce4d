"""Gemma 4's assistants, converted: the keys and tensors of upstream's converter, and drafts as likely as with
transformers' own models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from transformers import (
    Gemma4AssistantConfig,
    Gemma4AssistantForCausalLM,
    Gemma4ForCausalLM,
    Gemma4TextConfig,
    Gemma4UnifiedAssistantConfig,
    Gemma4UnifiedAssistantForCausalLM,
    Gemma4UnifiedTextConfig,
)

from dflash_local.convert import convert
from dflash_local.native import VerifiedTree
from tests.convert import samples
from tests.trees.models import N_VOCAB

from .f32 import engine_f32
from .gemma4 import TableGelu
from .upstream import convert_all, save_tokenizer

pytestmark = pytest.mark.parity
WINDOW, WIDTH, N_DRAFT, TOLERANCE = 16, 64, 4, 1e-4
PROMPT = torch.randint(4, N_VOCAB - 1, [50], generator=torch.Generator().manual_seed(1)).tolist()
SLIDING, FULL = "sliding_attention", "full_attention"

COMMON: dict[str, Any] = {
    "vocab_size": N_VOCAB, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "global_head_dim": 32, "sliding_window": WINDOW, "max_position_embeddings": 512,
}  # fmt: skip


class Kind(NamedTuple):
    """An assistant's classes, what is special about its target, and what both have."""

    model: Any
    config: Any
    text: Any
    target: dict[str, Any]
    both: dict[str, Any]


# In every published configuration; upstream's converter wants the key.
EXPERTS = {"moe_intermediate_size": None}
PLAIN = {"hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0}
KINDS = {
    # inputs of each layer, and layers with the K and V of others, as in E2B and E4B; its assistants have an index
    "E2B": Kind(
        Gemma4AssistantForCausalLM, Gemma4AssistantConfig, Gemma4TextConfig,
        {"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": N_VOCAB, "num_kv_shared_layers": 2}, {},
    ),
    # V made from K, and fewer heads, in full layers, as in 31B
    "31B": Kind(
        Gemma4AssistantForCausalLM, Gemma4AssistantConfig, Gemma4TextConfig, PLAIN,
        {"attention_k_eq_v": True, "num_global_key_value_heads": 1},
    ),
    "12B": Kind(
        Gemma4UnifiedAssistantForCausalLM, Gemma4UnifiedAssistantConfig, Gemma4UnifiedTextConfig, PLAIN,
        {"attention_k_eq_v": True, "num_global_key_value_heads": 1},
    ),
}  # fmt: skip


def randomize(model: Any) -> Any:
    for name, values in model.state_dict().items():
        if values.dim() == 1 and values.is_floating_point():
            torch.nn.init.normal_(values, mean=1.0, std=0.2)
            # attention has no scale: trained norms have learned one
            values.mul_(0.25 if "q_norm" in name else 1.0)
        elif values.dim() > 1:
            torch.nn.init.normal_(values, std=values.shape[-1] ** -0.5)
    for module in model.modules():
        if hasattr(module, "act_fn"):
            module.act_fn = TableGelu()
    return model.eval()


def random_pair(kind: Kind) -> tuple[Any, Any]:
    torch.manual_seed(0)
    target = Gemma4TextConfig(
        **COMMON | kind.both | kind.target, hidden_size=WIDTH, num_hidden_layers=4, layer_types=[SLIDING, FULL] * 2,
        final_logit_softcapping=30.0,
    )  # fmt: skip
    unified = kind.text is Gemma4UnifiedTextConfig
    text = kind.text(
        **COMMON | kind.both | (EXPERTS if unified else PLAIN), hidden_size=96, num_hidden_layers=3,
        layer_types=[SLIDING, SLIDING, FULL], num_kv_shared_layers=3,
    )  # fmt: skip
    config = kind.config(text_config=text, backbone_hidden_size=WIDTH)
    return randomize(Gemma4ForCausalLM(target)), randomize(kind.model(config))


class Pair(NamedTuple):
    """Models of transformers, and their GGUFs; `theirs` is the assistant's by upstream's converter."""

    target: Any
    assistant: Any
    target_path: Path
    ours: Path
    theirs: Path

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def drafts(self, text: list[int]) -> list[np.ndarray[Any, Any]]:
        """Probabilities of all tokens after `text`, each after the likeliest of the positions before. The target has
        read all but the last token; a window is what llama.cpp takes it for, the query's own position counted."""
        read = self.target.model(torch.tensor([text[:-1]]), use_cache=False, return_shared_kv_states=True)
        held = dict(read.shared_kv_states)
        held[SLIDING] = tuple(part[:, :, -(WINDOW - 1) :] for part in held[SLIDING])
        state, token, found = read.last_hidden_state[:, -1:], text[-1], []
        for _ in range(N_DRAFT):
            embedded = self.target.model.embed_tokens(torch.tensor([[token]]))
            output = self.assistant(
                inputs_embeds=torch.cat([embedded, state], -1), position_ids=torch.tensor([[len(text) - 1]]),
                shared_kv_states=held,
            )  # fmt: skip
            state, probs = output.last_hidden_state, output.logits[0, -1].softmax(-1)
            token = int(probs.argmax())
            found.append(probs.numpy())
        return found


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pair]:
    folder = tmp_path_factory.mktemp("assistants")
    made = {}
    for name, kind in KINDS.items():
        target, assistant = random_pair(kind)
        paths = [folder / f"{name}-{part}" for part in ("target", "assistant")]
        for model, path in zip((target, assistant), paths, strict=True):
            model.save_pretrained(path)
            save_tokenizer(path)
        of, theirs = (path.with_name(f"{path.name}.gguf") for path in paths)
        made[name] = Pair(target, assistant, of, folder / f"{name}.gguf", theirs)
    convert_all([path.with_suffix("") for pair in made.values() for path in (pair.target_path, pair.theirs)], folder)
    for pair in made.values():
        convert(pair.theirs.with_suffix(""), pair.target_path, pair.ours, outtype="f32")
    return made


@pytest.fixture(params=KINDS)
def made(pairs: dict[str, Pair], request: pytest.FixtureRequest) -> Pair:
    return pairs[request.param]


def test_upstream_s_converter_writes_the_same(made: Pair) -> None:
    def keys(path: Path) -> dict[str, Any]:
        described = ("general.name", "general.size_label", "general.finetune", "general.basename")
        return {key: value for key, value in samples.read_keys(path).items() if key not in described}

    assert keys(made.ours) == keys(made.theirs)
    ours, theirs = samples.read_tensors(made.ours), samples.read_tensors(made.theirs)
    assert samples.read_shapes(made.ours) == samples.read_shapes(made.theirs)
    for name, (kind, data) in theirs.items():
        assert ours[name][0] == kind
        np.testing.assert_array_equal(ours[name][1], data, err_msg=name)


def trees(pair: Pair) -> Iterator[tuple[VerifiedTree, list[int]]]:
    """The verified trees of an answer, and the text up to each one's anchor."""
    text = list(PROMPT)
    with engine_f32(pair.target_path, pair.ours, n_ctx=256, swa_full=True) as engine:
        for chunk in engine.stream(
            PROMPT, max_tokens=12, temperature=0, ignore_eos=True, budget=16, return_drafts=True
        ):
            tree = chunk.step.tree if chunk.step else None
            if tree and tree.tokens:
                yield tree, text + tree.tokens[:1]
                text += [tree.tokens[node] for node in tree.path]


def test_drafts_are_those_of_transformers(made: Pair) -> None:
    seen = 0
    for tree, text in trees(made):
        drafts, depths = made.drafts(text), [0]
        for token, parent, prob in zip(tree.tokens[1:], tree.parents[1:], tree.probs[1:], strict=True):
            depths.append(depths[parent] + 1)
            if depths[-1] <= N_DRAFT:
                assert drafts[depths[-1] - 1][token] == pytest.approx(prob, abs=TOLERANCE)
                seen += 1
    assert seen > 50
