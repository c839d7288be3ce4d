"""Records of benchmarks that never ran, for reports."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from dflash_local.baseline import Baseline
from dflash_local.bench import Results, Run, Summary
from dflash_local.stats import PHASES, EngineStats

BEGINNINGS = ("Write a Python function that returns the largest number.", "Why is the sky blue?", "Count to 40.")
SECONDS = {"upstream": 5.5, "upstream dflash, 7 tokens": 2.4, "plain": 5.2, "drafted": 1.5}
LENGTHS = {"drafted": 5, "upstream dflash, 7 tokens": 3}
ENVIRONMENT: dict[str, Any] = {
    "machine": "A processor, 2 cores, 16 GiB, Linux 6.1",
    "cores": 2,
    "threads": 2,
    "load": 0.125,
    "target": "qwen3 8B Q4_K - Medium",
    "drafter": "dflash",
    "temperature": 0.0,
    "n_predict": 100,
    "repeats": 3,
    "date": "2026-11-23T15:25:01+00:00",
    "dflash_local": "0.1.0",
    "llama": "0.5.0",
    "backends": "CPU",
    "devices": "CUDA0: A card",
    "commit": "0123456789abcdef",
    "build": "fedcba9876543210",
    "target_file": "Qwen3-8B-Q4_K_M.gguf",
    "drafter_file": "Qwen3-8B-DFlash.gguf",
    "command": "dflash-local bench -m Qwen3-8B-Q4_K_M.gguf -md Qwen3-8B-DFlash.gguf",
}


def record(names: Sequence[str] = tuple(SECONDS), environment: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What `bench --format json` would have written; `environment` changes parts of ENVIRONMENT."""
    runs = {
        name: [[_run(name, k, i) for i in range(len(BEGINNINGS))] for k in range(ENVIRONMENT["repeats"])]
        for name in names
    }
    shares = {"plain": (0.1, 97, 1, 0.4, 0, 0, 1.5), "drafted": (0.3, 74.5, 3, 0.5, 20, 1, 0.7)}
    choices: dict[str, dict[str, Any]] = {
        "plain": {"nodes": {1: 297}, "reasons": {"drafting is off": 297}},
        "drafted": {"nodes": {1: 2, 8: 40, 12: 19}, "reasons": {"drafting pays": 58, "plain decoding is faster": 3}},
    }
    report = Results(
        ENVIRONMENT | dict(environment or {}),
        {name: Summary.of(repeats) for name, repeats in runs.items()},
        len(BEGINNINGS),
        len(BEGINNINGS),
        stats={
            name: EngineStats(steps=99, phase_ms=dict(zip(PHASES, shares[name], strict=True)), **choices[name])
            for name in names
            if name in shares
        },
        baselines=[
            Baseline("dflash", n_max=7) if "dflash" in name else Baseline("none") for name in names if "up" in name
        ],
        runs=runs,
        beginnings=BEGINNINGS,
        costs={"verify_ms": {"1": 12.5, "8": 19.0, "16": 30.0}, "draft_ms": {"8": 4.0, "16": 6.5}},
    )
    told: dict[str, Any] = json.loads(report.to_json())
    return told


def _run(name: str, repeat: int, prompt: int) -> Run:
    """The repeats and the prompts differ a little."""
    seconds = SECONDS[name] * (1 + 0.03 * repeat + 0.2 * prompt)
    length = LENGTHS.get(name, 1)
    lengths = (length,) * (99 // length) + ((99 % length,) if 99 % length else ())
    told = () if name.startswith("upstream") else lengths
    return Run("", 99, seconds, 0.12, 0 if length == 1 else 500, told, passes=len(lengths))
