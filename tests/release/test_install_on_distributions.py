"""release/install.sh on other systems than this one: Debian 11 to 13, without network, and busybox alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.build import wheelhouse
from tests.build.conftest import wheels
from tests.release.stand_in_wheels import write_pair

__all__ = ["wheels"]  # a fixture

SCRIPT = Path(__file__).resolve().parents[2] / "release" / "install.sh"
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/home/a user", "LC_ALL": "C.UTF-8"}

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or os.getuid() != 0, reason="needs Linux, and root for chroot"
)


def run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The script in the system below `root`, by a user whose home is empty."""
    (root / "home" / "a user").mkdir(parents=True, exist_ok=True)
    shutil.copy(SCRIPT, root / "install.sh")
    command = ["unshare", "--net", "chroot", str(root), "/bin/sh", "/install.sh", *arguments]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=900, check=False)


def in_chroot(root: Path, *command: str) -> str:
    return wheelhouse.output(["unshare", "--net", "chroot", str(root), *command], ENVIRONMENT, timeout=900)


def test_busybox_without_glibc_is_refused(tmp_path: Path) -> None:
    """As on Alpine: its shell and tools are these, and nothing knows a glibc."""
    busybox = shutil.which("busybox")
    if busybox is None:
        pytest.skip("needs busybox: apt-get install busybox-static")
    root = tmp_path / "root"
    for folder in ("bin", "dev", "tmp"):  # /dev/null becomes a file
        (root / folder).mkdir(parents=True)
    shutil.copy(busybox, root / "bin")
    made = subprocess.run(["chroot", str(root), "/bin/busybox", "--install", "-s", "/bin"], check=False)
    if made.returncode != 0:
        pytest.skip("busybox is not linked statically: apt-get install busybox-static")
    write_pair(root / "wheels", "9.9.1")
    done = run(root, "--wheels", "/wheels", "--offline")
    assert done.returncode == 1
    assert done.stderr.startswith("error: this Linux has musl or another C library than glibc\n  fix: ")
    assert done.stderr.count("\n") == 2
    assert not any((root / "home" / "a user").iterdir())


@pytest.fixture(scope="module", params=["bullseye", "bookworm", "trixie"])
def debian(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A release of Debian with Python and no venv module; what that needs lies in /var/cache/apt."""
    if shutil.which("debootstrap") is None:
        pytest.skip("needs debootstrap: apt-get install debootstrap")
    root = tmp_path_factory.mktemp(request.param) / "root"
    command = ["debootstrap", "--variant=minbase", "--include=python3", request.param, str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return request.param, root


@pytest.mark.slow
def test_debian(debian: tuple[str, Path]) -> None:
    """Debian 11 has Python 3.9. The others are refused until python3-venv is there, and then are as any system."""
    release, root = debian
    write_pair(root / "wheels", "9.9.1")
    arguments = ("--wheels", "/wheels", "--offline")
    done = run(root, *arguments)
    assert done.returncode == 1
    if release == "bullseye":
        assert "error: there is no Python 3.10 or newer (64 bits)\n  fix: sudo apt-get install python3" in done.stderr
        return
    assert "error: python3 has no venv module\n  fix: sudo apt-get install python3-venv" in done.stderr
    command = ["chroot", str(root), "apt-get", "install", "-qy", "--no-install-recommends", "python3-venv"]
    wheelhouse.output(command, {**ENVIRONMENT, "DEBIAN_FRONTEND": "noninteractive"})
    done = run(root, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "installed  dflash-local 9.9.1+cpu" in done.stdout
    assert in_chroot(root, "/home/a user/.local/bin/dflash-local", "--version").strip() == "dflash-local 9.9.1+cpu"
    assert run(root, "--uninstall").returncode == 0
    # Only a cache of pip's may be left.
    assert not list((root / "home" / "a user" / ".local").rglob("dflash*"))


@pytest.mark.slow
def test_real_wheels_answer(wheels: Path, tmp_path: Path) -> None:
    """From the line to the demo's answer, with all that dflash-local needs in one folder and no network."""
    packages = wheelhouse.fill(tmp_path / "packages", wheels)
    environment = {**wheelhouse.clean_environment(), "HOME": str(tmp_path), "DFLASH_CACHE": str(tmp_path / "cache")}
    environment |= {"PIP_CONFIG_FILE": "/dev/null", "DFLASH_PYTHON": sys.executable}
    offline = wheelhouse.without_network()
    command = ["sh", str(SCRIPT), "--wheels", str(packages), "--offline", "--installer", "pip"]
    said = wheelhouse.output([*offline, *command], environment, tmp_path, timeout=900)
    assert "CPU" in said.partition(", with ")[2]
    program = str(tmp_path / ".local" / "bin" / "dflash-local")
    said = wheelhouse.output([*offline, program, "demo", "--once"], environment, tmp_path, timeout=900)
    assert "the same answer both ways" in said
