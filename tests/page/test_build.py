"""The built page: what its sources make of it, by hashes here and, where npm is installed, by building it again."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from dflash_local.server.page_file import page_files
from tests.page.answer_shapes import FILE, text

STALE = "the built page is not of these sources: make page"


@pytest.fixture(scope="module")
def source(repo: Path) -> Path:
    return repo / "server" / "page"


def sources(folder: Path) -> dict[str, bytes]:
    """As in build.mjs; the types of answers as they are now."""
    files = {file.relative_to(folder): file for file in folder.rglob("*") if file.is_file()}
    own = {name: file.read_bytes() for name, file in files.items() if name.parts[0] not in ("dist", "node_modules")}
    own[FILE] = text().encode()
    return {name.as_posix(): own[name] for name in sorted(own, key=Path.as_posix)}


def test_the_built_page_is_of_these_sources(source: Path) -> None:
    told = json.loads((source / "dist" / "build.json").read_text())
    digest = hashlib.sha256()
    for name, content in sources(source).items():
        digest.update(name.encode() + b"\0" + content + b"\0")
    assert told["sources"] == digest.hexdigest(), STALE
    built = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in (source / "dist").iterdir()}
    del built["build.json"]
    assert told["files"] == built, STALE


@pytest.mark.slow
def test_building_again_gives_the_same(source: Path, installed: Path, tmp_path: Path) -> None:
    shutil.copytree(installed, again := tmp_path / "page", symlinks=True)
    done = subprocess.run(["npm", "run", "build"], cwd=again, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {file.name: file.read_bytes() for file in (again / "dist").iterdir()} == {
        file.name: file.read_bytes() for file in (source / "dist").iterdir()
    }


def test_the_lock_file_names_no_registry(source: Path) -> None:
    lock = json.loads((source / "package-lock.json").read_text())
    assert not any("resolved" in package for package in lock["packages"].values())
    assert all("integrity" in package for path, package in lock["packages"].items() if path)


def test_every_bundled_package_has_its_licence(source: Path) -> None:
    licences = (source / "dist" / "licenses.txt").read_text(encoding="utf-8")
    for name in json.loads((source / "package.json").read_text())["dependencies"]:
        assert re.search(rf"^{re.escape(name)} [\d.]+ \(.+\)$", licences, re.MULTILINE), name


def test_the_page_stays_small() -> None:
    sizes = {name: len(file.body) for name, file in page_files().items()}
    assert sum(size for name, size in sizes.items() if not name.endswith(".woff2")) < 880_000
    assert sum(sizes.values()) < 1_150_000
