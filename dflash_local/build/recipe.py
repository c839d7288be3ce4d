"""The inputs of a native build: backend, compilers, flags, machine, and our own sources."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import asdict, dataclass
from pathlib import Path

from dflash_local.build.vulkan import check_toolkit
from dflash_local.errors import BuildError

# RDMA would tie the wheel to a library of the machine that built it.
RPC_FLAGS = ("-DGGML_RPC=ON", "-DGGML_RPC_RDMA=OFF")
# OpenMP's threads spin; ours sleep (patches/0030).
THREAD_FLAGS = ("-DGGML_OPENMP=OFF",)
CMAKE_FLAGS = ("-DLLAMA_OPENSSL=OFF", "-DLLAMA_SUBPROCESS=OFF", *THREAD_FLAGS, *RPC_FLAGS)
# A CPU backend for each instruction set, chosen at run time, for other machines than this one.
ANY_MACHINE_FLAGS = ("-DGGML_NATIVE=OFF", "-DGGML_BACKEND_DL=ON", "-DGGML_CPU_ALL_VARIANTS=ON")
CUDA_ARCH = re.compile(r"native|all|all-major|\d+[af]?(-real|-virtual)?([;,]\d+[af]?(-real|-virtual)?)*")
ENVIRONMENT = (
    "CFLAGS", "CXXFLAGS", "LDFLAGS", "CUDAFLAGS", "CUDAHOSTCXX", "HIPFLAGS", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS",
)  # fmt: skip
# With it ggml would leave out this processor's instructions.
UNWANTED = "SOURCE_DATE_EPOCH"


@dataclass(frozen=True)
class Backend:
    """A ggml backend: the compiler it needs and the CMake flags that turn it on."""

    name: str
    flags: tuple[str, ...] = ()
    compiler: str | None = None
    install: str = ""


BACKENDS = {
    backend.name: backend
    for backend in (
        Backend("cpu"),
        Backend("cuda", ("-DGGML_CUDA=ON",), "nvcc", "install the CUDA toolkit, or set CUDACXX to its nvcc"),
        Backend("metal", ("-DGGML_METAL=ON", "-DGGML_METAL_EMBED_LIBRARY=ON")),
        Backend("hip", ("-DGGML_HIP=ON",), "hipcc", "install ROCm's HIP SDK and put hipcc on PATH"),
        Backend(
            "vulkan", ("-DGGML_VULKAN=ON",), "glslc", "install the Vulkan SDK (glslc, headers, SPIRV-Headers, loader)"
        ),
    )
}
# A toolkit alone does not justify a build of an hour: without one of these device files, nothing here could run it.
DEVICE_FILES = {"cuda": ("nvidia[0-9]*", "dxg"), "hip": ("kfd",), "vulkan": ("dri/renderD*",)}
DEVICES = Path("/dev")
# What names the GPUs for which code is compiled here if no flag does.
GPU_NAMES = {
    "cuda": ("nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"),
    "hip": ("rocm_agent_enumerator",),
}
GPUS = "GPUs: "  # begins their entry among the compilers
NAMED_GPUS = re.compile(r"-D(CMAKE_CUDA_ARCHITECTURES|CMAKE_HIP_ARCHITECTURES|GPU_TARGETS|AMDGPU_TARGETS)=(?!native)")
MSVC = "msvc"  # CMake finds it through the registry, not on PATH


def detect_backend() -> tuple[str, str]:
    """The backend that `auto` means on this machine, and why."""
    if sys.platform == "darwin":
        return "metal", "this is macOS"
    missing = []
    for name in DEVICE_FILES:
        compiler = BACKENDS[name].compiler
        if not _find_compiler(name):
            missing.append(f"no {compiler}")
        elif not _has_device(name):
            missing.append(f"{compiler} but no {name} device")
        else:
            return name, f"{compiler} and a device were found"
    return "cpu", ", ".join(missing)


def _has_device(backend: str) -> bool:
    # Windows has no device files; there the toolkit decides.
    return sys.platform == "win32" or any(file for pattern in DEVICE_FILES[backend] for file in DEVICES.glob(pattern))


def _find_compiler(backend: str) -> str | None:
    """Path of the backend's own compiler; nvcc is also found at its installer's place, which is rarely on PATH."""
    name = BACKENDS[backend].compiler
    if name is None:
        return None
    if backend == "cuda":
        places = [os.environ.get("CUDACXX"), name, f"{os.environ.get('CUDA_HOME', '/usr/local/cuda')}/bin/nvcc"]
        return next((found for place in places if place and (found := shutil.which(place))), None)
    return shutil.which(name)


@dataclass(frozen=True)
class Recipe:
    """All inputs of the wheel."""

    upstream: str
    patches: str
    native: str
    backend: str
    flags: tuple[str, ...]
    compilers: tuple[str, ...]
    platform: str
    machine: str

    @property
    def key(self) -> str:
        return _digest(asdict(self))

    @property
    def work_name(self) -> str:
        """The work folder. Builds for this machine and for any machine often alternate, so each has its own."""
        return self.backend if self.machine else f"{self.backend}-any"

    @property
    def tree_key(self) -> str:
        """Changes when the work tree cannot be built incrementally: a hash of all inputs but our own sources."""
        return _digest(asdict(self) | {"native": ""})


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def make_recipe(
    source: Path,
    backend: str,
    cuda_arch: str | None = None,
    cmake_flags: tuple[str, ...] = (),
    *,
    any_machine: bool = False,
) -> Recipe:
    """The recipe for a named backend (not `auto`), for this processor or, with `any_machine`, for all.

    Raises BuildError for a compiler or headers that are missing or too old, or arguments that don't go together.
    """
    host = {language: _host_compiler(language, backend) for language in ("C", "CXX")}
    compilers = [_identify(compiler) for compiler in host.values()]
    flags = [*CMAKE_FLAGS, *BACKENDS[backend].flags, *(ANY_MACHINE_FLAGS if any_machine else ())]
    if sys.platform == "win32":  # elsewhere CMake finds the same ones itself
        named = {language: Path(path).as_posix() for language, path in host.items() if path != MSVC}
        flags += [f"-DCMAKE_{language}_COMPILER={path}" for language, path in named.items()]
    given = [*_words("CMAKE_ARGS"), *cmake_flags]
    if BACKENDS[backend].compiler:
        compiler = _find_compiler(backend)
        if compiler is None:
            what = f"--backend {backend} needs {BACKENDS[backend].compiler}, which is not on PATH"
            raise BuildError(what, hint=BACKENDS[backend].install)
        compilers.append(_identify(compiler))
        if backend == "cuda":
            flags.append(f"-DCMAKE_CUDA_COMPILER={Path(compiler).as_posix()}")
        if backend == "vulkan":
            compilers.append(check_toolkit(compiler, given))
    if cuda_arch is not None:
        if backend != "cuda":
            raise BuildError(
                f"--cuda-arch does not go with backend {backend}", hint="add --backend cuda or drop --cuda-arch"
            )
        if not CUDA_ARCH.fullmatch(cuda_arch):
            what = f"--cuda-arch '{cuda_arch}' is not a list of architectures"
            raise BuildError(what, hint="use numbers like 86;89 (RTX 30xx and 40xx), or native")
        flags.append(f"-DCMAKE_CUDA_ARCHITECTURES={cuda_arch.replace(',', ';')}")
    elif backend == "cuda" and not _has_device("cuda") and not any("CUDA_ARCHITECTURES" in flag for flag in given):
        raise BuildError(
            "no NVIDIA GPU is visible here to take the architecture from", hint="name it, for example --cuda-arch 86;89"
        )
    flags += given
    if not any(map(NAMED_GPUS.match, flags)) and (gpus := _own_gpus(backend)):
        compilers.append(f"{GPUS}{gpus}")
    flags += [f"{name}={os.environ[name]}" for name in ENVIRONMENT if os.environ.get(name)]
    return _describe(source, backend, flags, compilers, machine="" if any_machine else _machine())


def _words(variable: str) -> list[str]:
    """The words of an environment variable, as a shell would read them. Raises BuildError if it could not."""
    try:
        return shlex.split(os.environ.get(variable, ""))
    except ValueError as error:
        raise BuildError(f"${variable} cannot be read: {error}", hint="close its quotes") from None


def _own_gpus(backend: str) -> str:
    """The kinds of this machine's GPUs; "" if their tools are missing or fail."""
    command = GPU_NAMES.get(backend)
    if command is None or shutil.which(command[0]) is None:
        return ""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return " ".join(sorted(set(done.stdout.split()))) if done.returncode == 0 else ""


