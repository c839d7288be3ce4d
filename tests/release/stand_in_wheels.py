"""Wheels with the names and the dependency of the real ones, and next to nothing in them."""

from __future__ import annotations

import platform
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

LINUX = f"manylinux_2_17_{platform.machine()}"
WINDOWS = "win_amd64"


@dataclass(frozen=True)
class Pair:
    """dflash-local's own wheel and the native one, by name."""

    own: str
    native: str


def write_pair(
    folder: Path,
    version: str,
    backend: str = "cpu",
    tag: str = LINUX,
    needs: str = "",
    loads: str = "CPU RPC",
    command: str = "",
    warns: str = "",
) -> Pair:
    """Write both wheels into `folder`. `needs` is one more package that the first depends on, `loads` the backends that
    the second says to have loaded; with none, it fails to load. `command` is what dflash-local does before it says its
    version, `warns` what the second writes to stderr when it loads."""
    folder.mkdir(parents=True, exist_ok=True)
    build = f"0.3.36+dflash.{zlib.crc32(f'{version} {backend} {tag}'.encode()):08x}"
    library = f"BACKENDS = {loads.split()!r}\n" if loads else "raise ImportError('libcublas.so.12: no such file')\n"
    if warns:
        library += f"import sys\nprint({warns!r}, file=sys.stderr)\n"
    native = _write(folder, "llama_cpp_python", build, tag, {"llama_cpp/__init__.py": library})
    text = f"def main():\n    {command or 'pass'}\n    print('dflash-local {version}+{backend}')\n"
    own = _write(
        folder, "dflash_local", f"{version}+{backend}", tag, _package(text),
        [f"llama-cpp-python=={build}", *([needs] if needs else [])], _COMMAND,
    )  # fmt: skip
    return Pair(own, native)


def write_source(folder: Path, version: str) -> None:
    """Write the wheel of an index of packages, without libraries: its command `build` makes them, but not for hip."""
    folder.mkdir(parents=True, exist_ok=True)
    text = f"""import pathlib, sys

def main():
    if sys.argv[1] != "build":
        return print("dflash-local {version}")
    backend = sys.argv[sys.argv.index("--backend") + 1]
    if backend == "hip":
        return "no such compiler"
    package = pathlib.Path(__file__).parents[1] / "llama_cpp"
    package.mkdir()
    (package / "__init__.py").write_text(f"BACKENDS = ['CPU', '{{backend}}']")
    print(f"built for {{backend}}")
"""
    _write(folder, "dflash_local", version, "any", _package(text), [], _COMMAND)


_COMMAND = "[console_scripts]\ndflash-local = dflash_local.cli:main\n"


def _package(command: str) -> dict[str, str]:
    info = "import llama_cpp\n\n\ndef library_info():\n    return {'backends': llama_cpp.BACKENDS}\n"
    return {"dflash_local/__init__.py": "", "dflash_local/native.py": info, "dflash_local/cli.py": command}


def _write(
    folder: Path,
    name: str,
    version: str,
    tag: str,
    files: dict[str, str],
    requirements: list[str] | None = None,
    entry_points: str = "",
) -> str:
    info = f"{name}-{version}.dist-info"
    metadata = ["Metadata-Version: 2.1", f"Name: {name.replace('_', '-')}", f"Version: {version}"]
    metadata += [f"Requires-Dist: {requirement}" for requirement in requirements or ()]
    files = {
        **files,
        f"{info}/METADATA": "\n".join(metadata) + "\n",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: false\nTag: py3-none-{tag}\n",
    }
    if entry_points:
        files[f"{info}/entry_points.txt"] = entry_points
    record = f"{info}/RECORD"
    files[record] = "".join(f"{path},,\n" for path in (*files, record))
    file = folder / f"{name}-{version}-py3-none-{tag}.whl"
    with zipfile.ZipFile(file, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return file.name
