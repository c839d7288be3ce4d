"""The target's shape and tokenizer for a conversion, from its GGUF."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from gguf import GGUFValueType

from dflash_local.errors import ModelError

from .gguf_metadata import INTEGERS, Value, read_metadata, read_model

MASK_TOKEN = "tokenizer.ggml.mask_token_id"
TOKENS = "tokenizer.ggml.tokens"


@dataclass(frozen=True)
class Target:
    """`n_layer` counts the layers that can be tapped, without next-token (MTP) layers at the end, of which there are
    `n_next_token_layers`. `tokenizer` has all `tokenizer.*` keys as in the file; `logit_softcap` is None if there is
    none."""

    path: Path
    arch: str
    n_embd: int
    n_layer: int
    n_vocab: int
    mask_token: int | None
    uses_mrope: bool
    tokenizer: dict[str, Value]
    logit_softcap: float | None = None
    n_next_token_layers: int = 0

    @cached_property
    def has_next_token_tensors(self) -> bool:
        """Whether the file has MTP layers, which its keys may count although it has none. Raises ModelError."""
        return any(name.endswith(".nextn.eh_proj.weight") for name in read_model(self.path)[1])

    @classmethod
    def read(cls, path: Path) -> Target:
        """Raises ModelError; `field` is the missing or wrong key."""
        metadata = read_metadata(path)
        integer, text = partial(_integer, path, metadata), partial(_text, path, metadata)
        if integer("split.no", 0) != 0:
            raise ModelError(
                f"{path.name} is not the first part of a split model", field="split.no", hint="give the -00001-of- file"
            )
        arch = text("general.architecture")
        if text("general.type", "model") != "model" or arch in _NOT_TARGETS:
            raise ModelError(f"{path.name} ({arch}) is not a target", field="general.architecture", hint=_WHAT_WE_TAKE)
        tokens = metadata.get(TOKENS)
        if tokens is None or tokens.item != GGUFValueType.STRING or not tokens.data:
            raise ModelError(f"{path.name} has no tokenizer: it lacks {TOKENS!r}", field=TOKENS, hint=_WHAT_WE_TAKE)
        n_next_token_layers = integer(f"{arch}.nextn_predict_layers", 0)
        n_layer = integer(f"{arch}.block_count") - n_next_token_layers
        if n_layer < 1:
            raise ModelError(f"{path.name} has no layers", field=f"{arch}.block_count", hint=_WHAT_WE_TAKE)
        mask_token = integer(MASK_TOKEN, -1)
        softcap = metadata.get(f"{arch}.final_logit_softcapping")
        return cls(
            path=path,
            arch=arch,
            n_embd=integer(f"{arch}.embedding_length"),
            n_layer=n_layer,
            n_vocab=len(tokens.data),
            mask_token=mask_token if mask_token >= 0 else None,
            uses_mrope=f"{arch}.rope.dimension_sections" in metadata,
            tokenizer={key: value for key, value in metadata.items() if key.startswith("tokenizer.")},
            logit_softcap=softcap.data if softcap is not None and softcap.type == GGUFValueType.FLOAT32 else None,
            n_next_token_layers=n_next_token_layers,
        )


def _integer(path: Path, metadata: Mapping[str, Value], key: str, default: int | None = None) -> int:
    value = metadata.get(key)
    if value is None and default is not None:
        return default
    if value is None:
        raise ModelError(f"{path.name} is not a text model: it lacks the key {key!r}", field=key, hint=_WHAT_WE_TAKE)
    if value.type not in INTEGERS or value.data < 0:
        raise ModelError(f"{path.name}: the key {key!r} is not a size", field=key, hint="download the file again")
    return int(value.data)


def _text(path: Path, metadata: Mapping[str, Value], key: str, default: str | None = None) -> str:
    value = metadata.get(key)
    if value is None and default is not None:
        return default
    if value is None or value.type != GGUFValueType.STRING:
        raise ModelError(f"{path.name} is not a text model: it lacks the string {key!r}", field=key, hint=_WHAT_WE_TAKE)
    return bytes(value.data).decode(errors="replace")


_NOT_TARGETS = {"clip", "dflash", "eagle3", "gemma4-assistant", "mmproj"}
_WHAT_WE_TAKE = "give the GGUF of the model that the drafter was trained for"
