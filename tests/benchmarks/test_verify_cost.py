"""What passes cost: a small real run, the arithmetic of the roofline, and the error for a type that does not exist."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import verify_cost
from benchmarks.ceilings import MEMORY, Ceilings, Cores
from benchmarks.targets import Matrices, make
from dflash_local.demo.pocket import bundled_pair


@pytest.mark.slow
def test_a_small_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "cost.json"
    argv = [
        "--shape",
        "pocket",
        "--types",
        "q4_0",
        "--threads",
        "1",
        "--rows",
        "1,4,80",
        "--repeats",
        "1",
        "--work",
        str(tmp_path / "work"),
    ]
    assert verify_cost.main([*argv, "--json", str(out)]) == 0
    shown = capsys.readouterr().out
    found = json.loads(out.read_text())
    assert [(row["type"], row["threads"], row["n"]) for row in found["rows"]] == [("q4_0", 1, n) for n in (1, 4, 80)]
    for row in found["rows"]:
        assert 0 < row["roofline_ms"] < min(row["stock_ms"], row["our_ms"]) < 1000
        assert row["our_spread"][0] <= row["our_ms"] <= row["our_spread"][1]
    (turns,) = found["turns"].values()
    assert turns["n"] == 3 and f"{turns['n']} turns; {turns['again']} were done again" in shown
    (ceilings,) = found["ceilings"].values()
    assert 1 < ceilings["read"][str(MEMORY)] < 1000  # GB/s
    assert ceilings["int8"] >= ceilings["f32"] > 1 and (ceilings["tile"] == 0 or ceilings["tile"] > ceilings["int8"])
    assert "| Q4_0 | stock |" in shown and "milliseconds by rows of the pass" in shown
    assert verify_cost.main(["--md", "--json", str(out)]) == 0
    assert capsys.readouterr().out == shown


def test_a_turn_counts_when_the_cores_are_ours_alone() -> None:
    looks = [3.0] * 19 + [6.0]  # of these the best; then turn by turn
    turns = verify_cost.Turns(Cores(lambda: looks.pop(0), sleep=lambda _: None))
    tries = iter("abcdefg")

    def turn() -> dict[str, list[float]]:
        return {next(tries): []}

    looks[:] = [6.0, 5.9]
    assert list(turns.take(turn)) == ["a"]
    looks[:] = [3.2, 5.9, 3.2, 6.0, 5.2]  # waits, is disturbed, is done again
    assert list(turns.take(turn)) == ["c"]
    looks[:] = [6.0, 3.0] * verify_cost.TRIES
    assert list(turns.take(turn)) == ["f"]
    assert (turns.n_turns, turns.n_again, turns.n_disturbed) == (3, 1 + verify_cost.TRIES - 1, 1)


def test_roofline_is_the_larger_of_reading_and_computing() -> None:
    ceilings = Ceilings({MEMORY: 10.0, 10**9: 20.0, 5: 99.0}, int8=100.0, f32=10.0, tile=0.0, instruction="")
    quantized = Matrices({"Q4_0": 10**9}, {"Q4_0": 2 * 10**9}, 0, 0)
    # At the faster of the two speeds for that size.
    assert verify_cost.roofline(quantized, ceilings, 4) == pytest.approx((50.0, 80.0))
    assert verify_cost.roofline(Matrices({"F16": 10**9}, {"F16": 10**9}, 0, 0), ceilings, 1) == pytest.approx(
        (50.0, 100.0)
    )


def test_what_a_pass_reads_is_what_the_file_holds() -> None:
    found = Matrices.of(bundled_pair().target)
    macs = 6 * (2 * 256 * 256 + 2 * 256 * 128 + 3 * 256 * 768) + 256 * 1699  # layers and the head, not the embedding
    assert found == Matrices({"F16": 2 * macs}, {"F16": macs}, kv_bytes=6 * 2 * 128 * 2, kv_macs=6 * 2 * 256)


@pytest.mark.parametrize("ftype", ["mxfp4", "q6_k"])
def test_other_types(ftype: str, tmp_path: Path) -> None:
    path = make(tmp_path, "pocket", ftype)
    assert list(Matrices.of(path).n_bytes) == [ftype.upper()] and make(tmp_path, "pocket", ftype) == path


@pytest.mark.parametrize(
    ("option", "value", "message"), [("--types", "q4_0,q9", "'q9' is not one of"), ("--rows", "4,0", "at least 1")]
)
def test_wrong_options_are_one_error(option: str, value: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        verify_cost.main([option, value])
    assert message in capsys.readouterr().err.splitlines()[-1]
