"""LiliCorr drafters: hidden states, logits, candidates, pair scores and greedy chains as in PyTorch, with plain layers
and with DFlash 2's convolutions."""

import json
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import pytest
import torch
from dflash.model import DFlash2DraftModel
from safetensors.torch import save_file
from transformers import Qwen3Config, Qwen3ForCausalLM

from dflash_local import Engine, SamplingParams
from dflash_local.convert import convert
from dflash_local.draft_options import Accept

from .dspark import Tensors, backbone
from .f32 import engine_f32, widen
from .lilicorr import LiliCorr, LiliCorrHead, Sizes
from .reference import DRAFTERS, MASK, SHAPE, TARGET_LAYERS, load_drafter, load_target
from .test_drafter import assert_close
from .test_dspark import best_path

pytestmark = pytest.mark.parity
BLOCK_SIZE, LAYERS, TAPS = 8, 2, (1, 4)
CONVOLUTIONS = {"conv_kernel_size": 2, "conv_group_size": 16}
SELECTOR = {"selector_rank": 8, "selector_top_k": 8}  # which DFlash2DraftModel cannot do without
GREEDY = SamplingParams(temperature=0)


@pytest.fixture(scope="module")
def target(target_f32: Path) -> Qwen3ForCausalLM:
    return load_target(target_f32)


def convolved() -> DFlash2DraftModel:
    """DFlash 2's layers, weights unset."""
    config = Qwen3Config(**SHAPE, num_hidden_layers=LAYERS, layer_types=["full_attention"] * LAYERS)
    config.num_target_layers, config.is_causal = TARGET_LAYERS, False
    config.dflash_config = {"mask_token_id": MASK, "target_layer_ids": list(TAPS), **CONVOLUTIONS, **SELECTOR}
    return DFlash2DraftModel(config).eval()


def random_(module: torch.nn.Module, gain: float = 1.0) -> None:
    for name, parameter in module.named_parameters():
        is_norm = parameter.dim() == 1 and name.endswith("weight")
        deviation = 0.3 if parameter.dim() == 1 else gain * parameter.shape[-1] ** -0.5
        torch.nn.init.normal_(parameter, mean=float(is_norm), std=deviation)


def random_drafter(target: Qwen3ForCausalLM, sizes: Sizes, with_convolutions: bool) -> LiliCorr:
    torch.manual_seed(0)
    model = convolved() if with_convolutions else backbone(LAYERS, TAPS)
    head = LiliCorrHead(sizes, BLOCK_SIZE).eval()
    random_(model)
    random_(head, gain=2.0)  # so that the candidates' scores lie apart
    return LiliCorr(target, model, {}, BLOCK_SIZE, False, head=head)


def settings(drafter: LiliCorr) -> dict[str, object]:
    sizes, is_convolved = drafter.head.sizes, isinstance(drafter.backbone, DFlash2DraftModel)
    head = {
        "candidate_topk": sizes.top_k, "hidden_size": sizes.width, "factor_dim": sizes.factor,
        "num_layers": sizes.layers, "num_heads": sizes.heads, "mlp_ratio": sizes.ratio, "logit_scale": sizes.scale,
        "vector_eps": sizes.eps,
    }  # fmt: skip
    return {
        **SHAPE, "architectures": ["LiLiCorrDraftModel"], "block_size": drafter.block_size, "hidden_act": "silu",
        "num_hidden_layers": len(drafter.backbone.layers), "has_own_lm_head": False,
        "dflash_config": {
            "projector_type": "lilicorr", "lilicorr_enabled": True, "mask_token_id": MASK,
            "target_layer_ids": list(drafter.backbone.target_layer_ids),
            **{f"lilicorr_{name}": value for name, value in head.items()}, **(CONVOLUTIONS if is_convolved else {}),
        },
    }  # fmt: skip


