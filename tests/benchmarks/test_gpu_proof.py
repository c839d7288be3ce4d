"""`make gpu-proof`: parts that fail or take too long end alone and are told, a damaged bundle is named, and (slow) the
whole of it is rehearsed on the CPU in a fresh clone."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import pytest

from benchmarks.gpu_proof import device, equality, ops, parts, tuned, unpacked
from benchmarks.gpu_proof.__main__ import main
from benchmarks.gpu_proof.device import DeviceError, Found
from benchmarks.gpu_proof.inflater import Inflater
from benchmarks.gpu_proof.ops import Op
from benchmarks.gpu_proof.parts import PairName, Part
from benchmarks.gpu_proof.runner import Clock, Outcome, run_parts
from benchmarks.gpu_proof.summary import Record
from benchmarks.gpu_proof.unpacked import BundleError, Unpacked
from dflash_local.build.commit import running_commit
from dflash_local.diagnose.finding import ok
from dflash_local.machine.hardware import this_machine
from tests.patience import PATIENCE, wait_until

PAIR, NEVER = PairName("8b", "q8_0", "dflash"), PairName("27b", "q8_0", "dflash")
LATE = PairName("27b", "q4_k_m", "dflash")


class Made:
    """An inflater that has made PAIR after it was waited for, cannot make NEVER, and is late with LATE."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.ready, self.dropped, self.waited = folder, False, list[PairName](), list[set[PairName]]()

    def has(self, pair: PairName) -> bool:
        return pair == NEVER or (self.ready and pair != LATE)

    def why_missing(self, pair: PairName) -> str:
        return "no room" if pair == NEVER else "" if self.has(pair) else "not in time"

    def wait(self, pairs: set[PairName], seconds: float) -> None:
        assert seconds >= 0
        self.waited.append(pairs)
        self.ready = True

    @contextmanager
    def paused(self) -> Iterator[None]:
        yield

    def drop(self, pair: PairName) -> None:
        self.dropped.append(pair)


def part(name: str, code: str, limit: float = PATIENCE, pair: PairName | None = None) -> Part:
    return Part(name, f"does {name}", limit, (sys.executable, "-c", code), pair)


def run(tmp_path: Path, plan: Sequence[Part], seconds: float = 100 * PATIENCE) -> tuple[dict[str, Outcome], Made]:
    inflater, told = Made(tmp_path / "pairs"), list[str]()
    outcomes = run_parts(
        plan, Clock(seconds), os.environ, cast(Inflater, inflater), tmp_path / "logs", lambda o: told.append(o.name)
    )
    assert told == [outcome.name for outcome in outcomes]
    return {outcome.name: outcome for outcome in outcomes}, inflater


def test_a_part_that_fails_or_hangs_stops_no_other(tmp_path: Path) -> None:
    plan = [
        part("bad", "raise SystemExit('error: the kernel is wrong')"),
        Part("hangs", "does nothing", 3.0, ("/bin/sh", "-c", "sleep 600 & echo $!; wait")),
        part("good", "print('fine')"),
    ]
    ended, _ = run(tmp_path, plan)
    assert [(name, outcome.status) for name, outcome in ended.items()] == [
        ("bad", "failed"),
        ("hangs", "out of time"),
        ("good", "done"),
    ]
    assert "the kernel is wrong" in ended["bad"].detail
    pid = (tmp_path / "logs" / "hangs.log").read_text().split()[0]
    wait_until(lambda: not is_running(pid))


def is_running(pid: str) -> bool:
    """A process that ended, and that nobody has waited for, has no command."""
    command = Path(f"/proc/{pid}/cmdline")
    return command.exists() and bool(command.read_bytes())


def test_all_of_it_ends_in_time(tmp_path: Path) -> None:
    start = time.monotonic()
    ended, _ = run(tmp_path, [part("long", "import time; time.sleep(600)"), part("next", "")], seconds=1.5)
    assert time.monotonic() - start < PATIENCE
    assert {outcome.status for outcome in ended.values()} == {"out of time"}
    assert ended["next"].detail == "no time was left for it"


