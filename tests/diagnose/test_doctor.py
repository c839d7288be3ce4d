"""`dflash-local doctor`: each look on made-up machines and builds, and the command over the bundled pair."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type

from dflash_local import cli, native
from dflash_local.build import installed_build, recipe
from dflash_local.build.commit import running_commit
from dflash_local.cli import parse
from dflash_local.cli.flags.engine_arguments import engine_options
from dflash_local.cli.flags.model_flags import ModelFlags
from dflash_local.cli.flags.named_models import Models
from dflash_local.demo.inflate import inflate
from dflash_local.demo.pocket import bundled_pair
from dflash_local.demo.shapes import SHAPES
from dflash_local.diagnose import build, kernels, machine_findings, memory
from dflash_local.diagnose.finding import Finding, Level, fail, ok, warn, worst
from dflash_local.diagnose.machine_findings import look_at_acceptance, look_at_costs, look_at_machine, look_at_tuning
from dflash_local.engine import Engine
from dflash_local.engine_options import EngineOptions
from dflash_local.errors import NativeLibraryError, RequestError
from dflash_local.machine import costs, hardware, kept_acceptance, tuning
from dflash_local.machine.hardware import GIB, Machine, cpu_flags, this_machine
from dflash_local.machine.identity import build_key
from tests.gguf_files import output, rewritten

QUESTION = [{"role": "user", "content": "What is 48 plus 24?"}]
MACHINE = Machine("Some CPU", 8, 16, 32 * GIB, 16 * GIB, "Linux 6", "3.11", 0.5)
CPU = {"name": "CPU", "type": "cpu", "description": "Some CPU", "memory_total": 32 * GIB, "memory_free": 16 * GIB}
SOFTWARE = {"name": "Vulkan0", "type": "gpu", "description": "llvmpipe (LLVM 15)", "memory_total": 0, "memory_free": 0}
GPU = {"name": "CUDA0", "type": "gpu", "description": "Some GPU", "memory_total": 8 * GIB, "memory_free": 6 * GIB}


def levels(findings: list[Finding], subject: str) -> list[Level]:
    return [finding.level for finding in findings if finding.subject == subject]


def parsed(*argv: str) -> EngineOptions:
    """What the flags say, for a target that the flags may name too."""
    args: ModelFlags = parse(["doctor", "-m", str(bundled_pair().target), *argv])[1]
    return EngineOptions(**engine_options(args, Models(args.model or "", args.drafter, args.mmproj)))


@pytest.fixture
def stamp(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """An installed CPU build of this checkout, on this machine."""
    monkeypatch.delenv("DFLASH_LIBRARY", raising=False)
    made = recipe.make_recipe(Path(__file__).resolve().parents[2], "cpu")
    stamp = {
        "version": "0.3.36+dflash.1",
        "backend": "cpu",
        "flags": [],
        "native": made.native,
        "patches": made.patches,
        "machine": "",
    }
    monkeypatch.setattr(installed_build, "installed_stamp", lambda: stamp)
    monkeypatch.setattr(recipe, "detect_backend", lambda: ("cpu", "no nvcc"))
    return stamp


def test_swap_of_a_container(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its limit counts, also where the machine has more; in both versions of control groups."""
    files: dict[str, str] = {}
    monkeypatch.setattr(hardware, "_lines", lambda path: files.get(path, "").splitlines())
    monkeypatch.setattr(hardware, "_meminfo", lambda: {"SwapFree": 900})
    assert hardware.free_swap() == 900
    top, old = "/sys/fs/cgroup", "/sys/fs/cgroup/memory"
    for limit, free in (("500", 400), ("max", 900), ("5000", 900), ("0", 0)):
        files.update({f"{top}/memory.swap.max": limit, f"{top}/memory.swap.current": "100"})
        assert hardware.free_swap() == free
    files.clear()
    files.update({f"{old}/memory.limit_in_bytes": "1000", f"{old}/memory.usage_in_bytes": "300"})
    for limit, free in (("1500", 300), ("1000", 0), (str(2**63 - 4096), 900)):
        files.update({f"{old}/memory.memsw.limit_in_bytes": limit, f"{old}/memory.memsw.usage_in_bytes": "500"})
        assert hardware.free_swap() == free