def named(head: Tensors) -> Tensors:
    """The other spelling of a head."""
    names = {"feature_mlp.0.": "feature_norm.", "mlp.0.": "mlp.up_proj.", "mlp.2.": "mlp.down_proj."}
    names |= {"feature_mlp.1.": "feature_mlp.up_proj.", "feature_mlp.3.": "feature_mlp.down_proj."}
    found = {}
    for name, tensor in head.items():
        for before, after in names.items():
            if before in name and ("feature" in before or "feature" not in name):
                name = name.replace(before, after)
                break
        found[name] = tensor[0] if name.endswith("_embedding") else tensor
    return found


def save(drafter: LiliCorr, folder: Path, is_named: bool = False) -> Path:
    """The checkpoint as ModelOpt exports it, or in the other spelling."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(settings(drafter)))
    head = drafter.head.state_dict()
    state = {f"lilicorr.{name}": tensor for name, tensor in (named(head) if is_named else head).items()}
    layers = drafter.backbone.state_dict()
    state |= {name: tensor for name, tensor in layers.items() if not name.startswith("candidate_selector.")}
    save_file({name: tensor.clone().contiguous() for name, tensor in state.items()}, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize(
    ("sizes", "with_convolutions", "is_named"),
    [
        (Sizes(), False, False),
        (Sizes(), True, False),
        (Sizes(top_k=5, width=0, heads=8, layers=1, ratio=1.5, factor=32), False, True),
        (Sizes(top_k=2, layers=1), True, True),
    ],
    ids=["plain", "convolutions", "as wide as the drafter", "two candidates"],
)
def test_random_checkpoint(
    sizes: Sizes, with_convolutions: bool, is_named: bool, target: Qwen3ForCausalLM, target_f32: Path, tmp_path: Path
) -> None:
    """Hidden states, logits, candidates in their order and every pair score, for several texts."""
    drafter = random_drafter(target, sizes, with_convolutions)
    convert(save(drafter, tmp_path / "checkpoint", is_named), target_f32, tmp_path / "drafter.gguf", outtype="f32")
    chosen = 0
    with engine_f32(target_f32, tmp_path / "drafter.gguf", n_ctx=256) as engine:
        assert engine.info["drafter"]["kind"] == "lilicorr"
        for n_tokens in (2, 3, 40, 90):
            tokens = torch.randint(4, SHAPE["vocab_size"], [n_tokens]).tolist()
            taps = drafter.taps(tokens[:-1])
            hidden, logits = drafter.draft(tokens, taps)
            probe = engine.draft_probe(tokens, BLOCK_SIZE)
            assert_close(probe.hidden, hidden.numpy())
            assert_close(probe.logits, logits.numpy())
            ids, scores = drafter.lattice(tokens, hidden, logits, taps)
            assert probe.ids[1:].tolist() == ids.tolist()
            assert_close(probe.scores[1:], scores.numpy())
            chain = best_path(probe.ids[1:], probe.scores[1:])
            assert chain == drafter.drafts(tokens, taps)
            chosen += chain != ids[:, 0].tolist()
    assert chosen  # else the likeliest candidates alone would pass


def test_some_tokens_of_the_targets_head(target: Qwen3ForCausalLM, target_f32: Path, tmp_path: Path) -> None:
    """--draft-vocab: the candidates are those of the tokens that texts brought in, with their embeddings and scores."""
    drafter, n = random_drafter(target, Sizes(layers=1), False), 400
    convert(save(drafter, tmp_path / "checkpoint"), target_f32, tmp_path / "drafter.gguf", outtype="f32")
    text = [1000 + i * 7 % 301 for i in range(600)]
    with engine_f32(target_f32, tmp_path / "drafter.gguf", n_ctx=1024, draft_vocab=n) as engine:
        brought_in = {*text, engine.generate(text, GREEDY, max_tokens=4, ignore_eos=True, budget=4).tokens[0]}
        held = sorted([*brought_in, *[token for token in range(1000) if token not in brought_in]][:n])
        probe = engine.draft_probe(text[:40], BLOCK_SIZE)
    taps = drafter.taps(text[:39])
    hidden, logits = drafter.draft(text[:40], taps)
    assert_close(probe.logits[:, held], logits[:, held].numpy())
    others = torch.full_like(logits, -torch.inf)
    others[:, held] = logits[:, held]
    ids, scores = drafter.lattice(text[:40], hidden, others, taps)
    assert probe.ids[1:].tolist() == ids.tolist()
    assert_close(probe.scores[1:], scores.numpy())


@pytest.fixture(scope="module")
def pair(
    pocket: dict[str, Path], target: Qwen3ForCausalLM, target_f32: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[LiliCorr, Path]:
    """A pocket drafter's trained layers with a random head: some of its drafts are accepted."""
    folder = tmp_path_factory.mktemp("lilicorr")
    torch.manual_seed(1)
    model = load_drafter(widen(pocket["dflash-small"], folder / "dflash.gguf"), DRAFTERS["dflash-small"])
    head = LiliCorrHead(Sizes(top_k=4, layers=1), 16).eval()
    random_(head, gain=2.0)
    drafter = LiliCorr(target, model, {}, 16, False, head=head)
    convert(save(drafter, folder / "checkpoint"), target_f32, folder / "drafter.gguf", outtype="f32")
    return drafter, folder / "drafter.gguf"


