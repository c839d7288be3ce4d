"""The comparison's arithmetic, the fairness of its set-up and turns, and (slow) one small run against the real upstream
server."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks import compare_upstream as compare
from benchmarks import record
from benchmarks.compare_upstream import markdown, measure, resumed, summary
from benchmarks.comparison import Cell, Run
from benchmarks.http_load import Answer, LoadError, LoadResult
from benchmarks.systems import (
    OURS,
    OWN_PLAIN,
    PLAIN,
    SWEEP,
    UPSTREAM,
    UPSTREAM_N_GRAMS,
    UPSTREAM_P_MIN,
    Setting,
    Systems,
    order,
)
from dflash_local.demo.pocket import bundled_pair

SHORT, MIDDLE, BEST = UPSTREAM
MORE = [UPSTREAM_P_MIN, UPSTREAM_N_GRAMS]


def run(seconds: float, texts: tuple[int, ...] = (1, 2), passes: int = 5, wait: float = 0.0) -> Run:
    """100 tokens in two answers, the second of which takes nine tenths of the time; before it the client waits."""
    parts = [0.1 * seconds, 0.9 * seconds]
    latency = [parts[0] + 0.1, parts[1] + 0.1 + wait]
    return Run([10, 90], parts, latency, [0.1, 0.1], [passes, passes], list(texts))


@pytest.fixture
def cell() -> Cell:
    runs = {
        PLAIN: [run(10), run(20)],
        SHORT: [run(1)],  # fast while it played, but it did not play to the end
        MIDDLE: [run(8), run(9)],
        BEST: [run(5), run(10)],
        OWN_PLAIN: [run(8), run(12)],
        OURS: [run(4, texts=(1, 3)), run(8.5, passes=4)],
    }
    return Cell("dflash", "q4_0", 0.0, runs)


def test_speed_is_all_tokens_over_all_time(cell: Cell) -> None:
    assert cell.best == BEST and cell.speed(BEST) == pytest.approx(200 / 15)
    assert cell.ratio(BEST) == pytest.approx(15 / 12.5) and cell.ratio(PLAIN) == pytest.approx(30 / 12.5)
    assert cell.over_better == pytest.approx(15 / 12.5)
    assert cell.spread(BEST) == pytest.approx((10 / 8.5, 5 / 4))
    assert cell.with_prompts(BEST) == pytest.approx((15 + 0.4) / (12.5 + 0.4))
    assert cell.al(OURS) == pytest.approx(200 / 18)
    assert cell.same_answers(OURS) == 1 and cell.same_answers(BEST) == 2


def test_where_plain_is_the_better_base_it_counts(cell: Cell) -> None:
    slow = Cell("dflash-small", "q8_0", 1.0, {**cell.runs, PLAIN: [run(3), run(3)]})
    assert slow.over_better == pytest.approx(6 / 12.5)
    both = summary([cell, slow])
    assert both["over_plain_min"] == pytest.approx(6 / 12.5) and both["over_best_min"] == pytest.approx(1.2)
    assert both["over_own_plain_mean"] == both["over_own_plain_min"] == pytest.approx(20 / 12.5)
    assert both["over_better_mean"] == pytest.approx((1.2 * 0.48) ** 0.5)


def test_record_and_table_say_the_same(cell: Cell) -> None:
    data = json.loads(json.dumps(cell.to_json()))
    assert Cell.from_json(data) == cell
    assert (data["best_upstream"], data["over_best"], data["over_plain"]) == (BEST, 1.2, 2.4)
    line = markdown([cell], "Here.").splitlines()[2]
    columns = [column.strip() for column in line.strip("|").split("|")]
    assert columns == [
        "dflash",
        "Q4_0",
        "0",
        "6.7",
        "100.0",
        "11.8",
        "**13.3**",
        "-",  # not measured
        "-",
        "10.0",
        "**16.0**",
        "1.20 (1.18-1.25)",
        "2.40 (2.35-2.50)",
        "1.60 (1.41-2.00)",
        "11.1, 10.0",
        "0.0 (0.0), 0.0 (0.0)",
    ]


def test_a_client_waits_for_more_than_prompt_and_generation() -> None:
    runs = {
        PLAIN: [run(10)] * 2,
        OWN_PLAIN: [run(9)] * 2,
        BEST: [run(5, wait=0.01)] * 2,
        OURS: [run(4, wait=0.02), run(4, wait=0.06)],
    }
    cell = Cell("dflash", "q4_0", 0.0, runs)
    assert cell.waits_ms(OURS) == pytest.approx((10, 60)) and cell.waits_ms(BEST) == pytest.approx((5, 10))
    assert cell.to_json()["systems"][OURS]["wait_ms"] == [10, 60]
    assert markdown([cell], "Here.").splitlines()[2].endswith("| 10.0 (60.0), 5.0 (10.0) |")


@pytest.mark.parametrize("names", ["ab", "abcd", "abcde"])
def test_every_system_has_every_place_and_neighbour_in_the_order(names: str) -> None:
    orders = [order(names, i) for i in range(2 * len(names))]
    assert all(sorted(o) == list(names) for o in orders)
    assert all({o[place] for o in orders} == set(names) for place in range(len(names)))
    neighbours = {pair for o in orders for pair in itertools.pairwise(o)}
    assert all(pair[::-1] in neighbours for pair in neighbours)


def test_all_systems_get_the_same_sizes_and_files() -> None:
    pair = bundled_pair()
    commands = Setting(pair, Path("bin"), clients=4).commands()
    assert list(commands) == [PLAIN, *UPSTREAM, OURS]
    for argv in commands.values():
        for flag, value in (("-m", str(pair.target)), ("-c", "4096"), ("-np", "4"), ("-t", "2"), ("-fa", "on")):
            assert (flag, value) in itertools.pairwise(argv)
    assert [name for name, argv in commands.items() if "-md" in argv] == [*UPSTREAM, OURS]
    assert "--spec-type" not in commands[PLAIN]
    wide = Setting(pair, Path("bin"), clients=4).sweep()
    assert {name: argv for name, argv in wide.items() if name in commands} == commands
    assert [*wide][-2:] == MORE and all(wide[name][: len(commands[PLAIN])] == commands[PLAIN] for name in MORE)
    assert wide[UPSTREAM_P_MIN] == [*commands[BEST], "--spec-draft-p-min", "0.4"]
    longest, both = set(commands[BEST]), set(wide[UPSTREAM_N_GRAMS])
    assert (longest - both, both - longest) == ({"draft-dflash"}, {"draft-dflash,ngram-mod"})
    assert commands[OURS][-3:-1] == ["--no-cost-cache", "-md"] and commands[OURS][4] == "-m"  # nothing of ours is tuned


class Scripted(Systems):
    """Systems that answer at once and claim to have taken what `seconds` says; remembers every turn."""

    def __init__(self, seconds: dict[str, float]) -> None:
        super().__init__({})
        self.seconds = seconds
        self.turns: list[tuple[str, str]] = []

    @property
    def names(self) -> list[str]:
        return [*self.seconds]

    def turn(self, name: str, bodies: Sequence[dict[str, Any]]) -> LoadResult:
        body = bodies[0]
        self.turns.append((name, json.dumps(body, sort_keys=True)))
        return LoadResult(1.0, (Answer("text", 9, 11, "stop", 1.0, 0.1, self.seconds[name], passes=2),))


def test_systems_take_turns_and_draft_lengths_without_a_chance_sit_out() -> None:
    systems = Scripted({PLAIN: 9.0, SHORT: 1.2, MIDDLE: 1.0, BEST: 1.05, OURS: 9.0})
    runs = measure(systems, [{"messages": [i]} for i in range(4)], 1.0, 50, 3, "here")
    assert {name: len(done) for name, done in runs.items()} == {PLAIN: 3, SHORT: 1, MIDDLE: 3, BEST: 3, OURS: 3}
    bodies = [body for _, body in systems.turns]
    rounds = [list(group) for _, group in itertools.groupby(systems.turns, key=lambda turn: turn[1])]
    assert [len(group) for group in rounds] == [5] * 4 + [4] * 8  # the same request to all, then the next
    assert {group[0][0] for group in rounds} == set(systems.names)
    assert len(set(bodies)) == 12  # another seed in every repeat
    assert all('"cache_prompt": false' in body and '"max_tokens": 50' in body for body in bodies)


def test_one_by_one_keeps_what_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never two servers at once, plain and ours first, then those that were best elsewhere; a draft length that fails
    is left out, plain and ours never."""
    broken, started = {MIDDLE}, list[str]()

    class Alone(Scripted):
        def __init__(self, commands: dict[str, list[str]], *, variants: dict[str, Any]) -> None:
            super().__init__(dict.fromkeys([*commands, *variants], 1.0))
            (self.name,) = commands
            started.append(self.name)

        def __enter__(self) -> Alone:
            if self.name in broken:
                raise LoadError(f"{self.name} ended with status 1:\nabort")
            return self

        def __exit__(self, *_error: object) -> None: ...

    monkeypatch.setattr(compare, "Systems", Alone)
    setting = Setting(bundled_pair(), Path("bin"), n_gpu_layers=7)
    assert all(("-ngl", "7") in itertools.pairwise(argv) for argv in setting.sweep().values())
    assert sum("-ngld" in argv for argv in setting.sweep().values()) == 6

    def cells() -> list[Cell]:
        return [Cell("dflash", "q8_0", t, {}) for t in (0.0, 1.0)]

    filled = cells()
    seen = [
        (len(done[-1].runs), sorted(done[-1].left_out))
        for done in compare.measure_apart(setting, [{"messages": []}] * 3, filled, 50, 2)
    ]
    assert started == [PLAIN, OURS, UPSTREAM_N_GRAMS, UPSTREAM_P_MIN, BEST, MIDDLE, SHORT]
    left = [SWEEP, (*UPSTREAM, UPSTREAM_P_MIN), UPSTREAM, (SHORT, MIDDLE), (SHORT, MIDDLE), (MIDDLE,)]
    assert seen == list(zip((3, 4, 5, 6, 6, 7), map(sorted, left), strict=True))
    assert all(len(run.tokens) == 3 for cell in filled for runs in cell.runs.values() for run in runs)
    text = markdown(filled, "Here.")
    assert f"Left out of T1: {MIDDLE}, {MIDDLE} ended with status 1:" in text and "abort" not in text
    for cell in filled:
        assert Cell.from_json(json.loads(json.dumps(cell.to_json()))) == cell
    broken.add(OURS)
    with pytest.raises(LoadError):
        list(compare.measure_apart(setting, [{"messages": []}], cells(), 50, 1))


