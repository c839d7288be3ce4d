"""The wheels that `dflash-local wheel --portable` makes, as somebody else gets them: on an older Linux, without a
compiler, without network, on processors with fewer instructions.

conftest.py compiles them, with a variant for each kind of processor that is tested, or takes ready ones.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dflash_local.machine.hardware import cpu_flags
from tests.build import wheelhouse
from tests.build.wheelhouse import clean_environment, output, without_network

from .conftest import VARIANTS

REPO = Path(__file__).resolve().parents[2]
MOST_BYTES = 40_000_000
OLDEST = (2, 28)
# An emulated processor -> the variant that it gets.
PROCESSORS = {"Nehalem": ("x64", "sse42"), "Haswell": ("haswell",)}
# All variants, and the flags in /proc/cpuinfo that tell a processor for them from lesser ones.
NEEDS = {
    "x64": "", "sse42": "sse4_2", "sandybridge": "avx", "ivybridge": "avx f16c", "piledriver": "f16c fma",
    "haswell": "fma avx2", "alderlake": "avx2 avx_vnni", "skylakex": "avx512bw", "cannonlake": "avx512bw avx512vbmi",
    "cascadelake": "avx512bw avx512_vnni", "cooperlake": "avx512_vnni avx512_bf16",
    "icelake": "avx512vbmi avx512_vnni", "zen4": "avx512vbmi avx512_vnni avx512_bf16",
    "sapphirerapids": "avx512vbmi avx512_vnni avx512_bf16 amx_tile amx_int8",
}  # fmt: skip
DEBIAN_11 = """
import ctypes, json
from llama_cpp import Llama
import llama_cpp
model = Llama("/pocket.gguf", n_ctx=256, n_threads=1, verbose=False)
text = model.create_completion("def area(width, height):", max_tokens=8, temperature=0)["choices"][0]["text"]
dflash = ctypes.CDLL(llama_cpp.__path__[0] + "/lib/libdflash.so")
info = ctypes.c_char_p()
dflash.dflash_library_info(ctypes.byref(info))
print(json.dumps({"text": text, "info": json.loads(info.value)}))
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (sys.platform.startswith("linux") and platform.machine() == "x86_64"), reason="wheels for x86-64 Linux"
    ),
]


@dataclass(frozen=True)
class Installed:
    """An environment in which pip has installed them."""

    python: Path

    def run(
        self, *arguments: str | Path, before: tuple[str, ...] = (), timeout: float = 600, **environment: str
    ) -> str:
        """What `python ARGUMENTS` prints; `before` is put before the command."""
        command = [*before, str(self.python), *map(str, arguments)]
        return output(command, clean_environment() | environment, self.python.parent, timeout)

    def probe(self, *before: str, **environment: str) -> dict[str, Any]:
        """What probe_wheel.py finds."""
        probe = REPO / "tests" / "build" / "probe_wheel.py"
        return dict(json.loads(self.run(probe, before=before, timeout=600, **environment).splitlines()[-1]))


@pytest.fixture(scope="module")
def installed(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    home = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    python = home / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "dflash-local", "--find-links", str(wheels)]
    output(pip, clean_environment())
    return Installed(python)


def _native_wheel(wheels: Path) -> Path:
    (wheel,) = wheels.glob("llama_cpp_python-*.whl")
    return wheel


@pytest.fixture(scope="module")
def variants(wheels: Path) -> set[str]:
    """Of the CPU backend, in the wheel."""
    with zipfile.ZipFile(_native_wheel(wheels)) as archive:
        return set(re.findall(r"libggml-cpu-(\w+)\.so", "\n".join(archive.namelist())))


def test_runs_on_linux_since_2019(wheels: Path) -> None:
    tags = re.findall(r"manylinux_(\d+)_(\d+)_x86_64", _native_wheel(wheels).name)
    assert tags, _native_wheel(wheels).name
    assert min((int(major), int(minor)) for major, minor in tags) <= OLDEST


def test_is_small_and_holds_each_library_once(wheels: Path, variants: set[str]) -> None:
    assert _native_wheel(wheels).stat().st_size < MOST_BYTES
    with zipfile.ZipFile(_native_wheel(wheels)) as archive:
        names = [Path(name).name for name in archive.namelist() if ".so" in name]
        assert len({name.partition(".so")[0] for name in names}) == len(names), names
        assert not [name for name in archive.namelist() if name.split("/")[0] in ("bin", "lib", "include")]
    assert variants in (set(VARIANTS), set(NEEDS))


