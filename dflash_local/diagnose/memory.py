"""What the weights and caches of a pair take, against what is free where they go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dflash_local.convert.gguf_metadata import read_metadata
from dflash_local.diagnose.build import gpus
from dflash_local.diagnose.finding import Finding, fail, ok, warn
from dflash_local.diagnose.machine import Machine
from dflash_local.diagnose.sizes import file_size, size_text
from dflash_local.options import EngineOptions

# The engine's defaults, in tokens of a slot.
DEFAULT_CTX, DRAFT_CTX = 16384, 4096
KV_BYTES = {
    "f32": 4.0,
    "f16": 2.0,
    "bf16": 2.0,
    "q8_0": 34 / 32,
    "q5_1": 24 / 32,
    "q5_0": 22 / 32,
    "q4_1": 20 / 32,
    "q4_0": 18 / 32,
}


def look_at_memory(
    options: EngineOptions, target: Path, drafter: Path | None, machine: Machine, info: dict[str, Any]
) -> Iterator[Finding]:
    """What weights and caches take, against what is free where they go. An estimate: compute buffers come on top."""
    slots = options.n_slots
    parts = {
        "weights": file_size(target),
        "context": _cache_bytes(target, slots, options.n_ctx, options.cache_type_k, options.cache_type_v),
    }
    if drafter:
        parts["drafter"] = file_size(drafter)
        per_slot = min(options.draft_ctx or DRAFT_CTX, options.n_ctx // slots or DRAFT_CTX)
        parts["drafter context"] = _cache_bytes(
            drafter, slots, per_slot * slots, options.cache_type_k_draft, options.cache_type_v_draft
        )
    need = sum(parts.values())
    on_gpu = bool(gpus(info)) and options.n_gpu_layers != 0
    free = sum(device["memory_free"] for device in gpus(info)) if on_gpu else machine.memory_available
    listed = ", ".join(f"{name} {size_text(size)}" for name, size in parts.items())
    text = f"about {size_text(need)} ({listed}); {size_text(free)} free"
    if not free or need < 0.9 * free:
        yield ok("memory", text)
    elif parts["weights"] + parts.get("drafter", 0) < 0.9 * free:
        yield warn(
            "memory", text, "use a smaller context (-c), fewer slots (-np) or a quantized cache (-ctk q8_0 -ctv q8_0)"
        )
    else:
        advice = "offload fewer layers (-ngl N)" if on_gpu else "take a smaller model or quantization"
        yield fail("memory", text, advice)


def _cache_bytes(path: Path, slots: int, n_ctx: int, type_k: str, type_v: str) -> int:
    """K/V bytes of `n_ctx` tokens in all (0: the engine's choice). An upper bound: windows and recurrent layers take
    less."""
    keys = read_metadata(path)
    arch = bytes(keys["general.architecture"].data).decode(errors="replace")

    def size(key: str, default: Any = 0) -> Any:
        value = keys.get(f"{arch}.{key}")
        return default if value is None else value.data

    layers, heads = size("block_count"), size("attention.head_count", 1)
    heads_kv = size("attention.head_count_kv", heads)
    total_heads = sum(heads_kv) if isinstance(heads_kv, (list, tuple)) else heads_kv * layers
    n_head = heads[0] if isinstance(heads, (list, tuple)) else heads
    head = size("embedding_length") // max(n_head, 1)
    per_token = size("attention.key_length", head) * KV_BYTES.get(type_k, 2.0) + size(
        "attention.value_length", head
    ) * KV_BYTES.get(type_v, 2.0)
    return int(total_heads * per_token * (n_ctx or min(size("context_length"), DEFAULT_CTX) * slots))
