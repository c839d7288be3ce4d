"""Agents themselves, started by the lines of docs/clients.md: with Qwen2.5-Coder-1.5B they read a file and edit it, and
most end by themselves. npm fetches them. Continue is not among them: whether the model edits depends on the folder."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest

from benchmarks.http_load import Server, end_group
from tests.coder_file import coder_file
from tests.server.test_edits import AFTER, BEFORE

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")]

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "clients.md").read_text(encoding="utf-8")
# A model of this size does not always stop after the edit, and then goes on for ever.
N_ATTEMPTS, SECONDS = 15, 30


class Agent(NamedTuple):
    """A program: its package, what it calls reading and editing, what is then said to have been successful, flags for
    a machine without a user, and whether it ends often enough for a test."""

    package: str
    first: str
    second: str
    success: str
    flags: tuple[str, ...] = ()
    ends: bool = True


AGENTS = {
    "claude": Agent("@anthropic-ai/claude-code@2.1.197", "Read", "Edit", "Edit"),
    "codex": Agent(
        "@openai/codex@0.171.0", "exec_command with cat", "exec_command with sed -i", "sed",
        ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"),
    ),
    "opencode": Agent("opencode-ai@1.18.33", "read", "edit", "edit", ("--title", "t"), ends=False),
    "qwen": Agent("@qwen-code/qwen-code@0.15.10", "read_file", "edit", "edit"),
}  # fmt: skip


def line_of(name: str) -> list[str]:
    """The words of the page's line that starts it."""
    (line,) = re.findall(rf"^(dflash-local launch {name} -- (?:[^\n]*\\\n)*[^\n]*)$", PAGE, re.MULTILINE)
    return shlex.split(line.replace("\\\n", ""))


def block_of(mark: str) -> str:
    """The page's block that has `mark`."""
    (block,) = (block for block in re.findall(r"```\w*\n(.*?)```", PAGE, re.DOTALL) if mark in block)
    return block


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs."""
    folder = tmp_path_factory.mktemp("npm")
    packages = [agent.package for agent in AGENTS.values()]
    subprocess.run(
        ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), *packages],
        check=True, capture_output=True, timeout=900,
    )  # fmt: skip
    # What npm runs only where that is allowed: it puts the program for this system in its place.
    for script in ("@anthropic-ai/claude-code/install.cjs", "opencode-ai/postinstall.mjs"):
        subprocess.run(["node", str(folder / "node_modules" / script)], check=False, capture_output=True, timeout=300)
    return folder / "node_modules" / ".bin"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Started as the page says, but with the file."""
    words = shlex.split(block_of("dflash-local serve -hf Qwen").replace("\\\n", ""))
    at = words.index("-hf")
    argv = [sys.executable, "-m", "dflash_local.cli", words[1], "-m", str(coder_file()), *words[at + 2 :]]
    with Server("coder", argv, tmp_path_factory.mktemp("coder") / "log") as running:
        yield running


def instructions(agent: Agent, folder: Path) -> str:
    """What the page lets small models be told."""
    told = PAGE.partition("\n> You work in ")[2].partition("\n\n")[0].replace("\n> ", " ")
    told = told.replace("successful SECOND", f"successful {agent.success}")
    return (
        f"You work in {told}".replace("FOLDER", str(folder))
        .replace("FIRST", agent.first)
        .replace("SECOND", agent.second)
    )


def command(name: str, port: int, folder: Path) -> list[str]:
    """The page's line with what its gaps stand for, in a folder of one file."""
    agent = AGENTS[name]
    told = instructions(agent, folder)
    task = re.search(r'and as the task "([^"]+)"', PAGE)
    assert task
    (folder / "settings.py").write_text(BEFORE, encoding="utf-8")
    (folder / "short.md").write_text(told, encoding="utf-8")
    if name == "opencode":
        settings = block_of('"agent"').replace('"You work in ..."', json.dumps(told))
        (folder / "opencode.json").write_text(settings, encoding="utf-8")
    gaps = {"You work in ...": told, "Read ...": task[1]}
    words = [gaps.get(word, word).replace("/home/user/short.md", str(folder / "short.md")) for word in line_of(name)]
    at = words.index("--") + 1
    launch = [sys.executable, "-m", "dflash_local.cli", *words[1 : at - 1], "--port", str(port)]
    return [*launch, "--", words[at], *agent.flags, *words[at + 1 :]]


def attempt(argv: list[str], folder: Path, environment: Mapping[str, str], *, ends: bool) -> bool:
    """True if the program edited the file, and ended if it `ends`."""
    environment = {**environment, "PWD": str(folder)}  # which OpenCode believes
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    with subprocess.Popen(
        argv, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True,
    ) as process:  # fmt: skip
        edited = False
        for _ in range(SECONDS * 10):
            edited = (folder / "settings.py").read_text(encoding="utf-8") == AFTER
            if process.poll() is not None or (edited and not ends):
                break
            time.sleep(0.1)
        status = process.poll()
        if status is None:
            end_group(process, 10)
    return edited and (status == 0 or not ends)


@pytest.mark.parametrize("name", AGENTS)
def test_a_file_is_edited(server: Server, programs: Path, tmp_path: Path, name: str) -> None:
    environment = {
        **os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "HOME": str(tmp_path), "IS_SANDBOX": "1",
    }  # fmt: skip

    def attempts() -> Iterator[bool]:
        for _ in range(N_ATTEMPTS):
            with TemporaryDirectory(prefix="shop") as path:  # a short name: the model repeats it
                folder = Path(path)
                yield attempt(command(name, server.port, folder), folder, environment, ends=AGENTS[name].ends)

    assert any(attempts())
