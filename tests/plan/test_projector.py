"""A projector in plans: mtmd says what it takes, also on devices that are not here, and --fit makes room for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFValueType

from dflash_local.cli import main
from dflash_local.convert.gguf_metadata import read_header
from dflash_local.demo.pocket import bundled_pair
from dflash_local.diagnose.projector import check_projector
from dflash_local.engine import Engine
from dflash_local.engine_options import EngineOptions
from dflash_local.errors import ModelError
from dflash_local.plan.fit import fit
from dflash_local.plan.memory_plan import HOST, MemoryPlan
from dflash_local.words import MIB
from tests.projector_files import projector_file

TARGET = bundled_pair().target
DEVICES = {"CUDA0": 64 * MIB, "CUDA1": 64 * MIB}


@pytest.fixture(scope="module")
def projector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return projector_file(tmp_path_factory.mktemp("projector") / "mmproj.gguf")


def planned(devices: dict[str, int] | None = None, **options: Any) -> dict[str, int]:
    """Bytes of the projector by device."""
    plan = MemoryPlan.of(EngineOptions(TARGET, n_ctx=512, **options), devices)
    return {device: parts["projector"] for device, parts in plan.placement.items() if "projector" in parts}


def weights(path: Path) -> int:
    return sum(tensor.n_bytes for tensor in read_header(path)[1].values())


def test_its_weights_and_buffers(projector: Path) -> None:
    assert planned() == {}
    found = planned(mmproj=projector)[HOST]
    assert weights(projector) < found < weights(projector) + 16 * MIB
    without = MemoryPlan.of(EngineOptions(TARGET, n_ctx=512))
    with_it = MemoryPlan.of(EngineOptions(TARGET, n_ctx=512, mmproj=projector))
    assert with_it.need(HOST) == without.need(HOST) + found
    assert with_it.column(HOST, "projector") == found
    assert with_it.host_need == without.host_need + found  # it is not mapped


def test_a_loaded_engine_tells_the_same(projector: Path) -> None:
    options: dict[str, Any] = {"n_ctx": 512, "n_threads": 1, "warmup": False, "cost_cache": False}
    with Engine(TARGET, mmproj=projector, **options) as engine:
        assert engine.info["media"]["vision"] and not engine.info["media"]["audio"]
        assert engine.info["placement"][HOST]["projector"] == planned(mmproj=projector)[HOST]


def test_on_the_target_s_first_device(projector: Path) -> None:
    found = planned(DEVICES, mmproj=projector)
    assert weights(projector) < found["CUDA0"] and "CUDA1" not in found
    assert found[HOST] < weights(projector)  # the image
    assert planned(DEVICES, mmproj=projector, n_gpu_layers=0).keys() == found.keys()
    for options in ({"mmproj_offload": False}, {"device": "none"}):
        assert planned(DEVICES, mmproj=projector, **options).keys() == {HOST}


def test_it_leaves_less_for_the_context(tmp_path: Path) -> None:
    """As many bytes less as it takes."""
    large = projector_file(tmp_path / "mmproj.gguf", more={"v.class_embd": (1 << 20, 4)})  # 8 MiB of f16

    def room(**options: Any) -> int:
        fitted = fit(EngineOptions(TARGET, fit_target="0", fit_ctx=256, n_ctx=256, **options), {"CUDA0": 64 * MIB})
        assert fitted.fits
        return fitted.plan.headroom({})["CUDA0"]

    assert 8 * MIB <= room() - room(mmproj=large) == planned({"CUDA0": 64 * MIB}, mmproj=large)["CUDA0"]


def test_what_mtmd_cannot_load(tmp_path: Path) -> None:
    path = projector_file(tmp_path / "mmproj.gguf", keys={"clip.projector_type": "pixtral"})  # lacks its tensors
    with pytest.raises(ModelError, match=r"mmproj.gguf: llama.cpp cannot load this projector"):
        planned(mmproj=path)


def test_damaged_ones_are_errors(tmp_path: Path) -> None:
    """Each number another, each tensor gone or of another shape: an error or a plan, and never a crash."""
    path = projector_file(tmp_path / "mmproj.gguf")
    keys, tensors = read_header(path)
    numbers = [key for key, value in keys.items() if value.type == GGUFValueType.UINT32]
    changes: list[dict[str, Any]] = [{"keys": {key: n}} for key in numbers for n in (0, 1, 7, 1000, 2**31 - 1)]
    changes += [{"without": name} for name in tensors] + [{"more": {name: (3, 32)}} for name in tensors]
    n_refused = 0
    for change in changes:
        projector_file(path, **change)
        try:
            check_projector(TARGET, path)
            planned(mmproj=path)
        except ModelError:
            n_refused += 1
    assert len(changes) / 2 < n_refused < len(changes)


def test_the_command(projector: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    line = ["plan", "-m", str(TARGET), "--mmproj", str(projector), "--no-mmproj-offload", "--vram", "1G", "-c", "512"]
    assert main(line) == 0
    text = capsys.readouterr().out
    assert "projector" in text.splitlines()[0]
    assert f"--mmproj {projector}" in text and "--no-mmproj-offload" in text.splitlines()[-1]
    assert main([*line, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["placement"][HOST]["projector"] > weights(projector)
    assert main(["plan", "-m", str(TARGET), "--mmproj", str(projector_file(tmp_path / "w.gguf", 512))]) == 1
    assert "are 512 wide" in capsys.readouterr().err
