"""`dflash-local build`: what it makes, what it leaves alone, and one clear error for each thing that can go wrong."""

from __future__ import annotations

import errno
import importlib
import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import filelock
import pytest

from dflash_local import cli
from dflash_local.build import builder, installation, installed_build, recipe, upstream
from dflash_local.build.wheel import WHEELS_KEPT
from dflash_local.cli.commands import patch as patch_command
from dflash_local.errors import BuildError
from dflash_local.file_lock import locked
from tests.patience import wait_until

from .conftest import World


def failure(**arguments: Any) -> BuildError:
    """The error that a CPU build ends with."""
    with pytest.raises(BuildError) as caught:
        builder.build("cpu", **arguments)
    assert caught.value.hint, "an error without a way out"
    return caught.value


# ---- what it makes
# ------------------------------------------------------------------------------------------------------


def test_builds_patches_and_installs(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert installed_build.installed_stamp() is None
    assert builder.build("cpu", cmake_flags=("-DGGML_NATIVE=OFF",)) is True
    stamp = installed_build.installed_stamp()
    assert stamp is not None
    assert stamp["backend"] == "cpu"
    assert stamp["llama_cpp_commit"].startswith("0123456789")
    assert stamp["version"] == f"1.0+dflash.{stamp['key'][:8]}"
    site = world.pip / "site" / "llama_cpp"
    assert f'__version__ = "{stamp["version"]}"' in (site / "__init__.py").read_text()
    assert (site / "lib" / "libdflash.so").read_text() == "ONE\ntwo\n", "the patch did not reach the library"
    flags = (world.pip / "cmake_args").read_text()
    assert "-DCMAKE_PROJECT_llama_cpp_INCLUDE=" in flags
    assert flags.endswith("-DGGML_NATIVE=OFF")
    assert world.calls() == ["download", "wheel", "install"]
    out = capsys.readouterr().out
    assert all(f"step {i}/4" in out for i in range(1, 5))
    assert "100 %" in out


def test_nothing_to_do_starts_no_pip(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    builder.build("cpu")
    calls = world.calls()
    assert builder.build("cpu") is False
    assert world.calls() == calls
    assert "up to date" in capsys.readouterr().out


def test_a_second_environment_takes_the_cached_wheel(world: World) -> None:
    builder.build("cpu")
    shutil.rmtree(world.pip / "site")
    assert builder.build("cpu") is True
    assert world.calls() == ["download", "wheel", "install", "install"]


def test_without_an_installation_a_later_build_installs(world: World) -> None:
    assert cli.main(["build", "--backend", "cpu", "--no-install"]) == 0
    assert world.calls() == ["download", "wheel"]
    assert installed_build.installed_stamp() is None
    assert builder.build("cpu") is True
    assert world.calls() == ["download", "wheel", "install"]


def test_force_compiles_again(world: World) -> None:
    builder.build("cpu")
    assert builder.build("cpu", force=True) is True
    assert world.calls() == ["download", "wheel", "install"] + ["wheel", "install"]


def test_our_sources_rebuild_in_the_same_tree(world: World) -> None:
    builder.build("cpu")
    work = world.cache / "work" / "cpu"
    (work / "tree" / "mark").touch()
    times = {name: (work / "ggml_ops" / "engine" / name).stat().st_mtime_ns for name in ("engine.cpp", "tree.cpp")}
    (world.source / "ggml_ops" / "engine" / "engine.cpp").write_text("int engine = 2;\n")
    (world.source / "ggml_ops" / "engine" / "tree.cpp").touch()
    assert builder.build("cpu") is True
    assert (work / "tree" / "mark").is_file(), "the whole tree was unpacked again"
    assert (work / "ggml_ops" / "engine" / "engine.cpp").read_text() == "int engine = 2;\n"
    assert (work / "ggml_ops" / "engine" / "engine.cpp").stat().st_mtime_ns != times["engine.cpp"]
    assert (work / "ggml_ops" / "engine" / "tree.cpp").stat().st_mtime_ns == times["tree.cpp"], (
        "an unchanged file would be compiled again"
    )

    (world.source / "ggml_ops" / "engine" / "tree.cpp").unlink()
    builder.build("cpu")
    assert not (work / "ggml_ops" / "engine" / "tree.cpp").exists()


def test_a_changed_patch_starts_from_a_fresh_tree(world: World) -> None:
    builder.build("cpu")
    patch = world.source / "patches" / "0001-shout.patch"
    patch.write_text(patch.read_text().replace("ONE", "Uno"))
    assert builder.build("cpu") is True
    assert (world.pip / "site" / "llama_cpp" / "lib" / "libdflash.so").read_text() == "Uno\ntwo\n"


def test_only_the_newest_wheels_stay(world: World) -> None:
    for i in range(WHEELS_KEPT + 2):
        builder.build("cpu", cmake_flags=(f"-DN={i}",))
    assert len(list((world.cache / "wheels").iterdir())) == WHEELS_KEPT


def test_a_folder_that_a_killed_build_left_is_removed(world: World) -> None:
    left = world.cache / "wheels" / ".scratch-of-a-killed-build"
    left.mkdir(parents=True)
    os.utime(left, (0, 0))
    builder.build("cpu")
    assert not left.exists()


def test_builds_wait_for_each_other(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    builder.build("cpu")
    stamp = installed_build.installed_stamp()
    assert stamp is not None
    shutil.rmtree(world.pip / "site")
    held, told = threading.Event(), list[str]()
    wheel = next((world.cache / "wheels" / stamp["key"]).iterdir())

    def is_told() -> bool:
        told.append(capsys.readouterr().out)
        return "waiting for another build" in "".join(told)

    def other_build() -> None:
        with locked(world.cache / "build.lock"):
            held.set()
            wait_until(is_told)
            shutil.unpack_archive(wheel, world.pip / "site", "zip")

    thread = threading.Thread(target=other_build)
    thread.start()
    held.wait()
    assert builder.build("cpu") is False, "the other build had installed it meanwhile"
    thread.join()
    assert is_told()
    assert world.calls() == ["download", "wheel", "install"]


def test_who_asks_for_the_stamp_disturbs_no_other_thread(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first requests of a server ask at once; two threads that clear importlib's caches fail with a KeyError."""
    builder.build("cpu")
    monkeypatch.setattr(importlib, "invalidate_caches", lambda: pytest.fail("importlib's caches were cleared"))
    assert installed_build.installed_stamp() is not None


def test_stock_llama_cpp_python_has_no_stamp(world: World) -> None:
    builder.build("cpu")
    site = world.pip / "site" / "llama_cpp"
    (site / installed_build.STAMP).unlink()
    assert installed_build.installed_stamp() is None
    (site / installed_build.STAMP).write_text(json.dumps({"key": "0"}))
    assert installed_build.installed_stamp() == {"key": "0"}
    (site / installed_build.STAMP).write_text("{")
    assert installed_build.installed_stamp() is None


def test_a_deleted_library_is_noticed(world: World) -> None:
    builder.build("cpu")
    (world.pip / "site" / "llama_cpp" / "lib" / "libdflash.so").unlink()
    assert installed_build.installed_stamp() is None
    assert builder.build("cpu") is True


def test_an_installation_that_broke_off_is_noticed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip writes RECORD when all else is there."""
    builder.build("cpu")
    name = "llama_cpp_python"
    for whole in (False, True):
        record = "llama_cpp/lib/libdflash.so,," if whole else None
        found = SimpleNamespace(read_text=lambda file, record=record: record if file == "RECORD" else "")
        monkeypatch.setattr(importlib.metadata, "distribution", {name: found}.__getitem__)
        assert installation.is_installed(recipe.make_recipe(world.source, "cpu")) == whole


def test_a_native_build_whatever_the_shell_wants(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """With this variable ggml leaves out the processor's instructions."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")
    builder.build("cpu")
    assert "SOURCE_DATE_EPOCH" not in (world.pip / "environment").read_text().splitlines()


# ---- what can go wrong
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("missing", "language"), [("cc", "C compiler"), ("c++", r"C\+\+ compiler")])
def test_missing_compiler(world: World, monkeypatch: pytest.MonkeyPatch, missing: str, language: str) -> None:
    monkeypatch.setenv("PATH", str(world.bin))
    (world.bin / missing).unlink()
    error = failure()
    assert error.message.startswith(f"no {language.replace(chr(92), '')} found")
    assert world.calls() == []


def test_compiler_named_by_the_environment_is_missing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "ccache /no/such/g++")
    assert "CXX=/no/such/g++" in failure().message


def test_downloaded_file_has_the_wrong_hash(world: World) -> None:
    world.repin(sha256="0" * 64)
    assert "does not have the pinned sha256 " + "0" * 64 in failure().message
    assert not list((world.cache / "sdist").iterdir()), "the wrong file stayed in the cache"


def test_pip_finds_the_wrong_hash(world: World) -> None:
    (world.pip / "fail-download").write_text(
        "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.\n  Got 1234"
    )
    error = failure()
    assert "does not have the pinned sha256" in error.message
    assert "DO NOT MATCH" in error.message


def test_damaged_file_in_the_cache_is_fetched_again(world: World) -> None:
    builder.build("cpu")
    archive = world.cache / "sdist" / "llama_cpp_python-1.0.tar.gz"
    archive.write_bytes(archive.read_bytes()[:100])
    builder.build("cpu", force=True)
    assert world.calls().count("download") == 2


def test_no_network(world: World) -> None:
    (world.pip / "fail-download").write_text(
        "WARNING: Retrying\nERROR: No matching distribution found for llama-cpp-python==1.0"
    )
    error = failure()
    assert "pip could not download llama-cpp-python==1.0" in error.message
    assert "No matching distribution" in error.message
    assert "llama_cpp_python-1.0.tar.gz" in str(error.hint), "the way without network is not named"


def test_file_put_into_the_cache_by_hand_needs_no_network(world: World) -> None:
    (world.cache / "sdist").mkdir(parents=True)
    shutil.copy(world.pip / "llama_cpp_python-1.0.tar.gz", world.cache / "sdist")
    builder.build("cpu")
    assert world.calls() == ["wheel", "install"]


def test_other_llama_cpp_commit_than_pinned(world: World) -> None:
    world.repin(commit="f" * 40)
    assert "holds llama.cpp 0123456789" in failure().message


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("llama.cpp", "vendor/llama.cpp/llama.cpp:1: the lines there differ"),
        ("gone.cpp", "vendor/llama.cpp/gone.cpp is not there"),
    ],
)
def test_patch_does_not_apply(world: World, file: str, expected: str) -> None:
    text = f"--- a/vendor/llama.cpp/{file}\n+++ b/vendor/llama.cpp/{file}\n@@ -1 +1 @@\n-one\n+two\n"
    (world.source / "patches" / "0002-late.patch").write_text(text)  # 0001 has made ONE of it
    assert failure().message.startswith(f"0002-late.patch does not apply: {expected}")
    assert world.calls() == ["download"]


