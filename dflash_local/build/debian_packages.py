"""Packages of another Debian release, unpacked into a folder: nothing of this machine changes, and nobody must be root.

They come from the mirror of the machine's own packages, with the signatures that it trusts.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from dflash_local.errors import BuildError

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


def can_fetch() -> bool:
    """Whether this machine has Debian's tools and key."""
    return bool(shutil.which("apt-get") and shutil.which("dpkg-deb") and KEYRING.is_file())


def fetch(release: str, packages: Sequence[str], home: Path, change: Callable[[Path], None] = lambda _: None) -> None:
    """Make the folder `home` of the packages, whole or not at all; `change` is called with it before it has its name.

    Raises:
        BuildError: apt knows no mirror, or fails.
    """
    mirror = _mirror()
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent) as folder:
        scratch = Path(folder)
        unpacked = _unpacked(release, packages, mirror, scratch)
        change(unpacked)
        shutil.rmtree(home, ignore_errors=True)
        unpacked.rename(home)


def _mirror() -> str:
    formatted = "$(ORIGIN)|$(LABEL)|$(COMPONENT)|$(REPO_URI)"
    lines = _run(["apt-get", "indextargets", "--format", formatted, "Created-By: Packages"]).splitlines()
    found = next((line.split("|")[3] for line in lines if line.startswith("Debian|Debian|main|")), None)
    if found is None:
        raise BuildError("apt-get here knows no Debian mirror", hint="run: apt-get update")
    return found


def _unpacked(release: str, packages: Sequence[str], mirror: str, scratch: Path) -> Path:
    """With an apt configuration of its own, as an ordinary user."""
    unpacked = scratch / "unpacked"
    for folder in (scratch / "lists" / "partial", scratch / "cache" / "archives" / "partial", unpacked):
        folder.mkdir(parents=True)
    source = f"Types: deb\nURIs: {mirror}\nSuites: {release}\nComponents: main\nSigned-By: {KEYRING}\n"
    (scratch / "release.sources").write_text(source, encoding="utf-8")
    settings = {
        "Dir::Etc::SourceList": scratch / "release.sources",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": scratch / "lists",
        "Dir::State::Status": "/dev/null",  # or apt would choose the installed versions
        "Dir::Cache": scratch / "cache",
        "Acquire::Languages": "none",
        "APT::Sandbox::User": "",
    }
    apt = ["apt-get", *(f"-o{name}={value}" for name, value in settings.items()), "-qq"]
    _run([*apt, "update"])
    _run([*apt, "download", *packages], scratch)
    for package in sorted(scratch.glob("*.deb")):
        _run(["dpkg-deb", "-x", str(package), str(unpacked)])
    return unpacked


def _run(command: list[str], folder: Path | None = None) -> str:
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", check=False)
    if process.returncode != 0:
        raise BuildError(f"{command[0]} failed: {process.stderr.strip()[-500:]}", hint="check apt-get and the network")
    return process.stdout