def test_chains_over_many_steps(pair: tuple[LiliCorr, Path], target_f32: Path, prompts: list[list[int]]) -> None:
    """Every step's chain, of whole and of shorter blocks, alone and with another slot in the pass: each slot's newest
    context row is its own."""
    drafter, path = pair
    with engine_f32(target_f32, path, n_ctx=1024, n_slots=2) as engine:
        for some, budget in ((prompts[:1], 16), (prompts[:24:12], 16), (prompts[16:18], 5)):
            reference = replace(drafter, most=budget - 1)
            running = [engine.submit(p, GREEDY, max_tokens=64, budget=budget, draft="chain") for p in some]
            for prompt, generation in zip(some, running, strict=True):
                ours = generation.result()
                theirs = reference.acceptance_lengths(prompt, ours.tokens)[:-1]  # the end of a turn is no token of ours
                # blocks at the end are shorter, so that their candidates see fewer others
                whole = [n for n, end in zip(theirs, accumulate(theirs), strict=True) if end < 64 - 2 * budget]
                assert ours.acceptance_lengths[: len(whole)] == whole
                assert max(whole) > 1


def drafted(engine: Engine, prompt: list[int], sampling: SamplingParams, budget: int, accept: Accept) -> int:
    """Generates plain and drafted text, which must be the same. Returns how many drafts were accepted."""
    plain = engine.generate(prompt, sampling, max_tokens=48, budget=1)
    ours = engine.generate(prompt, sampling, max_tokens=48, budget=budget, accept=accept)
    assert accept == "block" or ours.tokens == plain.tokens
    return int(ours.timings.draft_n_accepted)


@pytest.mark.parametrize("sampling", [GREEDY, SamplingParams(temperature=1.0, seed=7)], ids=["greedy", "sampled"])
def test_drafted_text_is_plain_text(
    sampling: SamplingParams, pair: tuple[LiliCorr, Path], target_f32: Path, prompts: list[list[int]]
) -> None:
    with engine_f32(target_f32, pair[1], n_ctx=1024) as engine:
        for budget in (4, 16):
            assert sum(drafted(engine, prompt, sampling, budget, "match") for prompt in prompts[::24])


def test_chances_of_drawn_drafts_are_known(
    pair: tuple[LiliCorr, Path], target_f32: Path, prompts: list[list[int]]
) -> None:
    with engine_f32(target_f32, pair[1], n_ctx=1024) as engine:
        sampling = SamplingParams(temperature=1.0, seed=3)
        assert sum(drafted(engine, prompt, sampling, 16, "block") for prompt in prompts[::24])
