"""Compares the memory of a pair's weights and caches with the free memory of their device."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dflash_local.convert.gguf_metadata import read_metadata
from dflash_local.diagnose.architectures import ASSISTANTS
from dflash_local.diagnose.finding import Finding, fail, ok, warn
from dflash_local.engine_options import DEFAULTS, EngineOptions
from dflash_local.machine.devices import used_gpus
from dflash_local.machine.hardware import Machine
from dflash_local.machine.model_size import model_size
from dflash_local.words import memory_text

# The engine's defaults, in tokens (ggml_ops/target/context_size.cpp, ggml_ops/cache/draft_memory.cpp).
DRAFT_CTX = 4096
LEAST_CTX, LEAST_OF_SLOT, CTX_STEP = 4096, 512, 256
KV_BYTES = {
    "f32": 4.0,
    "f16": 2.0,
    "bf16": 2.0,
    "q8_0": 34 / 32,
    "q5_1": 24 / 32,
    "q5_0": 22 / 32,
    "q4_1": 20 / 32,
    "q4_0": 18 / 32,
    "iq4_nl": 18 / 32,
}


def look_at_memory(
    options: EngineOptions, target: Path, drafter: Path | None, machine: Machine, info: dict[str, Any]
) -> Iterator[Finding]:
    """Compare the memory of weights and caches with what is free. An estimate: compute buffers come on top."""
    devices = used_gpus(options, info)
    free = sum(device["memory_free"] for device in devices) if devices else machine.memory_available
    projector = model_size(Path(options.mmproj)) if options.mmproj else 0
    weights = model_size(target) + (model_size(drafter) if drafter else 0) + projector
    sizes = Sizes(target)
    n_ctx = options.n_ctx or default_context(options, sizes, max(free - weights, 0) if free else None)
    parts = {
        "weights": model_size(target),
        "context": int(n_ctx * sizes.bytes_per_token(options.cache_type_k, options.cache_type_v)),
    }
    if drafter:
        parts["drafter"] = model_size(drafter)
        parts["drafter context"] = _drafter_context(options, sizes, Sizes(drafter), n_ctx)
    if projector:
        parts["projector"] = projector
    need = sum(parts.values())
    listed = ", ".join(f"{name} {memory_text(size)}" for name, size in parts.items())
    left = f"{memory_text(free)} free" if free else "what is free is not known"
    text = f"about {memory_text(need)} ({listed}); {left}"
    if not free or need < 0.9 * free:
        yield ok("memory", text)
    elif weights < 0.9 * free:
        yield warn(
            "memory", text, "use a smaller context (-c), fewer slots (-np) or a quantized cache (-ctk q8_0 -ctv q8_0)"
        )
    elif devices:
        yield _beyond_devices(options, text)
    elif options.mmap and need - (weights - projector) < 0.9 * free:
        advice = "take a smaller model or quantization: each pass reads what was dropped from the disk again"
        yield warn("memory", f"{text}; the system drops parts of the mapped weights", advice)
    else:
        yield fail("memory", text, "take a smaller model or quantization")


def _beyond_devices(options: EngineOptions, text: str) -> Finding:
    """More weights than the devices hold."""
    is_fitted = options.fit and options.split_mode not in ("row", "tensor")
    if is_fitted and options.n_gpu_layers == DEFAULTS["n_gpu_layers"]:
        advice = "see 'dflash-local plan', or take a smaller model or quantization"
        return warn("memory", f"{text}; --fit leaves layers on the host", advice)
    return fail("memory", text, "offload fewer layers (-ngl N)")


def _drafter_context(options: EngineOptions, target: Sizes, drafter: Sizes, n_ctx: int) -> int:
    """Bytes. MTP layers have K and V of all positions, a DFlash drafter of the newest ones, an assistant none."""
    if drafter.arch in ASSISTANTS:
        return 0
    per_token = drafter.bytes_per_token(options.cache_type_k_draft, options.cache_type_v_draft)
    if drafter.arch == target.arch:
        return int(n_ctx * per_token * drafter("nextn_predict_layers") / max(drafter("block_count"), 1))
    per_slot = min(options.draft_ctx or DRAFT_CTX, n_ctx if options.share_ctx else n_ctx // options.n_slots)
    return int(per_slot * options.n_slots * per_token)


def default_context(options: EngineOptions, target: Sizes, spare: int | None) -> int:
    """The default context of all slots together, in tokens: the trained one, as far as half of `spare` bytes (None:
    unknown) holds it. The engine, which knows windows and recurrent layers, may have more.
    """
    trained = int(target("context_length"))
    each = not options.share_ctx or options.n_ctx_slot > 0
    wanted = min(options.n_ctx_slot or trained, trained) * (options.n_slots if each else 1)
    per_token = target.bytes_per_token(options.cache_type_k, options.cache_type_v)
    most = spare / 2 / per_token if spare is not None and per_token else wanted
    least = min(wanted, max(LEAST_CTX, LEAST_OF_SLOT * options.n_slots if each else 0))
    return wanted if wanted <= most else max(least, int(most) // CTX_STEP * CTX_STEP)


class Sizes:
    """Keys of a file that begin with its architecture, by the rest of their names."""

    def __init__(self, path: Path) -> None:
        self._keys = read_metadata(path)
        self.arch = bytes(self._keys["general.architecture"].data).decode(errors="replace")

    def __call__(self, key: str, default: Any = 0) -> Any:
        value = self._keys.get(f"{self.arch}.{key}")
        return default if value is None else value.data

    def bytes_per_token(self, type_k: str, type_v: str) -> float:
        """Upper bound for the K/V bytes of a token: windows and recurrent layers take less."""
        heads = self("attention.head_count", 1)
        heads_kv = self("attention.head_count_kv", heads)
        total_heads = sum(heads_kv) if isinstance(heads_kv, (list, tuple)) else heads_kv * self("block_count")
        n_head = heads[0] if isinstance(heads, (list, tuple)) else heads
        head = self("embedding_length") // max(n_head, 1)
        lengths = (
            (self(f"attention.{name}_length", head), kind) for name, kind in (("key", type_k), ("value", type_v))
        )
        return float(total_heads * sum(length * KV_BYTES.get(kind, 2.0) for length, kind in lengths))
