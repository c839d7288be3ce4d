"""The C library of an older Debian, to link a portable wheel against (inject.cmake, `DFLASH_SYSROOT`).

A program starts only where the C library has all function versions that it was linked to. This concerns only linking,
so the machine's own compiler and headers are used.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from dflash_local.build.log import BuildLog
from dflash_local.errors import BuildError

OLDEST = (2, 28)  # glibc of the Linux distributions since 2019, and of `manylinux_2_28`
RELEASE = "bullseye"  # the oldest Debian that mirrors still have; glibc/older_glibc.c bridges the rest
PACKAGES = ("libc6", "libc6-dev")
IMAGE = "PyPA's container image manylinux_2_28"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


def older_glibc(cache: Path, log: BuildLog) -> Path | None:
    """The folder to link against, fetched once into the cache; None if this machine's own C library is old enough or
    not glibc. Raises BuildError."""
    if not sys.platform.startswith("linux") or platform.libc_ver()[0] != "glibc" or _own_version() <= OLDEST:
        return None
    home = cache / "sysroot" / RELEASE
    if not home.is_dir():
        log.say(f"libraries of Debian {RELEASE}, to link against")
        if not (shutil.which("apt-get") and shutil.which("dpkg-deb") and KEYRING.is_file()):
            version = ".".join(map(str, _own_version()))
            raise BuildError(
                f"a portable wheel cannot be linked against this machine's glibc {version}, and older ones are fetched "
                "with Debian's apt-get only",
                hint=f"build in {IMAGE}, or leave --portable out",
            )
        home.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home.parent) as scratch:
            _fetch(Path(scratch), _mirror())
            _make_relative(Path(scratch) / "unpacked")
            (Path(scratch) / "unpacked").rename(home)
    return home


def _own_version() -> tuple[int, ...]:
    return tuple(int(part) for part in platform.libc_ver()[1].split("."))


def _mirror() -> str:
    """The mirror of this machine's own packages."""
    formatted = "$(ORIGIN)|$(LABEL)|$(COMPONENT)|$(REPO_URI)"
    lines = _run(["apt-get", "indextargets", "--format", formatted, "Created-By: Packages"]).splitlines()
    found = next((line.split("|")[3] for line in lines if line.startswith("Debian|Debian|main|")), None)
    if found is None:
        raise BuildError("apt-get here knows no Debian mirror", hint=f"run: apt-get update, or build in {IMAGE}")
    return found


def _fetch(scratch: Path, mirror: str) -> None:
    """Fetch with a separate apt configuration, as an ordinary user: the machine's own apt is not changed."""
    for name in ("lists/partial", "cache/archives/partial", "unpacked"):
        (scratch / name).mkdir(parents=True)
    source = f"Types: deb\nURIs: {mirror}\nSuites: {RELEASE}\nComponents: main\nSigned-By: {KEYRING}\n"
    (scratch / "older.sources").write_text(source, encoding="utf-8")
    settings = {
        "Dir::Etc::SourceList": scratch / "older.sources",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": scratch / "lists",
        "Dir::State::Status": "/dev/null",  # or apt would choose the installed versions
        "Dir::Cache": scratch / "cache",
        "Acquire::Languages": "none",
        "APT::Sandbox::User": "",
    }
    apt = ["apt-get", *(f"-o{name}={value}" for name, value in settings.items()), "-qq"]
    _run([*apt, "update"])
    _run([*apt, "download", *PACKAGES], scratch)
    for package in sorted(scratch.glob("*.deb")):
        _run(["dpkg-deb", "-x", str(package), str(scratch / "unpacked")])


def _make_relative(root: Path) -> None:
    """Absolute links would lead out of the folder."""
    for link in [path for path in root.rglob("*") if path.is_symlink()]:
        target = link.readlink()
        if target.is_absolute():
            link.unlink()
            link.symlink_to(os.path.relpath(root / target.relative_to("/"), link.parent))


def _run(command: list[str], folder: Path | None = None) -> str:
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", check=False)
    if process.returncode != 0:
        raise BuildError(f"{command[0]} failed: {process.stderr.strip()[-500:]}", hint="check apt-get and the network")
    return process.stdout
