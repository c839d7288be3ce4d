"""`make wheels MACHINE=NAME`: both wheels for one kind of machine, by cibuildwheel.

cibuildwheel builds a Python project: here llama-cpp-python, patched as by `dflash-local build`, with our sources beside
it. One Python is enough, since the wheel works with all. cibuildwheel provides PyPA's image with an old C library on
Linux and an interpreter elsewhere, repairs the wheel, and tests it in a new environment together with dflash-local's
own.
"""

from __future__ import annotations

import argparse
import configparser
import hashlib
import importlib.resources
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath

from dflash_local.build.log import BuildLog
from dflash_local.build.own_wheel import make_own_wheel
from dflash_local.build.recipe import Recipe, make_image_recipe, make_recipe
from dflash_local.build.repair import REPAIR
from dflash_local.build.tree import prepare_tree
from dflash_local.build.wheel import compile_environment
from dflash_local.errors import BuildError

REPO = Path(__file__).resolve().parent.parent
CONFIG = REPO / "release" / "cibuildwheel.toml"
CHECK = REPO / "tests" / "build" / "probe_wheel.py"
IMAGE_FILES = ("Containerfile", "vulkan_tools.sh")
POLICY = "manylinux_2_28"  # Linux distributions since 2019
IN_CONTAINER = PurePosixPath("/project")  # where cibuildwheel copies a project to
PYTHON = "cp311"


@dataclass(frozen=True)
class Machine:
    """A kind of machine to make wheels for.

    `tag` is the platform in cibuildwheel's identifiers. `stage` is one of release/Containerfile, if the backend needs
    more than PyPA's image has.
    """

    tag: str
    backend: str = "cpu"
    stage: str = ""
    cuda_arch: str | None = None

    @property
    def identifier(self) -> str:
        return f"{PYTHON}-{self.tag}"

    @property
    def architecture(self) -> str:
        """The container's architecture; empty without a container."""
        return self.tag.removeprefix("manylinux_") if self.tag.startswith("manylinux_") else ""


MACHINES = {
    "linux-x86_64": Machine("manylinux_x86_64"),
    "linux-aarch64": Machine("manylinux_aarch64"),
    "macos-arm64": Machine("macosx_arm64", "metal"),
    "windows-amd64": Machine("win_amd64"),
    "linux-x86_64-cuda12": Machine("manylinux_x86_64", "cuda", "cuda12", "75;80;86;89;90"),
    "linux-x86_64-vulkan": Machine("manylinux_x86_64", "vulkan", "vulkan"),
}


@dataclass(frozen=True)
class Project:
    """The input of cibuildwheel: a folder and an environment with the other settings. `version` is the package's."""

    folder: Path
    version: str
    environment: dict[str, str]


def main() -> int:
    """Make the wheels of one machine. Returns cibuildwheel's exit status."""
    parser = argparse.ArgumentParser(prog="python -m release.wheels", description=__doc__)
    parser.add_argument("--machine", choices=MACHINES, required=True, help="what they are for")
    parser.add_argument("--out", type=Path, default=REPO / "dist", metavar="DIR", help="default: dist")
    args = parser.parse_args()
    try:
        return make(args.machine, args.out.absolute())
    except BuildError as error:
        sys.exit(f"error: {error}")


def make(name: str, out: Path, folder: Path = REPO / "build" / "wheels") -> int:
    """Make the wheels of machine `name` in `out`, with work and log in `folder`. Returns cibuildwheel's exit status.

    Raises BuildError.
    """
    machine = MACHINES[name]
    _check_system(name, machine)
    with BuildLog(folder / f"{name}.log") as log:
        image = base = base_image(machine)
        if machine.stage:
            image = make_image(machine, base, log)
        project = write_project(machine, folder / name, image, log)
        command = [sys.executable, "-m", "cibuildwheel", "tree", "--only", machine.identifier]
        command += ["--config-file", str(CONFIG), "--output-dir", str(out)]
        log.say(f"cibuildwheel --only {machine.identifier}")
        status = subprocess.run(command, cwd=project.folder, env=project.environment, check=False).returncode
        if status != 0:
            return status
        made = out.glob(f"llama_cpp_python-{project.version}-*.whl")
        native = max(made, key=lambda file: file.stat().st_mtime)
        for file in (native, make_own_wheel(REPO, native, machine.backend, out, log)):
            log.say(f"  {file.name}  {file.stat().st_size / 1e6:.1f} MB")
    return status