def test_too_little_space_before_the_start(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=300 << 20))
    error = failure()
    assert "not enough disk space" in error.message
    assert "0.3 GiB free, 1 GiB needed" in error.message
    assert world.calls() == []


def test_disk_full_while_unpacking(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "llama.cpp")

    monkeypatch.setattr(upstream.Upstream, "unpack", full)
    assert "not enough disk space" in failure().message


@pytest.mark.parametrize("step", ["wheel", "install"])
def test_disk_full_inside_pip(world: World, step: str) -> None:
    (world.pip / f"fail-{step}").write_text("c++: error: writing x.o: No space left on device")
    assert "not enough disk space" in failure().message


def test_compile_error_shows_its_cause_and_the_log(world: World) -> None:
    cause = "x.cpp:3:1: error: 'foo' was not declared"
    output = ["  [1/2] c++ -Werror x.cpp", cause, *["noise"] * 50, "Building wheel: finished with status 'error'"]
    (world.pip / "fail-wheel").write_text("\n".join(output))
    error = failure()
    assert cause in error.message
    assert "finished with status" not in error.message
    log = Path(error.message.split("log: ")[1].split(")")[0])
    assert log.read_text().count("noise") == 50
    (world.pip / "fail-wheel").unlink()
    assert builder.build("cpu") is True, "a failed build must not stand in the way of the next"