def make_image_recipe(source: Path, backend: str, image: str, cuda_arch: str | None = None) -> Recipe:
    """The recipe for any processor of this architecture, with the compilers of a container image.

    `image` must be unique to the image's contents. Of the environment, only $CMAKE_ARGS reaches the compiler.
    """
    flags = [*CMAKE_FLAGS, *BACKENDS[backend].flags, *ANY_MACHINE_FLAGS]
    if cuda_arch is not None:
        flags.append(f"-DCMAKE_CUDA_ARCHITECTURES={cuda_arch}")
    flags += _words("CMAKE_ARGS")
    return _describe(source, backend, flags, [f"image {image}"], machine="")


def _describe(source: Path, backend: str, flags: list[str], compilers: list[str], machine: str) -> Recipe:
    return Recipe(
        **source_hashes(source),
        backend=backend,
        flags=tuple(flags),
        compilers=tuple(compilers),
        platform=sysconfig.get_platform(),
        machine=machine,
    )


def source_hashes(source: Path) -> dict[str, str]:
    """What a recipe has of the sources: `upstream`, `patches` and `native`."""
    patches = source / "patches"
    return {
        "upstream": (patches / "UPSTREAM").read_text(encoding="utf-8"),
        "patches": _hash_files(patches, sorted(patches.glob("*.patch"))),
        "native": _hash_files(source / "ggml_ops", native_files(source / "ggml_ops")),
    }