def test_this_machine_is_described() -> None:
    machine = this_machine()
    assert machine.cores >= 1 and machine.logical_cores >= machine.cores and machine.cpu
    assert f"{machine.cores} cores" in str(machine)
    if Path("/proc/meminfo").exists():
        assert 0 < machine.memory_available < machine.memory_total and cpu_flags()


def test_a_busy_machine_and_too_many_threads_warn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_findings, "core_limit", lambda: None)
    assert levels(list(look_at_machine(MACHINE)), "machine") == [Level.OK]
    assert levels(list(look_at_machine(replace(MACHINE, load=9.0))), "machine") == [Level.WARN]
    assert levels(list(look_at_machine(MACHINE, 16)), "threads") == [Level.WARN]
    assert levels(list(look_at_machine(MACHINE, 8)), "threads") == []
    monkeypatch.setattr(machine_findings, "core_limit", lambda: 2)
    assert "2 of 8 physical cores may be used" in str(list(look_at_machine(MACHINE))[-1])
    assert levels(list(look_at_machine(MACHINE, 2)), "threads") == [Level.OK]
    assert "use -t 2" in str(list(look_at_machine(MACHINE, 4))[-1])


def test_a_build_of_these_sources_is_fine(stamp: dict[str, Any]) -> None:
    assert levels(list(build.look_at_build()), "build") == [Level.OK]


@pytest.mark.parametrize(("key", "value"), [("native", "other"), ("patches", "other")])
def test_changed_sources_ask_for_a_build(stamp: dict[str, Any], key: str, value: str) -> None:
    stamp[key] = value
    findings = list(build.look_at_build())
    assert levels(findings, "build") == [Level.OK, Level.WARN]
    assert "dflash-local build --backend cpu" in str(findings[-1])


def test_a_build_without_the_gpu_that_is_here_warns(stamp: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipe, "detect_backend", lambda: ("cuda", "nvcc and a device were found"))
    assert "--backend cuda" in str(list(build.look_at_build())[-1])


def test_a_build_for_another_processor_fails(stamp: dict[str, Any]) -> None:
    absent = next(flag for flag in build.CPU_FEATURES if flag not in cpu_flags())
    stamp["machine"] = f"flags : fpu {absent}"
    findings = list(build.look_at_build())
    assert findings[-1].level is Level.FAIL and absent in findings[-1].text


def test_a_missing_build_fails_with_the_command(stamp: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed_build, "installed_stamp", lambda: None)
    finding = list(build.look_at_build())[-1]
    assert finding.level is Level.FAIL and "dflash-local build" in str(finding)


def test_a_library_that_does_not_load_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> dict[str, Any]:
        raise NativeLibraryError("stock build", hint="run: dflash-local build")

    monkeypatch.setattr(native, "library_info", refuse)
    info: dict[str, Any] = {}
    assert [f.level for f in build.look_at_library(info)] == [Level.FAIL] and not info


def test_a_gpu_backend_without_a_gpu_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "library_path", lambda: Path("libdflash.so"))
    for backends, devices, expected in (
        (["CPU"], [CPU], [Level.OK]),
        (["CUDA", "CPU"], [CPU], [Level.OK, Level.WARN]),
        (["CUDA", "CPU"], [GPU, CPU], [Level.OK, Level.OK]),
        (["Vulkan", "CPU"], [SOFTWARE, CPU], [Level.OK, Level.OK, Level.WARN]),
    ):
        monkeypatch.setattr(
            native, "library_info", lambda b=backends, d=devices: {"abi": 1, "backends": b, "devices": d}
        )
        assert levels(list(build.look_at_library({})), "device") == expected


def test_cpu_features_that_lie_idle_warn() -> None:
    (used,) = build.look_at_cpu_features({"AVX": "1", "AVX2": "1"}, {"avx", "avx2"})
    assert used.level is Level.OK
    (idle,) = build.look_at_cpu_features({"AVX": "1", "AVX2": "0"}, {"avx", "avx2", "avx512f"})
    assert idle.level is Level.WARN and "AVX2, AVX512" in idle.text


