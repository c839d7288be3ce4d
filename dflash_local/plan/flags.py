"""Options as command line flags."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from dflash_local.engine_options import DEFAULTS, OPTIONS, EngineOptions

# The options of a plan, shown as flags unless they have the default.
_PLACES = (
    "device", "n_gpu_layers", "split_mode", "main_gpu", "tensor_split", "n_cpu_moe", "cpu_moe", "n_cpu_ffn",
    "override_tensor", "device_draft", "n_gpu_layers_draft", "override_tensor_draft", "kv_offload", "rpc",
    "mmproj_offload", "image_max_tokens", "n_ctx",
    "n_slots", "n_ctx_slot", "n_batch", "n_ubatch", "cache_type_k", "cache_type_v", "cache_type_k_draft",
    "cache_type_v_draft", "draft_ctx", "draft_vocab", "draft_kind", "swa_full", "flash_attn", "fit", "fit_target",
)  # fmt: skip


def flags(options: EngineOptions) -> str:
    """The flags to add to `serve -m ... -md ...`."""
    words: list[str] = []
    for name in _PLACES:
        flag, value = OPTIONS[name].flag, getattr(options, name)
        if flag is None or (value == DEFAULTS[name] and name != "n_slots"):
            continue
        if flag.metavar or flag.choices:
            words += [flag.names[0], ("off", "on")[value] if isinstance(value, bool) else str(value)]
        else:
            words.append(flag.names[0] if value else flag.off_names[0])
    if _shares(options):
        words.append("-kvu")
    return shlex.join(words)


def kept(options: EngineOptions, typed: Mapping[str, Sequence[str]]) -> list[str]:
    """The words of typed flags that `flags` does not write; `typed` has them by the names of options."""
    written = {*_PLACES, "kv_unified"} if _shares(options) else {*_PLACES}
    return [word for name, words in typed.items() if name not in written for word in words]


def _shares(options: EngineOptions) -> bool:
    """Whether several slots share the context."""
    return bool(options.share_ctx) and options.n_slots > 1


def changes(before: EngineOptions, after: EngineOptions) -> dict[str, Any]:
    """The options that differ."""
    return {name: getattr(after, name) for name in OPTIONS if getattr(after, name) != getattr(before, name)}
