"""The images, built and run by podman on a Debian 12 that mmdebstrap makes, since no registry may be in reach.

The Containerfile for CUDA is built on it too, from wheels for the CPU: all of its steps, nothing of NVIDIA's.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from dflash_local.baseline import free_port
from dflash_local.cache_dir import cache_dir
from release.dist import copy_checkout
from tests.build.wheelhouse import fill
from tests.extras import needs
from tests.toolchains import TOOLCHAINS

REPO = Path(__file__).resolve().parents[2]
MOST_BYTES = 400_000_000
PYTHON = "3.11"  # Debian 12's
# As the official slim image: no manuals, no translations.
SLIM = (
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/locale/*",
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
)
# podman asks for more than a root without CAP_SYS_RESOURCE may give.
LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096")
# Threads that wait without spinning: this machine may have other things to do.
RUN = ("run", *LIMITS)

MISSING = TOOLCHAINS["containers"].missing()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (sys.platform.startswith("linux") and platform.machine() == "x86_64" and os.getuid() == 0),
        reason="needs x86-64 Linux and root",
    ),
    pytest.mark.skipif(bool(MISSING), reason=f"no {', '.join(MISSING)}: {TOOLCHAINS['containers'].hint}"),
]


def podman(*arguments: str | Path, status: int = 0) -> str:
    """What a podman command prints on stdout, and on stderr if it is meant to fail."""
    command = ["podman", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == status, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout + (done.stderr if status else "")


@pytest.fixture(scope="module")
def base() -> Iterator[str]:
    """Debian 12 as the official slim image has it. Its archive is kept, since it takes a minute."""
    archive = cache_dir() / "containers" / "debian-12-slim.tar"
    if not archive.is_file():
        unfinished = archive.with_suffix(f".{os.getpid()}.tar")
        options = [f"--dpkgopt={option}" for option in SLIM]
        command = ["mmdebstrap", "--mode=root", "--variant=minbase", *options, "bookworm", str(unfinished)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
        unfinished.rename(archive)
    name = f"localhost/dflash-test-{os.getpid()}-base"
    podman("import", archive, name)
    yield name
    podman("rmi", "--force", name)


@pytest.fixture(scope="module")
def build(wheels: Path, base: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, str], str]]:
    """Builds a Containerfile with the given names of its bases. pip has the wheels' dependencies, no index."""
    folder = tmp_path_factory.mktemp("containers")
    folder.chmod(0o755)
    wheelhouse = fill(folder / "wheelhouse", wheels, python=PYTHON)
    settings = folder / "pip.conf"
    settings.write_text("[global]\nno-index = true\nfind-links = /wheelhouse\n")
    context = checkout(folder / "context", wheels)
    images = []

    def make(kind: str, *names: str) -> str:
        image = f"localhost/dflash-test-{os.getpid()}-{kind}"
        bases = [word for name in names for word in ("--build-arg", f"{name}={base}")]
        mounts = ("-v", f"{wheelhouse}:/wheelhouse:ro", "-v", f"{settings}:/etc/pip.conf:ro")
        started = time.monotonic()
        options = ("--format", "docker", "--layers=false", "--force-rm", "--network", "host", *LIMITS, *mounts, *bases)
        podman("build", *options, "-f", context / "containers" / kind / "Containerfile", "-t", image, context)
        images.append(image)
        print(f"{kind}: {size(image) / 1e6:.0f} MB, built in {time.monotonic() - started:.0f} s")
        return image

    yield make
    for image in images:
        podman("rmi", "--force", image)


def checkout(folder: Path, wheels: Path) -> Path:
    """What a fresh clone has, with ready wheels in dist/."""
    copy_checkout(REPO, folder)
    (folder / "dist").mkdir()
    for wheel in wheels.glob("*.whl"):
        shutil.copy(wheel, folder / "dist")
    return folder


def size(image: str) -> int:
    """In bytes."""
    return int(podman("image", "inspect", "--format", "{{.Size}}", image))


@pytest.fixture(scope="module")
def image(build: Callable[..., str]) -> str:
    """The image for the CPU."""
    return build("cpu", "BASE")


@contextmanager
def running(image: str, *arguments: str | Path) -> Iterator[str]:
    """A container's name, until the end of the block."""
    name = podman(*RUN, "--detach", *arguments[:-1], image, arguments[-1]).strip()
    try:
        yield name
    finally:
        podman("rm", "--force", "--volumes", "--time", "0", name)


def ask(url: str, body: object = None) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return dict(json.loads(answer.read()))


def wait_for(what: Callable[[], Any], seconds: float = 120) -> Any:
    """What it returns, as soon as that is true."""
    deadline = time.monotonic() + seconds
    while True:
        with_patience = time.monotonic() < deadline
        try:
            if found := what():
                return found
        except (urllib.error.URLError, ConnectionError):
            if not with_patience:
                raise
        assert with_patience, "not in time"
        time.sleep(0.3)


def test_is_small(image: str) -> None:
    assert size(image) < MOST_BYTES


def test_has_no_compiler_and_nothing_of_the_build(image: str) -> None:
    look = "command -v cc c++ gcc make pip pip3; ls /src /opt/dflash/lib/python3*/site-packages/pip; true"
    assert podman(*RUN, "--rm", "--entrypoint", "sh", image, "-c", look + " 2>/dev/null") == ""


