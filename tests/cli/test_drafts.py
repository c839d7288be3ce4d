"""`dflash-local chat --show drafts`: tints, figures, and what a terminal shows of them."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from dflash_local.cli.chat.backends import EngineBackend, ServerBackend
from dflash_local.cli.chat.repl import Chat
from dflash_local.cli.drafts.cursor import Cursor, cells
from dflash_local.cli.drafts.draft_view import DraftView, legend
from dflash_local.cli.drafts.figures import figures_line
from dflash_local.cli.drafts.palette import DRAFT, OTHERS, Palette
from dflash_local.cli.drafts.tally import Tally
from dflash_local.cli.drafts.tints import Tinted, Tints, refused
from dflash_local.engine import Engine
from tests.cli.terminal import Terminal
from tests.fake_native import FakeNative, bytes_in_blocks
from tests.patience import PATIENCE
from tests.server.live import live

TIMINGS = {"predicted_per_second": 61.25, "acceptance_length": 2.5, "predicted_n": 6, "predicted_ms": 100.0}
TERMINAL = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
# What else may say something of a terminal.
FOREIGN = ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS", "LINES")


def node(text: str, parent: int, by: str = "draft", value: float = 0.5) -> dict[str, Any]:
    return {"t": text, "p": parent, "prob": value, "value": value, "by": by}


def told(tokens: Sequence[str], tree: Sequence[Mapping[str, Any]] = (), path: Sequence[int] = (), **more: Any) -> Any:
    return {
        "nodes": len(tree),
        "accepted": max(len(path) - 1, 0),
        "draft_ms": 8.0,
        "verify_ms": 30.0,
        "plain_ms": 20.0,
        "tokens": list(tokens),
        "tree": list(tree),
        "path": list(path),
        **more,
    }


# The target goes on after " sat": the drafter had " by" there, and " at" as its second choice.
TREE = [
    node("The", -1, "target", 1.0),
    node(" cat", 0),
    node(" sat", 1, "lookup"),
    node(" at", 2, value=0.1),
    node(" by", 2, value=0.3),
    node(" the", 4, value=0.2),
    node(" dog", 0, value=0.05),
]
PASS = told([" cat", " sat", " on"], TREE, [0, 1, 2])


def test_tokens_have_their_origin_and_depth() -> None:
    tints = Tints()
    tints.push(told(["The"]))
    tints.push(PASS)
    assert tints.take("The cat sat on") == [
        Tinted("The"),
        Tinted(" cat", "draft", 1),
        Tinted(" sat", "lookup", 2),
        Tinted(" on"),
    ]
    assert tints.all_taken


def test_shown_text_may_leave_parts_out_and_end_within_tokens() -> None:
    tints = Tints()
    tints.push(told(["<think>"]))
    tints.push(PASS)
    assert tints.take(" c") == [Tinted(" c", "draft", 1)]
    assert not tints.all_taken
    assert tints.take("at s") == [Tinted("at", "draft", 1), Tinted(" s", "lookup", 2)]
    assert tints.take("on") == [Tinted("on")]
    assert tints.all_taken


def test_text_that_no_pass_had_is_nobodys() -> None:
    tints = Tints()
    tints.push(PASS)
    assert tints.take("something else") == [Tinted("something else")]
    assert tints.take(" cat") == [Tinted(" cat", "draft", 1)]


def test_what_is_never_shown_is_forgotten() -> None:
    tints = Tints()
    for _ in range(100):
        tints.push(told(["x" * 1000]))
    assert len(tints._pending) < 20
    tints.push(PASS)
    assert tints.take(" cat")[0].by == "draft"


def test_a_character_of_several_tokens_is_the_last_ones() -> None:
    tints = Tints()
    tree = [node("a", -1, "target"), node("", 0), node("", 1), node("ß", 2)]
    tints.push(told(["", "", "ß", "!"], tree, [0, 1, 2, 3]))
    assert tints.take("ß!") == [Tinted("ß", "draft", 3), Tinted("!")]


def test_refused_is_the_best_way_on_from_where_the_walk_ended() -> None:
    assert refused(PASS) == " by the"
    assert refused(told([" cat", " sat"], TREE[:3], [0, 1, 2])) == ""
    assert refused(told(["The"])) == ""


def test_tally() -> None:
    tally = Tally()
    tally.add(told(["The"]))  # the prompt's pass
    tally.add(PASS)
    tally.add(told([" mat"], [node(" on", -1, "target")], [0], draft_ms=0.0, plain_ms=10.0))
    assert (tally.n_passes, tally.nodes_mean) == (2, 4.0)
    assert tally.acceptance == [0.5, 0.5]
    assert tally.plain_per_second == pytest.approx(1000 * 4 / (3 * 20 + 10))
    assert tally.shares(100.0) == pytest.approx({"verify": 0.6, "draft": 0.08, "other": 0.32})
    assert tally.shares(1.0)["other"] == pytest.approx(0)  # clocks that disagree give no share below zero


def test_tally_without_costs() -> None:
    tally = Tally()
    tally.add(PASS | {"plain_ms": 0.0})
    assert tally.plain_per_second is None


def pipe_palette() -> Palette:
    with Path(os.devnull).open("w") as file:
        return Palette(file)


def test_mtp_layers_draft() -> None:
    palette = pipe_palette()
    assert palette.style_of("mtp", 2) == palette.style_of("draft", 2) != ""
    assert palette.style_of("", 2) == ""


def test_figures_line() -> None:
    tally = Tally()
    tally.add(PASS)
    line = figures_line(TIMINGS, tally, pipe_palette(), None)
    assert line == (
        "[61.2 tok/s, 1.2x plain (50.0), AL 2.50, 6 tokens, 1 pass, 7.0 nodes each, by depth ██, "
        "verify 30% draft 8% other 62%]"
    )
    for columns in range(45, 130):
        assert len(figures_line(TIMINGS, tally, pipe_palette(), columns)) < columns
    assert figures_line(TIMINGS, tally, pipe_palette(), 45) == "[61.2 tok/s, 1.2x plain (50.0), AL 2.50]"


def test_widths() -> None:
    assert [cells(character) for character in "aß語 é—"] == [1, 1, 2, 1, 1, 1]
    assert cells("\u0301") is None and cells("😀") is None and cells("\x1b") is None


def test_cursor() -> None:
    width = 10
    cursor = Cursor(lambda: width)
    cursor.print("abc")
    assert cursor.room == 6
    cursor.print("defghij")
    assert cursor.room == 0  # behind the last cell
    cursor.print("k\t")
    assert cursor.room == 1
    cursor.print("\n漢漢漢漢漢漢")
    assert cursor.room == 7
    cursor.print("\na漢漢漢漢漢")
    assert cursor.room == 0  # the last one had one cell
    cursor.print("\nab")
    assert cursor.room == 7
    cursor.print("😀")
    assert cursor.room == 0  # who knows
    cursor.print("\nab")
    assert cursor.room == 7
    width = 20
    cursor.print("c")
    assert cursor.room == 0
    cursor.print("\n")
    assert cursor.room == 19


@pytest.fixture
def colours(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in FOREIGN:
        monkeypatch.delenv(name, raising=False)
    for name, value in TERMINAL.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def show(monkeypatch: pytest.MonkeyPatch, terminal: Terminal, passes: Sequence[Any]) -> list[tuple[str, str]]:
    """Stream an answer: what is on the screen, and what of it is struck out, after each pass."""
    seen = []
    with monkeypatch.context() as patch, terminal.file() as file:
        patch.setattr(sys, "stdout", file)
        patch.setattr(sys, "stderr", file)
        view = DraftView()
        for one in passes:
            view.on_pass(one)
            view.content("".join(one["tokens"]))
            terminal.settle()
            seen.append((terminal.text(), terminal.struck()))
        view.end()
        view.figures(TIMINGS)
    terminal.settle()
    return seen


def test_tints_on_a_terminal(colours: pytest.MonkeyPatch) -> None:
    with Terminal(70) as terminal:
        seen = show(colours, terminal, [told(["The"]), PASS])
        assert seen == [("The", ""), ("The cat sat on by the", " by the")]
        first, line = terminal.text().split("\n")
        assert first == "The cat sat on"
        assert line == "[61.2 tok/s, 1.2x plain (50.0), AL 2.50, 1 pass, by depth ██]"
        tints = {cell.data: cell.fg for cell in terminal.cells()[:14] if cell.data in "cso"}
        assert tints == {"c": DRAFT[0].removeprefix("#"), "s": OTHERS["lookup"].removeprefix("#"), "o": "default"}


def test_what_passes_too_fast_is_not_shown(colours: pytest.MonkeyPatch) -> None:
    with Terminal() as terminal:
        assert show(colours, terminal, [PASS | {"verify_ms": 2.0}]) == [(" cat sat on", "")]


@pytest.mark.parametrize("columns", [10, 17, 40])
def test_nothing_of_an_answer_is_lost_at_the_end_of_lines(colours: pytest.MonkeyPatch, columns: int) -> None:
    """Whatever is shown behind the cursor: what stays is what the terminal makes of the bare text."""
    chance = random.Random(columns)
    words = [" a", " the", " Katze", "漢字", "\n", "\n\n", "\t", " émigré", "😀", ", naïve", "e\u0301", " x" * 7]
    passes = []
    for _ in range(60):
        tokens = [chance.choice(words) for _ in range(chance.randint(1, 3))]
        tree = [node(".", -1, "target"), node(chance.choice(words) * 3, 0), node(" refused", 1)]
        passes.append(told(tokens, tree, [0]))
    with Terminal(columns, 300) as terminal, Terminal(columns, 300) as bare:
        seen = show(colours, terminal, passes)
        with bare.file() as file:
            file.write("".join("".join(one["tokens"]) for one in passes) + "\n")
        bare.settle()
        assert sum(bool(struck) for _, struck in seen) > 10
        assert terminal.text()[: terminal.text().rindex("[")].rstrip("\n") == bare.text()


@pytest.mark.parametrize("setting", [{"NO_COLOR": "1"}, {"TERM": "dumb", "COLORTERM": ""}])
def test_without_colours(colours: pytest.MonkeyPatch, setting: dict[str, str]) -> None:
    for name, value in setting.items():
        colours.setenv(name, value)
    with Terminal() as terminal:
        assert show(colours, terminal, [told(["The"]), PASS])[-1] == ("The cat sat on", "")
        assert b"\x1b" not in terminal.bytes
        assert "AL 2.50" in terminal.text()


def test_few_colours(colours: pytest.MonkeyPatch) -> None:
    colours.setenv("TERM", "xterm")
    colours.setenv("COLORTERM", "")
    with Terminal() as terminal:
        show(colours, terminal, [told(["The"]), PASS])
        assert b"\x1b[36m cat" in terminal.bytes and b"\x1b[33m sat" in terminal.bytes


def test_an_answer_cannot_command_the_terminal(colours: pytest.MonkeyPatch) -> None:
    with Terminal() as terminal:
        show(colours, terminal, [told(["a\x1b]0;owned\x07\x1b[2J\x9b31m\rb"])])
        assert terminal.text().startswith("a␛]0;owned␇␛[2J\ufffd31mb")


def test_legend(colours: pytest.MonkeyPatch) -> None:
    with Terminal() as terminal, terminal.file() as file:
        colours.setattr(sys, "stderr", file)
        assert re.sub(r"\x1b\[[0-9;]*m", "", legend()) == "drafted, deeper, quoted, predicted, the target's own"


def test_a_server_tells_of_its_passes(capsys: pytest.CaptureFixture[str]) -> None:
    passes = [[*b"<think>"], [*b"so"], [*b"</think>"], *bytes_in_blocks(b"hello world")]
    with live(lambda _: Engine.over(FakeNative(lambda _: passes))) as server:
        chat = Chat(ServerBackend(server.url), {"temperature": 0}, shows_drafts=True)
        assert chat.answer("hi") == 0
    shown = capsys.readouterr()
    assert shown.out == "hello world\n"
    assert shown.err.startswith("so\n[") and "by depth" in shown.err


def test_engine_and_server_tell_the_same() -> None:
    messages, settings = [{"role": "user", "content": "hi"}], {"temperature": 0, "return_drafts": True}
    with Engine.over(FakeNative(b"hello world")) as engine:
        told_by_engine = [
            change.drafted for change in EngineBackend(engine).answer(messages, settings) if change.drafted
        ]
    with live(lambda _: Engine.over(FakeNative(b"hello world"))) as server:
        changes = ServerBackend(server.url).answer(messages, settings)
        told_by_server = [change.drafted for change in changes if change.drafted]
    assert told_by_server == told_by_engine
    assert "".join("".join(one["tokens"]) for one in told_by_engine) == "hello world"


def command(pocket: dict[str, Path], *more: str) -> list[str]:
    models = ["-m", str(pocket["target"]), "-md", str(pocket["dflash"])]
    options = ["-c", "1024", "-t", "1", "--temp", "0", *more]
    return [sys.executable, "-m", "dflash_local.cli", "chat", *models, *options]


QUESTION = "Write a Python function that filters limits above 37."


def test_a_pipe_gets_exactly_the_answer(pocket: dict[str, Path]) -> None:
    env = {name: value for name, value in os.environ.items() if name not in FOREIGN}

    def ask(*more: str) -> subprocess.CompletedProcess[str]:
        argv = command(pocket, *more)
        return subprocess.run(argv, env=env, input=QUESTION, capture_output=True, text=True, timeout=60, check=True)

    shown = [ask(), ask("--show", "drafts")]
    assert shown[0].stdout == shown[1].stdout and "def " in shown[0].stdout
    assert "\x1b" not in shown[1].stderr
    figures = r"\[[\d.]+ tok/s, [\d.]+x plain \([\d.]+\), AL [\d.]+, \d+ tokens, .* verify \d+%"
    assert re.search(figures, shown[1].stderr)


def test_a_chat_on_a_terminal(pocket: dict[str, Path]) -> None:
    """The pocket pair: its answer is tinted, and the toggle works."""
    env = {name: value for name, value in os.environ.items() if name not in FOREIGN} | TERMINAL
    with Terminal(90) as terminal, subprocess.Popen(
        command(pocket, "--show", "drafts", "--budget", "16"),
        env=env, stdin=terminal.slave, stdout=terminal.slave, stderr=terminal.slave, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            terminal.until("the target's own\n>")
            assert "drafted, deeper, quoted" in terminal.text()
            terminal.type(QUESTION + "\n")
            terminal.until("x plain (")
            tints = {cell.fg for cell in terminal.cells()}
            assert len(tints & {shade.removeprefix("#") for shade in DRAFT}) >= 3
            assert terminal.struck() == ""
            terminal.type("/drafts\n")
            terminal.until("drafts are not shown")
            terminal.type("/exit\n")
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()
