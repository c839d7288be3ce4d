"""A trained DFlare drafter decodes like its reference. Random ones: test_checkpoints.py."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from dflash.model import DFlashDraftModel, extract_context_feature
from torch import Tensor
from transformers import Qwen3ForCausalLM

from dflash_local.convert import convert

from .dflare import QwenDFlareDraftModel
from .f32 import engine_f32, widen
from .reference import DRAFTERS, Reference, load_drafter, load_target
from .training import answers, check_decoding, fine_tune, weighted_loss

pytestmark = pytest.mark.parity


def like_dflash(plain: DFlashDraftModel, target: Qwen3ForCausalLM, texts: Sequence[Tensor]) -> QwenDFlareDraftModel:
    """A DFlare drafter that all taps count alike in, and whose projections of context rows come as close as they can to
    those of `plain`, over the rows of `texts`."""
    drafter = QwenDFlareDraftModel(plain.config)
    state = {name: tensor for name, tensor in plain.state_dict().items() if not name.startswith("fc.")}
    drafter.load_state_dict(state, strict=False)
    ids = plain.target_layer_ids
    taps = torch.cat(
        [extract_context_feature(target(text[None], output_hidden_states=True).hidden_states, ids)[0] for text in texts]
    )
    fused, mixed = plain.hidden_norm(plain.fc(taps)), drafter.hidden_norm(taps.unflatten(-1, (len(ids), -1)).mean(1))
    for ours, theirs in zip(drafter.layers, plain.layers, strict=True):
        for part in ("k_proj", "v_proj"):
            wanted = getattr(theirs.self_attn, part)(fused)
            getattr(ours.self_attn, f"{part}_target").weight.copy_(torch.linalg.lstsq(mixed, wanted).solution.T)
    return drafter


@pytest.mark.slow
def test_trained_drafter(pocket: dict[str, Path], target_f32: Path, prompts: list[list[int]], tmp_path: Path) -> None:
    torch.manual_seed(0)
    source = widen(pocket["dflash"], tmp_path / "dflash.gguf")
    target, prompts = load_target(target_f32), prompts[::4]
    texts = answers(target_f32, prompts)
    drafter = like_dflash(load_drafter(source, DRAFTERS["dflash"]), target, texts)
    fine_tune(
        drafter,
        target,
        texts,
        lambda hidden, tokens: weighted_loss(target.lm_head(hidden[:, 1:]), tokens[:, 1:-1]),
        steps=40,
    )
    assert not torch.allclose(drafter.layer_fusion_weights, drafter.layer_fusion_weights[:, :1])
    drafter.save_pretrained(tmp_path / "checkpoint")
    convert(tmp_path / "checkpoint", target_f32, tmp_path / "drafter.gguf", outtype="f32")
    with engine_f32(target_f32, tmp_path / "drafter.gguf", n_ctx=1024) as engine:
        assert check_decoding(engine, Reference(target, drafter), prompts) > 2
