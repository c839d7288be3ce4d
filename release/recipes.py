"""`make recipes PROJECT_URL=...`: recipes of Homebrew, conda-forge and winget for what dist/ has, into build/recipes.

release/recipes/ has them with names between at signs; all values come from dist/, its SHA256SUMS and the metadata of
this checkout.
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib.metadata
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from packaging.requirements import Requirement

from dflash_local import __version__
from dflash_local.build.own_wheel import SETUPTOOLS
from release import hashes
from release.installers import files_address

REPO = Path(__file__).resolve().parent.parent
TEMPLATES = REPO / "release" / "recipes"
NAME = re.compile(r"@([A-Z][A-Z0-9_]*)@")
# dflash-local's own wheels that recipes name; VERSION is the release's.
OWN = {
    "CPU": "dflash_local-VERSION+cpu-py3-none-manylinux*_x86_64.whl",
    "ARM": "dflash_local-VERSION+cpu-py3-none-manylinux*_aarch64.whl",
    "METAL": "dflash_local-VERSION+metal-py3-none-macosx_*_arm64.whl",
}
SDIST = "dflash_local-VERSION.tar.gz"
WINDOWS = "dflash-local-VERSION-windows-amd64.zip"


class RecipeError(Exception):
    """What is missing, with the fix in its second line."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m release.recipes", description=__doc__)
    parser.add_argument("--url", required=True, help="address of the repository")
    parser.add_argument("--dist", type=Path, default=REPO / "dist", metavar="DIR", help="default: dist")
    parser.add_argument("--out", type=Path, default=REPO / "build" / "recipes", metavar="DIR")
    args = parser.parse_args()
    try:
        print(*write_recipes(args.url.rstrip("/"), args.dist, args.out), sep="\n")
    except RecipeError as error:
        sys.exit(f"error: {error}")
    return 0


def write_recipes(url: str, dist: Path, out: Path) -> list[Path]:
    """Fill in every template and write it to the same place below `out`. Returns the files. Raises RecipeError."""
    values = {**project_values(url), **file_values(dist)}
    written = []
    for template in sorted(path for path in TEMPLATES.rglob("*") if path.is_file()):
        path = out / template.relative_to(TEMPLATES)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(fill(template, values), encoding="utf-8")
        written.append(path)
    return written


def fill(template: Path, values: Mapping[str, str]) -> str:
    """The template's text with its names replaced. A name without a value is an error."""
    text = template.read_text(encoding="utf-8")
    if unknown := sorted(set(NAME.findall(text)) - values.keys()):
        raise RecipeError(f"{template.name} has unknown names: {', '.join(unknown)}\n  fix: add them to {__name__}")
    return NAME.sub(lambda name: values[name[1]], text)


def project_values(url: str) -> dict[str, str]:
    """What the package's metadata and the repository's address say. Raises RecipeError."""
    if not re.fullmatch(r"https://[^\s/@]+/[^\s/@]+/[^\s@]+", url):
        raise RecipeError(f"PROJECT_URL '{url}' is no address of a repository\n  fix: https://HOST/USER/NAME")
    project = importlib.metadata.distribution("dflash-local")
    (command,) = project.entry_points.select(group="console_scripts")
    needed = [line for line in project.requires or [] if "extra ==" not in line]
    owner = url.split("/")[3]
    return {
        "URL": url,
        "FILES": files_address(url),
        "VERSION": __version__,
        "PUBLISHER": owner,
        "MAINTAINER": owner,
        "SUMMARY": project.metadata["Summary"],
        "PYTHON": project.metadata["Requires-Python"].removeprefix(">="),
        "ENTRY_POINT": f"{command.name} = {command.value}",
        "SETUPTOOLS": f"setuptools >={SETUPTOOLS}",
        "DEPENDENCIES": "\n    - ".join(map(conda_spec, needed)),
    }


def conda_spec(requirement: str) -> str:
    """In conda's words. A package for all systems has no markers: what only Windows needs, all get."""
    parsed = Requirement(requirement)
    return f"{parsed.name} {','.join(sorted(map(str, parsed.specifier), reverse=True))}".strip()


def file_values(dist: Path) -> dict[str, str]:
    """Names, names in addresses and hashes of the files in `dist`. Raises RecipeError for one that is missing."""
    sums = dist / hashes.NAME
    if not sums.is_file():
        raise RecipeError(f"{sums} is missing\n  fix: make hashes")
    digests = {name: digest for digest, name in map(str.split, sums.read_text(encoding="utf-8").splitlines())}
    return {key: value for name, file in _files(dist, digests) for key, value in _values(name, file, digests)}


def _files(dist: Path, digests: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    yield "SDIST", _one(SDIST, digests)
    yield "WINDOWS", _one(WINDOWS, digests)
    for kind, pattern in OWN.items():
        own = _one(pattern, digests)
        yield f"OWN_{kind}", own
        yield f"NATIVE_{kind}", _one(f"llama_cpp_python-{native_version(dist / own)}-py3-none-*.whl", digests)


def _values(name: str, file: str, digests: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    yield name, file
    yield f"{name}_QUOTED", file.replace("+", "%2B")
    yield f"{name}_SHA256", digests[file]


def _one(pattern: str, names: Mapping[str, str]) -> str:
    pattern = pattern.replace("VERSION", __version__)
    found = fnmatch.filter(names, pattern)
    if len(found) != 1:
        fix = "make what is missing (docs/releasing.md), then make hashes"
        raise RecipeError(f"SHA256SUMS has {len(found)} files {pattern}, not one\n  fix: {fix}")
    return found[0]


def native_version(own: Path) -> str:
    """The version of llama-cpp-python that a wheel of dflash-local needs. Raises RecipeError."""
    with zipfile.ZipFile(own) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        found = re.search(r"^Requires-Dist: llama-cpp-python *==(\S+)", archive.read(name).decode(), re.MULTILINE)
    if found is None:
        raise RecipeError(f"{own.name} needs no llama-cpp-python\n  fix: make it by make wheels")
    return found[1]


if __name__ == "__main__":
    sys.exit(main())
