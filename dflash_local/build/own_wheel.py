"""The wheel of dflash-local itself, for one build of its native part.

pip fetches what a wheel depends on. The stock llama-cpp-python, which an index would give it, has no libdflash. So this
wheel asks for one version of it, `0.3.36+dflash.<build>`, which no index has, and which lies beside it: an installation
is complete, or pip says what is missing. A distribution under another name with the same package `llama_cpp` inside
would be overwritten by the stock one, and overwrite it, without a word.

The version of this wheel says for what it is (`0.2.0+cpu`, as PyTorch does). pip takes it before one of the same number
that an index has. Its name says for which platform, for each has a build of its own to depend on.
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
# Not packed, and large: what the chat page is made of.
IGNORED = ("__pycache__", "*.egg-info", "node_modules")
SETUPTOOLS = 77  # [build-system] in pyproject.toml


def make_own_wheel(source: Path, native: Path, label: str, out: Path, log: BuildLog) -> Path:
    """Make it in the folder `out` from the checkout `source`: for the wheel `native`, of which only the name counts, as
    version `<version>+<label>`.

    Raises BuildError.
    """
    if not (source / "pyproject.toml").is_file():
        raise BuildError(f"{source} is no checkout of dflash-local", hint="run `dflash-local wheel` in one")
    name, version = native.name.split("-")[:2]
    platform = native.stem.split("-")[-1].partition(".")[0]  # the oldest, if there are several
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        for room in FOLDERS:  # a copy, since setuptools writes into the tree
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
