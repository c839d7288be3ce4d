"""`dflash-local completion`: real shells complete with what it prints, where they are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from dflash_local import cli
from dflash_local.cli.commands.completion import SHELLS, script

BASH = """
source "$1"
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
{function} dflash-local "${{COMP_WORDS[COMP_CWORD]}}"
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("scripts")
    for shell in SHELLS:
        (folder / shell).write_text(script(shell) + "\n", encoding="utf-8")
    return {shell: folder / shell for shell in SHELLS}


def shell(name: str, *argv: str, cwd: Path | None = None) -> str:
    program = shutil.which(name)
    if program is None:
        pytest.skip(f"needs {name}: apt-get install {name}")
    env = {**os.environ, "HOME": str(cwd or "/")}
    return subprocess.run([program, *argv], capture_output=True, text=True, check=True, cwd=cwd, env=env).stdout


def bash(file: Path, words: str, cwd: Path | None = None) -> list[str]:
    text = file.read_text(encoding="utf-8")
    function = text.rpartition("complete ")[2].split("-F ")[1].split()[0]
    return shell("bash", "-c", BASH.format(words=words, function=function), "bash", str(file), cwd=cwd).split()


@pytest.mark.parametrize("name", SHELLS)
def test_scripts_name_every_command_and_parse(name: str, scripts: dict[str, Path]) -> None:
    text = scripts[name].read_text(encoding="utf-8")
    for command in cli.COMMANDS:
        assert command in text
    shell(name, "-n", str(scripts[name]))


def test_bash_completes_commands_flags_choices_and_files(scripts: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "model.gguf").touch()
    assert bash(scripts["bash"], "dflash-local se") == ["serve"]
    assert "--spec-type" in bash(scripts["bash"], "dflash-local serve --spec-t")
    assert bash(scripts["bash"], "dflash-local build --backend vu") == ["vulkan"]
    assert bash(scripts["bash"], "dflash-local serve -m mo", tmp_path) == ["model.gguf"]


def test_fish_completes_commands(scripts: dict[str, Path], tmp_path: Path) -> None:
    found = shell("fish", "-c", f"source {scripts['fish']}; complete -C 'dflash-local bui'", cwd=tmp_path)
    assert [line.split("\t")[0] for line in found.splitlines()] == ["build"]