@pytest.mark.parametrize(
    ("free", "argv", "level"),
    [
        (16 * GIB, [], Level.OK),
        (40 << 20, [], Level.OK),
        (20 << 20, ["-np", "8"], Level.WARN),  # eight slots of the full context are too many; the weights fit
        (12 << 20, ["-c", "256"], Level.WARN),  # mapped weights are read again
        (12 << 20, ["-c", "256", "--no-mmap"], Level.FAIL),
        (12 << 20, ["-c", "40000"], Level.FAIL),
    ],
)
def test_memory(free: int, argv: list[str], level: Level) -> None:
    machine = replace(MACHINE, memory_available=free)
    (finding,) = memory.look_at_memory(parsed(*argv), *bundled_pair(), machine, {"devices": [CPU]})
    assert finding.level is level


def test_memory_counts_the_cache() -> None:
    """6 layers x 2 KV heads x (64 + 64) x 2 bytes a token, as the model's own context is 4,096 tokens."""
    finding = next(iter(memory.look_at_memory(parsed("-ctk", "f32"), bundled_pair().target, None, MACHINE, {})))
    assert f"context {4096 * 6 * 2 * 64 * (4 + 2) >> 20} MiB" in finding.text
    sizes = memory.Sizes(bundled_pair().target)
    assert sizes.bytes_per_token("iq4_nl", "iq4_nl") == sizes.bytes_per_token("q4_0", "q4_0")


def test_memory_that_the_weights_fill_leaves_the_least_context() -> None:
    full, unknown = (
        memory.default_context(parsed("-np", "16"), memory.Sizes(bundled_pair().target), spare) for spare in (0, None)
    )
    assert full == 16 * 512 < unknown


def test_memory_looks_at_the_gpu_if_there_is_one() -> None:
    info = {"devices": [GPU, {**GPU, "name": "CUDA1"}, CPU]}
    for argv, free in (
        ([], "12.0"), (["--device", "CUDA1"], "6.0"), (["-ngl", "0"], "16.0"), (["--device", "none"], "16.0"),
    ):  # fmt: skip
        (finding,) = memory.look_at_memory(parsed(*argv), *bundled_pair(), MACHINE, info)
        assert f"{free} GiB free" in finding.text


def test_memory_that_nobody_knows() -> None:
    """As on a Mac whose GPU is not used."""
    machine = replace(MACHINE, memory_available=0)
    (finding,) = memory.look_at_memory(parsed(), *bundled_pair(), machine, {"devices": [CPU]})
    assert finding.level is Level.OK and finding.text.endswith("; what is free is not known")


@pytest.mark.parametrize(
    ("argv", "level"),
    [([], Level.WARN), (["-ngl", "99"], Level.FAIL), (["-fit", "off"], Level.FAIL), (["-sm", "row"], Level.FAIL)],
)
def test_weights_beyond_a_gpu(argv: list[str], level: Level) -> None:
    """--fit leaves layers on the host, unless it may not."""
    info = {"devices": [{**GPU, "memory_free": 4 << 20}, CPU]}
    (finding,) = memory.look_at_memory(parsed(*argv), *bundled_pair(), MACHINE, info)
    assert finding.level is level and ("--fit" in finding.text) == (level is Level.WARN)


@pytest.mark.parametrize(
    ("packed", "devices", "argv", "level"),
    [
        (["q4_0"], [CPU], [], Level.WARN),
        (["q4_0", "q8_0"], [CPU], [], Level.OK),
        (["q4_0"], [GPU, CPU], ["-ngl", "0"], Level.WARN),
        (["q4_0"], [GPU, CPU], ["--device", "none"], Level.WARN),
        (["q4_0"], [GPU, CPU], [], None),
        (None, [CPU], [], None),
    ],
)
def test_matrices_without_kernels_are_named(
    tmp_path: Path, packed: list[str] | None, devices: list[Any], argv: list[str], level: Level | None
) -> None:
    rows = np.ones((64, 32), np.float32)
    file = rewritten(
        bundled_pair().target,
        tmp_path / "mixed.gguf",
        tensors={
            "blk.0.a.weight": output("blk.0.a.weight", rows, Type.Q4_0),
            "blk.0.b.weight": output("blk.0.b.weight", rows, Type.Q8_0),
        },
    )
    info = {"devices": devices} | ({} if packed is None else {"packed_types": packed})
    found = list(kernels.look_at_kernels(parsed(*argv), file, info))
    assert [finding.level for finding in found] == ([level] if level else [])
    if level is Level.WARN:
        assert found[0].field == "blk.0.b.weight"
        assert "1 of 2 quantized matrices (Q8_0 1; 65% of their bytes)" in found[0].text
    elif level:
        assert "all 2 quantized matrices have ours" in found[0].text