def test_while_a_pair_is_made_the_next_part_runs(tmp_path: Path) -> None:
    plan = [part("first", "", pair=PAIR), part("without", "import sys; print(sys.argv)"), part("last", "", pair=PAIR)]
    ended, inflater = run(tmp_path, plan)
    assert list(ended) == ["without", "first", "last"]
    assert inflater.dropped == [PAIR]


def test_a_pair_that_is_late_holds_up_no_other_part(tmp_path: Path) -> None:
    """Nothing waits for one pair while another's part could run."""
    ended, inflater = run(tmp_path, [part("large", "", pair=LATE), part("small", "", pair=PAIR)])
    assert list(ended) == ["small", "large"] and inflater.waited == [{LATE, PAIR}, {LATE}]
    assert ended["small"].status == "done"
    assert (ended["large"].status, ended["large"].detail) == ("failed", "not in time")


def test_a_pair_that_cannot_be_made_fails_its_part_alone(tmp_path: Path) -> None:
    ended, _ = run(tmp_path, [part("large", "", pair=NEVER), part("small", "")])
    assert (ended["large"].status, ended["large"].detail) == ("failed", "no room")
    assert ended["small"].status == "done"


def test_the_plan_for_a_gpu() -> None:
    plan = parts.plan("cuda", Path("out"), 2, {"ops": 7.0})
    compare = [f"compare-{s}-{ftype}" for ftype in ("q4_k_m", "q8_0") for s in ("8b", "27b", "hybrid-27b")]
    assert [p.name for p in plan] == ["equality", "ops", "tuned", compare[0], "steps", *compare[1:]]
    cells = sum(
        (p.command[p.command.index("--temperatures") + 2] == "1") + 1 for p in plan if p.name.startswith("compare")
    )
    assert cells == 8
    assert sum(p.limit for p in parts.plan("cuda", Path("out"), 2, {})) <= 60 * parts.FULL_MINUTES
    assert next(p.limit for p in plan if p.name == "ops") == 7.0
    assert all("CUDA0" in p.command for p in plan if p.name in ("ops", "tuned"))


def test_each_part_has_its_own_limit_while_there_is_time() -> None:
    """In ten minutes the first ones are whole instead of all being cut; what a user set for a later part is kept."""
    plan = parts.plan("cuda", Path("out"), 2, {})
    left, limits = 498.0, []
    for i, (p, used) in enumerate(zip(plan, (30.0, 100.0, 60.0, 165.0, 12.0), strict=False)):
        limits.append(parts.share(p, plan[i:], left))
        left -= used
    assert limits == [p.limit for p in plan[:5]] and plan[3].limit == 175
    assert parts.share(plan[5], plan[5:], left) == left == pytest.approx(131) and plan[5].limit > left
    fixed = parts.plan("cuda", Path("out"), 2, {"steps": 50.0})
    assert parts.share(fixed[3], fixed[3:], 200.0) == 150 and parts.share(fixed[4], fixed[4:], 40.0) == 40
    assert parts.share(fixed[0], fixed, 20.0) == 0


def test_in_a_short_window_small_pairs_come_first() -> None:
    """Those of 27b are hardly made by then."""
    short = [p.name for p in parts.plan("cuda", Path("out"), 2, {}, minutes=8.5)]
    assert short[:6] == ["equality", "ops", "tuned", "compare-8b-q4_k_m", "steps", "compare-8b-q8_0"]
    assert sorted(short) == sorted(p.name for p in parts.plan("cuda", Path("out"), 2, {}))


def outcome(name: str, status: str = Outcome.DONE, detail: str = "") -> Outcome:
    return Outcome(name, status, 3.0, 90.0, detail)


def test_the_summary_tells_every_part_and_goes_on(tmp_path: Path) -> None:
    plan = [("a", "first"), ("b", "second"), ("c", "third")]
    record = Record(tmp_path, "cuda", "key", Found("H100"), plan)
    record.add(outcome("a"))
    record.add(outcome("b", Outcome.FAILED, "x | y\nz"), {"dflash 8b-q4_k_m": 12.4})
    text = (tmp_path / "summary.md").read_text()
    assert "# H100" in text and "rehearsal" not in text
    assert "| b | second | failed: x \\| y z | 3 | 90 |" in text and "| c | third | not run | | |" in text
    assert "Inflated: dflash 8b-q4_k_m in 12 s." in text
    assert f"commit {running_commit()}, build key" in text and str(this_machine()) in text
    again = Record(tmp_path, "cuda", "key", Found("H100"), plan)
    assert again.is_done("a") and not again.is_done("b")
    assert "rehearsal" in Record(tmp_path / "cpu", "cpu", "key", Found("CPU"), plan).text()