def test_progress_counts_the_files_of_the_whole_build(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """A build inside the build, of what generates Vulkan's shaders, counts its own two files."""
    lines = ["  [1/500] c++ a.cpp", "[1/2] c++ gen.cpp", "[2/2] ld gen", "  [200/500] c++ b.cpp", "  [500/500] ld"]
    (world.pip / "fail-wheel").write_text("\n".join(lines))
    failure()
    out = capsys.readouterr().out
    assert "40 % of 500 files" in out and "100 % of 500 files" in out
    assert "of 2 files" not in out


def test_wheel_without_libdflash_is_refused_and_not_cached(world: World) -> None:
    (world.pip / "forget-libdflash").touch()
    assert "without libdflash" in failure().message
    (world.pip / "forget-libdflash").unlink()
    assert builder.build("cpu") is True


def test_install_fails(world: World) -> None:
    (world.pip / "fail-install").write_text("error: externally-managed-environment")
    error = failure()
    assert "externally-managed-environment" in error.message
    assert "virtual environment" in str(error.hint)


def test_another_llama_cpp_comes_first(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "another llama_cpp" in str(failure().hint)


def test_cache_that_cannot_be_written(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.cache.write_text("a file, not a folder")
    error = failure()
    assert str(world.cache) in error.message
    assert "DFLASH_CACHE" in str(error.hint)


# ---- command
# ------------------------------------------------------------------------------------------------------------


def test_command_passes_what_comes_after_the_dashes(world: World) -> None:
    assert cli.main(["build", "--backend", "cpu", "--", "-DGGML_NATIVE=OFF", "-DA=b c"]) == 0
    assert (world.pip / "cmake_args").read_text().endswith("-DGGML_NATIVE=OFF '-DA=b c'")


def test_command_prints_error_and_fix(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.repin(sha256="0" * 64)
    assert cli.main(["build", "--backend", "cpu"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("error: the downloaded")
    assert lines[-1].startswith("  fix: ")


def test_command_starts_with_filelock_alone(tmp_path: Path) -> None:
    """`make setup` compiles while the other packages are downloaded."""
    (tmp_path / "filelock").symlink_to(Path(filelock.__file__).parent)
    root = Path(__file__).resolve().parent.parent.parent
    isolated = [sys.executable, "-S", "-m", "dflash_local.cli", "build", "--backend", "cpu", "--no-install"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "DFLASH_CACHE": str(tmp_path / "cache"), "PATH": ""}
    process = subprocess.run(isolated, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == 1
    assert "compiler found" in process.stderr, "an import failed, or it got further than to look for a compiler"


def test_command_writes_a_patched_tree(world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree = tmp_path / "tree"
    assert cli.main(["build", "--tree", str(tree)]) == 0
    assert (tree / "vendor" / "llama.cpp" / "llama.cpp").read_text() == "ONE\ntwo\n"
    assert "1 patches" in capsys.readouterr().out
    assert cli.main(["build", "--tree", str(tree)]) == 1


def test_folders_that_cannot_be_written_are_named(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file stands in their way, which stops root too."""
    (tmp_path / "file").touch()
    below = str(tmp_path / "file" / "below")
    assert cli.main(["build", "--tree", below]) == 1
    error, fix = capsys.readouterr().err.splitlines()
    assert error.startswith(f"error: {tmp_path / 'file'}") and fix.endswith("--tree DIR")
    monkeypatch.setenv("DFLASH_CACHE", below)
    monkeypatch.setattr(patch_command, "native_source", lambda: world.source)
    for command in (["build", "--tree", str(tmp_path / "tree")], ["patch"]):
        assert cli.main(command) == 1
        error, fix = capsys.readouterr().err.splitlines()
        assert error.startswith(f"error: {below}") and fix.endswith("or set DFLASH_CACHE")
