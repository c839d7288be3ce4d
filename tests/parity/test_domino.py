"""Domino drafters: hidden states, logits, pair scores and greedy chains as in PyTorch, in both layouts."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import Qwen3ForCausalLM

from dflash_local import SamplingParams
from dflash_local.convert import convert

from .domino import Domino, DominoHead
from .dspark import backbone
from .f32 import engine_f32, widen
from .reference import DRAFTERS, MASK, SHAPE, load_drafter, load_target
from .test_drafter import assert_close
from .test_dspark import best_path
from .training import answers, fine_tune, weighted_loss

pytestmark = pytest.mark.parity
STATE_SIZE, WIDTH, BLOCK_SIZE, LAYERS, TAPS = 48, 24, 8, 2, (1, 4)


@pytest.fixture(scope="module")
def target(target_f32: Path) -> Qwen3ForCausalLM:
    return load_target(target_f32)


def random_drafter(target: Qwen3ForCausalLM, shift_label: bool, prefix: int) -> Domino:
    torch.manual_seed(0)
    model, head = backbone(LAYERS, TAPS), DominoHead(STATE_SIZE, WIDTH)
    for parameter in model.parameters():
        deviation = 0.3 if parameter.dim() == 1 else parameter.shape[-1] ** -0.5
        torch.nn.init.normal_(parameter, mean=float(parameter.dim() == 1), std=deviation)
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5)
    return Domino(target, model, {}, BLOCK_SIZE, shift_label, head=head, prefix=prefix)


def save(drafter: Domino, folder: Path, wrapper: str = "") -> Path:
    """The checkpoint as SpecForge exports it. Older ones have a `wrapper` before the head's tensors."""
    width, n_in = drafter.head.embed_proj[0].weight.shape
    config = {
        **SHAPE, "architectures": ["DFlashDraftModel"], "block_size": drafter.block_size, "hidden_act": "silu",
        "num_hidden_layers": len(drafter.backbone.layers),
        "dflash_config": {
            "projector_type": "domino", "mask_token_id": MASK,
            "target_layer_ids": list(drafter.backbone.target_layer_ids), "emb_dim": width,
            "gru_hidden_dim": n_in - SHAPE["hidden_size"], "pure_draft_prefix_len": drafter.prefix,
            "shift_label": drafter.anchor_first,
        },
    }  # fmt: skip
    head = {wrapper + name: tensor for name, tensor in drafter.head.state_dict().items()}
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    state = dict(drafter.backbone.state_dict()) | head
    save_file({name: tensor.clone().contiguous() for name, tensor in state.items()}, folder / "model.safetensors")
    return folder


def check_lattice(drafter: Domino, anchor: int, hidden: Tensor, logits: Tensor, ids: Any, scores: Any) -> None:
    """Pair scores [n, k, k] of candidates ids [n, k], the best path before them."""
    path = [anchor, *best_path(ids, scores)]
    for row in range(len(ids)):
        before = [[anchor]] * ids.shape[1] if row == 0 else [[*path[:row], token] for token in ids[row - 1].tolist()]
        h, base = hidden[drafter.first + row], logits[drafter.first + row]
        theirs = torch.stack([drafter.corrected(row, h, base, tokens) for tokens in before])
        assert_close(scores[row], theirs[:, ids[row]].numpy())


@pytest.mark.parametrize("wrapper", ["", "logit_head."])
@pytest.mark.parametrize("prefix", [0, 1, 3])
@pytest.mark.parametrize("shift_label", [False, True])
def test_random_checkpoint(
    shift_label: bool, prefix: int, wrapper: str, target: Qwen3ForCausalLM, target_f32: Path, tmp_path: Path
) -> None:
    """Hidden states, logits, every pair score and the greedy chain, for several texts."""
    drafter = random_drafter(target, shift_label, prefix)
    convert(save(drafter, tmp_path / "checkpoint", wrapper), target_f32, tmp_path / "drafter.gguf", outtype="f32")
    n_pos, corrected = BLOCK_SIZE - drafter.first, 0
    with engine_f32(target_f32, tmp_path / "drafter.gguf", n_ctx=256) as engine:
        for n_tokens in (3, 40, 90):
            tokens = torch.randint(4, SHAPE["vocab_size"], [n_tokens]).tolist()
            hidden, logits = drafter.draft(tokens)
            probe = engine.draft_probe(tokens, BLOCK_SIZE)
            assert_close(probe.hidden, hidden.numpy())
            assert_close(probe.logits, logits.numpy())
            ids, scores = probe.ids[drafter.first :], probe.scores[drafter.first :]
            check_lattice(drafter, tokens[-1], hidden, logits, ids, scores)
            theirs = drafter.drafts(tokens)
            assert len(theirs) == n_pos
            assert best_path(ids, scores) == theirs
            corrected += theirs != logits[drafter.first :].argmax(-1).tolist()
    assert corrected  # else the base logits alone would pass


