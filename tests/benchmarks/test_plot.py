"""Plots: from records alone, the same bytes every time, axes with names."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from benchmarks import plot
from dflash_local.stats import PHASES

TIMES = {"draft": 5.0, "verify": 20.0, "grow": 0.03, "walk": 0.1, "commit": 0.05, "plan": 0.01, "other": 0.3}
STEP = {"n_tokens": 5, "n_nodes": 16, "n_denoised": 16, "reason": "drafting pays"}
SPEEDS = {"plain": 100.0, "upstream n_max 7": 150.0, "dflash-local": 200.0}
RECORDS: dict[str, Any] = {
    "compare_upstream": {
        "cells": [
            {
                "drafter": "dflash",
                "ftype": ftype,
                "temperature": 0.0,
                "best_upstream": "upstream n_max 7",
                "systems": {name: {"tokens_per_second": speed, "al": 6.2} for name, speed in SPEEDS.items()},
            }
            for ftype in ("q4_0", "q8_0")
        ]
    },
    "real_pair": {
        "rows": [
            {
                "kind": kind,
                "bases": {base: base for base in (plot.PLAIN, "upstream", "ik", plot.OWN_PLAIN)},
                "over": {key: [3.0, 2.0, 4.0] for key in (plot.PLAIN, "upstream", "ik", plot.OWN_PLAIN)},
                "al": {plot.OURS: 3.6},
            }
            for kind in ("functions", "chat")
            for _temperature in (0.0, 0.8)
        ]
    },
    "concurrency": {
        "rows": [{"clients": n, "best_upstream": "upstream n_max 7", "tokens_per_second": SPEEDS} for n in (1, 4, 16)]
    },
    "trees": {
        "rows": [
            {"drafter": "dflash", "temperature": t, "budget": n, "chain": 4.0, "tree": 5.0}
            for t in (0.0, 1.0)
            for n in (1, 16, 64)
        ]
    },
    "steps": {
        "auto": {"ms_per_step": TIMES},
        "most_nodes": {"ms_per_step": TIMES},
        "cost": {
            time: {"verify": {"1": 9.0, "4": 14.0, "16": 35.0}, "draft": {"4": 3.0, "16": 6.0}}
            for time in ("at_load", "kept_fresh")
        },
        "trace": [STEP, {**STEP, "n_nodes": 1, "n_denoised": 0, "reason": "plain decoding is faster"}],
    },
    "verify_cost": {
        "ceilings": {
            "2": {
                "read": {"240000000": 50.0, "1073741824": 30.0},
                "int8": 700.0,
                "f32": 200.0,
                "tile": 6000.0,
                "instruction": "VNNI",
            }
        },
        "models": {kind: {"bytes": {"Q4_0": 240000000}, "macs": {"Q4_0": 400000000}} for kind in ("q4_0", "q8_0")},
        "rows": [
            {
                "type": kind,
                "threads": 2,
                "n": n,
                "stock_ms": 9.0 * n,
                "our_ms": 5.0 + n,
                "roofline_ms": 4.0 + n / 2,
                "stock_spread": [8.0 * n, 10.0 * n],
                "our_spread": [4.0 + n, 6.0 + n],
            }
            for kind in ("q4_0", "q8_0")
            for n in (1, 3, 4, 64)
        ],
    },
}
SPEED_UP = ["plain decoding", "upstream's best", "1.0×", "1.5×", "2.0×", "DFlash drafter", "6 tokens per pass"]
REAL_PAIR = ["functions", "3.6 tokens per pass", "ik_llama.cpp's best", "3.0\u00d7", "1.0\u00d7"]
WORDS = {
    "real_pair": REAL_PAIR,
    "real_pair_dark": REAL_PAIR,
    "speed_up": SPEED_UP,
    "speed_up_dark": SPEED_UP,
    "compare_upstream": ["tokens per second", "upstream's best", "Q8_0"],
    "concurrency": ["concurrent clients", "tokens per second, all clients together", "16"],
    "trees": ["nodes per pass, the anchor counted", "temperature 1", "dflash, tree"],
    "steps": ["milliseconds per step", "verify", "64 nodes"],
    "cost_curve": ["milliseconds per pass", "target, by rows of the pass", "after some answers"],
    "choices": ["step of the answer", "plain decoding is faster", "nodes verified, the anchor counted"],
    "roofline": ["milliseconds per pass, 2 threads", "stock kernels", "Q8_0", "64"],
    "roofline_classic": ["AMX tiles: 6000", "50 GB/s over 240 MB", "multiply-adds per byte of weights", "Q4_0, stock"],
}


def test_bars_have_every_phase() -> None:
    assert sorted(plot.STACKED) == sorted(PHASES)


@pytest.mark.parametrize("name", plot.FIGURES)
def test_figures_are_stable_and_labelled(name: str) -> None:
    data = json.loads(json.dumps(RECORDS[plot.FIGURES[name][0]]))
    svg = plot.draw(name, data)
    assert svg == plot.draw(name, data)
    card = "#0d1117" if name.endswith("_dark") else "#ffffff"  # of its own: readable on dark and light pages
    assert "<dc:date>" not in svg and f"fill: {card}" in svg
    text = " ".join("".join(node.itertext()) for node in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"))
    assert all(word in text for word in WORDS[name])


def test_what_is_not_measured_is_not_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "trees.json").write_text(json.dumps(RECORDS["trees"]))
    assert plot.main(["--results", str(tmp_path), "--figures", str(tmp_path / "figures")]) == 0
    assert [path.name for path in (tmp_path / "figures").iterdir()] == ["trees.svg"]
    assert "concurrency.json is not there yet" in capsys.readouterr().err
