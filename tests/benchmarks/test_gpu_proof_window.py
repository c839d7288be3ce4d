"""`make gpu-proof` on a bare machine for a few minutes: what does not fit together is told before anything is measured,
no measurement is disturbed, and a kernel that fails takes no other's figures along."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import record
from benchmarks.gpu_proof import __main__ as command
from benchmarks.gpu_proof import device, equality, inflater, parts, tuned, unpacked
from benchmarks.gpu_proof.device import DeviceError, Found
from benchmarks.gpu_proof.inflater import Inflater
from benchmarks.gpu_proof.parts import PairName, Part
from benchmarks.gpu_proof.runner import STOP_SECONDS
from benchmarks.gpu_proof.summary import Record, settings
from benchmarks.gpu_proof.unpacked import Unpacked
from dflash_local.build.recipe import source_hashes
from dflash_local.errors import DFlashError
from tests.patience import PATIENCE, wait_until

H200 = "NVIDIA H200, 143771 MiB, 580.159.04, 9.0, 1980 MHz, 3201 MHz"
RATE = {"device": "CUDA0: NVIDIA H200", "gb_per_s": 4800.0, "source": "data sheet"}
SMALL, LARGE = PairName("8b", "q4_k_m", "dflash"), PairName("27b", "q4_k_m", "dflash")


# ---- before anything is measured -------------------------------------------------------------------------------------


@pytest.mark.parametrize("built", ["90", "86;90", "80;90-real", "90a"])
def test_code_for_the_gpu_is_enough(built: str) -> None:
    assert device.check_architecture([H200], ["-DGGML_CUDA=ON", device.ARCHITECTURES + built]) == ""
    assert device.check_architecture([H200.replace("9.0", "[N/A]")], [device.ARCHITECTURES + "86"]) == ""
    assert device.check_architecture([H200], []) == ""


@pytest.mark.parametrize(("built", "here"), [("86-real", "9.0"), ("90", "8.6"), ("89", "8.6"), ("90a;80-real", "10.0")])
def test_code_for_another_gpu_is_refused(built: str, here: str) -> None:
    with pytest.raises(DeviceError, match=f"code for {built}, not for this GPU .*--cuda-arch {here.replace('.', '')}"):
        device.check_architecture([H200.replace("9.0", here)], [device.ARCHITECTURES + built])


@pytest.mark.parametrize("built", ["86", "86-real;90-virtual"])
def test_code_that_the_driver_compiles_is_told(built: str) -> None:
    """It is enough, but takes its time at the start."""
    note = device.check_architecture([H200.replace("9.0", "7.5"), H200], [device.ARCHITECTURES + built])
    assert f"code for {built}: the driver compiles it" in note and "--cuda-arch 90" in note


def test_code_for_one_of_the_gpus_is_enough() -> None:
    """nvidia-smi lists them by their slots, CUDA the fastest first."""
    old = H200.replace("H200", "T4").replace("9.0", "7.5")
    assert device.check_architecture([old, H200], [device.ARCHITECTURES + "90"]) == ""
    with pytest.raises(DeviceError, match=r"not for this GPU \(NVIDIA T4.*; NVIDIA T4"):
        device.check_architecture([old, old], [device.ARCHITECTURES + "90"])


def stand_in(folder: Path, *lines: str) -> dict[str, str]:
    """The environment of a process whose native library says this."""
    package = folder / "dflash_local"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "native.py").write_text("\n".join(["import sys", "def library_info():", *(f"  {x}" for x in lines)]))
    return {**os.environ, "PYTHONPATH": str(folder)}


def test_a_device_that_ggml_does_not_see_is_no_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All layers would stay on the CPU, and its figures would be called the GPU's."""
    monkeypatch.chdir(tmp_path)
    said = "sys.stderr.write('CUDA driver version is insufficient')"
    environment = stand_in(tmp_path, said, "return {'devices': [{'name': 'CPU'}]}")
    device.check_seen("CPU", environment)
    with pytest.raises(DeviceError, match=r"see CPU, not CUDA0; is the driver too old.*version is insufficient"):
        device.check_seen("CUDA0", environment)
    (tmp_path / "dflash_local" / "native.py").write_text("raise OSError('libcudart.so.13: cannot open')")
    with pytest.raises(DeviceError, match=r"cannot be loaded: .*libcudart"):
        device.check_seen("CUDA0", environment)


