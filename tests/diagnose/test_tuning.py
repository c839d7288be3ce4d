"""Tuned rows: both kernels timed on the CPU where it has two, the choice among made-up times, and the file between two
starts."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from dflash_local import Engine, cli, native
from dflash_local.engine_options import COST_OPTIONS
from dflash_local.errors import RequestError
from dflash_local.machine import costs, tuning

SMALL = {"m": 512, "k": 1024, "megabytes": 8, "ms": 5}


@pytest.fixture
def own() -> Iterator[int]:
    """From how many rows on tiles serve Q4_K unasked; whatever a test sets is given back."""
    rows = native.matrix_rows("CPU", "q4_K", 0)
    if rows == 0:
        pytest.skip("this CPU has one kernel")
    yield rows
    tuning.tuned_file().unlink(missing_ok=True)
    for weights in tuning.TYPES:
        native.matrix_rows("CPU", weights, 0)


def test_rows_are_set_and_given_back(own: int) -> None:
    assert [native.matrix_rows("CPU", "Q4_K", rows) for rows in (7, -1, 1, 10**9, 0, -1)] == [
        7,
        7,
        1,
        tuning.MOST_ROWS,
        own,
        own,
    ]
    fresh = [sys.executable, "-c", "from dflash_local import native; print(native.matrix_rows('CPU', 'q4_K'))"]
    assert int(subprocess.check_output(fresh)) == own
    assert int(subprocess.check_output(fresh, env={**os.environ, "DFLASH_AMX": "0"})) == 0


@pytest.mark.parametrize(
    ("device", "weights"), [("CUDA9", "q4_K"), ("CPU", "q8_1"), ("CPU", "f16"), ("CPU", "q4_K_m"), ("", "")]
)
def test_unknown_devices_and_types_are_refused(device: str, weights: str) -> None:
    with pytest.raises(RequestError, match=r"^(device|type) is "):
        native.matrix_rows(device, weights)


@pytest.mark.parametrize(
    "change",
    [{"m": 1}, {"k": 1000}, {"k": -256}, {"m": 1 << 20, "k": 1 << 20}, {"n_max": 65}, {"ms": -1}, {"megabytes": -1}],
)
def test_impossible_measurements_are_refused(own: int, change: dict[str, int]) -> None:
    with pytest.raises(RequestError, match=r" is .*must be"):
        native.tune({"device": "CPU", **SMALL, **change})


@pytest.mark.parametrize("weights", ["q4_K", "q8_0"])
def test_both_kernels_are_timed_for_every_row(own: int, weights: str) -> None:
    seen: list[float] = []

    def on_progress(done: float) -> bool:
        seen.append(done)
        return True

    native.matrix_rows("CPU", weights, 3)
    times = native.tune({"device": "CPU", "type": weights, **SMALL}, on_progress)
    assert (times["type"], times["rows"], times["rows_max"], times["buffer"]) == (
        weights,
        3,
        tuning.MOST_ROWS,
        "CPU_PANELS",
    )
    assert len(times["vector_ms"]) == len(times["matrix_ms"]) == len(seen) == 64 and seen[-1] == 1
    assert min(times["vector_ms"] + times["matrix_ms"]) > 0
    assert native.matrix_rows("CPU", weights) == 3  # as it was
    if weights == "q4_K":  # twice as fast at 64 rows: the two are not the same kernel
        assert sum(times["matrix_ms"][-8:]) < 0.85 * sum(times["vector_ms"][-8:])


def test_a_measurement_can_be_cancelled(own: int) -> None:
    with pytest.raises(RequestError, match="cancelled"):
        native.tune({"device": "CPU", **SMALL}, lambda done: False)

    def interrupt(done: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tuning.measure("CPU", "q8_0", "512x1024", progress=interrupt)
    assert native.matrix_rows("CPU", "q4_K") == own


# ---- the choice ----


def times(vector: list[float | None], matrix: list[float]) -> dict[str, Any]:
    return {"vector_ms": vector, "matrix_ms": matrix}


@pytest.mark.parametrize(
    ("vector", "matrix", "now", "expected"),
    [
        ([1, 2, 3, 4], [2.5, 2.5, 2.5, 2.5], 5, 3),
        ([1, 2, 3, 4], [9, 9, 9, 9], 2, 5),  # never
        ([1, 2, 3, 4], [0.5] * 4, 3, 1),  # always
        ([1, 2, 3, 4], [2, 2.02, 2.5, 2.5], 3, 3),  # 2 rows are equal but for noise: no reason to change
        ([1, 2, 3, 4], [2, 2.02, 2.5, 2.5], 4, 2),  # 4 is too late; of 2 and 3 the smaller
        ([1, 2, 3, 4, 5, 6], [3, 3, 2.5, 2.5, 5.5, 2.5], 7, 3),  # one row out of line changes nothing
        ([1, 2, None, None], [3, 1, 1, 1], 9, 2),  # 3 rows and more are not the vector kernel's
        ([1, 2, 3, 4], [9, 9, 9, 9], 9, 9),  # now is beyond what was measured
    ],
)
def test_crossover(vector: list[float | None], matrix: list[float], now: int, expected: int) -> None:
    assert tuning.crossover([times(vector, matrix)], now) == expected


def test_crossover_of_several_shapes_is_one() -> None:
    """The loss counts, not the majority: 3 costs the first shape little, 5 costs the second much."""
    first, second = times([1, 2, 3, 4], [2, 2.5, 3.2, 4.2]), times([1, 2, 3, 4], [1.5, 2.2, 1, 1])
    assert tuning.crossover([first], 4) == 5 and tuning.crossover([second], 4) == 3
    assert tuning.crossover([first, second], 4) == 3


@pytest.mark.parametrize(
    ("vector", "matrix", "few", "expected"),
    [
        ([1, 2, 3, 4], [3, 3, 3, 3], [1.5] * 4, 2),
        ([1, 2, 3, 4], [3, 3, 3, 3], [0.9] * 4, 1),
        ([1, 2, 3, 4], [3, 3, 3, 3], [9] * 4, 65),  # never
        ([1, 2, None, None], [3, 3, 3, None], [2.5, 2.5, 2.5, None], 3),  # what was not timed does not count
        ([1, 2, 3, 4], [3, 3, 3, 3], [1.5, 1.5, 1.5, 3.05], 2),  # one row that is slower within the noise
    ],
)
def test_few_rows_from(
    vector: list[float | None], matrix: list[float | None], few: list[float | None], expected: int
) -> None:
    run = {"vector_ms": vector, "matrix_ms": matrix, "few_ms": few, "difference": 1e-6}
    assert tuning.few_rows_from([run], 3) == expected
    assert tuning.few_rows_from([{**run, "difference": 0.01}], 3) == tuning.MOST_ROWS, "it is wrong"


def test_matrices() -> None:
    assert tuning.matrices("8b") == [(12288, 4096), (4096, 12288)]
    assert tuning.matrices("27b") == [(21504, 5376), (5376, 21504)]
    assert tuning.matrices("300x512") == [(300, 512)]
    for shape in ("35b-a3b", "9000b", "12x", "-1x256", ""):
        with pytest.raises(RequestError, match="shape must be"):
            tuning.matrices(shape)


# ---- between two starts ----


def start(pocket: dict[str, Path], **options: Any) -> Mapping[str, Any]:
    with Engine(pocket["target"], n_ctx=64, **options) as engine:
        return engine.info


def test_the_next_engine_uses_what_is_kept(pocket: dict[str, Path], own: int) -> None:
    arguments = dict.fromkeys(COST_OPTIONS)
    assert start(pocket)["tuned_rows"] == {}
    untuned = costs.cost_file(pocket["target"], None, arguments)
    tuning.keep({"CPU": {"q4_K": 17}})
    tuning.keep({"CPU": {"q8_0": 65}, "CUDA9": {"q8_0": 3}})  # a GPU that is away today is no matter
    assert start(pocket)["tuned_rows"] == {"CPU": {"q4_K": 17, "q8_0": 65}}
    assert native.matrix_rows("CPU", "q4_K") == 17
    assert costs.cost_file(pocket["target"], None, arguments) != untuned, "pass times of other kernels"
    tuning.tuned_file().unlink()
    assert start(pocket)["tuned_rows"] == {} and native.matrix_rows("CPU", "q4_K") == own


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[" * 60_000,
        " " * (1 << 17),
        "[]",
        '{"format": 1}',
        '{"format": 2, "rows": {}}',
        '{"format": 1, "rows": {"CPU": {"q4_K": 0}}}',
        '{"format": 1, "rows": {"CPU": {"q4_K": -5}}}',
        '{"format": 1, "rows": {"CPU": {"q4_K": 1e3}}}',
        '{"format": 1, "rows": {"CPU": {"q4_K": true}}}',
        '{"format": 1, "rows": {"CPU": {"q4_K": 99999999999999999999}}}',
        '{"format": 1, "rows": {"CPU": {"no such type": 5}}}',
        '{"format": 1, "rows": {"CPU": [5]}}',
        '{"format": 1, "rows": {}, "few_rows": {"CPU": {"q4_K": 66}}}',
        '{"format": 1, "build": [], "rows": {"CPU": {"q4_K": 5}}}',
        b"\xff\xfe",
    ],
)
def test_a_damaged_or_stale_file_is_ignored_in_one_line(
    own: int, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], text: str | bytes
) -> None:
    file = tuning.tuned_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    with caplog.at_level(logging.WARNING):
        assert tuning.apply() == ({}, {})
    (line,) = caplog.messages
    assert str(file) in line and ("damaged" in line or "another build" in line) and "doctor --tune" in line
    assert native.matrix_rows("CPU", "q4_K") == own
    cli.main(["doctor"])
    assert "WARN  tuned rows" in capsys.readouterr().out


def test_doctor_tunes_this_cpu(
    own: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """IQ1_S stands for a type with vectors alone, which this CPU has no longer."""
    native.matrix_rows("CPU", "q4_K", 0)
    rows = native.matrix_rows
    monkeypatch.setattr(native, "matrix_rows", lambda *wanted: 0 if wanted[1] == "iq1_s" else rows(*wanted))
    out = tmp_path / "out.json"
    assert (
        cli.main(
            ["doctor", "--tune", "--device", "CPU", "--types", "q4_k,iq1_s", "--shape", "256x512", "--json", str(out)]
        )
        == 0
    )
    (run,) = json.loads(out.read_text())["runs"]
    printed = capsys.readouterr().out
    assert (run["type"], run["now"], len(run["vector_ms"]), len(run["matrix_ms"])) == ("q4_K", own, 64, 64)
    assert "vector ms" in printed and "one kernel only for iq1_s" in printed
    assert f"CPU q4_K: matrix kernel from {own} rows on -> from {run['measured']}" in printed
    assert tuning.read_counts() == (({"CPU": {"q4_K": run["measured"]}}, {}), "")
    cli.main(["doctor"])
    assert f"CPU q4_K from {run['measured']}; kept in {tuning.tuned_file()}" in capsys.readouterr().out