def test_pass_times(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(native, "library_info", lambda: {"devices": [CPU]})
    monkeypatch.setattr(native, "library_path", lambda: tmp_path / "libdflash.so")
    pair = bundled_pair()
    options = parsed("-m", str(pair.target), "-md", str(pair.drafter))

    def look(folder: Path, *argv: str) -> Finding:
        monkeypatch.setenv("DFLASH_CACHE", str(folder))
        return look_at_costs(parsed("-m", str(pair.target), "-md", str(pair.drafter), *argv))

    assert "not measured yet" in look(tmp_path).text
    file = costs.cost_file(pair.target, pair.drafter, vars(options))
    file.write_text("{}")
    os.utime(file, (0, time.time() - 7300))
    assert look(tmp_path).text == f"kept 2 hours ago in {file}"
    assert "not measured yet" in look(tmp_path, "-np", "2").text
    assert "every start" in look(tmp_path, "--no-cost-cache").text
    assert look(file).level is Level.WARN  # a file where the folder should be


class FakeGpu:
    """CUDA0 with a vector kernel for up to 8 rows of Q4_K, Q6_K and Q8_0, and a matrix kernel that takes as long as
    `even` of them."""

    def __init__(self) -> None:
        self.even = {"q4_K": 4.5, "q6_K": 2.5, "q8_0": 20.0}
        self.rows: dict[str, int] = {}
        # A kernel of ours, which takes as long as 1.5 rows of the vector kernel.
        self.few_types: tuple[str, ...] = ()
        self.few, self.difference = 1.5, 1e-6
        self.ours: dict[str, int] = {}

    def matrix_rows(self, device: str, weights: str, rows: int = -1) -> int:
        known = next((name for name in self.even if name.lower() == weights.lower()), "")
        if device != "CUDA0" or not known:
            return 0
        if rows >= 0:
            self.rows[known] = min(rows, 9)
        return self.rows.get(known) or 9

    def tune(self, params: dict[str, Any], progress: Any) -> dict[str, Any]:
        name = next(name for name in self.even if name.lower() == params["type"].lower())
        one = params["m"] * params["k"] / 1e9
        return {
            "type": name,
            "rows": self.matrix_rows("CUDA0", name),
            "rows_max": 9,
            "vector_ms": [n * one if n <= 8 else None for n in range(1, 65)],
            "matrix_ms": [max(n / 16, 1) * self.even[name] * one for n in range(1, 65)],
            "few_rows": self.few_rows("CUDA0", name),
            "few_rows_ms": [self.few * one if name in self.few_types else None for n in range(1, 65)],
            "few_rows_difference": self.difference,
        }

    def few_rows(self, device: str, weights: str, rows: int = -1) -> int:
        known = next((name for name in self.few_types if name.lower() == weights.lower()), "")
        if device != "CUDA0" or not known:
            return 0
        if rows >= 0:
            self.ours[known] = rows
        return self.ours.get(known) or 65


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeGpu:
    fake = FakeGpu()
    monkeypatch.setenv("DFLASH_CACHE", str(tmp_path))
    monkeypatch.setattr(
        native, "library_info", lambda: {"abi": native.ABI_VERSION, "backends": ["CUDA", "CPU"], "devices": [CPU, GPU]}
    )
    monkeypatch.setattr(native, "library_path", lambda: tmp_path / "libdflash.so")
    monkeypatch.setattr(native, "matrix_rows", fake.matrix_rows)
    monkeypatch.setattr(native, "few_rows", fake.few_rows)
    monkeypatch.setattr(native, "tune", fake.tune)
    return fake


def test_one_command_tunes_a_gpu(gpu: FakeGpu, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    command = ["doctor", "--tune", "--types", "q4_k,q6_k,q8_0", "--shape", "8b,27b", "--json", str(out)]
    assert cli.main(command) == 0
    runs = json.loads(out.read_text())["runs"]
    assert [(run["device"], run["type"], run["shape"], run["now"], run["measured"]) for run in runs] == [
        ("CUDA0", weights, shape, 9, rows)
        for weights, rows in (("q4_K", 5), ("q6_K", 3), ("q8_0", 9))
        for shape in ("8b", "27b")
    ]
    for run in runs:
        assert (
            len(run["vector_ms"]) == len(run["matrix_ms"]) == 64
            and run["vector_ms"].index(None) == 8
            and None not in run["matrix_ms"]
        )
    printed = capsys.readouterr().out
    assert (
        "CUDA0 q4_K: matrix kernel from 9 rows on -> from 5 (8b: 5, 27b: 5)" in printed
        and "     9           -" in printed
    )
    assert tuning.apply() == ({"CUDA0": {"q4_K": 5, "q6_K": 3, "q8_0": 9}}, {}) and gpu.rows["q6_K"] == 3
    assert cli.main([*command[:2], "--types", "q8_0,q5_k"]) == 0  # what was kept stays; now is what is in force
    assert (
        "one kernel only for q5_k" in capsys.readouterr().out and tuning.read_counts()[0].matrix["CUDA0"]["q4_K"] == 5
    )


def test_our_kernel_serves_from_where_it_is_faster(gpu: FakeGpu, capsys: pytest.CaptureFixture[str]) -> None:
    gpu.few_types = ("q4_K",)
    assert cli.main(["doctor", "--tune", "--types", "q4_k", "--shape", "8b"]) == 0
    printed = capsys.readouterr().out
    assert "CUDA0 q4_K: our kernel from 2 rows on" in printed and "few ms" in printed
    assert tuning.apply() == ({"CUDA0": {"q4_K": 5}}, {"CUDA0": {"q4_K": 2}}) and gpu.ours["q4_K"] == 2
    gpu.difference = 0.1
    assert cli.main(["doctor", "--tune", "--types", "q4_k", "--shape", "8b"]) == 0
    assert "our kernel not at all" in capsys.readouterr().out and tuning.apply().few == {"CUDA0": {"q4_K": 65}}


def test_a_start_measures_what_is_not_kept(
    gpu: FakeGpu, pocket: dict[str, Path], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each type of the model that has a kernel of ours, once."""
    asked: list[tuple[str, bool]] = []
    measure = gpu.tune

    def tune(params: dict[str, Any], progress: Any) -> dict[str, Any]:
        asked.append((params["type"], params["coarse"]))
        return measure(params, progress)

    monkeypatch.setattr(native, "tune", tune)
    monkeypatch.setattr(tuning, "_largest_matrices", lambda model: {"q4_K": "512x256", "q8_0": "512x256"})
    tuning.tune_missing(pocket["target"])
    assert asked == [] and tuning.read_counts()[0] == ({}, {})  # nothing to choose
    gpu.few_types = ("q4_K", "q6_K")
    tuning.tune_missing(pocket["target"])
    tuning.tune_missing(pocket["target"])
    assert asked == [("q4_K", True)] and tuning.apply() == ({"CUDA0": {"q4_K": 5}}, {"CUDA0": {"q4_K": 2}})
    tuning.tuned_file().unlink()
    gpu.difference = float("nan")
    tuning.tune_missing(pocket["target"])
    assert "computes something else" in caplog.text and tuning.apply().few == {"CUDA0": {"q4_K": 65}}


def test_kernels_for_few_rows_are_forced(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, pocket: dict[str, Path]
) -> None:
    gpu.few_types = ("q4_K",)
    tuning.keep({}, {"CUDA0": {"q4_K": 7}})
    monkeypatch.setenv("DFLASH_FEW_ROWS", "65")
    tuning.tune_missing(pocket["target"])
    assert tuning.apply().few == {"CUDA0": {"q4_K": 65}} and tuning.read_counts()[0].few == {"CUDA0": {"q4_K": 7}}
    for wrong in ("0", "66", "all"):
        monkeypatch.setenv("DFLASH_FEW_ROWS", wrong)
        with pytest.raises(RequestError, match="DFLASH_FEW_ROWS must be 1 to 65"):
            tuning.apply()


def test_largest_matrices(tmp_path: Path) -> None:
    inflate(bundled_pair(), tmp_path, SHAPES["0.1b"], "q4_k_m")
    assert tuning._largest_matrices(tmp_path / "target.gguf") == {"q4_K": "1536x512", "q6_K": "512x1536"}


def test_tuned_rows_are_told(gpu: FakeGpu) -> None:
    def look() -> Finding:
        (finding,) = look_at_tuning({"devices": [CPU, GPU]})
        return finding

    assert look().text == "the defaults of CUDA0; dflash-local doctor --tune measures them here"
    file = tuning.keep({"CUDA0": {"q8_0": 4}})
    assert look().text == f"CUDA0 q8_0 from 4; kept in {file}"
    file.write_text(file.read_text().replace('"build": [', '"build": ["other",'))
    assert look().level is Level.WARN and "another build" in look().text
    assert tuning.apply() == ({}, {}) and gpu.matrix_rows("CUDA0", "q8_0") == 9


def test_a_machine_with_one_kernel_has_nothing_to_tune(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu, "even", {})
    assert list(look_at_tuning({"devices": [CPU, GPU]})) == []
    assert cli.main(["doctor", "--tune", "--device", "CPU"]) == 1
    assert "CPU has nothing to choose" in capsys.readouterr().out


def test_worst_and_text() -> None:
    assert worst([]) is Level.OK
    assert worst([ok("a", "x"), fail("b", "y", "do z"), warn("c", "y", "do z")]) is Level.FAIL
    assert "-> do z" in str(fail("b", "y", "do z"))


def test_command_over_the_bundled_pair(capsys: pytest.CaptureFixture[str]) -> None:
    pair = bundled_pair()
    assert cli.main(["doctor", "--json", "-m", str(pair.target), "-md", str(pair.drafter)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["commit"] == running_commit() and report["build"] == build_key()
    found = {finding["subject"]: finding["level"] for finding in report["findings"]}
    assert {
        "library",
        "device",
        "file",
        "architecture",
        "width",
        "taps",
        "vocabulary",
        "block",
        "memory",
        "pass times",
    } <= found.keys()
    assert "FAIL" not in found.values() and report["library"]["abi"] == native.ABI_VERSION


def test_acceptance_of_the_last_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An engine keeps what its drafts brought when it closes; poor acceptance is a warning that names the way out."""
    monkeypatch.setenv("DFLASH_CACHE", str(tmp_path))
    pair = bundled_pair()
    options = parsed("-md", str(pair.drafter), "-c", "256", "-t", "1")
    assert not list(look_at_acceptance(options))
    with Engine(**vars(options)) as engine:
        engine.chat(QUESTION, max_tokens=4)
    assert not list(look_at_acceptance(options))  # a few passes say nothing
    monkeypatch.setattr(kept_acceptance, "LEAST_PASSES", 1)
    with Engine(**vars(options)) as engine:
        engine.chat(QUESTION, max_tokens=32, budget=8)
    (found,) = look_at_acceptance(options)
    assert found.level == Level.OK and "tokens a pass" in found.text
    file = next((tmp_path / "costs").glob("*.acceptance.json"))
    file.write_text('{"tokens": 1100, "passes": 1000}')
    (found,) = look_at_acceptance(options)
    assert found.level == Level.WARN and "1.10 tokens a pass" in found.text
    assert found.advice and "train --init" in found.advice
    file.write_text("not JSON")
    assert not list(look_at_acceptance(options))


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["-md", "{drafter}"], "give the target too"),
        (["-m", "nowhere.gguf"], "cannot read nowhere.gguf"),
        (["-m", "{drafter}", "-md", "{target}"], "is not a target"),
        (["-m", "{target}", "-md", "{target}"], "not a DFlash drafter"),
        (
            ["-m", "{target}", "-md", "{drafter}", "--accept", "block"],
            "needs a DFlash 2, DSpark, Domino or LiliCorr drafter",
        ),
    ],
)
def test_command_fails_with_advice(capsys: pytest.CaptureFixture[str], argv: list[str], said: str) -> None:
    files = bundled_pair()._asdict()
    assert cli.main(["doctor", *(part.format(**files) for part in argv)]) == 1
    out = capsys.readouterr().out
    assert "FAIL" in out and said in out and "->" in out