def test_a_driver_that_hangs_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(device, "SECONDS", 0.2)
    with pytest.raises(DeviceError, match=r"nvidia-smi does not run: .*timed out"):
        device.gpus()


def test_native_code_of_another_commit_is_told(tmp_path: Path, repo: Path) -> None:
    recipe = source_hashes(repo)
    assert unpacked.native_code(recipe, repo) == "of this commit"
    other = unpacked.native_code({**recipe, "native": "0"}, repo)
    assert "ANOTHER" in other and other == unpacked.native_code({}, repo)
    text = Record(tmp_path, "cuda", "key", Found(H200), [("a", "first")], other).text()
    assert f"build key, native code {other}." in text


def test_what_would_replace_the_bundle_is_not_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what changes the measurement is told."""
    monkeypatch.setenv("DFLASH_LIBRARY", "/elsewhere/libdflash.so")
    monkeypatch.setenv("LLAMA_ARG_CTX_SIZE", "7")
    monkeypatch.setenv("DFLASH_FEW_ROWS", "65")
    environment = Unpacked(tmp_path, "k").environment("cuda")
    assert not {"DFLASH_LIBRARY", "LLAMA_ARG_CTX_SIZE"} & environment.keys()
    assert environment["DFLASH_FEW_ROWS"] == "65"
    assert settings({"DFLASH_FEW_ROWS": "65", "DFLASH_CACHE": "/a/b", "HOME": "x"}) == "DFLASH_FEW_ROWS=65"
    secrets = ("DFLASH_API_KEY", "DFLASH_HUB_TOKEN", "GGML_SECRET")
    assert settings(dict.fromkeys(secrets, "x")) == "", "a record is published"
    record = Record(tmp_path, "cuda", "key", Found(H200), [("a", "first")])
    assert "**Not the defaults: " in record.text() and "DFLASH_FEW_ROWS=65" in record.text()


def test_a_bundle_for_another_python_of_the_same_build_is_unpacked_anew(tmp_path: Path, repo: Path) -> None:
    for version in ("3.11", "3.12"):
        manifest = {"format": 1, "key": "k", "files": [], "python": version}
        (tmp_path / "manifest.json").write_text(json.dumps(manifest))
        home = unpacked.unpack(tmp_path, tmp_path / "work", repo).home
        assert not (home / "site" / "old").exists()
        (home / "site" / "old").write_text("")
        unpacked.unpack(tmp_path, tmp_path / "work", repo)
        assert (home / "site" / "old").exists()


def test_all_that_a_run_leaves_is_in_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose name may be relative; and all of it ends within the minutes, the end of a part included."""
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "manifest.json").write_text(json.dumps({"format": 1, "key": "k", "files": []}))
    seen = []

    def plan(_device: str, out: Path, threads: int, _limits: Any, minutes: float) -> list[Part]:
        seen.append((out, threads, minutes))
        code = "import os, pathlib, sys; pathlib.Path(sys.argv[1]).write_text(os.environ['GPU_PROOF_SECONDS'])"
        return [Part("a", "first", PATIENCE, (sys.executable, "-S", "-c", code, str(out / "a.md")))]

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "WORK", tmp_path / "work")
    monkeypatch.setattr(parts, "plan", plan)
    monkeypatch.setattr(device, "check_seen", lambda name, _environment: seen.append(name))
    words = ["--device", "cpu", "--from", "bundle", "-o", "results", "--pairs", "pairs", "--minutes", "1.5", "-t", "8"]
    assert command.main(words) == 0
    assert seen == [(tmp_path / "results", 8, 1.5), "CPU"]
    found = [path.relative_to(tmp_path / "results").as_posix() for path in (tmp_path / "results").rglob("*")]
    assert sorted(found) == ["a.md", "logs", "logs/a.log", "summary.json", "summary.md"]
    assert 0 < float((tmp_path / "results" / "a.md").read_text()) <= 90 - STOP_SECONDS
    assert list((tmp_path / "pairs").iterdir()) == []


