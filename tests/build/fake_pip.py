"""Stands in for pip in the build tests: `download`, `wheel` and `install` in miniature, every call noted in
$FAKE_PIP/calls."""

from __future__ import annotations

import os
import shutil
import sys
import zipfile
from pathlib import Path

HOME = Path(os.environ["FAKE_PIP"])


def main(command: str, arguments: list[str]) -> int:
    with (HOME / "calls").open("a") as calls:
        calls.write(f"{command}\n")
    if (HOME / f"fail-{command}").is_file():
        print((HOME / f"fail-{command}").read_text())
        return 1
    if command == "download":
        (archive,) = HOME.glob("*.tar.gz")
        shutil.copy(archive, arguments[arguments.index("-d") + 1])
    elif command == "wheel":
        wheel(Path(arguments[-1]), Path(arguments[arguments.index("-w") + 1]))
    elif command == "install":
        with zipfile.ZipFile(arguments[-1]) as wheel_file:
            wheel_file.extractall(HOME / "site")
    return 0


def wheel(tree: Path, folder: Path) -> None:
    (HOME / "cmake_args").write_text(os.environ["CMAKE_ARGS"])
    (HOME / "environment").write_text("\n".join(os.environ))
    print("  [1/2] c++ one.cpp\n  [2/2] c++ two.cpp")
    with zipfile.ZipFile(folder / "llama_cpp_python-1.0-py3-none-any.whl", "w") as archive:
        for file in (tree / "llama_cpp").rglob("*"):
            archive.write(file, file.relative_to(tree))
        if not (HOME / "forget-libdflash").exists():
            archive.writestr("llama_cpp/lib/libdflash.so", (tree / "vendor/llama.cpp/llama.cpp").read_bytes())


sys.exit(main(sys.argv[1], sys.argv[2:]))