@pytest.mark.parametrize("name", ["commit", "build", "machine", "host", "device"])
def test_parts_of_something_else_are_not_taken(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither their outcomes nor their files, to which the summary would link."""
    plan = [("a", "first"), ("b", "second")]
    Record(tmp_path, "cuda", "key", Found("H100"), plan).add(outcome("a"))
    (tmp_path / "a.md").write_text("figures")
    summary = json.loads((tmp_path / "summary.json").read_text())
    (tmp_path / "summary.json").write_text(json.dumps({**summary, name: "another"}))
    record = Record(tmp_path, "cuda", "key", Found("H100"), plan)
    assert f"another {name}: all parts run again" in capsys.readouterr().out
    assert not record.is_done("a") and not (tmp_path / "a.md").exists()


# ---- the bundle ------------------------------------------------------------------------------------------------------


def packed(folder: Path, name: str, pieces: Sequence[bytes]) -> None:
    folder.mkdir()
    entries = []
    data = b"".join(pieces)
    for i, piece in enumerate(pieces):
        (folder / f"{name}.{i}").write_bytes(piece)
    sha256 = hashlib.sha256(data).hexdigest()
    entries.append(
        {"name": name, "bytes": len(data), "sha256": sha256, "pieces": [f"{name}.{i}" for i in range(len(pieces))]}
    )
    (folder / "manifest.json").write_text(json.dumps({"format": 1, "key": "k", "files": entries}))


def test_a_damaged_or_missing_bundle_is_named(tmp_path: Path, repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BundleError, match=r"no bundle in .*dflash-local build"):
        unpacked.unpack(tmp_path / "none", tmp_path / "work", repo)
    packed(tmp_path / "out", "a.txt", [b"one", b"two"])
    entry = unpacked.read_manifest(tmp_path / "out")["files"][0]
    assert unpacked.joined(tmp_path / "out", entry) == b"onetwo"
    (tmp_path / "out" / "a.txt.1").write_bytes(b"twO")
    with pytest.raises(BundleError, match="its hash differs"):
        unpacked.unpack(tmp_path / "out", tmp_path / "work", repo)
    (tmp_path / "out" / "a.txt.1").unlink()
    assert main(["--device", "cpu", "--from", str(tmp_path / "out"), "-o", str(tmp_path / "results")]) == 1
    assert "not complete" in capsys.readouterr().err


def test_a_wheel_for_another_python_is_refused(tmp_path: Path, repo: Path) -> None:
    packed(tmp_path / "out", "numpy-2.0-cp39-cp39-linux_x86_64.whl", [b""])
    with pytest.raises(BundleError, match="--python"):
        unpacked.unpack(tmp_path / "out", tmp_path / "work", repo)


def test_upstream_never_gets_our_libraries(tmp_path: Path) -> None:
    """Its server looks beside itself, but LD_LIBRARY_PATH would come first."""
    environment = Unpacked(tmp_path, "k").environment("cuda", [Path("/cuda/lib64")])
    assert "llama_cpp" not in environment["LD_LIBRARY_PATH"] and "/cuda/lib64" in environment["LD_LIBRARY_PATH"]


def test_the_runtime_of_the_right_version_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeviceError, match="without CUDA"):
        device.needed(tmp_path)
    (tmp_path / "libggml-cuda.so").write_bytes(b"ELF\0libcublas.so.13\0libcudart.so.13\0libc.so.6\0")
    assert device.needed(tmp_path) == ["libcublas.so.13", "libcudart.so.13", "libcublasLt.so.13"]
    old, new = tmp_path / "old", tmp_path / "new"
    for folder, version in ((old, 12), (new, 13)):
        folder.mkdir()
        (folder / f"libcublas.so.{version}").write_text("")
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{old}:{new}")
    assert device.find("libcublas.so.13") == new / "libcublas.so.13"
    with pytest.raises(DeviceError, match=r"libcublas.so.99 is not on this machine"):
        device.find("libcublas.so.99")


def test_it_starts_without_any_package(repo: Path) -> None:
    """The bundle is not unpacked yet: neither numpy is there nor what is installed under another name than it has in
    the checkout."""
    command = [sys.executable, "-S", "-m", "benchmarks.gpu_proof", "--list"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(command, cwd=repo, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "equality" in done.stdout and len(done.stdout.splitlines()) == 10


def test_listed_limits_are_those_that_parts_have(capsys: pytest.CaptureFixture[str]) -> None:
    """If each takes all of its own: together no more than there is."""
    assert main(["--list", "--minutes", "8.5"]) == 0
    limits = [int(line.split()[0]) for line in capsys.readouterr().out.splitlines()]
    assert limits[:3] == [120, 100, 120] and limits[-1] == 0 and 490 <= sum(limits) <= 500
    assert main(["--list", "--only", "ops", "steps"]) == 0
    assert [line.split()[2] for line in capsys.readouterr().out.splitlines()] == ["ops:", "steps:"]


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_ends_it_in_order(name: str, repo: Path) -> None:
    """Else its parts would live on; under nohup it goes on."""
    code = "import os, signal; {}; from benchmarks.gpu_proof import __main__ as command; command.end_on_signals()\n"
    code += f"try: os.kill(os.getpid(), signal.{name})\nfinally: print('in order')"

    def status(before: str) -> tuple[int, str]:
        command = [sys.executable, "-S", "-c", code.format(before)]
        done = subprocess.run(command, cwd=repo, capture_output=True, text=True)
        return done.returncode, done.stdout.strip()

    assert status(f"signal.signal(signal.{name}, signal.SIG_DFL)") == (128 + getattr(signal, name), "in order")
    assert status(f"signal.signal(signal.{name}, signal.SIG_IGN)") == (0, "in order")


def test_an_unknown_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "nonsense"]) == 2
    assert "there is no part nonsense" in capsys.readouterr().out


# ---- what parts judge ------------------------------------------------------------------------------------------------


def numbers(lattice: bool) -> equality.Arrays:
    """A block of three places, with four candidates each."""
    rng = np.random.default_rng(3)
    ids = np.array([[1, 2, 3, 4], [4, 5, 6, 7], [7, 8, 9, 1]])
    scores = rng.uniform(-9, -1, (3, 4, 4) if lattice else (3, 4))
    if lattice:
        scores[0] = scores[0][0]  # all rows are the anchor's
    return {
        "logits": np.array([20.0, -3.0]), "hidden": np.array([4.0, 1.0]), "ids": ids[None], "scores": scores[None]
    }  # fmt: skip


def test_parity_is_a_share_of_the_largest_number() -> None:
    cpu = numbers(lattice=False)
    close = {**cpu, "logits": np.array([20.1, -3.1]), "hidden": np.array([4.0, 1.02]), "scores": cpu["scores"] + 0.01}
    assert equality.compare(close, cpu)["parity"] is True
    assert equality.compare(close, cpu)["same_first"] == 1.0
    wrong = equality.compare({**close, "hidden": np.array([4.0, 2.0])}, cpu)
    assert wrong["parity"] is False and wrong["hidden_off"] == 0.25
    assert equality.compare({**close, "scores": cpu["scores"] - 1}, cpu)["parity"] is False
    assert equality.sound({"lossless": True, "parity": True})
    assert not equality.sound({"lossless": True, "parity": False}) and not equality.sound({"error": "x"})


@pytest.mark.parametrize("lattice", [False, True])
def test_the_order_of_candidates_does_not_matter(lattice: bool) -> None:
    """A device returns the largest of a row in any order, and another last one where two are nearly equal."""
    cpu, rng = numbers(lattice), np.random.default_rng(4)
    orders = [rng.permutation(4) for _ in range(3)]
    ids, scores = cpu["ids"].copy(), cpu["scores"].copy()
    for i, order in enumerate(orders):
        ids[0, i] = cpu["ids"][0, i, order]
        rows = cpu["scores"][0, i]
        scores[0, i] = rows[np.ix_(orders[i - 1] if i else np.arange(4), order)] if lattice else rows[order]
    found = equality.compare({**cpu, "ids": ids, "scores": scores}, cpu)
    assert (found["same_candidates"], found["same_first"], found["scores_off"]) == (1.0, 1.0, 0.0)
    ids[0, 2, int(scores[0, 2].reshape(-1, 4).max(0).argmin())] = 99
    found = equality.compare({**cpu, "ids": ids, "scores": scores}, cpu)
    assert found["same_candidates"] == pytest.approx(11 / 12) and found["scores_off"] == 0.0


@pytest.mark.parametrize("status", [0, 1])
def test_cases_of_an_op_are_counted(tmp_path: Path, status: int) -> None:
    program = tmp_path / "test-backend-ops"
    right, absent = "  ADD(type=f32,n=1): \\033[1;32mOK\\033[0m", "  ADD(type=f16,n=2): not supported [CUDA0]"
    wrong = "[ADD] NMSE = 3 > 1   ADD(type=f32,n=3): \\033[1;31mFAIL\\033[0m" if status else ""
    program.write_text(f"#!/bin/sh\nprintf '{right}\\n{absent}\\n{wrong}\\n'\nexit {status}\n")
    program.chmod(0o755)
    op = ops.Programs(tmp_path, "CUDA0").op("ADD", 20.0)
    assert (op.right, op.unsupported, op.failed) == (1, 1, bool(status))
    assert op.wrong == ["ADD(type=f32,n=3)"] * status
    text = ops.markdown([op], ["MUL"], "Here.")
    assert "Not tested, the time was over: MUL." in text
    assert ("status 1" in text) == bool(status)


class Scripted(ops.Programs):
    """Ops with this many cases. All are right, but WRONG is not, BAD ends its process, and LARGE takes too long."""

    listed: ClassVar[dict[str, int]] = {"ADD": 40, "MUL": 3, "LARGE": 900, "BAD": 1, "WRONG": 1}

    def __init__(self) -> None:
        self.asked = list[list[str]]()

    def cases(self) -> dict[str, list[str]]:
        return {name: [f"{name}(n={i})" for i in range(n)] for name, n in self.listed.items()}

    def ours(self, seconds: float) -> Op:
        return Op(ops.OURS, 1, [], 0, 0.0)

    def test(self, which: Iterable[str], seconds: float, like: str = "") -> tuple[ops.Results, str]:
        self.asked.append(list(which))
        results: ops.Results = {}
        for entry in self.asked[-1]:
            if entry.startswith("BAD"):
                return results, "status -6"
            found = "FAIL" if entry.startswith("WRONG") else "OK"
            results |= dict.fromkeys(self.cases().get(entry, [entry])[:500], found)
        ended = "status 1" if "FAIL" in results.values() else ""
        return results, "stopped after 25 s" if "LARGE" in self.asked[-1] else ended


def test_some_cases_of_each_op_come_first() -> None:
    """Then all, small ops together, the largest last. One that ends its process takes no other along."""
    programs, names = Scripted(), ["LARGE", "ADD", "BAD", "MUL"]
    tests = ops.Tests(programs, time.monotonic() + 10 * PATIENCE, PATIENCE, lambda tests: None)
    tests.sample(names)
    found = {op.name: op for op in tests.found}
    assert found["ADD"].right == ops.SAMPLE_OF_FIRST and found["LARGE"].right == ops.SAMPLE
    assert found["MUL"].right == 3 and found["BAD"].failed and not found["ADD"].failed
    assert "| ADD | 40 | 16 | 0 | 0 | a sample |" in ops.markdown(tests.found, [], "Here.")
    tests.all(names)
    found = {op.name: op for op in tests.found}
    assert (found["ADD"].right, found["ADD"].how, found["MUL"].how) == (40, "", "")
    assert (found["LARGE"].right, found["LARGE"].how) == (502, "stopped after 25 s")  # two of its sample
    assert found["BAD"].how == "status -6" and not found["LARGE"].failed
    assert programs.asked[-5:] == [["ADD", "BAD", "MUL"], ["ADD"], ["BAD"], ["MUL"], ["LARGE"]]


def test_a_wrong_op_is_told_and_no_other() -> None:
    """A process that ends with the status of wrong cases is not lost, but one that crashed after one is."""
    programs = Scripted()
    tests = ops.Tests(programs, time.monotonic() + 10 * PATIENCE, PATIENCE, lambda tests: None)
    tests.sample(["WRONG", "ADD"])
    assert len(programs.asked) == 1
    tests.all(["WRONG", "BAD", "ADD"])
    found = {op.name: op for op in tests.found}
    assert found["WRONG"].wrong == ["WRONG(n=0)"] and found["WRONG"].failed and found["BAD"].failed
    assert (found["ADD"].right, found["ADD"].failed) == (40, False)


def test_ops_behind_a_slow_case_have_their_sample() -> None:
    class Slow(Scripted):
        def test(self, which: Iterable[str], seconds: float, like: str = "") -> tuple[ops.Results, str]:
            cases = list(which)
            results, _ = super().test([case for case in cases if case.startswith("ADD")] or cases, seconds)
            return results, "stopped after 8 s" if len(results) < len(cases) else ""

    tests = ops.Tests(Slow(), time.monotonic() + 10 * PATIENCE, PATIENCE, lambda tests: None)
    tests.sample(["MUL", "ADD"])
    found = {op.name: op for op in tests.found}
    assert (found["MUL"].right, found["ADD"].right) == (3, ops.SAMPLE_OF_FIRST)
    assert not found["MUL"].ended


def test_nothing_starts_when_the_time_is_over() -> None:
    programs = Scripted()
    tests = ops.Tests(programs, time.monotonic(), PATIENCE, lambda tests: None)
    tests.sample(["ADD"])
    tests.all(["ADD"])
    assert programs.asked == [] and [op.name for op in tests.found] == [ops.OURS]


def test_cases_are_listed_by_op(tmp_path: Path) -> None:
    """Those that can be asked for by their name: none with parentheses in its parameters."""
    program = tmp_path / "test-backend-ops"
    lines = [
        "ADD(n=1): \\033[1;32mSUPPORTED\\033[0m",
        "ADD(n=2): \\033[1;31mNOT SUPPORTED\\033[0m",
        "MUL(n=(3)): SUPPORTED",
    ]
    program.write_text("#!/bin/sh\n" + "".join(f"printf '  {line}\\n'\n" for line in lines))
    program.chmod(0o755)
    assert ops.Programs(tmp_path, "CUDA0").cases() == {"ADD": ["ADD(n=1)", "ADD(n=2)"]}
    assert ops.spread(list("abcdefghij"), 3) == ["a", "d", "g"] and ops.spread(["a"], 3) == ["a"]
    assert list(ops.groups("abcd", lambda name: 9 if name == "b" else 1, 5)) == [["a"], ["b"], ["c", "d"]]


def test_an_op_that_takes_too_long_keeps_what_it_has(tmp_path: Path) -> None:
    program = tmp_path / "test-backend-ops"
    program.write_text("#!/bin/sh\necho '  ADD(n=1): OK'\nexec sleep 600\n")
    program.chmod(0o755)
    op = ops.Programs(tmp_path, "CUDA0").op("ADD", 3.0)
    assert op == Op("ADD", 1, [], 0, op.seconds, "stopped after 3 s") and not op.failed


def test_tuned_times_are_a_table() -> None:
    times = [float(n) for n in range(1, 65)]
    vector: list[Any] = [*times[:8], *([None] * 56)]
    runs = [
        {
            "type": "q4_K",
            "shape": "8b",
            "now": 9,
            "measured": 5,
            "vector_ms": vector,
            "matrix_ms": times,
            "few_ms": [0.2] * 64,
            "few_measured": 2,
            "difference": 2e-6,
        }
    ]
    text = tuned.markdown("CUDA0", runs, "Here.")
    assert "9 -> 5" in text and "8.000 | - | - |" in text and "| few | 0.200 |" in text and "| -> 2 | 2.0e-06 |" in text
    assert "nothing to choose" in tuned.markdown("CPU", [], "Here.")


def test_a_record_names_no_folder_of_the_machine(repo: Path) -> None:
    """doctor's findings do: the library, and where the counts are kept. Neither do the records that we have."""
    kept = [ok("tuned rows", "kept in /root/.cache/tuned/1.json"), ok("library", "ABI 3, llama.cpp 1/2, ~/lib/a.so")]
    true = [ok("tuned rows", "CUDA0 q4_K: 9 rows -> 5 (8b: 5, 27b: 4)"), ok("machine", "Xeon, Linux 6.1, 3 GiB/s")]
    found = tuned.elsewhere_true([finding.to_json() for finding in [*kept, *true]])
    assert [one["text"] for one in found] == [finding.text for finding in true]
    records = [file for file in (repo / "benchmarks" / "results").rglob("*") if file.suffix in (".json", ".md")]
    folders = re.compile(r"(?<![\w./>-])/(?:work|home|root|tmp|usr|opt|mnt|media|Users)/")
    assert len(records) > 50 and [file.name for file in records if folders.search(file.read_text())] == []


# ---- all of it -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_rehearsal_in_a_fresh_clone(repo: Path, cache: Path, tmp_path: Path) -> None:
    """Bundle, clone, `make gpu-proof` with a Python that has nothing installed. What is committed is what is tested."""
    packed, clone = tmp_path / "bundle", tmp_path / "clone"
    # The wheel and upstream's server are made once for all sessions.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("DFLASH_", "PYTHON"))}
    shared = {**environment, "DFLASH_CACHE": str((cache / "peer").resolve().parent)}
    build = [sys.executable, "-m", "dflash_local.cli", "build", "--backend", "cpu", "--out", str(packed)]
    subprocess.run(build, cwd=repo, env=shared, check=True, timeout=3600)
    assert all(file.stat().st_size <= 60 << 20 for file in packed.iterdir())
    subprocess.run(["git", "clone", "-q", str(repo), str(clone)], check=True)
    python = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    environment["PATH"] = "/usr/bin:/bin"

    def prove(*arguments: str) -> tuple[int, dict[str, Any]]:
        words = " ".join(["--device cpu -t 1 --minutes 25 --from", str(packed), *arguments])
        done = subprocess.run(
            ["make", f"PYTHON={python}", "gpu-proof", f"GPU_PROOF_ARGS={words}"],
            cwd=clone, env=environment, capture_output=True, text=True, timeout=1500,
        )  # fmt: skip
        results = clone / "build" / "gpu-proof" / "results"
        assert (results / "summary.json").is_file(), done.stdout + done.stderr
        return done.returncode, json.loads((results / "summary.json").read_text())

    status, summary = prove()
    ended = {part["name"]: part["status"] for part in summary["parts"]}
    plan = parts.plan("cpu", Path("out"), 1, {})
    assert ended == {part.name: "done" for part in plan} and list(ended) == [part.name for part in plan], summary
    assert status == 0 and summary["device"] == "cpu"
    assert all(part["seconds"] <= part["limit"] for part in summary["parts"])
    results = clone / "build" / "gpu-proof" / "results"
    for name in ended:
        assert (results / f"{name}.md").stat().st_size > 0 and json.loads((results / f"{name}.json").read_text())
    assert all(equality.sound(pair) for pair in json.loads((results / "equality.json").read_text())["pairs"])
    cells = [cell for file in results.glob("compare-*.json") for cell in json.loads(file.read_text())["cells"]]
    assert len(cells) == 5 and all(len(cell["systems"]) == 8 and "left_out" not in cell for cell in cells)
    tested = json.loads((results / "ops.json").read_text())["ops"]
    assert sum(op["right"] for op in tested) > 100 and not any(op["wrong"] for op in tested)
    assert json.loads((results / "steps.json").read_text())["auto"]["graph_reuse"]
    changed = ["git", "status", "--porcelain", "--", "benchmarks/results"]
    assert subprocess.check_output(changed, cwd=clone) == b"", "a rehearsal is no result"

    # A broken program and a limit that is too short: told, and the other parts run.
    (program,) = (clone / "build" / "gpu-proof").glob("*/programs/tests/test-backend-ops")
    program.write_text("#!/bin/sh\nexit 3\n")
    status, summary = prove("--again --only equality ops tuned --limit equality=1")
    ended = {part["name"]: part["status"] for part in summary["parts"]}
    assert status != 0
    assert (ended["equality"], ended["ops"], ended["tuned"]) == ("out of time", "failed", "done")
    assert ended["steps"] == "done", "what was done before is kept"
