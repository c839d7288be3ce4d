"""The archive that winget installs, unpacked and started by wine: dflash-local.exe finds its Python and packages."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from dflash_local import __version__
from release.windows_zip import write_zip
from tests.release.stand_in_wheels import write_pair
from tests.toolchains import TOOLCHAINS
from tests.windows import wine

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("wine") is None, reason=f"needs wine ({TOOLCHAINS['windows'].hint})"),
]


def test_starts_from_any_folder(tmp_path: Path) -> None:
    write_pair(tmp_path, __version__, tag="win_amd64", needs="colorama; sys_platform == 'win32'")
    archive = write_zip(tmp_path)
    print(f"{archive.stat().st_size / 1e6:.1f} MB with stand-in wheels")
    folder = tmp_path / "a folder"
    shutil.unpack_archive(archive, folder)
    assert (folder / "packages" / "colorama").is_dir()
    environment = {**wine.environment(), "WINEPREFIX": str(tmp_path / "wine")}
    done = subprocess.run(
        ["wine", str(folder / "dflash-local.exe"), "--version"],
        cwd=tmp_path, env=environment, input="", capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == f"dflash-local {__version__}+cpu", done.stderr
