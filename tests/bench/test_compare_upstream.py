"""The comparison's arithmetic, fairness of its set-up, and (slow) one quick run against the real upstream server."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import compare_upstream as compare
from benchmarks.compare_upstream import BUDGET_1, OURS, PLAIN, Cell, Run, Setting, markdown, order, requests
from benchmarks.http_load import Answer, LoadResult
from dflash_local.demo.pocket import bundled_pair

BEST = "upstream n_max 15"


def run(speed: float, al: float = 1.0, texts: tuple[str, ...] = ("a", "b")) -> Run:
    return Run(wall=100 / speed, cpu=1.0, tokens=100, al=al, predicted_per_second=speed, ttft=0.01, latency=0.1, texts=texts)


@pytest.fixture
def cell() -> Cell:
    runs: dict[str, tuple[Run, ...]] = {
        PLAIN: (run(10), run(20), run(10)),
        "upstream n_max 3": (run(15), run(15), run(90)),  # one lucky run does not make it the best
        BEST: (run(20, al=12), run(40, al=12), run(20, al=12)),
        OURS: (run(30, al=13, texts=("a", "c")), run(44), run(26)),
        BUDGET_1: (run(11), run(21), run(9)),
    }
    return Cell(Setting("q4_0", 1, 2), 0.0, runs)


def test_ratios_pair_the_runs_of_one_alternation(cell: Cell) -> None:
    assert cell.best_upstream() == BEST
    assert cell.ratio(OURS, BEST) == pytest.approx(1.3)  # of 1.5, 1.1 and 1.3; the medians' own ratio would be 1.5
    assert cell.ratio(OURS, PLAIN) == pytest.approx(2.6)
    assert cell.same_answers(OURS) == 1 and cell.same_answers(BEST) == 2


def test_table_and_record_say_the_same(cell: Cell) -> None:
    line = markdown([cell], "Here.").splitlines()[2]
    columns = [column.strip() for column in line.strip("|").split("|")]
    assert columns[:3] == ["Q4_0", "0", "1"] and columns[6:8] == ["**30.0**", "11.0"]
    assert "**20.0**" in columns and "**15.0**" not in columns
    assert columns[8:10] == ["1.30", "2.60"]
    data = cell.to_json()
    assert data["systems"][OURS]["over_best_upstream"] == pytest.approx(1.3)
    assert [r["tokens_per_second"] for r in data["systems"][PLAIN]["runs"]] == pytest.approx([10, 20, 10])
    json.dumps(data)


def test_every_system_has_every_place_in_the_order() -> None:
    systems = list("abcde")
    orders = [order(systems, i) for i in range(10)]
    assert all(sorted(o) == systems for o in orders)
    assert {o[0] for o in orders} == set(systems) and {o[-1] for o in orders} == set(systems)


def test_all_systems_get_the_same_sizes_files_and_requests() -> None:
    pair = bundled_pair()
    commands = Setting("q4_0", 4, 2).commands(pair, Path("bin"))
    for argv in commands.values():
        for flag, value in (("-m", str(pair.target)), ("-c", "4096"), ("-np", "4"), ("-t", "2"), ("-fa", "on")):
            assert (flag, value) in itertools.pairwise(argv)
    assert [name for name, argv in commands.items() if "-md" in argv] == [*(n for n in commands if n.startswith("upstream")), OURS]
    assert "--spec-type" not in commands[PLAIN] and commands[BUDGET_1][-2:] == ["--budget", "1"]
    bodies = requests([{"messages": []}] * 3, 100, 1.0, stream=False)
    assert [body["seed"] for body in bodies] == [1000, 1001, 1002]
    assert not any(body["cache_prompt"] for body in bodies)


def test_run_sums_over_all_answers() -> None:
    answers = (Answer("x", 41, "stop", 1.0, 0.1, 50.0, passes=2), Answer("y", 11, "stop", 2.0, 0.2, 30.0, passes=3))
    made = Run.of(LoadResult(2.0, answers), cpu=0.5)
    assert (made.al, made.tokens, made.speed) == (10.0, 52, 26.0)
    assert (made.texts, made.latency) == (("x", "y"), 1.5)


def test_quick_is_one_round() -> None:
    assert compare.parse_args(["--quick"]).rounds == 1 and compare.parse_args([]).rounds == 5


@pytest.mark.slow
def test_quick_run_against_upstream(tmp_path: Path, repo: Path) -> None:
    argv = [sys.executable, "benchmarks/compare_upstream.py", "--quick", "--shape", "0.1b", "--types", "q4_0", "--temps", "0"]
    argv += ["--clients", "2", "-n", "40", "-o", str(tmp_path / "result")]
    subprocess.run(argv, check=True, cwd=repo, timeout=1500)
    (cell,) = json.loads((tmp_path / "result.json").read_text())["cells"]
    systems = cell["systems"]
    assert len(systems) == 6 and all(s["tokens_per_second"] > 0 for s in systems.values())
    assert all(s["same_answers_as_plain"] >= 6 for s in systems.values())  # of 8; quantized ties may differ
    # Both servers count alike: whose answers are all plain upstream's has as many tokens.
    same = [s["runs"][0]["tokens"] for s in systems.values() if s["same_answers_as_plain"] == 8]
    assert len(same) >= 2 and len(set(same)) == 1
    assert systems[OURS]["runs"][0]["al"] > 2 and systems[PLAIN]["runs"][0]["al"] == 1


@pytest.mark.slow
def test_a_terminated_comparison_leaves_no_server(tmp_path: Path, repo: Path) -> None:
    argv = [sys.executable, "benchmarks/compare_upstream.py", "--shape", "0.1b", "--types", "q4_0", "-o", str(tmp_path / "result")]
    mark = f"DFLASH_TEST_MARK={tmp_path}"
    process = subprocess.Popen(argv, cwd=repo, stderr=subprocess.PIPE, text=True, env=os.environ | dict([mark.split("=", 1)]))
    assert process.stderr is not None
    for line in process.stderr:
        if "tok/s" in line:
            break
    assert len(_marked(mark)) == 7  # the script and its six servers
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 143
    assert not _marked(mark)


def _marked(mark: str) -> list[Path]:
    """Processes with `mark` in their environment."""
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in environment.read_bytes().split(b"\0"):
                found.append(environment.parent)
        except OSError:  # gone, or another user's
            continue
    return found