def test_demo_answers_without_network(installed: Installed, tmp_path: Path) -> None:
    """From an empty cache; sixty seconds are for a machine that does nothing else."""
    offline = without_network()
    command = ["-m", "dflash_local.cli", "demo", "--once"]
    before = os.times()
    started = time.monotonic()
    said = installed.run(*command, before=offline, DFLASH_CACHE=str(tmp_path))
    spent = os.times()
    processor = spent.children_user + spent.children_system - before.children_user - before.children_system
    print(f"{time.monotonic() - started:.0f} s, {processor:.0f} s of a processor's time")
    assert "the same answer both ways" in said
    assert processor < 120


def test_best_variant_serves_here(installed: Installed) -> None:
    found = installed.probe()
    flags = cpu_flags()
    if os.environ.get("DFLASH_TEST_WHEELS") is None:
        wanted = "skylakex" if "avx512bw" in flags else "haswell" if "avx2" in flags else "x64"
        assert found["variant"] == wanted
    assert found["plain"] == found["drafted"]
    said = installed.run("-m", "dflash_local.cli", "doctor")
    assert re.search(rf"cpu variant +{found['variant']}, of .*haswell", said), said


@pytest.mark.parametrize("variant", NEEDS)
def test_variant_by_name(installed: Installed, variants: set[str], variant: str) -> None:
    if variant not in variants:
        pytest.skip("not in wheels that tests compile")
    if missing := set(NEEDS[variant].split()) - cpu_flags():
        pytest.skip(f"this processor has no {', '.join(sorted(missing))}")
    found = installed.probe(DFLASH_CPU_VARIANT=variant)
    assert found["variant"] == variant
    assert found["plain"] == found["drafted"]
    assert found["accepted"] > 0


def test_unknown_variant_is_an_error(installed: Installed) -> None:
    code = "from dflash_local import native; native.library_info()"
    with pytest.raises(AssertionError, match="DFLASH_CPU_VARIANT is 'i386', which is no variant of this build"):
        installed.run("-c", code, DFLASH_CPU_VARIANT="i386")


@pytest.mark.parametrize("processor", PROCESSORS)
def test_older_processors(installed: Installed, processor: str) -> None:
    """Nehalem has no AVX at all, Haswell no AVX-512. Where there is AVX2, drafted text is plain text to the bit."""
    emulator = shutil.which("qemu-x86_64-static") or shutil.which("qemu-x86_64")
    if emulator is None:
        pytest.skip("no emulator: apt-get install qemu-user-static")
    found = installed.probe(emulator, "-cpu", processor)
    assert found["variant"] in PROCESSORS[processor]
    assert found["drafted"]
    assert found["accepted"] > 0
    assert found["exact"] == (processor == "Haswell")
    if found["exact"]:
        assert found["plain"] == found["drafted"]


@pytest.fixture(scope="module", params=["bullseye", "bookworm"])
def debian(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A Debian without a compiler, in a folder: 11 has glibc 2.31 and Python 3.9, 12 has 2.36 and Python 3.11."""
    if os.getuid() != 0 or shutil.which("debootstrap") is None:
        pytest.skip("needs root and debootstrap: apt-get install debootstrap")
    root = tmp_path_factory.mktemp(request.param) / "root"
    command = ["debootstrap", "--variant=minbase", "--include=python3,python3-venv", request.param, str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return request.param, root


def _in_chroot(root: Path, *command: str) -> str:
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8"}
    return output(["unshare", "--net", "chroot", str(root), *command], environment, timeout=600)


def test_in_debian(wheels: Path, debian: tuple[str, Path]) -> None:
    """What pip would fetch is fetched here, and installed there without network."""
    release, root = debian
    python, asked = {"bullseye": ("3.9", _native_wheel(wheels).name), "bookworm": ("3.11", "dflash-local")}[release]
    wheelhouse.fill(root / "packages", wheels, asked, python=python)
    assert shutil.which("cc", path=str(root / "usr" / "bin")) is None
    _in_chroot(root, "python3", "-m", "venv", "/venv")
    started = time.monotonic()
    name = f"/packages/{asked}" if asked.endswith(".whl") else asked
    _in_chroot(root, "/venv/bin/python", "-m", "pip", "install", "-q", "--no-index", "--find-links", "/packages", name)
    if release == "bookworm":
        said = _in_chroot(root, "/venv/bin/dflash-local", "demo", "--once")
        print(f"from pip install to the demo's answer: {time.monotonic() - started:.0f} s")
        assert "the same answer both ways" in said
        return
    # dflash-local asks for a newer Python than 3.9; its native part does not.
    shutil.copy(REPO / "dflash_local" / "demo" / "pocket-target.gguf", root / "pocket.gguf")
    found = json.loads(_in_chroot(root, "/venv/bin/python", "-c", DEBIAN_11).splitlines()[-1])
    assert found["text"]
    assert found["info"]["cpu_variant"]
    assert "CPU" in found["info"]["backends"]