def _check_system(name: str, machine: Machine) -> None:
    """Called before minutes of compiling. Linux wheels can be made wherever containers run."""
    system = {"macosx": "darwin", "win": "win32"}.get(machine.tag.partition("_")[0])
    if system not in (None, sys.platform):
        raise BuildError(f"wheels for {name} can't be made on {sys.platform}", hint="run this there")
    if importlib.util.find_spec("cibuildwheel") is None:
        raise BuildError("cibuildwheel is not installed here", hint="run `make wheels` with Python 3.11 or newer")


def base_image(machine: Machine) -> str:
    """PyPA's image that this cibuildwheel pins, or the one that its variable names; empty without a container."""
    if not machine.architecture:
        return ""
    if given := os.environ.get(_image_variable(machine)):
        return given
    pinned = configparser.ConfigParser(inline_comment_prefixes=("#",))
    file = importlib.resources.files("cibuildwheel") / "resources" / "pinned_docker_images.cfg"
    pinned.read_string(file.read_text(encoding="utf-8"))
    return pinned[machine.architecture][POLICY]


def make_image(machine: Machine, base: str, log: BuildLog) -> str:
    """Build the machine's stage of release/Containerfile on the image `base`. Returns its name. Raises BuildError."""
    files = [REPO / "release" / name for name in IMAGE_FILES]
    content = hashlib.sha256(base.encode() + b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
    name = f"dflash-wheels-{machine.stage}:{content}"
    engine = os.environ.get("CIBW_CONTAINER_ENGINE", "docker").partition(";")[0].strip()
    command = [engine, "build", "--target", machine.stage, "--build-arg", f"BASE={base}", "-t", name]
    log.say(f"image {name}")
    status, lines = log.run([*command, "-f", str(files[0]), str(REPO / "release")])
    if status != 0:
        raise BuildError(f"{engine} could not build {name} (log: {log.path})\n{log.excerpt(lines)}")
    return name


def write_project(machine: Machine, folder: Path, image: str, log: BuildLog, source: Path = REPO) -> Project:
    """Write cibuildwheel's input into `folder`: tree/, ggml_ops/, own/ with dflash-local's wheel, and the program of
    the test step. `image` is the container's, if any; `source` the checkout. Raises BuildError."""
    recipe = _recipe(machine, image, source)
    version = prepare_tree(recipe, source, folder, log, force=False)
    shutil.copyfile(CHECK, folder / "check_wheel.py")
    shutil.rmtree(folder / "own", ignore_errors=True)
    # The final name has the platform, which is known only after the repair.
    native = Path(f"llama_cpp_python-{version}-py3-none-any.whl")
    own = make_own_wheel(source, native, machine.backend, folder / "own", log)
    inside: PurePath = IN_CONTAINER if image else folder.absolute()
    environment = compile_environment(recipe, inside / "ggml_ops") | {
        "CIBW_REPAIR_WHEEL_COMMAND_LINUX": shlex.join(["auditwheel", *REPAIR, "{dest_dir}", "{wheel}"]),
        "CIBW_TEST_REQUIRES": f"dflash-local=={own.name.split('-')[1]}",
        "PIP_FIND_LINKS": str(inside / "own"),
    }
    if image:
        environment[_image_variable(machine)] = image
    return Project(folder, version, os.environ | environment)


def _recipe(machine: Machine, image: str, source: Path) -> Recipe:
    if image:
        return make_image_recipe(source, machine.backend, image, machine.cuda_arch)
    return make_recipe(source, machine.backend, any_machine=True)


def _image_variable(machine: Machine) -> str:
    return f"CIBW_MANYLINUX_{machine.architecture.upper()}_IMAGE"


if __name__ == "__main__":
    sys.exit(main())
