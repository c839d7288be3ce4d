"""Next-token (MTP) layers of a target, in its own file or split off into one of their own: can they draft for it?

What the engine says of them (ggml_ops/target/model_pair.cpp), from headers, before anything is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dflash_local.convert.gguf_glance import Glance
from dflash_local.convert.gguf_metadata import read_metadata
from dflash_local.convert.target import TOKENS, Target
from dflash_local.diagnose.architectures import ASSISTANTS, no_mtp
from dflash_local.diagnose.finding import Finding, fail, ok, same
from dflash_local.errors import ModelError

_TAKE_ITS_OWN = "take the MTP layers of this target"


def is_split_off(drafter: Path, arch: str) -> bool:
    """Whether a drafter's file has MTP layers of the target's architecture `arch`, or is an assistant. False if it
    cannot be read."""
    return bool(split_off_arch(drafter, arch))


def split_off_arch(drafter: Path, arch: str) -> str:
    """The architecture of a file with MTP layers: the target's, `arch`, or that of an assistant of any target. "" if it
    has no such layers, or cannot be read."""
    try:
        found = Glance.of(drafter).architecture
        return found if found in ASSISTANTS or (found == arch and has_layers(drafter)) else ""
    except ModelError:
        return ""


def has_layers(path: Path) -> bool:
    """Whether a file says that it has MTP layers. Raises ModelError."""
    return any(key.endswith(".nextn_predict_layers") and value.data for key, value in read_metadata(path).items())


def unused_layers(target: Target) -> str:
    """Why the MTP layers in the target's own file cannot draft; "" if they can. Raises ModelError."""
    if why := no_mtp(target.arch, target.n_next_token_layers):
        return why
    return "" if target.has_next_token_tensors else no_mtp(target.arch, 0)


def compare_layers(target: Target, layers: Target) -> Iterator[Finding]:
    """All findings about a target and the MTP layers of another file that their headers allow, one per subject."""
    arch = target.arch
    if why := no_mtp(layers.arch, layers.n_next_token_layers):
        yield fail("layers", f"{layers.path.name}: {why}", "run it without -md", f"{arch}.nextn_predict_layers")
    else:
        yield ok("layers", f"{layers.n_next_token_layers} of type MTP, {arch}")
    what = f"the MTP layers are {layers.n_embd} wide, the target {target.n_embd}: they are another model's"
    yield same("width", layers.n_embd, target.n_embd, what, _TAKE_ITS_OWN, f"{arch}.embedding_length")
    what = f"{layers.n_vocab} tokens in the file of the MTP layers, {target.n_vocab} in the target's"
    yield same("vocabulary", layers.n_vocab, target.n_vocab, what, _TAKE_ITS_OWN, TOKENS, unit=" tokens")
