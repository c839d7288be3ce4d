"""Flags as fields: each command's class has what its parser adds, and what was typed goes to the right flag."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from dflash_local.cli import COMMANDS, parse, parser
from dflash_local.cli.command import Command
from dflash_local.cli.command_parser import UsageError
from dflash_local.cli.parser_actions import actions_of, commands_of


@pytest.mark.parametrize("name", COMMANDS)
def test_every_field_is_a_flag_of_the_command(name: str) -> None:
    command: Command[Any] = commands_of(parser((name,)))[name].get_default("command")
    places = {action.dest for action in actions_of(command.parser)} | {"line", "typed", "foreign_flags"}
    assert [
        spec.name for spec in fields(command.flags) if spec.name not in places and "dests" not in spec.metadata
    ] == []


def test_values_have_the_type_of_their_field() -> None:
    _, args = parse(["bench", "-m", "T.gguf", "--report", "r.html", "--repeat", "2", "-q", "--baseline", "none"])
    assert (args.model, args.report, args.repeat, args.quiet) == ("T.gguf", Path("r.html"), 2, True)
    assert (args.baseline, args.trace, args.options["n_slots"], args.sampling["top_k"]) == (("none",), None, 1, None)


def test_words_go_to_their_flags() -> None:
    words = ["-m", "T.gguf", "-c64", "--temp=-1", "-r", "a=b", "-r", "", "-fa", "--threads_batch", "-1"]
    _, args = parse(["serve", *words])
    assert args.typed == {
        "model": ("-m", "T.gguf"),
        "n_ctx": ("-c64",),
        "sampling_temperature": ("--temp=-1",),
        "reverse_prompt": ("-r", "a=b", "-r", ""),
        "flash_attn": ("-fa",),
        "n_threads_batch": ("--threads-batch", "-1"),
    }


@pytest.mark.parametrize("word", ["-rtr", "-verbose", "-agent", "-ve", "-rTEXT", "-ngl99"])
def test_a_flag_of_one_dash_is_not_split(word: str) -> None:
    """argparse takes -rtr for -r with the value "tr": every answer would end there."""
    with pytest.raises(UsageError, match=f"unrecognized arguments: {word} "):
        parse(["serve", "-m", "T.gguf", word])


def test_numbers_may_follow_their_flags_and_values_may_look_like_flags() -> None:
    _, args = parse(["serve", "-m", "T.gguf", "-c64", "-n-1", "-r=-tr", "-r", "-x y"])
    assert (args.n_ctx, args.predict, args.reverse_prompt) == (64, -1, ("-tr", "-x y"))
    _, args = parse(["launch", "codex", "--", "-verbose"])
    assert list(args.line.passed) == ["-verbose"]


@pytest.mark.parametrize("command", sorted({*COMMANDS} - {"completion", "patch"}))
def test_no_flag_is_abbreviated(command: str) -> None:
    """A part of --hf-token that is accepted would not be hidden where the words of a command are shown."""
    with pytest.raises(UsageError):
        parse([command, "--hel"])


@pytest.mark.parametrize(
    "flag",
    ["--path", "--media-path", "--slot-save-path", "--record", "--models-dir", "--api-key-file", "--ssl-key-file"],
)
def test_an_empty_path_is_refused(flag: str) -> None:
    """It would be the current folder, whose files would be served."""
    with pytest.raises(UsageError, match=f"argument {flag}: is empty, must be a path"):
        parse(["serve", flag, ""])
    with pytest.raises(UsageError, match="argument -o/--output: is empty, must be a path"):
        parse(["train", "-m", "T.gguf", "--data", "prompts.txt", "-o", ""])


def test_an_empty_variable_names_no_path(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STATIC_PATH", "MODELS_DIR", "MODELS_PRESET", "CHAT_TEMPLATE_FILE", "SSL_KEY_FILE"):
        monkeypatch.setenv(f"LLAMA_ARG_{name}", "")
    _, args = parse(["serve"])
    assert (args.path, args.models_dir, args.models_preset, args.chat_template_file) == (None, None, None, None)
    monkeypatch.setenv("LLAMA_ARG_API_KEY_FILE", "")  # the server would be open
    with pytest.raises(UsageError, match="the variable LLAMA_ARG_API_KEY_FILE is wrong: is empty"):
        parse(["serve"])


def test_a_line_that_no_command_understands() -> None:
    with pytest.raises(UsageError, match="unrecognized arguments: --portt"):
        parse(["serve", "-m", "T.gguf", "--portt"])
