"""Damaged targets and drafters never end the process: an error comes back, and the next request is answered."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from .architectures import ARCHITECTURES
from .gguf_image import read
from .mutations import mutate
from .regressions import CASES, everything_of_ours
from .sweep import Sweep, sweep

FAST, ALL = 60, 2150
GROWTH = 200 << 20  # bytes that a worker may grow by once its caches are full


def check(result: Sweep, count: int) -> None:
    assert not result.deaths, "\n\n".join(result.deaths)
    assert not result.silent, f"the sound pair answered differently after {result.silent}"
    assert len(result.results) == count
    settled = result.rss[len(result.rss) // 4 :]
    assert max(settled) - settled[0] < GROWTH, f"memory grew from {settled[0] >> 20} to {max(settled) >> 20} MB"


def other_model(name: str, pocket: dict[str, Path], folder: Path) -> Path:
    path = folder / f"{name}.gguf"
    path.write_bytes(ARCHITECTURES[name](read(pocket["target"])).encode()[0])
    return path


@pytest.mark.parametrize("role", ["target", "drafter"])
def test_mutations(pocket: dict[str, Path], tmp_path: Path, role: str) -> None:
    result = sweep(pocket["target"], pocket["dflash2"], role, [f"0:{FAST}"], tmp_path)
    check(result, FAST)
    kinds = result.kinds()
    assert kinds["refused"] > FAST // 3  # the damage is real
    assert kinds["answered"] > FAST // 20  # and not all of it is at the gate


@pytest.mark.slow
@pytest.mark.parametrize(("role", "drafter"), [("target", "dflash"), ("drafter", "dflash2"), ("drafter", "dflash")])
def test_many_mutations(pocket: dict[str, Path], tmp_path: Path, role: str, drafter: str) -> None:
    check(sweep(pocket["target"], pocket[drafter], role, [f"{FAST}:{ALL}"], tmp_path), ALL - FAST)


@pytest.mark.slow
def test_what_upstream_does_not_know(pocket: dict[str, Path], tmp_path: Path) -> None:
    """A drafter with all keys and tensors that are not upstream's."""
    image = read(pocket["dflash2"])
    everything_of_ours(image)
    drafter = tmp_path / "more.gguf"
    drafter.write_bytes(image.encode()[0])
    check(sweep(pocket["target"], drafter, "drafter", ["0:400"], tmp_path), 400)


@pytest.mark.slow
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_other_architectures(pocket: dict[str, Path], tmp_path: Path, name: str) -> None:
    """Other loaders and graphs; a random drafter does not fit them, so they run without."""
    check(sweep(other_model(name, pocket, tmp_path), Path("-"), "target", ["0:400"], tmp_path), 400)


@pytest.mark.parametrize("base", sorted({case.base for case in CASES.values()}))
def test_regressions(pocket: dict[str, Path], tmp_path: Path, base: str) -> None:
    names = [name for name, case in CASES.items() if case.base == base]
    target, drafter, role = pocket["target"], pocket["dflash2"], base
    if base in ARCHITECTURES:
        target, drafter, role = other_model(base, pocket, tmp_path), Path("-"), "target"
    result = sweep(target, drafter, role, names, tmp_path)
    check(result, len(names))
    assert not {name: result.results[name] for name in names if CASES[name].result not in result.results[name]}


def test_image_round_trip(pocket: dict[str, Path]) -> None:
    for path in pocket.values():
        assert read(path).encode()[0] == path.read_bytes()


def test_mutations_are_reproducible(pocket: dict[str, Path]) -> None:
    image = read(pocket["dflash"])
    assert [mutate(image, seed) for seed in range(60)] == [mutate(image, seed) for seed in range(60)]
    assert len({mutate(image, seed)[1] for seed in range(60)}) > 50


def test_sweep_sees_deaths(tmp_path: Path) -> None:
    """The fuzzer's own eyes: a worker that aborts, one that answers differently, one that ends early."""
    script = """
import json, os, sys
for seed in range(5):
    if f"{seed}:{seed + 1}" in sys.argv or "0:5" in sys.argv:
        print(json.dumps({"item": str(seed), "what": "x"}), flush=True)
        if seed == 2:
            os.abort()
        print(json.dumps({"item": str(seed), "result": "refused: x", "witness": seed != 3, "rss": 1}), flush=True)
"""
    result = sweep(Path("t"), Path("d"), "target", ["0:5"], tmp_path, command=[sys.executable, "-c", script])
    assert sorted(result.results) == ["0", "1", "3", "4"]
    assert len(result.deaths) == 1 and "exit -6 at target 2 (x)" in result.deaths[0]
    assert result.silent == ["3 (x)"]
    assert result.kinds() == {"refused": 4}