def test_without_any_draft_length_nothing_is_over_upstreams_best(cell: Cell) -> None:
    """A run that ends early: ours over plain is not called ours over upstream's best."""
    left = dict.fromkeys(SWEEP, "not measured yet")
    alone = Cell("dflash", "q4_0", 0.0, {name: cell.runs[name] for name in (PLAIN, OWN_PLAIN, OURS)}, left)
    assert alone.best is None and alone.over_better == alone.ratio(PLAIN)
    text = markdown([alone], "Here.")
    assert [column.strip() for column in text.splitlines()[2].split("|")[12:17]] == [
        "-",
        "2.40 (2.35-2.50)",
        "1.60 (1.41-2.00)",
        "11.1, -",
        "0.0 (0.0), -",
    ]
    assert "ours over plain 2.400" in text and "over upstream's best 2." not in text
    assert "none of upstream's draft lengths was measured" in text
    data = json.loads(json.dumps(alone.to_json()))
    assert data["best_upstream"] is data["over_best"] is data["over_best_with_prompts"] is None
    assert Cell.from_json(data) == alone
    assert "over_best_mean" not in summary([alone]) and summary([alone])["over_better_mean"] == pytest.approx(2.4)


def test_of_some_draft_lengths_it_says_so(cell: Cell) -> None:
    some = Cell("dflash", "q4_0", 0.0, cell.runs, dict.fromkeys(MORE, "not measured yet"))
    text = markdown([some], "Here.")
    assert "| 1.20 (1.18-1.25), of 3 of 5 |" in text
    assert "ours over upstream's best of the draft lengths that were measured 1.200" in text
    alone = Cell("dflash", "q8_0", 0.0, {name: cell.runs[name] for name in (PLAIN, OWN_PLAIN, OURS)}, {BEST: "no"})
    assert "that were measured, in 1 of them, 1.200" in markdown([some, alone], "Here.")
    assert "of the draft lengths" not in markdown([cell], "Here.")