def test_folders_of_other_programs_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--pairs` may be /tmp or /dev/shm."""
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "manifest.json").write_text(json.dumps({"format": 1, "key": "k", "files": []}))
    foreign = [tmp_path / "pairs" / name for name in ("tmpx", f"{SMALL.name}-{SMALL.drafter}-0")]
    unfinished = tmp_path / "pairs" / command.OWN_FOLDER / "tmpy"
    for folder in (*foreign, unfinished):
        folder.mkdir(parents=True)
    monkeypatch.setattr(command, "WORK", tmp_path / "work")
    monkeypatch.setattr(parts, "plan", lambda *_: [Part("a", "first", 0.0, (), SMALL)])
    monkeypatch.setattr(inflater, "HERE", tmp_path / "gpu_proof")  # nothing makes pairs
    monkeypatch.setattr(device, "check_seen", lambda *_: None)
    words = ["--device", "cpu", "--from", str(tmp_path / "bundle"), "-o", str(tmp_path / "results")]
    assert command.main([*words, "--pairs", str(tmp_path / "pairs")]) == 1
    assert all(folder.exists() for folder in foreign) and not unfinished.exists()


# ---- pairs -----------------------------------------------------------------------------------------------------------


def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> Inflater:
    """An inflater whose pairs are made by this code, one after the other."""
    (tmp_path / "pairs.py").write_text(code)
    monkeypatch.setattr(inflater, "HERE", tmp_path / "gpu_proof")
    monkeypatch.setattr(inflater, "AT_ONCE", 1)
    monkeypatch.setitem(inflater.ROOM, (SMALL.shape, SMALL.ftype), 0)
    return Inflater([SMALL, LARGE], tmp_path / "work", os.environ, tmp_path / "logs")


def state(pid: int) -> str:
    """A letter: of a process that is stopped, T; '' if it is gone."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.read_text().rpartition(")")[2].split()[0] if stat.exists() else ""


def test_no_pair_is_made_beside_a_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And at the end neither a process nor half a pair is left."""
    code = """
import os, pathlib, sys, time
folder = pathlib.Path(sys.argv[4]) / "tmpabc"
folder.mkdir()
(folder / "part").write_text(str(os.getpid()))
(folder / "done").write_text("")
time.sleep(600)
"""
    made = worker(tmp_path, monkeypatch, code)
    (tmp_path / "work" / "tmpold").mkdir(parents=True)
    with made:
        wait_until((tmp_path / "work" / "tmpabc" / "done").exists)
        pid = int((tmp_path / "work" / "tmpabc" / "part").read_text())
        with made.paused():
            wait_until(lambda: state(pid) == "T")
        wait_until(lambda: state(pid) != "T")
        assert not made.has(SMALL) and "not inflated in time" in made.why_missing(SMALL)
    assert state(pid) == "" and not (tmp_path / "work").exists()


def test_a_pair_that_stands_still_takes_no_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its seconds say how fast the disk is."""
    code = """
import pathlib, sys
folder = pathlib.Path(sys.argv[4]).parent
(folder / "started").write_text("")
while not (folder / "go").exists():
    pass
"""
    start = time.monotonic()
    with worker(tmp_path, monkeypatch, code) as made:
        wait_until((tmp_path / "started").exists)
        with made.paused():
            time.sleep(0.5)
        (tmp_path / "go").write_text("")
        made.wait([SMALL], PATIENCE)
        assert 0 <= made.seconds["dflash 8b-q4_k_m"] <= time.monotonic() - start - 0.5 + 0.05  # rounded


def test_a_pair_without_room_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not when the time is over; but while another one can be deleted, there may be room."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 30))
    with worker(tmp_path, monkeypatch, "") as made:
        made.wait([SMALL], PATIENCE)
        assert made.why_missing(SMALL) == "" and list(made.seconds) == ["dflash 8b-q4_k_m"]
        made.wait([LARGE], 1.5)
        assert not made.has(LARGE)
        made.drop(SMALL)
        made.wait([LARGE], PATIENCE)
        assert made.why_missing(LARGE) == "the disk has no room for its pair (19 GiB)"


def test_a_pair_that_is_there_needs_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is of a run that was interrupted; once it is deleted, there may be room for the others."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    made = worker(tmp_path, monkeypatch, "")
    (tmp_path / "work" / f"{LARGE.name}-{LARGE.drafter}-0").mkdir(parents=True)
    with made:
        made.wait([LARGE], PATIENCE)
        assert made.why_missing(LARGE) == "" and not made.has(SMALL)
        made.drop(LARGE)
        made.wait([SMALL], PATIENCE)
        assert "no room" in made.why_missing(SMALL)


# ---- kernels ---------------------------------------------------------------------------------------------------------


def tuned_run(weights: str, difference: float = 1e-6) -> dict[str, Any]:
    """Of the shape 8b: the vector kernel for up to 8 rows, and ours."""
    vector = [0.034] * 8 + [None] * 56
    return {
        "type": weights, "shape": "8b", "now": 9, "measured": 5, "vector_ms": vector, "matrix_ms": [0.059] * 64,
        "few_ms": [0.02] * 64, "few_measured": 1, "difference": difference,
    }  # fmt: skip


def test_kernels_have_their_share_of_the_memory_rate() -> None:
    text = tuned.markdown("CUDA0", [tuned_run("q4_K")], "Here.", RATE)
    # 2 * 12288 * 4096 weights of 4.5 bits.
    assert tuned.share(tuned_run("q4_K"), 0.034, RATE) == pytest.approx(56.62e6 / 0.034e-3 / 4800e9, rel=1e-3)
    assert "| q4_K, 8b | vector | 35 % | 35 % | - | - |" in text and "| q4_K, 8b | few | 59 % | 59 %" in text
    assert "CUDA0: NVIDIA H200, 4,800 GB/s by data sheet" in text
    assert "Share" not in tuned.markdown("CUDA0", [tuned_run("q4_K")], "Here.")


@pytest.mark.parametrize("difference", [0.3, float("nan")])
def test_a_kernel_that_computes_something_else_is_told(difference: float) -> None:
    """It never serves, but is what the run is for."""
    assert tuned.wrong([tuned_run("q4_K"), tuned_run("iq4_xs", difference)]) == ["iq4_xs 8b"]


def test_a_kernel_that_crashes_takes_no_other_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def tune(_device: str, weights: str, shape: str, _threads: int) -> dict[str, Any]:
        asked.append((weights, shape))
        if weights == "q4_0":
            raise DFlashError("doctor --tune of q4_0 ended with status -6")
        difference = 0.5 if weights == "q4_1" else 1e-6
        return {"runs": [tuned_run(weights, difference)], "findings": []}

    monkeypatch.setattr(tuned, "tune", tune)
    monkeypatch.setattr(record, "devices", lambda: ["CUDA0: NVIDIA H200"])
    monkeypatch.setattr(sys, "argv", ["tuned.py", "-o", str(tmp_path / "tuned")])
    with pytest.raises(DFlashError, match="q4_0 ended with status -6; our kernel computes something else: q4_1 8b"):
        tuned.main()
    every = ["q4_k", "q6_k", "q8_0", "q5_k", "q4_0", "q4_1", "iq4_xs"]
    assert asked == [(name, "8b,27b") for name in every[:3]] + [(name, "8b") for name in every[3:]]
    found = json.loads((tmp_path / "tuned.json").read_text())
    assert [run["type"] for run in found["runs"]] == [name for name in every if name != "q4_0"]
    text = (tmp_path / "tuned.md").read_text()
    assert "Failed: doctor --tune of q4_0 ended with status -6" in text and "Share of the memory rate" in text


def test_the_table_says_whose_kernels_served() -> None:
    sound: dict[str, Any] = {
        "answers": 1, "equal": 1, "largest_gap": 0.0, "tolerance": 0.1, "logits_off": 0.0, "hidden_off": 0.0,
        "scores_off": 0.0, "same_candidates": 1.0, "same_first": 1.0, "lossless": True, "parity": True,
    }  # fmt: skip
    names = (("dflash", True), ("dflash q8_0", True), ("dflash q4_k_m", False))
    text = equality.markdown([{**sound, "pair": name, "few_rows": few} for name, few in names], "Here.")
    assert [line.split("|")[-3].strip() for line in text.splitlines()[2:5]] == ["-", "ours", "ggml's"]


# ---- the log ---------------------------------------------------------------------------------------------------------


def test_a_log_beside_the_results_is_no_other_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else every part would be of another one, and a run that goes on would begin anew."""
    from dflash_local.build import commit

    (tmp_path / "benchmarks" / "results" / "gpu" / "logs").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("")
    monkeypatch.setattr(commit, "PACKAGE", tmp_path / "dflash_local")
    before = commit._digest(tmp_path)
    (tmp_path / "benchmarks" / "results" / "gpu" / "logs" / "ops.log").write_text("one line")
    assert commit._digest(tmp_path) == before