def test_modules_are_compiled(image: str) -> None:
    """The image's user cannot do that."""
    look = "from importlib.util import find_spec; print(find_spec('dflash_local.cli').cached)"
    python = ("--entrypoint", "/opt/dflash/bin/python")
    compiled = podman(*RUN, "--rm", *python, image, "-c", look).strip()
    podman(*RUN, "--rm", "--entrypoint", "test", image, "-s", compiled)


def test_is_not_root(image: str) -> None:
    assert podman(*RUN, "--rm", "--entrypoint", "id", image, "-u").strip() == "10001"


def test_demo_answers(image: str) -> None:
    started = time.monotonic()
    said = podman(*RUN, "--rm", "--network", "none", image, "demo", "--once")
    print(f"demo --once: {time.monotonic() - started:.0f} s")
    assert "the same answer both ways" in said


def test_demo_names_the_cache_that_it_may_not_write(image: str, tmp_path: Path) -> None:
    """The folder with models may belong to somebody else."""
    said = podman(*RUN, "--rm", "-v", f"{tmp_path}:/models:ro", image, "demo", "--once", status=1)
    assert "error: cannot keep the demo's models in /models/.dflash/pocket: " in said
    assert "fix: set DFLASH_CACHE" in said
    assert "Traceback" not in said


def test_serves_what_lies_in_its_folder(image: str) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    arguments = (
        "--network",
        "host",
        "--env",
        f"LLAMA_ARG_PORT={port}",
        "-v",
        f"{REPO / 'dflash_local/demo'}:/models:ro",
    )
    with running(image, *arguments, "serve") as name:
        models = wait_for(lambda: ask(f"{url}/v1/models")["data"])
        (target,) = [model["id"] for model in models if model["id"].startswith("pocket-target")]
        question = {"role": "user", "content": "Write a Python function that finds the largest result."}
        answer = ask(f"{url}/v1/chat/completions", {"model": target, "messages": [question], "temperature": 0})
        podman("healthcheck", "run", name)
    assert "def largest_result" in answer["choices"][0]["message"]["content"]


@pytest.mark.parametrize("port", [None, 9123])
def test_health_check_tells_whether_it_serves(image: str, port: int | None) -> None:
    """Before, meanwhile and after: the container's own process only sleeps."""

    def healthy() -> bool:
        done = subprocess.run(["podman", "healthcheck", "run", name], capture_output=True, text=True, check=False)
        assert done.returncode in (0, 1), done.stderr
        return done.returncode == 0

    other = () if port is None else ("--env", f"LLAMA_ARG_PORT={port}")
    with running(image, "--network", "none", *other, "--entrypoint", "sleep", "600") as name:
        assert not healthy()
        podman("exec", "--detach", name, "sh", "-c", "echo $$ > /tmp/pid; exec dflash-local serve")
        wait_for(healthy)
        ask_inside = f"import urllib.request as u; u.urlopen('http://127.0.0.1:{port or 8080}/health')"
        podman("exec", name, "python3", "-c", ask_inside)
        podman("exec", name, "sh", "-c", "kill $(cat /tmp/pid)")
        wait_for(lambda: not healthy())


def test_steps_of_the_image_for_cuda(build: Callable[..., str]) -> None:
    image = build("cuda", "BUILD_BASE", "BASE")
    assert podman(*RUN, "--rm", "--entrypoint", "id", image, "-u").strip() == "10001"
    said = podman(*RUN, "--rm", "--network", "none", image, "demo", "--once", "--shape", "pocket")
    assert "the same answer both ways" in said


def test_image_for_vulkan(build: Callable[..., str]) -> None:
    """Wheels for the CPU, with Mesa's drivers beside them."""
    image = build("vulkan", "BASE")
    found = podman(*RUN, "--rm", "--entrypoint", "sh", image, "-c", "ls /usr/share/vulkan/icd.d; ldconfig -p")
    assert "radeon_icd.x86_64.json" in found
    assert "libvulkan.so.1 " in found
    said = podman(*RUN, "--rm", "--network", "none", image, "demo", "--once", "--shape", "pocket")
    assert "the same answer both ways" in said


def compose(**variables: str) -> subprocess.CompletedProcess[str]:
    needs("podman_compose")
    environment = {name: value for name, value in os.environ.items() if name != "OPEN_WEBUI_IMAGE"}
    command = ["podman-compose", "-f", "containers/compose.yaml", "config"]
    return subprocess.run(command, cwd=REPO, env=environment | variables, capture_output=True, text=True, check=False)


def test_podman_compose_reads_the_compose_file() -> None:
    done = compose(OPEN_WEBUI_IMAGE="localhost/webui:1", MODELS="/some/models")
    assert done.returncode == 0, done.stderr
    services = yaml.safe_load(done.stdout)["services"]
    dflash, webui = services["dflash"], services["webui"]
    build = dflash["build"]
    assert (REPO / "containers" / build["context"] / build["dockerfile"]).is_file()
    assert "/some/models:/models:Z" in str(dflash["volumes"])
    assert dflash["healthcheck"]["test"][-1] == "dflash-healthy"
    assert webui["image"] == "localhost/webui:1"
    assert webui["depends_on"]["dflash"]["condition"] == "service_healthy"
    assert webui["environment"]["OPENAI_API_BASE_URL"] == "http://dflash:8080/v1"


def test_compose_asks_for_the_image_of_open_webui() -> None:
    done = compose()
    assert done.returncode != 0
    assert "an image that the documentation of Open WebUI names" in done.stderr
