"""The share of a GPU's memory rate: bytes of a token, rates by name, copies where the name says nothing."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks import compare_upstream, memory_rate, pairs, record
from benchmarks.compare_upstream import joined, markdown, memory_use
from benchmarks.comparison import Cell, Run
from benchmarks.systems import OURS, OWN_PLAIN, PLAIN
from dflash_local.build import peer
from dflash_local.convert.gguf_metadata import read_header
from dflash_local.demo.shapes import Pair


@pytest.mark.parametrize(
    ("name", "rate"),
    [
        ("NVIDIA H200", 4800),
        ("NVIDIA H100 80GB HBM3", 3350),
        ("NVIDIA A100-SXM4-80GB", 2039),
        ("NVIDIA GeForce RTX 3090", 936),
        ("NVIDIA GeForce RTX 4090", 1008),
    ],
)
def test_known_gpus(name: str, rate: float) -> None:
    found = memory_rate.rate_of([f"CUDA0: {name}"])
    assert found and (found["gb_per_s"], found["source"]) == (rate, "data sheet")


def test_others_are_measured_or_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_rate, "measure", lambda: 500.0)
    found = memory_rate.rate_of(["CUDA0: NVIDIA GeForce RTX 3090 Ti"])
    assert found and (found["gb_per_s"], found["source"]) == (500.0, "copies")
    assert memory_rate.rate_of([]) is None and memory_rate.rate_of(["CUDA0: NVIDIA H200"] * 2) is None
    monkeypatch.setattr(memory_rate, "measure", lambda: None)
    assert memory_rate.rate_of(["Vulkan0: another"]) is None


def test_copies_read_and_write(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[tuple[Any, ...]] = []

    class Runtime:
        status = 0

        def cudaMalloc(self, place: Any, size: ctypes.c_size_t) -> int:
            return self.status

        def cudaDeviceSynchronize(self) -> int:
            return 0

        def cudaMemcpy(self, *arguments: Any) -> int:
            copied.append(arguments)
            return 0

    now = iter(range(100))
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(now)))
    assert memory_rate.copies(Runtime()) == pytest.approx(2 * memory_rate.SIZE * memory_rate.COPIES / 1e9)
    assert {arguments[3] for arguments in copied} == {memory_rate.DEVICE_TO_DEVICE}
    Runtime.status = 2
    with pytest.raises(OSError, match="cudaMalloc failed with status 2"):
        memory_rate.copies(Runtime())


def test_a_token_reads_all_but_the_embedding(pocket: dict[str, Path]) -> None:
    _, tensors = read_header(pocket["target"])
    n_bytes = memory_rate.bytes_per_token(pocket["target"])
    total = sum(tensor.n_bytes for tensor in tensors.values())
    embedding = tensors["token_embd.weight"].n_bytes if "output.weight" in tensors else 0
    assert n_bytes == total - embedding > 1e6


def test_a_record_says_it() -> None:
    run = Run([100], [2.0], [2.1], [0.1], [100], [1])
    cells = [Cell("dflash", ftype, 0.0, {PLAIN: [run], OWN_PLAIN: [run], OURS: [run]}) for ftype in ("q4_k_m", "q8_0")]
    rate = {"device": "CUDA0: NVIDIA H200", "gb_per_s": 4800.0, "source": "data sheet"}
    assert memory_use(cells, {"q4_k_m": 1}, None) == {} and "Share" not in markdown(cells, "Here.")
    use = joined(
        memory_use(cells[:1], {"q4_k_m": 4_800_000_000}, rate), memory_use(cells[1:], {"q8_0": 9_600_000_000}, rate)
    )
    assert [one["share"] for one in use["memory_shares"]] == [0.05, 0.1]
    assert "4,800 GB/s by data sheet): Q4_K_M at temperature 0: 4.80 GB a token, 5 %" in markdown(cells, "Here.", use)
    assert joined({}, {}) == {}


def test_the_comparison_says_it(pocket: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every cell, on a device alone."""
    run = Run([100], [2.0], [2.1], [0.1], [100], [1])

    def measured(_args: Any, _setting: Any, cells: list[Cell], _prompts: Any) -> Iterator[list[Cell]]:
        for cell in cells:
            cell.runs.update({PLAIN: [run], OWN_PLAIN: [run], OURS: [run]})
        yield cells

    monkeypatch.setattr(compare_upstream, "measured", measured)
    monkeypatch.setattr(peer, "build", lambda: tmp_path)
    monkeypatch.setattr(pairs, "make", lambda *_: Pair(pocket["target"], pocket["dflash"]))
    monkeypatch.setattr(record, "devices", lambda: ["CUDA0: NVIDIA H200"])
    out = tmp_path / "compare"
    arguments = ["--drafters", "dflash", "--types", "q4_0", "q8_0", "-o", str(out)]
    assert compare_upstream.main(arguments) == 0
    shares = record.load(out)["memory_shares"]
    assert [(one["ftype"], one["temperature"]) for one in shares] == [
        (ftype, temperature) for ftype in ("q4_0", "q8_0") for temperature in (0.0, 1.0)
    ]
    assert "Share of the memory rate" in out.with_suffix(".md").read_text()
    assert compare_upstream.main([*arguments, "--ngl", "0"]) == 0
    assert "memory_shares" not in record.load(out)
