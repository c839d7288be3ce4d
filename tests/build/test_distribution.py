"""`dflash-local wheel` without a compiler: what its parts decide. The wheels themselves: test_wheels.py."""

from __future__ import annotations

import email
import importlib.util
import platform
import re
import zipfile
from pathlib import Path

import pytest

import dflash_local
from dflash_local.build import distribution, own_wheel, recipe, repair, sysroot
from dflash_local.build.log import BuildLog
from dflash_local.errors import BuildError

from .conftest import World

NATIVE = Path("llama_cpp_python-0.3.36+dflash.1a2b3c4d-py3-none-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl")


@pytest.fixture
def log(tmp_path: Path) -> BuildLog:
    return BuildLog(tmp_path / "log")


def test_recipe_for_any_machine_is_the_same_on_every_processor(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = set()
    for processor in ("flags: avx2", "flags: avx512f"):
        monkeypatch.setattr(recipe, "_machine", lambda processor=processor: processor)
        portable = recipe.make_recipe(world.source, "cpu", any_machine=True)
        assert set(recipe.ANY_MACHINE_FLAGS) <= set(portable.flags)
        keys |= {portable.key, recipe.make_recipe(world.source, "cpu").key}
        assert portable.work_name == "cpu-any"
        assert recipe.make_recipe(world.source, "cpu").work_name == "cpu"
    assert len(keys) == 3  # one for any machine, one for each processor


def test_all_variants_are_asked_for() -> None:
    assert "-DGGML_CPU_ALL_VARIANTS=ON" in recipe.ANY_MACHINE_FLAGS
    assert "-DGGML_NATIVE=OFF" in recipe.ANY_MACHINE_FLAGS


def test_own_wheel_depends_on_this_build_and_no_other(repo: Path, tmp_path: Path, log: BuildLog) -> None:
    before = (repo / "pyproject.toml").read_bytes()
    made = own_wheel.make_own_wheel(repo, NATIVE, "cpu", tmp_path, log)
    version = f"{dflash_local.__version__}+cpu"
    assert made.name == f"dflash_local-{version}-py3-none-manylinux_2_27_x86_64.whl"
    with zipfile.ZipFile(made) as archive:
        tags = email.message_from_bytes(archive.read(f"dflash_local-{version}.dist-info/WHEEL")).get_all("Tag")
        assert tags == ["py3-none-manylinux_2_27_x86_64"]
        metadata = email.message_from_bytes(archive.read(f"dflash_local-{version}.dist-info/METADATA"))
        assert f'__version__ = "{version}"' in archive.read("dflash_local/__init__.py").decode()
        assert "dflash_local/_native/ggml_ops/inject.cmake" in archive.namelist()
    assert metadata["Version"] == version
    required = [line for line in metadata.get_all("Requires-Dist", []) if line.startswith("llama")]
    assert required == ["llama-cpp-python==0.3.36+dflash.1a2b3c4d"]
    assert (repo / "pyproject.toml").read_bytes() == before


def test_own_wheel_needs_a_checkout(tmp_path: Path, log: BuildLog) -> None:
    with pytest.raises(BuildError, match="no checkout of dflash-local"):
        own_wheel.make_own_wheel(tmp_path, NATIVE, "cpu", tmp_path, log)


def test_auditwheel_is_asked_for_before_anything_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BuildError, match="auditwheel is not installed") as error:
        repair.check_auditwheel()
    assert error.value.hint == "run: pip install 'dflash-local[wheel]'"


def test_a_folder_that_cannot_be_written_is_named_before_anything_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(distribution, "check_auditwheel", lambda: None)
    with pytest.raises(BuildError, match=re.escape(str(tmp_path / "file"))) as error:
        distribution.make_wheels(tmp_path / "file" / "dist")
    assert str(error.value.hint).endswith("--out DIR")


@pytest.mark.parametrize(("version", "links_here"), [("2.17", True), ("2.28", True), ("2.31", False), ("2.9", True)])
def test_older_glibc_is_fetched_where_the_machine_is_too_new(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, log: BuildLog, version: str, links_here: bool
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", version))
    (tmp_path / "sysroot" / sysroot.RELEASE).mkdir(parents=True)
    found = sysroot.older_glibc(tmp_path, log)
    assert found == (None if links_here else tmp_path / "sysroot" / sysroot.RELEASE)


def test_without_apt_the_image_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, log: BuildLog) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.39"))
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(BuildError, match=r"this machine's glibc 2\.39") as error:
        sysroot.older_glibc(tmp_path, log)
    assert sysroot.IMAGE in str(error.value.hint)


def test_links_of_the_packages_stay_inside(tmp_path: Path) -> None:
    folder = tmp_path / "usr" / "lib" / "x86_64-linux-gnu"
    folder.mkdir(parents=True)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libm.so.6").write_text("theirs")
    (folder / "libm.so").symlink_to("/lib/libm.so.6")
    sysroot._make_relative(tmp_path)
    assert (folder / "libm.so").read_text() == "theirs"
