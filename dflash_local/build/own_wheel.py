"""The wheel of dflash-local itself, for one build of its native part.

pip fetches the dependencies of a wheel, and the stock llama-cpp-python of an index has no libdflash. So this wheel
depends on the version `0.3.36+dflash.<build>`, which no index has and which lies beside it: an installation is
complete, or pip names what is missing. Our build under another distribution name would not help: it and the stock one
would silently overwrite each other's package `llama_cpp`.

The version names the backend (`0.2.0+cpu`, as PyTorch does), and pip prefers it to the same version of an index. The
wheel's name has the platform, since each platform depends on its own build.
"""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import tempfile
from pathlib import Path

from dflash_local import __version__
from dflash_local.build.log import BuildLog
from dflash_local.build.upstream import pip
from dflash_local.errors import BuildError

FOLDERS = ("dflash_local", "convert", "server", "patches", "ggml_ops")
FILES = ("pyproject.toml", "README.md", "LICENSE")
# Not packed; the node_modules of the chat page are large.
IGNORED = ("__pycache__", "*.egg-info", "node_modules")
SETUPTOOLS = 77  # [build-system] in pyproject.toml


def make_own_wheel(source: Path, native: Path, label: str, out: Path, log: BuildLog) -> Path:
    """Make the wheel in the folder `out` from the checkout `source`, with version `<version>+<label>`, for the wheel
    `native` (only its name is used).

    Raises BuildError.
    """
    if not (source / "pyproject.toml").is_file():
        raise BuildError(f"{source} is no checkout of dflash-local", hint="run `dflash-local wheel` in one")
    name, version = native.name.split("-")[:2]
    platform = native.stem.split("-")[-1].partition(".")[0]  # the oldest, if there are several
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        for room in FOLDERS:  # copied, because setuptools writes into the tree
            shutil.copytree(source / room, tree / room, ignore=shutil.ignore_patterns(*IGNORED))
        for file in FILES:
            shutil.copy(source / file, tree / file)
        _edit(tree / "dflash_local" / "__init__.py", r'(?m)^__version__ = "(.*)"$', rf'__version__ = "\1+{label}"')
        requirement = f'    "{name.replace("_", "-")}=={version}",'
        _edit(tree / "pyproject.toml", r"(?m)^dependencies = \[$", rf"dependencies = [\n{requirement}")
        isolation = ["--no-build-isolation"] if _has_setuptools() else []
        named = ["--config-settings", f"--build-option=--plat-name={platform}"]
        command = [*pip(), "wheel", "--no-deps", "--no-cache-dir", *isolation, *named, "-w", str(out), str(tree)]
        status, lines = log.run(command)
    made = out / f"dflash_local-{__version__.partition('+')[0]}+{label}-py3-none-{platform}.whl"
    if status != 0 or not made.is_file():
        raise BuildError(f"pip could not make the wheel of dflash-local (log: {log.path})\n{log.excerpt(lines)}")
    return made


def _edit(file: Path, pattern: str, replacement: str) -> None:
    text, count = re.subn(pattern, replacement, file.read_text(encoding="utf-8"))
    if count != 1:
        raise BuildError(f"{file.name}: {count} lines match {pattern}", hint="adapt dflash_local/build/own_wheel.py")
    file.write_text(text, encoding="utf-8")


def _has_setuptools() -> bool:
    try:
        return int(importlib.metadata.version("setuptools").partition(".")[0]) >= SETUPTOOLS
    except importlib.metadata.PackageNotFoundError:
        return False
