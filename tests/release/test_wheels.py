"""`make wheels` without containers and compilers: the machines, what cibuildwheel is given, and what it reads of it."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from dflash_local.build.installed_build import STAMP
from dflash_local.build.log import BuildLog
from dflash_local.build.recipe import ANY_MACHINE_FLAGS
from dflash_local.build.repair import OF_THE_MACHINE
from dflash_local.errors import BuildError
from release import wheels
from release.wheels import CONFIG, MACHINES
from tests.build.conftest import World, world

__all__ = ["world"]  # a fixture

IMAGE = "somewhere/manylinux_2_28_x86_64@sha256:1"
LINUX = [name for name, machine in MACHINES.items() if machine.architecture]


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CIBW_CONTAINER_ENGINE", "CIBW_MANYLINUX_X86_64_IMAGE", "CIBW_MANYLINUX_AARCH64_IMAGE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def log(tmp_path: Path) -> BuildLog:
    return BuildLog(tmp_path / "log")


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """For which native wheels dflash-local's own was made: none is, here."""
    asked = []

    def make(source: Path, native: Path, label: str, out: Path, log: BuildLog) -> Path:
        asked.append(native.name)
        return out / f"dflash_local-1.0+{label}-py3-none-any.whl"

    monkeypatch.setattr(wheels, "make_own_wheel", make)
    return asked


