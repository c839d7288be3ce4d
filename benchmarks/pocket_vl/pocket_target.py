"""The target as a `transformers` model: the pocket target's text weights, and a new vision tower."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    AddedToken,
    PreTrainedTokenizerFast,
    Qwen3ForCausalLM,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
)

from benchmarks.pocket_vl import pictures
from benchmarks.pocket_vl.chats import END, PAD, START, WORDS, Batch

SECTIONS = [12, 10, 10]  # of 32 pairs of channels: time, height, width
# Words that the text model has learned to repeat from its prompt: the first `WORDS` begin as copies of them, so that it
# soon repeats what the rows of a picture point to.
REPEATED = (
    " total", " count", " value", " item", " price", " score", " width", " height", " speed", " delta", " result",
    " index", " limit", " factor", " rate", " amount",
)  # fmt: skip
NO_VIDEO = -1  # in place of a token
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
_KEPT = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
    "rms_norm_eps", "max_position_embeddings",
)  # fmt: skip


def make_tokenizer(text_model: Path) -> PreTrainedTokenizerFast:
    """The text model's tokenizer with more tokens at its end: for what surrounds and stands for pictures, and words."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(text_model)
    tokenizer.add_tokens([START, END, PAD], special_tokens=True)
    tokenizer.add_tokens([AddedToken(word, normalized=False) for word in WORDS])
    return tokenizer


def make_config(text: dict[str, Any], rope_theta: float, tokens: list[str], **ends: int) -> Qwen3VLConfig:
    """The model's shape. `text`: sizes of the text model; `tokens`: its vocabulary; `ends`: ids of its own."""
    start, end, pad = (tokens.index(token) for token in (START, END, PAD))
    rope = {
        "rope_type": "default", "rope_theta": rope_theta, "mrope_section": SECTIONS, "mrope_interleaved": True,
    }  # fmt: skip
    return Qwen3VLConfig(
        text_config={**text, "vocab_size": len(tokens), "rope_parameters": rope},
        vision_config={**VISION, "out_hidden_size": text["hidden_size"]},
        image_token_id=pad, video_token_id=NO_VIDEO, vision_start_token_id=start, vision_end_token_id=end,
        tie_word_embeddings=False, **ends,
    )  # fmt: skip


def make_target(text_model: Path, tokenizer: PreTrainedTokenizerFast) -> Qwen3VLForConditionalGeneration:
    """A model of the text model's weights that answers text as that does, with a random vision tower."""
    text = Qwen3ForCausalLM.from_pretrained(text_model, dtype=torch.float32)
    old = text.config
    config = make_config(
        {key: getattr(old, key) for key in _KEPT}, old.rope_parameters["rope_theta"],
        tokenizer.convert_ids_to_tokens(range(len(tokenizer))),
        eos_token_id=old.eos_token_id, pad_token_id=old.pad_token_id,
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
        torch.nn.init.normal_(mine.weight.data[len(theirs.weight) :], std=theirs.weight.std().item())
        for word, like in zip(WORDS, REPEATED, strict=False):
            new, old = tokenizer.convert_tokens_to_ids([word, *tokenizer.tokenize(like)])
            mine.weight.data[new] = theirs.weight.data[old]
    torch.nn.init.normal_(target.model.visual.pos_embed.weight, std=0.2)  # to count beside the pixels from the start
    return target


def hidden_states(target: Qwen3VLForConditionalGeneration, batch: Batch, **options: bool) -> Any:
    """What the model without its head makes of a batch: `last_hidden_state` [rows, tokens, width], normed."""
    kinds = (batch.ids == target.config.image_token_id).int() if batch.pixels is not None else None
    return target.model(**batch.inputs(), mm_token_type_ids=kinds, **options)


def logits(target: Qwen3VLForConditionalGeneration, batch: Batch) -> Tensor:
    """[rows, tokens, vocabulary]"""
    return target.lm_head(hidden_states(target, batch).last_hidden_state)
