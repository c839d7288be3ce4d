"""The target as a `transformers` model: the pocket target's text weights, and a new vision tower."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from transformers import (
    PreTrainedTokenizerFast,
    Qwen3ForCausalLM,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
)

from benchmarks.pocket_vl import pictures
from benchmarks.pocket_vl.chats import END, PAD, START, Batch

SECTIONS = [12, 10, 10]  # of 32 pairs of channels: time, height, width
VISION = {
    "depth": 3,
    "hidden_size": 96,
    "intermediate_size": 256,
    "num_heads": 3,
    "patch_size": pictures.PATCH,
    "spatial_merge_size": pictures.MERGE,
    "temporal_patch_size": pictures.FRAMES,
    "num_position_embeddings": 64,
    "deepstack_visual_indexes": [0, 1],
}


def make_tokenizer(text_model: Path) -> PreTrainedTokenizerFast:
    """The text model's tokenizer with three more tokens at its end, for what surrounds and stands for pictures."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(text_model)
    tokenizer.add_tokens([START, END, PAD], special_tokens=True)
    return tokenizer


def make_target(text_model: Path, tokenizer: PreTrainedTokenizerFast) -> Qwen3VLForConditionalGeneration:
    """A model of the text model's weights that answers text as that does, with a random vision tower."""
    text = Qwen3ForCausalLM.from_pretrained(text_model, dtype=torch.float32)
    old = text.config
    start, end, pad = (tokenizer.convert_tokens_to_ids(token) for token in (START, END, PAD))
    config = Qwen3VLConfig(
        text_config={
            **{
                key: getattr(old, key)
                for key in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "head_dim",
                            "num_key_value_heads", "rms_norm_eps", "max_position_embeddings")
            },
            "vocab_size": len(tokenizer),
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": old.rope_parameters["rope_theta"],
                "mrope_section": SECTIONS,
                "mrope_interleaved": True,
            },
        },
        vision_config={**VISION, "out_hidden_size": old.hidden_size},
        image_token_id=pad, video_token_id=-1, vision_start_token_id=start, vision_end_token_id=end,
        tie_word_embeddings=False, eos_token_id=old.eos_token_id, pad_token_id=old.pad_token_id,
    )  # fmt: skip
    target = Qwen3VLForConditionalGeneration(config).float()
    missing, unexpected = target.model.language_model.load_state_dict(
        {name: value for name, value in text.model.state_dict().items() if not name.startswith("embed_tokens")},
        strict=False,
    )
    if unexpected or missing != ["embed_tokens.weight"]:
        raise SystemExit(f"the text model's weights do not fit: {missing}, {unexpected}")
    for mine, theirs in (
        (target.model.language_model.embed_tokens, text.model.embed_tokens),
        (target.lm_head, text.lm_head),
    ):
        mine.weight.data[: len(theirs.weight)] = theirs.weight.data
        mine.weight.data[len(theirs.weight) :] = theirs.weight.data.mean(0)
    torch.nn.init.normal_(target.model.visual.pos_embed.weight, std=0.2)  # to count beside the pixels from the start
    return target


def hidden_states(target: Qwen3VLForConditionalGeneration, batch: Batch, **options: bool) -> Tensor:
    """The final hidden states of a batch, normed [rows, tokens, width]; or all of them, as `options` say."""
    kinds = (batch.ids == target.config.image_token_id).int() if batch.pixels is not None else None
    return target.model(**batch.inputs(), mm_token_type_ids=kinds, **options)
