"""What CI installs before the tests: where it may, and what becomes of it where it may not."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

APT = {
    "works": '#!/bin/sh\necho "$@" >> "$0.log"\ncase "$*" in *install*) cp "$0" "$(dirname "$0")/chromium" ;; esac\n',
    "fails": "#!/bin/sh\necho 'E: no network'\nexit 100\n",
}


def continuous(tmp_path: Path, repo: Path, programs: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """`.ci/run` with these programs, and a `make` that tells what it was called with."""
    tools = {name: shutil.which(name) for name in ("bash", "cp", "dirname", "env", "sh")} | {"python3": sys.executable}
    for name, path in tools.items():
        (tmp_path / name).symlink_to(str(path))
    for name, text in {**programs, "make": '#!/bin/sh\necho "make $*"\n'}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": str(tmp_path)}
    return subprocess.run([str(repo / ".ci" / "run")], env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    ("programs", "told"),
    [
        ({}, "their tests are skipped: apt-get install chromium"),
        ({"apt-get": APT["fails"]}, "no browser: the tests of the page are skipped"),
        ({"apt-get": APT["works"]}, "browser: here"),
        ({"google-chrome": "", "apt-get": APT["fails"]}, "browser: here"),
    ],
    ids=["no apt", "apt fails", "installed", "another browser is here"],
)
def test_ci_installs_a_browser_or_says_so_and_tests(
    tmp_path: Path, repo: Path, programs: dict[str, str], told: str
) -> None:
    as_root = {"sudo": '#!/bin/sh\nshift\n[ "$1" = true ] || exec "$@"\n'} if "apt-get" in programs else {}
    done = continuous(tmp_path, repo, {**programs, **as_root})
    assert done.returncode == 0, done.stdout + done.stderr
    assert told in done.stdout
    assert done.stdout.splitlines()[-1].startswith("make test TEST_ARGS=--reruns 1")
    if programs.get("apt-get") == APT["works"]:
        update, install = (tmp_path / "apt-get.log").read_text().splitlines()
        assert update.endswith(" update") and install.endswith(" install --yes --no-install-recommends chromium")