def _host_compiler(language: str, backend: str) -> str:
    variable, names = {"C": ("CC", ("cc", "gcc", "clang")), "CXX": ("CXX", ("c++", "g++", "clang++"))}[language]
    if sys.platform == "win32":
        return _windows_compiler(os.environ.get(variable), names[1:], backend)
    # The compiler may have a launcher before it (ccache) and options behind it (-m64).
    override = [*itertools.takewhile(lambda word: not word.startswith("-"), _words(variable))][-1:]
    if found := next((path for name in (override or names) if (path := shutil.which(name))), None):
        return found
    tried = f"{variable}={override[0]}" if override else ", ".join(names)
    raise BuildError(
        f"no {'C' if variable == 'CC' else 'C++'} compiler found (tried {tried})",
        hint="install one ('apt-get install g++', 'dnf install gcc-c++', 'xcode-select --install'), or set CC and CXX",
    )


def _windows_compiler(given: str | None, names: tuple[str, ...], backend: str) -> str:
    """gcc or clang, which can compile our kernels, if on PATH; nvcc and hipcc need Microsoft's compiler."""
    if given:
        if found := shutil.which(given):
            return found
        raise BuildError(f"no compiler {given}", hint="correct CC and CXX, or unset them")
    if backend in ("cuda", "hip"):
        return MSVC
    return next((found for name in names if (found := shutil.which(name))), MSVC)


def _identify(compiler: str) -> str:
    try:
        process = subprocess.run(
            [compiler, "--version"], capture_output=True, text=True, errors="replace", timeout=30, check=False
        )
    except OSError as error:
        if compiler == MSVC:
            return compiler
        raise BuildError(f"{compiler} does not run: {error.strerror}", hint="repair or replace the compiler") from None
    # nvcc's version is not on the first line.
    return f"{compiler}: {' '.join((process.stdout or process.stderr).split())[:300]}"


def _machine() -> str:
    """The processor, since ggml is compiled for the features of the build machine."""
    try:
        info = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n\n")[0]
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    return "\n".join(line for line in info.splitlines() if line.startswith(("model name", "flags", "Features")))


def native_files(ggml_ops: Path) -> list[Path]:
    """Our sources, without tests and editors' backup files."""
    files = [
        file for file in ggml_ops.rglob("*") if file.relative_to(ggml_ops).parts[0] not in ("tests", "__pycache__")
    ]
    return sorted(
        file for file in files if file.is_file() and not file.name.startswith(".") and not file.name.endswith("~")
    )


def _hash_files(root: Path, files: list[Path]) -> str:
    return _digest(
        [(file.relative_to(root).as_posix(), hashlib.sha256(file.read_bytes()).hexdigest()) for file in files]
    )