def test_resume_takes_finished_cells_of_the_same_settings_only(cell: Cell, tmp_path: Path) -> None:
    out = tmp_path / "result"
    ap = compare.parser()

    def settings(*words: str) -> tuple[Any, dict[str, Any]]:
        args = ap.parse_args(["-o", str(out), *words])
        return args, record.environment(ap, args)

    args, env = settings("--resume", "--types", "q4_0", "q8_0")
    assert resumed(args, env) == ([], 0.0)
    record.save(out, {**env, "seconds": 7, "cells": [cell.to_json()]}, "table")
    assert resumed(args, env) == ([cell], 7.0)
    assert resumed(*settings("--resume"))[0] == [cell]  # another selection of cells is no other setting
    assert resumed(*settings()) == ([], 0.0)
    with pytest.raises(LoadError, match="n_predict"):
        resumed(*settings("--resume", "-n", "40"))


@pytest.mark.parametrize("name", record.ORIGIN)
def test_resume_mixes_nothing_that_is_of_something_else(cell: Cell, name: str, tmp_path: Path) -> None:
    ap = compare.parser()
    args = ap.parse_args(["-o", str(tmp_path / "result"), "--resume"])
    env = record.environment(ap, args)
    another = {"machine": {**env["machine"], "cpu": "another"}, "devices": ["CUDA0: another"]}.get(name, "another")
    for value in (another, None):
        before = {**env, "seconds": 7, "cells": [cell.to_json()]}
        before |= {name: value} if value else {}
        if value is None:
            del before[name]  # a record from before it was kept
        record.save(args.out, before, "table")
        with pytest.raises(LoadError, match=rf"{name}: .*{'another' if value else 'not recorded'}.*, now "):
            resumed(args, env)


