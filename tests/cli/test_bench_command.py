"""`dflash-local bench` as a command: its report, its bar, and what it does not tell. The engine is scripted."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dflash_local import cli, native
from dflash_local.bench import beginning
from dflash_local.cli.commands import bench, launch
from dflash_local.cli.commands.bench import _upstream_flags as upstream_flags
from dflash_local.cli.flags.command_line import SECRETS
from dflash_local.cli.parser_actions import actions_by_name, commands_of
from dflash_local.engine import Engine
from dflash_local.engine_options import EngineOptions
from dflash_local.errors import RequestError
from dflash_local.machine import hardware
from dflash_local.report.bench_record import Record
from dflash_local.report.report_page import report_page
from tests.cli.terminal import Terminal
from tests.cli.test_bench import DraftingNative

COSTS = {"cost_verify_ms": {"1": 5.0, "8": 9.5}, "cost_draft_ms": {"8": 1.25}}


class CostingNative(DraftingNative):
    """Tells its cost curves, too."""

    def stats(self) -> dict[str, Any]:
        return super().stats() | COSTS


@pytest.fixture
def argv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command on two prompts, and an engine for it."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(native, "library_info", lambda: {"llama": "0.0", "backends": ["CPU"]})
    monkeypatch.setattr(bench, "load_engine", lambda args, models: Engine.over(CostingNative()))
    monkeypatch.setattr(bench, "_upstream_flags", lambda args, target, engine: [])
    prompts = tmp_path / "prompts.txt"
    prompts.write_text('one\n{"prompt": "two"}\n')
    target, drafter = tmp_path / "a folder" / "target <i>.gguf", tmp_path / "drafter.gguf"
    target.parent.mkdir()
    for file in (target, drafter):
        file.write_bytes(b"GGUF")
    return [
        "bench",
        "-m",
        str(target),
        "-md",
        str(drafter),
        "-p",
        str(prompts),
        "--repeat",
        "2",
        "--hf-token",
        "hf_secret",
    ]


def test_report_is_of_the_record(argv: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, again = tmp_path / "speed.html", tmp_path / "again.html"
    assert cli.main([*argv, "--format", "json", "--report", str(out)]) == 0
    shown = capsys.readouterr()
    assert shown.err == f"the report is in {out}\n"  # no bar but on a terminal
    page, told = out.read_text(encoding="utf-8"), json.loads(shown.out)
    assert page == report_page(Record.parse(shown.out, "test"))
    assert told["environment"]["target_file"] == "target <i>.gguf" and "target &lt;i&gt;.gguf" in page
    assert told["beginnings"] == ["one", "two"]
    assert told["costs"] == {"verify_ms": COSTS["cost_verify_ms"], "draft_ms": COSTS["cost_draft_ms"]}
    assert [len(repeat) for name in ("plain", "drafted") for repeat in told["answers"][name]] == [2] * 4
    assert {answer["tokens"] for answer in told["answers"]["drafted"][0]} == {13}
    assert [answer["passes"] for answer in told["answers"]["drafted"][1]] == [3, 3]
    (tmp_path / "speed.json").write_text(shown.out)
    assert cli.main(["bench", "--from", str(tmp_path / "speed.json"), "--report", str(again)]) == 0
    assert again.read_text(encoding="utf-8") == page


def test_the_command_is_told_without_secrets(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*argv, "--format", "json"]) == 0
    command = json.loads(capsys.readouterr().out)["environment"]["command"]
    assert command.startswith("dflash-local bench -m '") and command.endswith("--hf-token ... --format json")
    url = "http://me:secret@host/a.gguf"
    words = ["--hf-token=hf_secret", "-hft", "hf_secret", "-n", "5", "--mmproj-url", url, f"--mmproj-url={url}"]
    assert bench._command(words) == (
        "dflash-local bench --hf-token=... -hft ... -n 5 --mmproj-url http://host/a.gguf "
        "--mmproj-url=http://host/a.gguf"
    )


def test_every_flag_with_a_secret_is_known() -> None:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers()
    for command in (bench, launch):
        command.add_parser(commands)
    flags = [flag for command in commands_of(parser).values() for flag in actions_by_name(command)]
    assert {flag for flag in flags if re.search("token$|key$|password|secret|^-hft$", flag)} == set(SECRETS)


def test_bar(argv: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with Terminal(140) as terminal:
        for more in ([], ["--quiet"]):
            with monkeypatch.context() as patch, terminal.file() as file:
                patch.setattr(sys, "stderr", file)
                assert cli.main([*argv, *more, "--format", "csv"]) == 0
            terminal.settle()
            if not more:
                assert terminal.text() == ""  # it goes when all is done
                shown = terminal.bytes.decode()
                for text in (
                    "warming up",
                    "repeat 1 of 2: plain",
                    "repeat 2 of 2: drafted",
                    "8/8",
                    "left  plain ",
                    " tok/s",
                ):
                    assert text in shown
            terminal.bytes = b""
        assert terminal.bytes == b""


def test_where_no_report_can_be_is_said_at_once(
    argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "load_engine", lambda args, models: pytest.fail("it was loaded"))
    for flag in ("--report", "-o", "--trace"):
        for place in (tmp_path, tmp_path / "none" / "speed.html"):
            assert cli.main([*argv, flag, str(place)]) == 1
            assert f"cannot write {place}" in capsys.readouterr().err
    monkeypatch.setattr(bench, "take_models", lambda args: pytest.fail("a model was downloaded"))
    assert cli.main([*argv, "-p", "none.txt"]) == 1
    assert "cannot read none.txt" in capsys.readouterr().err


def test_what_is_measured_is_shown_if_it_cannot_be_kept(
    argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(path: Path, text: str, param: str) -> None:
        raise RequestError("the disk is full", param=param)

    monkeypatch.setattr(bench, "write_text", full)
    assert cli.main([*argv, "-o", str(tmp_path / "speed.md")]) == 1
    output = capsys.readouterr()
    assert "| tok/s |" in output.out and "the disk is full" in output.err


def test_upstream_places_the_model_as_we_do() -> None:
    """Also where --fit chose: it gets the options of the engine, not those that were typed."""
    args = cli.parse(["bench", "-m", "t.gguf", "-t", "3", "-c", "4096"])[1]
    options = EngineOptions(model="t.gguf", device="none", n_cpu_moe=16, kv_offload=False, n_gpu_layers=7)
    engine: Any = SimpleNamespace(options=options, n_ctx_slot=1024)
    flags = shlex.join(upstream_flags(args, "t.gguf", engine))
    assert flags.startswith("-m t.gguf -c 1024 -fa auto -t 3 -tb 3 ")
    for words in ("-ngl 7", "-dev none", "-ncmoe 16", "-nkvo"):
        assert f" {words} " in f"{flags} "


@pytest.mark.parametrize(
    ("words", "limit", "expected"),
    [
        ((), None, ""),
        ((), 2, " -t 2 -tb 2"),
        (("-tb", "4"), None, " -tb 4"),
        (("-t", "3", "-tb", "4"), 2, " -t 3 -tb 4"),
    ],
)
def test_upstream_has_as_many_threads(
    words: tuple[str, ...], limit: int | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a number it chooses as our engine does, which is not asked."""
    monkeypatch.setattr(hardware, "core_limit", lambda: limit)
    args = cli.parse(["bench", "-m", "t.gguf", *words])[1]
    engine: Any = SimpleNamespace(options=EngineOptions(model="t.gguf"), n_ctx_slot=1024)
    assert shlex.join(upstream_flags(args, "t.gguf", engine)) == f"-m t.gguf -c 1024 -fa auto{expected}"


def test_beginnings() -> None:
    assert beginning({"prompt": "a  long\n" + "word " * 50}).startswith("a long word word")
    assert len(beginning({"prompt": "x" * 500})) == 60
    content = [{"type": "text", "text": "see"}, {"type": "text", "text": "this"}]
    assert beginning({"messages": [{"role": "user", "content": content}]}) == "see this"
    assert beginning({"messages": []}) == beginning({"messages": [{"role": "user", "content": None}]}) == ""
