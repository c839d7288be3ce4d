"""Taps of published drafters, for GGUFs without taps or with ambiguous ones.

There is an entry only if all known drafters of a target with that number of taps were trained on the same layers.
Source: config.json of the repositories named; ids are `target_layer_ids`, layers whose output is tapped.
"""

from __future__ import annotations

from .target import Target

# architecture, width and depth of the target -> repository and its ids
_PUBLISHED: tuple[tuple[tuple[str, int, int], str, tuple[int, ...]], ...] = (
    (("qwen3", 2560, 36), "z-lab/Qwen3-4B-DFlash-b16", (1, 9, 17, 25, 33)),
    (("qwen3", 4096, 36), "z-lab/Qwen3-8B-DFlash-b16", (1, 9, 17, 25, 33)),
    (("qwen3moe", 2048, 48), "z-lab/Qwen3-Coder-30B-A3B-DFlash", (1, 12, 23, 34, 45)),
    (("qwen3next", 2048, 48), "z-lab/Qwen3-Coder-Next-DFlash", (3, 11, 23, 35, 43)),
    (("qwen35", 2560, 32), "z-lab/Qwen3.5-4B-DFlash", (1, 5, 9, 13, 17, 21, 25, 29)),
    (("qwen35", 4096, 32), "z-lab/Qwen3.5-9B-DFlash", (1, 5, 9, 13, 17, 21, 25, 29)),
    (("qwen35", 5120, 64), "z-lab/Qwen3.6-27B-DFlash", (1, 16, 31, 46, 61)),
    (("qwen35", 5120, 64), "z-lab/Qwen3.5-27B-DFlash", (1, 10, 18, 27, 35, 44, 52, 61)),
    (("qwen35moe", 2048, 40), "z-lab/Qwen3.6-35B-A3B-DFlash of May 2026", (1, 10, 19, 28, 37)),
    (("qwen35moe", 2048, 40), "z-lab/Qwen3.6-35B-A3B-DFlash", (1, 6, 11, 16, 22, 27, 32, 37)),
    (("qwen35moe", 3072, 48), "z-lab/Qwen3.5-122B-A10B-DFlash", (1, 7, 14, 20, 26, 32, 39, 45)),
    (("gemma4", 2816, 30), "z-lab/gemma-4-26B-A4B-it-DFlash", (1, 6, 11, 17, 22, 27)),
    (("gemma4", 5376, 60), "z-lab/gemma-4-31B-it-DFlash", (1, 12, 23, 35, 46, 57)),
    (("gpt-oss", 2880, 24), "z-lab/gpt-oss-20b-DFlash", (1, 6, 11, 16, 21)),
    (("gpt-oss", 2880, 36), "z-lab/gpt-oss-120b-DFlash", (1, 9, 17, 25, 33)),
    (("deepseek2", 7168, 61), "z-lab/Kimi-K2.5-DFlash", (1, 12, 24, 35, 47, 58)),
)


def published_taps(target: Target, n_taps: int) -> tuple[str, tuple[int, ...]] | None:
    """Repository and `target_layer_ids` of the target's drafters with `n_taps` taps; None if unknown."""
    shape = (target.arch, target.n_embd, target.n_layer)
    return next(((name, ids) for key, name, ids in _PUBLISHED if key == shape and len(ids) == n_taps), None)
