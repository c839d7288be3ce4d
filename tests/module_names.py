"""No two Python modules of different folders share a name.

`python -m tests.module_names` lists those that do. Three kinds may: a command's module and a benchmark's script, which
have the name of what they run or measure, and an endpoint's modules, one in each of HTTP_ROOMS, which also have that of
what they are about elsewhere in server/.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from dflash_local.cli import COMMANDS

REPO = Path(__file__).resolve().parents[1]
ROOMS = ("dflash_local", "server", "convert", "release", "benchmarks")
HTTP_ROOMS = tuple(Path("server", room) for room in ("fields", "formats", "routes", "shapes"))


def faults(repo: Path = REPO) -> Iterator[str]:
    """One line for each name that modules should not share."""
    named: dict[str, list[Path]] = {}
    for room in ROOMS:
        for file in sorted((repo / room).rglob("*.py")):
            named.setdefault(file.name, []).append(file.relative_to(repo))
    for name, modules in named.items():
        own = [module for module in modules if not _may_share(module)]
        served = any(module.parent in HTTP_ROOMS for module in modules)
        if len(own) > 1 or (served and any(module.parts[0] != "server" for module in own)):
            yield f"{name}: {', '.join(module.as_posix() for module in modules)}"


def _may_share(module: Path) -> bool:
    command = module.parent == Path("dflash_local/cli/commands") and module.stem.replace("_", "-") in COMMANDS
    return module.stem.startswith("__") or command or module.parent in (Path("benchmarks"), *HTTP_ROOMS)


def main() -> int:
    found = list(faults())
    print(*(f"modules of one name: {line}" for line in found), sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