def matrix(repo: Path) -> list[dict[str, str]]:
    workflow = yaml.safe_load((repo / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8"))
    return list(workflow["jobs"]["wheels"]["strategy"]["matrix"]["include"])


def test_workflow_makes_wheels_for_each_machine_on_a_system_of_its_kind(repo: Path) -> None:
    systems = {entry["machine"]: entry["system"] for entry in matrix(repo)}
    assert list(systems) == list(MACHINES)
    for name, system in systems.items():
        expected = {"linux": "ubuntu", "macos": "macos", "windows": "windows"}[name.partition("-")[0]]
        assert system.startswith(expected)
        assert system.endswith("-arm") == (name == "linux-aarch64")


def test_stages_are_those_of_the_containerfile(repo: Path) -> None:
    text = (repo / "release" / "Containerfile").read_text(encoding="utf-8")
    stages = set(re.findall(r"^FROM \$\{BASE\} AS (\w+)$", text, re.MULTILINE))
    assert stages == {machine.stage for machine in MACHINES.values() if machine.stage}
    copied = re.findall(r"^COPY (?!--)(\S+)", text, re.MULTILINE)
    assert {"Containerfile", *copied} == set(wheels.IMAGE_FILES)  # what an image's name is made of
    subprocess.run(["sh", "-n", repo / "release" / "vulkan_tools.sh"], check=True)


@pytest.mark.parametrize("name", ["linux-x86_64", "linux-x86_64-cuda12"])
def test_project_is_the_patched_source_with_ours_beside_it(
    name: str, world: World, own: list[str], tmp_path: Path, log: BuildLog
) -> None:
    machine = MACHINES[name]
    project = wheels.write_project(machine, tmp_path / "project", IMAGE, log, world.source)
    tree = project.folder / "tree"
    assert (tree / "vendor" / "llama.cpp" / "llama.cpp").read_text() == "ONE\ntwo\n"
    assert (project.folder / "ggml_ops" / "engine" / "engine.cpp").is_file()
    assert (project.folder / "check_wheel.py").is_file()
    stamp = json.loads((tree / "llama_cpp" / STAMP).read_text())
    version = f"1.0+dflash.{stamp['key'][:8]}"
    assert project.version == version
    assert f'__version__ = "{version}"' in (tree / "llama_cpp" / "__init__.py").read_text()
    assert own == [f"llama_cpp_python-{version}-py3-none-any.whl"]
    assert not world.calls().count("wheel")

    environment = project.environment
    arguments = shlex.split(environment["CMAKE_ARGS"])
    assert arguments[0] == "-DCMAKE_PROJECT_llama_cpp_INCLUDE=/project/ggml_ops/inject.cmake"
    assert set(ANY_MACHINE_FLAGS) <= set(arguments)
    assert ("-DCMAKE_CUDA_ARCHITECTURES=75;80;86;89;90" in arguments) == (machine.backend == "cuda")
    assert environment["CIBW_MANYLINUX_X86_64_IMAGE"] == IMAGE
    assert environment["CIBW_TEST_REQUIRES"] == f"dflash-local==1.0+{machine.backend}"
    assert environment["PIP_FIND_LINKS"] == "/project/own"


def test_another_image_is_another_build(world: World, own: list[str], tmp_path: Path, log: BuildLog) -> None:
    for image in (IMAGE, IMAGE + "2", IMAGE):
        wheels.write_project(MACHINES["linux-x86_64"], tmp_path / "project", image, log, world.source)
    assert own[0] == own[2] != own[1]


def test_without_a_container_the_compiler_is_this_systems(
    world: World, own: list[str], tmp_path: Path, log: BuildLog
) -> None:
    machine = MACHINES["macos-arm64"]
    environment = wheels.write_project(machine, tmp_path / "project", "", log, world.source).environment
    include = tmp_path / "project" / "ggml_ops" / "inject.cmake"
    assert f"-DCMAKE_PROJECT_llama_cpp_INCLUDE={include}" in shlex.split(environment["CMAKE_ARGS"])
    assert "-DGGML_METAL=ON" in shlex.split(environment["CMAKE_ARGS"])
    (world.bin / "c++").unlink()
    world.tool("g++", "3")
    wheels.write_project(machine, tmp_path / "project", "", log, world.source)
    assert own[0] != own[1]


def test_image_is_built_on_the_pinned_base(tmp_path: Path, log: BuildLog, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = tmp_path / "engine"
    engine.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/said\n')
    engine.chmod(0o755)
    monkeypatch.setenv("CIBW_CONTAINER_ENGINE", f"{engine}; create_args: --network=host")
    name = wheels.make_image(MACHINES["linux-x86_64-vulkan"], IMAGE, log)
    said = (tmp_path / "said").read_text()
    assert said.startswith(f"build --target vulkan --build-arg BASE={IMAGE} -t {name} -f ")
    assert wheels.make_image(MACHINES["linux-x86_64-vulkan"], IMAGE + "2", log) != name
    engine.write_text("#!/bin/sh\necho 'error: no such base'; exit 1\n")
    with pytest.raises(BuildError, match="no such base"):
        wheels.make_image(MACHINES["linux-x86_64-vulkan"], IMAGE, log)


def test_what_cannot_be_made_here_is_an_error_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    for name in ("macos-arm64", "windows-amd64"):
        with pytest.raises(BuildError, match=f"wheels for {name} can't be made on linux"):
            wheels.make(name, tmp_path, tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BuildError, match="cibuildwheel is not installed") as error:
        wheels.make("linux-x86_64", tmp_path, tmp_path)
    assert "3.11" in str(error.value.hint)
    assert not list(tmp_path.iterdir())


class TestCibuildwheel:
    """What cibuildwheel itself reads."""

    pytestmark = pytest.mark.skipif(find_spec("cibuildwheel") is None, reason="needs cibuildwheel, Python 3.11")

    @pytest.mark.parametrize("name", MACHINES)
    def test_knows_the_identifier_and_the_configuration(self, name: str, tmp_path: Path) -> None:
        (tmp_path / "pyproject.toml").touch()
        identifier = MACHINES[name].identifier
        command = [sys.executable, "-m", "cibuildwheel", str(tmp_path), "--only", identifier]
        command += ["--config-file", str(CONFIG), "--print-build-identifiers"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == [identifier]

    @pytest.mark.parametrize("name", LINUX)
    def test_pins_the_base(self, name: str) -> None:
        machine = MACHINES[name]
        pattern = rf"\S+/manylinux_2_28_{machine.architecture}@sha256:[0-9a-f]{{64}}"
        assert re.fullmatch(pattern, wheels.base_image(machine))

    def test_base_can_be_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CIBW_MANYLINUX_X86_64_IMAGE", IMAGE)
        assert wheels.base_image(MACHINES["linux-x86_64"]) == IMAGE
        assert wheels.base_image(MACHINES["macos-arm64"]) == ""

    def test_hands_the_recipe_into_the_container_and_repairs_as_we_do(
        self, world: World, own: list[str], tmp_path: Path, log: BuildLog
    ) -> None:
        machine = MACHINES["linux-x86_64"]
        project = wheels.write_project(machine, tmp_path / "project", IMAGE, log, world.source)
        options = _read("linux-x86_64", project.folder, project.environment)
        passed = set(options["environment"])
        assert {"CMAKE_ARGS", "CMAKE_BUILD_PARALLEL_LEVEL", "SKBUILD_WHEEL_EXCLUDE", "PIP_FIND_LINKS"} == passed
        assert options["environment"]["CMAKE_ARGS"] == project.environment["CMAKE_ARGS"]
        words = shlex.split(options["repair"].format(dest_dir="/out", wheel="/a.whl"))
        assert words[:3] == ["auditwheel", "repair", "--strip"]
        assert words[-3:] == ["-w", "/out", "/a.whl"]
        assert {f"--exclude={name}" for name in OF_THE_MACHINE} <= set(words)
        assert options["image"] == IMAGE
        assert options["test_requires"] == ["dflash-local==1.0+cpu"]
        assert "check_wheel.py" in options["test"]

    @pytest.mark.parametrize("name", ["macos-arm64", "windows-amd64"])
    def test_leaves_the_wheel_as_it_is_elsewhere(self, name: str, tmp_path: Path) -> None:
        (tmp_path / "tree").mkdir()
        options = _read(name, tmp_path, dict(os.environ))
        assert options["repair"] == ""
        assert "check_wheel.py" in options["test"]


def _read(name: str, folder: Path, environment: dict[str, str]) -> dict[str, Any]:
    """What cibuildwheel makes of the configuration and the environment for a machine."""
    code = """
import json, os, sys
from pathlib import Path
from cibuildwheel.options import CommandLineArguments, Options
config, platform, identifier = sys.argv[1:]
arguments = CommandLineArguments.defaults()
arguments.package_dir, arguments.config_file = Path("tree"), config
options = Options(platform, arguments, dict(os.environ)).build_options(identifier)
print(json.dumps({
    "environment": options.environment.as_dictionary({}),
    "repair": options.repair_command,
    "image": (options.manylinux_images or {}).get("x86_64"),
    "test_requires": options.test_requires,
    "test": options.test_command,
}))
"""
    command = [sys.executable, "-c", code, str(CONFIG), name.partition("-")[0], MACHINES[name].identifier]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))
