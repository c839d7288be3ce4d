"""Assistants: models of their own that draft for one target with its K and V and hidden states, as Gemma 4's do.

They are MTP layers in a file of their own, and the engine drives them as such (ggml_ops/llama/mtp_layers.h); only their
header has another architecture than the target's. The engine also compares the sizes of heads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dflash_local.convert.gguf_metadata import read_metadata
from dflash_local.convert.target import TOKENS, Target
from dflash_local.diagnose.architectures import ASSISTANTS
from dflash_local.diagnose.finding import Finding, fail, ok, same

_TAKE_ITS_OWN = "take the assistant of this target"


@dataclass(frozen=True)
class Assistant:
    """`width`: of the hidden states that it reads; 0: its file does not say."""

    path: Path
    arch: str
    n_layer: int
    width: int
    n_vocab: int

    @classmethod
    def read(cls, path: Path) -> Assistant:
        """Raises ModelError."""
        keys = read_metadata(path)

        def known(key: str) -> Any:
            return keys[key].data if key in keys else 0

        arch = bytes(known("general.architecture")).decode()
        n_layer, width = known(f"{arch}.block_count"), known(f"{arch}.embedding_length_out")
        return cls(path, arch, n_layer, width, len(known(TOKENS) or ()))


def compare_assistant(target: Target, assistant: Assistant) -> Iterator[Finding]:
    """All findings about a target and an assistant that their headers allow, one per subject."""
    wanted = ASSISTANTS[assistant.arch]
    if target.arch != wanted:
        what = f"{assistant.path.name} is an assistant of {wanted} models, and the target is {target.arch}"
        yield fail("layers", what, "take a drafter of this target", "general.architecture")
        return
    yield ok("layers", f"{assistant.n_layer} of an assistant, {assistant.arch}")
    what = f"the assistant reads hidden states of {assistant.width} numbers, the target has {target.n_embd}"
    width = f"{assistant.arch}.embedding_length_out"
    yield same("width", assistant.width, target.n_embd, what, _TAKE_ITS_OWN, width)
    what = f"{assistant.n_vocab} tokens in the file of the assistant, {target.n_vocab} in the target's"
    yield same("vocabulary", assistant.n_vocab, target.n_vocab, what, _TAKE_ITS_OWN, TOKENS, unit=" tokens")
