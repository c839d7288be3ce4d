"""Assistants: models of their own that draft for one target with its K and V and hidden states, as Gemma 4's do.

They are MTP layers in a file of their own, and the engine drives them as such (ggml_ops/llama/mtp_layers.h); only their
header has another architecture than the target's. The engine also compares the sizes of heads.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dflash_local.convert.gguf_metadata import read_metadata
from dflash_local.convert.target import Target
from dflash_local.diagnose.architectures import ASSISTANTS
from dflash_local.diagnose.finding import Finding, fail, ok

_TAKE_ITS_OWN = "take the assistant of this target"


def compare_assistant(target: Target, path: Path) -> Iterator[Finding]:
    """All findings about a target and an assistant that their headers allow, one per subject. Raises ModelError."""
    keys = read_metadata(path)
    arch = bytes(keys["general.architecture"].data).decode()
    tokens, width = "tokenizer.ggml.tokens", f"{arch}.embedding_length_out"

    def known(key: str) -> Any:
        return keys[key].data if key in keys else 0

    if target.arch != ASSISTANTS[arch]:
        what = f"{path.name} is an assistant of {ASSISTANTS[arch]} models, and the target is {target.arch}"
        yield fail("layers", what, "take a drafter of this target", "general.architecture")
        return
    yield ok("layers", f"{known(f'{arch}.block_count')} of an assistant, {arch}")
    if known(width) != target.n_embd:
        what = f"the assistant reads hidden states of {known(width)} numbers, the target has {target.n_embd}"
        yield fail("width", what, _TAKE_ITS_OWN, width)
    else:
        yield ok("width", f"{target.n_embd}")
    n_vocab = len(known(tokens) or ())
    if n_vocab != target.n_vocab:
        what = f"{n_vocab} tokens in the file of the assistant, {target.n_vocab} in the target's"
        yield fail("vocabulary", what, _TAKE_ITS_OWN, tokens)
    else:
        yield ok("vocabulary", f"{target.n_vocab} tokens")