def trained_drafter(
    source: Path, target: Qwen3ForCausalLM, texts: list[Tensor], shift_label: bool, block_size: int
) -> Domino:
    """A pocket DFlash drafter with a head that learns to correct it, or both together if the layout is another."""
    torch.manual_seed(0)
    model, head = load_drafter(source, DRAFTERS["dflash-small"]), DominoHead(64, 32)
    torch.nn.init.normal_(head.embed_proj[2].weight, std=0.02)
    model.block_size, model.domino = block_size, head  # trained along, as a part of it
    model.requires_grad_(shift_label)
    head.requires_grad_(True)
    drafter = Domino(target, model, {}, block_size, shift_label, head=head)

    def loss(hidden: Tensor, tokens: Tensor) -> Tensor:
        rows = hidden[:, drafter.first :]
        n = rows.shape[1]
        before, wanted = tokens[:, :n], tokens[:, 1 : n + 1]
        logits = target.lm_head(rows) + head(rows, target.get_input_embeddings()(before))
        return weighted_loss(logits, wanted)

    fine_tune(model, target, texts, loss, steps=150, learning_rate=3e-3 if shift_label else 1e-2)
    del model.domino
    return drafter


@pytest.mark.slow
@pytest.mark.parametrize(("shift_label", "block_size"), [(False, 16), (True, 8)])
def test_trained_drafter(
    shift_label: bool, block_size: int, pocket: dict[str, Path], target: Qwen3ForCausalLM, target_f32: Path,
    prompts: list[list[int]], tmp_path: Path,
) -> None:  # fmt: skip
    """Greedy chains of whole and of shorter blocks, and of several slots in one pass: the same acceptance."""
    source, prompts = widen(pocket["dflash-small"], tmp_path / "dflash.gguf"), prompts[::8]
    texts = answers(target_f32, prompts)
    drafter = trained_drafter(source, target, texts, shift_label, block_size)
    convert(save(drafter, tmp_path / "checkpoint"), target_f32, tmp_path / "drafter.gguf", outtype="f32")
    whole, greedy = block_size + shift_label, SamplingParams(temperature=0)
    with engine_f32(target_f32, tmp_path / "drafter.gguf", n_ctx=2048, n_slots=2) as engine:

        def lengths(prompts: list[list[int]], budget: int) -> list[int]:
            """Of all prompts at once, checked but for last passes: the end-of-turn token is not among our tokens."""
            checked = []
            reference = replace(drafter, most=budget - 1)
            generations = [
                engine.submit(prompt, greedy, max_tokens=96, budget=budget, draft="chain") for prompt in prompts
            ]
            for prompt, generation in zip(prompts, generations, strict=True):
                ours = generation.result()
                theirs = reference.acceptance_lengths(prompt, ours.tokens)[:-1]
                assert ours.acceptance_lengths[: len(theirs)] == theirs
                checked += theirs
            return checked

        alone = [length for prompt in prompts for length in lengths([prompt], whole)]
        assert lengths(prompts, whole) == alone
        lengths(prompts[:4], 5)
        assert sum(alone) / len(alone) > 2
    if shift_label:
        return  # learned with its backbone, so nothing can be said of the head alone
    plain = replace(drafter, prefix=block_size)
    without = [len(plain.acceptance_lengths(p, t[len(p) :].tolist())) for p, t in zip(prompts, texts, strict=True)]
    assert len(alone) + len(prompts) < sum(without)
