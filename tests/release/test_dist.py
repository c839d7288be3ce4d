"""`make dist`, hashes and what is uploaded; pipx and uv install what it makes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from importlib.util import find_spec
from pathlib import Path

import pytest

import dflash_local
from release import dist, hashes, upload

URL = "https://forge.example/somebody/dflash-local"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    if find_spec("build") is None:
        pytest.skip("needs build: pip install build")
    return dist.build(tmp_path_factory.mktemp("dist"), URL)


@pytest.mark.slow
def test_sdist_makes_the_wheel_and_both_name_the_project(made: list[Path]) -> None:
    wheel, sdist = sorted(made, key=lambda file: file.suffix, reverse=True)
    assert sdist.name == f"dflash_local-{dflash_local.__version__}.tar.gz"
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = message_from_bytes(archive.read(name))
        assert any(name.endswith("_native/ggml_ops/engine/engine.cpp") for name in archive.namelist())
    assert f"Source, {URL}" in metadata.get_all("Project-URL", [])
    assert metadata["Keywords"]
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "patches/UPSTREAM", "convert/__init__.py", "server/app.py"} <= names


@pytest.mark.slow
def test_twine_has_nothing_to_say(made: list[Path]) -> None:
    if find_spec("twine") is None:
        pytest.skip("needs twine: pip install twine")
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *made], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["pipx", "uv"])
def test_tools_install_it(tool: str, made: list[Path], tmp_path: Path) -> None:
    program = shutil.which(tool)
    if program is None:
        pytest.skip(f"needs {tool}: pip install {tool}")
    (wheel,) = (file for file in made if file.suffix == ".whl")
    places = {"HOME": "", "PIPX_HOME": "pipx", "PIPX_BIN_DIR": "bin", "UV_TOOL_DIR": "tools", "UV_TOOL_BIN_DIR": "bin"}
    env = {**os.environ, **{name: str(tmp_path / folder) for name, folder in places.items()}}
    command = [program, "install"] if tool == "pipx" else [program, "tool", "install", "--python", sys.executable]
    subprocess.run([*command, str(wheel)], env=env, check=True)
    done = subprocess.run([tmp_path / "bin" / "dflash-local"], env=env, capture_output=True, text=True, check=True)
    assert "dflash-local build" in done.stdout


def test_hashes_are_those_of_the_files(tmp_path: Path) -> None:
    (tmp_path / "a.whl").write_bytes(b"abc")
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    for _ in range(2):  # the second time it does not hash itself
        assert hashes.write(tmp_path).read_text() == f"{digest}  a.whl\n"


def test_nothing_to_hash_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="make dist"):
        hashes.write(tmp_path)


def test_local_versions_are_not_uploaded(tmp_path: Path) -> None:
    for name in (
        "dflash_local-1.tar.gz", "dflash_local-1-py3-none-any.whl", "dflash_local-1+cpu-py3-none-any.whl", "SHA256SUMS",
        "llama_cpp_python-0.3.36+dflash.7-py3-none-any.whl",
    ):  # fmt: skip
        (tmp_path / name).touch()
    chosen = upload.choose(tmp_path, tmp_path / "up")
    assert [file.name for file in chosen] == ["dflash_local-1-py3-none-any.whl", "dflash_local-1.tar.gz"]