def test_command_makes_the_figure_again_and_tells_no_path(tmp_path: Path) -> None:
    ap = compare.parser()
    args = ap.parse_args(
        ["-o", str(tmp_path), "--work", str(tmp_path), "--types", "q4_0", "--temperatures", "0", "1", "-n", "40"]
    )
    words = record.command(ap, args).split()
    assert "--types" in words and "--n-predict" in words and str(tmp_path) not in words
    assert "--temperatures" not in words  # the default
    assert vars(ap.parse_args(words[2:])) == {**vars(args), "out": ap.get_default("out"), "work": None}


@pytest.mark.slow
def test_small_run_against_upstream(tmp_path: Path, repo: Path) -> None:
    argv = [
        sys.executable,
        "benchmarks/compare_upstream.py",
        "--limit",
        "8",
        "--repeats",
        "1",
        "--shape",
        "0.1b",
        "--drafters",
        "dflash",
    ]
    argv += ["--types", "q4_0", "--temperatures", "0", "-n", "40", "-t", "1", "-o", str(tmp_path / "result")]
    subprocess.run(argv, check=True, cwd=repo, timeout=1500)
    (data,) = json.loads((tmp_path / "result.json").read_text())["cells"]
    systems = data["systems"]
    assert len(systems) == 8 and all(s["tokens_per_second"] > 0 for s in systems.values())
    assert all(s["same_answers_as_plain"] >= 6 for s in systems.values())  # of 8; quantized ties may differ
    # Both servers count alike: whose answers are all plain upstream's has as many tokens.
    same = [sum(s["runs"][0]["tokens"]) for s in systems.values() if s["same_answers_as_plain"] == 8]
    assert len(same) >= 2 and len(set(same)) == 1
    assert systems[OURS]["al"] > 2 and systems[PLAIN]["al"] == systems[OWN_PLAIN]["al"] == 1


@pytest.mark.slow
def test_a_terminated_comparison_leaves_no_server(tmp_path: Path, repo: Path) -> None:
    argv = [
        sys.executable,
        "benchmarks/compare_upstream.py",
        "--shape",
        "0.1b",
        "--limit",
        "2",
        "--repeats",
        "99",
        "-n",
        "20",
        "-t",
        "1",
    ]
    argv += ["-o", str(tmp_path / "out")]
    mark = f"DFLASH_TEST_MARK={tmp_path}"
    process = subprocess.Popen(
        argv, cwd=repo, stderr=subprocess.PIPE, text=True, env=os.environ | dict([mark.split("=", 1)])
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "tok/s" in line:
            break
    assert len(_marked(mark)) == 8  # the script and its seven servers
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
