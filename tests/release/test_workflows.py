"""The workflows have no logic of their own: each step is a target or a script that is here, each action is pinned."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

WORKFLOWS = Path(__file__).resolve().parents[2] / ".github" / "workflows"


def jobs() -> Iterator[tuple[str, dict[str, Any]]]:
    for file in sorted(WORKFLOWS.glob("*.yml")):
        for name, job in yaml.safe_load(file.read_text(encoding="utf-8"))["jobs"].items():
            yield f"{file.stem}: {name}", job


STEPS = [(name, step) for name, job in jobs() for step in job["steps"]]
RUNS = [(name, line) for name, step in STEPS for line in step.get("run", "").splitlines()]


def test_there_are_workflows() -> None:
    assert len(RUNS) >= 6


@pytest.mark.parametrize(("name", "line"), RUNS)
def test_each_step_is_a_target_or_a_script_that_exists(name: str, line: str, repo: Path) -> None:
    words = shlex.split(line)
    if words[0] == "make":
        targets = re.findall(r"^([\w-]+):(?!=)", (repo / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        assert words[1] in targets, f"{name}: no such target"
        assert all("=" in word for word in words[2:])
    else:
        assert words[0] == "sh"
        assert (repo / words[1]).is_file()
        subprocess.run(["sh", "-n", repo / words[1]], check=True)
    assert not re.search(r"&&|\|\||[|;<>`]|\$\(", re.sub(r'"[^"]*"', "", line)), "logic"
    assert "${{" not in line, "a value of the event would be run as shell"


@pytest.mark.parametrize("action", sorted({step["uses"] for _, step in STEPS if "uses" in step}))
def test_actions_are_pinned(action: str) -> None:
    assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action)


def test_each_job_says_what_it_may() -> None:
    for name, job in jobs():
        allowed = {scope for scope, level in job["permissions"].items() if level == "write"}
        assert allowed == ({"id-token", "attestations"} if name.endswith("publish") else set()), name


def check(program: str, hint: str, *arguments: str) -> None:
    """A program that looks at files finds nothing; skipped where it is not on PATH."""
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"needs {program}{hint}")
    done = subprocess.run([path, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_actionlint_finds_nothing() -> None:
    check("actionlint", " on PATH", *map(str, WORKFLOWS.glob("*.yml")))


@pytest.mark.parametrize(
    ("schema", "pattern"),
    [("vendor.github-workflows", ".github/workflows/*.yml"), ("vendor.compose-spec", "containers/compose.yaml")],
)
def test_files_are_as_their_schema_says(schema: str, pattern: str, repo: Path) -> None:
    files = map(str, repo.glob(pattern))
    check("check-jsonschema", ": pip install check-jsonschema", "--builtin-schema", schema, *files)


def test_zizmor_finds_nothing() -> None:
    files = map(str, WORKFLOWS.glob("*.yml"))
    check("zizmor", ": pip install zizmor", "--offline", "--no-progress", *files)
