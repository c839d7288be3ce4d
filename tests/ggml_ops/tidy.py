"""clang-tidy over our C++ sources, with the flags that the native tests' project compiles them with.

`python -m tests.ggml_ops.tidy`. A file without findings is not looked at again until it, a header of ours that it
includes, .clang-tidy or its flags change: the cache keeps an empty file for each such state.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from dflash_local.cache_dir import cache_dir

from .native import ENVIRONMENT, REPO, host

SOURCES = REPO / "ggml_ops"
SETTINGS = (REPO / ".clang-tidy", SOURCES / "tests" / ".clang-tidy")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


@dataclass(frozen=True)
class Unit:
    """One source file and the command that compiles it."""

    file: Path
    command: str
    folder: Path

    def mark(self, settings: str) -> Path:
        """What the cache has once this state of the file was found clean."""
        parts = [settings, self.command, *(f"{file} {file.read_text()}" for file in included(self.file))]
        state = "\0".join(parts).replace(str(REPO), "")  # another checkout's files are as clean
        return cache_dir() / "tidy" / hashlib.sha256(state.encode()).hexdigest()[:24]


@cache
def included(file: Path) -> tuple[Path, ...]:
    """The file and all headers of ours that it includes, directly or not."""
    found = {file}
    waiting = [file]
    while waiting:
        current = waiting.pop()
        for name in INCLUDE.findall(current.read_text()):
            places = (current.parent, SOURCES, SOURCES / "include", SOURCES / "tests")
            header = next((place / name for place in places if (place / name).is_file()), None)
            if header and header.resolve() not in found:
                found.add(header.resolve())
                waiting.append(header.resolve())
    return tuple(sorted(found))


def units(folder: Path) -> list[Unit]:
    """Each of our sources once, from the project's compile_commands.json, of which a copy with one entry for each is
    what clang-tidy reads."""
    entries = json.loads((folder / "compile_commands.json").read_text())
    found = {Path(entry["file"]): entry for entry in entries if Path(entry["file"]).is_relative_to(SOURCES)}
    own = folder / "once"
    own.mkdir(exist_ok=True)
    (own / "compile_commands.json").write_text(json.dumps(list(found.values())))
    return [Unit(file, entry["command"], own) for file, entry in sorted(found.items())]


def findings(unit: Unit, mark: Path) -> str:
    """What clang-tidy says, empty if nothing."""
    command = ["clang-tidy", "-p", str(unit.folder), "--quiet", str(unit.file)]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT)
    if done.returncode == 0:
        mark.touch()
        return ""
    return done.stdout or done.stderr


def main() -> int:
    project = host("tidy")  # not the one that is compiled meanwhile
    project.configure()
    version = subprocess.check_output(["clang-tidy", "--version"], text=True, env=ENVIRONMENT)
    settings = "".join([version, *(file.read_text() for file in SETTINGS)])
    (cache_dir() / "tidy").mkdir(parents=True, exist_ok=True)
    waiting = [(unit, mark) for unit in units(project.folder) if not (mark := unit.mark(settings)).exists()]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        said = list(filter(None, pool.map(lambda pair: findings(*pair), waiting)))
    print("\n".join(said), end="")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
