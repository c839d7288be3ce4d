"""The table of a real pair."""

from __future__ import annotations

from pathlib import Path

from benchmarks import real_pair, record
from benchmarks.http_load import Answer
from benchmarks.systems import OURS, OWN_CHAIN, OWN_PLAIN, OWN_TREE, PLAIN, SWEEP, Setting
from dflash_local.demo.shapes import Pair


def answer(seconds: float, passes: int) -> Answer:
    return Answer("text", 9, 101, "length", seconds, 0.1, seconds, passes)


SECONDS = {
    PLAIN: 1.0, **dict.fromkeys(SWEEP, 2.0), SWEEP[0]: 0.8, "ik plain": 0.5, "ik suffix": 0.4, OWN_PLAIN: 0.6,
    OWN_CHAIN: 0.3, OWN_TREE: 0.2, OURS: 0.25,
}  # fmt: skip


def runs(first: float, second: float) -> dict[str, list[list[Answer]]]:
    """Two prompts in each of two repeats; the second prompt takes ten times as long."""
    return {
        name: [[answer(seconds * slower, 50), answer(10 * seconds * slower, 25)] for slower in (first, second)]
        for name, seconds in SECONDS.items()
    }


def test_rows_by_kind() -> None:
    functions, chat = real_pair.rows(runs(1.0, 1.0), ["functions", "chat"], 0.8, ["ik"])
    assert functions["bases"] == {PLAIN: PLAIN, "upstream": SWEEP[0], "ik": "ik suffix", OWN_PLAIN: OWN_PLAIN}
    assert functions["over"] == {PLAIN: [4, 4], "upstream": [3.2, 3.2], "ik": [1.6, 1.6], OWN_PLAIN: [2.4, 2.4]}
    assert functions["speeds"][OURS] == [400.0, 400.0] and chat["speeds"][OURS] == [40.0, 40.0]
    assert functions["al"][OURS] == 2.0 and chat["al"][OURS] == 4.0
    assert (chat["kind"], chat["temperature"]) == ("chat", 0.8)


def test_markdown() -> None:
    text = real_pair.markdown(real_pair.rows(runs(1.0, 2.0), ["functions", "chat"], 0.0, ["ik"]), "Here.")
    head, _, functions, chat = text.splitlines()[:4]
    assert head.startswith("| kind | temperature | plain | upstream's best | ik's best |")
    assert head.count("|") == functions.count("|") == chat.count("|")
    assert f"94 ({SWEEP[0]})" in functions and "4.00 (4.00-4.00)" in functions and "2.00, 2.00" in functions
    assert "over ik's best" in head and text.endswith("medians of the repeats. Here.\n")


def test_commands() -> None:
    setting = Setting(Pair(Path("t.gguf"), Path("d.gguf")), Path("bin"))
    found = real_pair.commands(setting, {"ik": Path("ik-server")}, Path("theirs.gguf"))
    names = ["ik plain", "ik suffix", "ik ngram-mod", "ik dflash 4", "ik dflash 8"]
    assert [name for name in found if name.startswith("ik")] == names
    assert "-md" in found[SWEEP[0]] and "-md" not in found["upstream ngram-mod"]
    assert found["ik dflash 4"][-4:] == ["-md", "theirs.gguf", "--spec-type", "dflash:n_max=4"]
    assert "-rtr" in found["ik plain"] and "-md" not in found["ik plain"]
    assert set(SWEEP) < found.keys() and "ik dflash 4" not in real_pair.commands(setting, {"ik": Path("x")}, None)


def test_prompts() -> None:
    prompts = record.read_prompts(real_pair.PROMPTS)
    kinds = [prompt["kind"] for prompt in prompts]
    assert {"functions", "other code", "chat", "edits", "quotes"} == set(kinds) and len(kinds) == 24
    assert all(prompt["messages"][-1]["role"] == "user" for prompt in prompts)
