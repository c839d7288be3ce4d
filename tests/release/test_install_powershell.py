"""release/install.ps1, run by tests/release/powershell on a made-up Windows: what it chooses, installs, keeps and
refuses, in Windows PowerShell 5.1 and PowerShell 7. No real PowerShell takes part."""

from __future__ import annotations

import functools
import http.server
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from release import hashes
from release.installers import write_installers
from tests.release.powershell.programs import start, write_program
from tests.release.powershell.session import Ended, Session, run_file
from tests.release.powershell.version import POWERSHELL_7, WINDOWS_POWERSHELL, PowerShell
from tests.release.powershell.windows import Machine
from tests.release.stand_in_wheels import WINDOWS, Pair, write_pair, write_source

SCRIPT = Path(__file__).resolve().parents[2] / "release" / "install.ps1"
HOME = "C:\\Users\\a user\\AppData\\Local\\dflash-local"
PYTHON: dict[str, Any] = {"kind": "python", "version": (3, 12, 4), "bits": 64, "venv": True}


@dataclass
class User:
    """Somebody with Python on PATH, whose name has a blank, and the script in a folder."""

    machine: Machine
    powershell: PowerShell

    def run(self, arguments: str = "") -> Ended:
        """In a process of its own, as from a file."""
        return run_file(self.machine, self.powershell, "C:\\get it\\install.ps1", arguments)

    def says(self, arguments: str = "") -> str:
        """What it prints if it succeeds."""
        done = self.run(arguments)
        assert done.code == 0, done.said
        assert not list(self.folder(self.machine.temporary).iterdir()), "its folder for work"
        return done.said

    def refusal(self, arguments: str = "") -> str:
        """Its last two lines: a sentence with the fix. Nothing unfinished is left behind."""
        done = self.run(arguments)
        assert done.code == 1, done.said
        *_, sentence, fix = done.said.splitlines()
        assert sentence.startswith("error: "), done.said
        assert fix.startswith("  fix: "), done.said
        assert not list(self.folder(self.machine.temporary).iterdir()), "its folder for work"
        return f"{sentence}\n{fix}"

    def folder(self, path: str) -> Path:
        return self.machine.here(path)

    def wheels(self, path: str, version: str, **settings: str) -> Pair:
        return write_pair(self.machine.make_folder(path), version, tag=WINDOWS, **settings)

    def environments(self, home: str = HOME) -> list[Path]:
        return sorted(self.folder(home).glob("env-*"))

    def version(self, home: str = HOME) -> str:
        process = start(self.machine, f"{home}\\bin\\dflash-local.cmd", "--version")
        assert process.code == 0, process.lines
        return process.lines[0][1]


@pytest.fixture(params=[WINDOWS_POWERSHELL, POWERSHELL_7], ids=lambda powershell: powershell.name)
def user(request: pytest.FixtureRequest, tmp_path: Path) -> User:
    user = User(Machine(tmp_path / "machine"), request.param)
    write_program(user.machine, "C:\\tools\\python.exe", **PYTHON)
    shutil.copy(SCRIPT, user.machine.make_folder("C:\\get it"))
    return user


def test_installs_upgrades_and_uninstalls(user: User) -> None:
    """By pip; the second installation of the same is one, too."""
    for number, version in enumerate(("9.9.1", "9.9.1", "9.10.0")):
        wheels = f"C:\\wheels {version}"
        if not user.folder(wheels).is_dir():
            user.wheels(wheels, version)
        said = user.says(f"-Wheels '{wheels}' -Offline")
        assert f"into       {HOME}, by pip python\n" in said
        assert user.version() == f"dflash-local {version}+cpu"
        assert f"installed  dflash-local {version}+cpu, with CPU RPC\n" in said
        assert said.count("replaced an older installation") == (number > 0)
        assert len(user.environments()) == 1
    assert "removed" in user.says("-Uninstall")
    assert not user.folder(HOME).exists()
    assert "nothing that this script installed" in user.refusal("-Uninstall")


def test_what_does_not_start_leaves_the_older_one(user: User) -> None:
    user.wheels("C:\\wheels", "9.9.1")
    user.says("-Wheels C:\\wheels -Offline")
    before = user.environments()
    user.wheels("C:\\broken", "9.11.0", loads="")
    broken = "does not start on this machine (ImportError: libcublas.so.12: no such file)"
    assert broken in user.refusal("-Wheels C:\\broken -Offline")
    user.wheels("C:\\worse", "9.12.0", command="raise ValueError('no such error')")
    assert "does not start on this machine (ValueError: no such error)" in user.refusal("-Wheels C:\\worse -Offline")
    assert user.environments() == before
    assert user.version() == "dflash-local 9.9.1+cpu"


def test_warnings_of_programs_are_no_values(user: User) -> None:
    """5.1 makes exceptions of lines on stderr, if it may."""
    user.wheels("C:\\wheels", "9.9.1", command="import sys; print('a warning', file=sys.stderr)", warns="another one")
    said = user.says("-Wheels C:\\wheels -Offline")
    assert "installed  dflash-local 9.9.1+cpu, with CPU RPC\n" in said
    assert "warning" not in said


def test_by_uv(user: User) -> None:
    user.wheels("C:\\wheels", "9.9.1")
    assert "uv is not on PATH" in user.refusal("-Wheels C:\\wheels -Installer uv")
    write_program(user.machine, "C:\\tools\\uv.exe", "uv")
    assert ", by uv" in user.says("-Wheels C:\\wheels -Offline")
    assert user.version() == "dflash-local 9.9.1+cpu"
    commands = [command for command in user.machine.started if command[0].lower() == "c:\\tools\\uv.exe"]
    (folder,) = user.environments()
    path = user.machine.path_of(folder)
    assert commands[0][1:] == ["venv", "--quiet", "--python", ">=3.10", "--offline", path]
    assert commands[1][1:6] == ["pip", "install", "--compile-bytecode", "--python", f"{path}\\Scripts\\python.exe"]
    assert commands[1][6:10] == ["--quiet", "--no-index", "--find-links", "C:\\wheels"]
    # A Python that is asked for, as a folder whose path would escape a quote.
    user.machine.make_folder("C:\\my Python")
    refused = user.refusal("-Wheels C:\\wheels -Python 'C:\\my Python\\'")
    assert "uv failed (No interpreter found for C:\\my Python)" in refused
    assert ", by pip python" in user.says("-Wheels C:\\wheels -Installer pip")


def test_takes_the_newest(user: User) -> None:
    for version in ("9.9.1", "9.10.0", "9.9.30"):
        user.wheels("C:\\wheels", version)
    assert "wheel      dflash_local-9.10.0+cpu-" in user.says("-Wheels C:\\wheels -DryRun")
    said = user.says("-Wheels C:\\wheels -DryRun -Version 9.9.1")
    assert "wheel      dflash_local-9.9.1+cpu-" in said
    assert not user.folder(HOME).exists(), "a dry run wrote something"
    assert "no wheel of dflash-local 9.9.2 for cpu" in user.refusal("-Wheels C:\\wheels -Version 9.9.2")
    assert "for cuda on win_amd64" in user.refusal("-Wheels C:\\wheels -Backend cuda")


def test_variables_instead_of_arguments(user: User) -> None:
    user.wheels("D:\\wheels", "9.9.1")
    for name, value in {"WHEELS": "D:\\wheels", "PREFIX": "D:\\dflash", "BACKEND": "cpu", "VERSION": "9.9.1"}.items():
        user.machine.variables[f"DFLASH_{name}"] = value
    assert "into       D:\\dflash, by pip python\n" in user.says("-Offline")
    assert user.version("D:\\dflash") == "dflash-local 9.9.1+cpu"
    assert "removed D:\\dflash\n" in user.says("-Uninstall")


@pytest.mark.parametrize(
    "prefix", ["D:\\my place\\", "D:/my place//", "~\\my place", "my place", "C:\\Users\\AUSER~1\\x"]
)
def test_a_prefix_that_is_written_in_another_way(user: User, prefix: str) -> None:
    """What is new is not taken for what is old, and no path ends an argument's quotes."""
    user.machine.make_folder("D:\\")
    user.machine.short_names["AUSER~1"] = "a user"
    user.wheels("D:\\my wheels", "9.9.1")
    for _ in range(2):
        user.says(f"-Wheels 'D:\\my wheels\\' -Offline -Prefix '{prefix}'")
        (home,) = [file.parent for file in user.machine.folder.rglob("made-by-install.ps1")]
        assert user.version(user.machine.path_of(home)) == "dflash-local 9.9.1+cpu"
        assert len(user.environments(user.machine.path_of(home))) == 1
    assert "would remove" in user.says(f"-Uninstall -DryRun -Prefix '{prefix}'")
    assert (home / "made-by-install.ps1").is_file()
    user.says(f"-Uninstall -Prefix '{prefix}'")
    assert not home.exists()


@pytest.mark.parametrize("prefix", ["Q:\\dflash", "HKCU:\\dflash"])
def test_a_prefix_that_is_nowhere(user: User, prefix: str) -> None:
    user.wheels("C:\\wheels", "9.9.1")
    assert f"error: -Prefix '{prefix}' is no folder (" in user.refusal(f"-Wheels C:\\wheels -Prefix {prefix}")


def test_a_prefix_that_cannot_be_written(user: User) -> None:
    user.wheels("C:\\wheels", "9.9.1")
    user.machine.read_only.add(user.machine.make_folder("C:\\Windows"))
    refused = user.refusal("-Wheels C:\\wheels -Prefix C:\\Windows\\dflash")
    assert "C:\\Windows\\dflash cannot be written (Access to the path" in refused


def test_without_a_profile(user: User) -> None:
    user.machine.variables["LOCALAPPDATA"] = ""
    assert "error: -Prefix '' is no folder (" in user.refusal("-DryRun")


def test_files_in_use(user: User) -> None:
    """What runs stays whole, and is removed by the next installation."""
    user.wheels("C:\\wheels", "9.9.1")
    user.says("-Wheels C:\\wheels -Offline")
    (old,) = user.environments()
    everything = sorted(old.rglob("*"))
    running = old / "Scripts" / "dflash-local.exe"
    user.machine.in_use.add(running)
    refused = user.refusal("-Uninstall")
    assert f"{user.machine.path_of(running)} is still in use, so nothing was removed" in refused
    said = user.says("-Wheels C:\\wheels -Offline")
    assert f"note       {user.machine.path_of(running)} is still in use: the next installation removes it" in said
    assert "replaced" not in said
    assert sorted(old.rglob("*")) == everything
    assert len(user.environments()) == 2
    user.machine.in_use.clear()
    user.says("-Wheels C:\\wheels -Offline")
    assert len(user.environments()) == 1

    # Something else that is open: what is left can be removed later.
    log = user.folder(f"{HOME}\\server.log")
    log.touch()
    for file in (*user.folder(HOME).rglob("native.py"), log):
        user.machine.in_use = {file}
        refused = user.refusal("-Uninstall")
        assert f"not all of {HOME} was removed (Cannot remove item" in refused
        assert file.is_file()
    user.machine.in_use.clear()
    user.says("-Uninstall")
    assert not user.folder(HOME).exists()


def test_an_older_one_that_cannot_be_removed(user: User) -> None:
    user.wheels("C:\\wheels", "9.9.1")
    user.says("-Wheels C:\\wheels -Offline")
    (old,) = user.environments()
    user.machine.in_use.update(old.rglob("native.py"))
    assert f"note       {user.machine.path_of(old)} is still in use" in user.says("-Wheels C:\\wheels -Offline")
    assert user.version() == "dflash-local 9.9.1+cpu"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder of wheels with SHA256SUMS, the script that knows its address, and this address."""
    folder = tmp_path / "site"
    write_pair(folder, "9.9.1", tag=WINDOWS)
    hashes.write(folder)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    write_installers(url, folder)
    yield folder, url
    server.shutdown()
    server.server_close()


def test_from_an_address(user: User, site: tuple[Path, str]) -> None:
    """What has another hash is not installed."""
    folder, url = site
    assert f"from       {url}\n" in user.says(f"-Wheels {url}/")
    assert user.version() == "dflash-local 9.9.1+cpu"
    (native,) = folder.glob("llama_cpp_python-*")
    native.write_bytes(native.read_bytes() + b"x")
    assert f"error: {native.name} is damaged: SHA256SUMS has another hash" in user.refusal(f"-Wheels {url}")
    native.unlink()
    assert f"{native.name.replace('+', '%2B')} cannot be fetched (" in user.refusal(f"-Wheels {url}")
    (folder / "SHA256SUMS").unlink()
    assert f"error: {url}/SHA256SUMS cannot be fetched (" in user.refusal(f"-Wheels {url}")
    assert user.version() == "dflash-local 9.9.1+cpu"
    assert len(user.environments()) == 1


def test_piped_into_a_window(user: User, site: tuple[Path, str]) -> None:
    """A release's script needs no argument. The window stays open, and has no more variables or functions than before,
    but the code of how it ended."""
    folder, url = site
    session = Session(user.machine, user.powershell)
    session.type("$Version = 'mine'; $ErrorActionPreference = 'Continue'")
    session.type("$PSNativeCommandUseErrorActionPreference = $true")
    before = dict(session.variables)
    said = session.type(f"irm {url}/install.ps1 | iex")
    assert "installed  dflash-local 9.9.1+cpu, with CPU RPC\n" in said
    assert session.variables == {**before, "lastexitcode": 0}
    (folder / "SHA256SUMS").unlink()
    said = session.type(f"irm {url}/install.ps1 | iex")
    assert f"error: {url}/SHA256SUMS cannot be fetched (" in said
    assert session.variables == {**before, "lastexitcode": 1}
    assert session.functions == []
    assert not session.closed
    assert not session.interpreter.root.is_strict

    # With arguments, as docs/installing.md says.
    said = session.type(f"& ([scriptblock]::Create((irm {url}/install.ps1))) -Uninstall")
    assert said.startswith(f"removed {HOME}\n")
    assert session.variables == {**before, "lastexitcode": 0}
    said = session.type(f"& ([scriptblock]::Create((irm {url}/install.ps1))) -Uninstal")
    assert "parameter name 'Uninstal'" in said


def test_wheels_without_a_hash(user: User) -> None:
    pair = user.wheels("C:\\wheels", "9.9.1")
    folder = user.folder("C:\\wheels")
    hashes.write(folder)
    user.says("-Wheels C:\\wheels -Offline")
    sums = folder / "SHA256SUMS"
    whole = sums.read_text()
    sums.write_text("".join(line for line in whole.splitlines(True) if pair.native not in line))
    refused = user.refusal("-Wheels C:\\wheels -Offline")
    assert f"error: C:\\wheels/SHA256SUMS has no line for {pair.native}" in refused
    sums.write_text(whole.replace("  llama", " *llama").replace("\n", "\r\n"))
    user.says("-Wheels C:\\wheels -Offline")


def test_damaged_and_missing_wheels(user: User) -> None:
    pair = user.wheels("C:\\wheels", "9.9.1")
    own, native = (user.folder("C:\\wheels") / name for name in (pair.own, pair.native))
    whole = own.read_bytes()
    own.write_bytes(whole[: len(whole) // 2])
    assert f"error: {pair.own} is damaged (Exception calling" in user.refusal("-Wheels C:\\wheels -Offline")
    own.write_bytes(native.read_bytes())
    assert f"error: {pair.own} needs no llama-cpp-python" in user.refusal("-Wheels C:\\wheels -Offline")
    own.write_bytes(whole)
    native.unlink()
    assert "has no llama_cpp_python for win_amd64" in user.refusal("-Wheels C:\\wheels -Offline")
    assert not user.folder(f"{HOME}\\bin\\dflash-local.cmd").exists()
    assert not user.environments()


def test_without_network(user: User) -> None:
    user.machine.online = False
    user.wheels("C:\\wheels", "9.9.1", needs="absent-package")
    missing = "No matching distribution found for absent-package"
    for installer, said in (("pip", missing), ("uv", "Because absent-package was not found")):
        write_program(user.machine, "C:\\tools\\uv.exe", "uv")
        refused = user.refusal(f"-Wheels C:\\wheels -Installer {installer}")
        assert "error: no network: packages that dflash-local needs cannot be fetched\n" in refused
        # With -Offline nothing is asked for, and what is missing has a name.
        assert f"failed ({said}" in user.refusal(f"-Wheels C:\\wheels -Offline -Installer {installer}")
    assert "SHA256SUMS cannot be fetched" in user.refusal("-Wheels http://wheels.example")


def test_an_index_that_is_not_trusted(user: User) -> None:
    user.machine.trusts_index = False
    user.wheels("C:\\wheels", "9.9.1", needs="absent-package")
    for installer, variable in (("pip", "PIP_CERT"), ("uv", "SSL_CERT_FILE")):
        write_program(user.machine, "C:\\tools\\uv.exe", "uv")
        refused = user.refusal(f"-Wheels C:\\wheels -Installer {installer}")
        assert "error: the certificate of the index of packages is not trusted" in refused
        assert f"\n  fix: set {variable} to a PEM file" in refused


def test_a_pip_that_installs_for_the_user(user: User) -> None:
    user.machine.pip_user = True
    user.wheels("C:\\wheels", "9.9.1")
    user.says("-Wheels C:\\wheels -Offline")


def test_from_source(user: User, tmp_path: Path) -> None:
    user.machine.index = tmp_path / "index"
    write_source(user.machine.index, "9.9.1")
    assert "compiled here, which takes minutes" in user.says("-DryRun")
    assert not user.folder(HOME).exists()
    user.wheels("C:\\wheels", "9.8.0")
    write_program(user.machine, "C:\\tools\\uv.exe", "uv")
    said = user.says("-Wheels C:\\wheels -FromSource -Version 9.9.1")
    assert "from       the package index of uv\n" in said
    assert "compiling llama.cpp\nbuilt for auto\n" in said
    assert "installed  dflash-local 9.9.1, with CPU auto\n" in said
    assert any("--seed" in command for command in user.machine.started), "the build needs pip"
    said = user.run("-FromSource -Backend hip").said
    assert said.endswith("no such compiler\nerror: llama.cpp could not be compiled\n  fix: see above\n")
    session = Session(user.machine, user.powershell)
    session.type("$PSNativeCommandUseErrorActionPreference = $true")
    said = session.type("& 'C:\\get it\\install.ps1' -FromSource -Backend hip")
    assert said.endswith("no such compiler\nerror: llama.cpp could not be compiled\n  fix: see above\n")
    assert user.version() == "dflash-local 9.9.1"
    assert len(user.environments()) == 1
    assert "failed (No matching distribution found for dflash-local==9.9.2)" in user.refusal(
        "-FromSource -Version 9.9.2 -Installer pip"
    )


def test_pythons_that_do_not_serve(user: User) -> None:
    """Old ones, those of 32 bits, without venv, the store's alias, and what cannot be started."""
    user.wheels("C:\\wheels", "9.9.1")
    python = user.folder("C:\\tools\\python.exe")
    changes: list[dict[str, Any]] = [{"version": (3, 9, 18)}, {"bits": 32}, {"venv": False}, {"kind": "store"}]
    for change in changes:
        write_program(user.machine, "C:\\tools\\python.exe", **{**PYTHON, **change})
        assert "there is no Python 3.10 or newer (64 bits)" in user.refusal("-Wheels C:\\wheels -DryRun"), change
    python.write_text("")
    assert "there is no Python 3.10 or newer (64 bits)" in user.refusal("-Wheels C:\\wheels -DryRun")
    write_program(user.machine, "C:\\tools\\py.exe", **PYTHON)
    assert ", by pip py\n" in user.says("-Wheels C:\\wheels -DryRun")
    assert "there is no Python" in user.refusal("-Wheels C:\\wheels -DryRun -Python C:\\nowhere\\python.exe")
    write_program(user.machine, "C:\\my Python\\python.exe", **PYTHON)
    said = user.says("-Wheels C:\\wheels -Offline -Python 'C:\\my Python\\python.exe'")
    assert ", by pip C:\\my Python\\python.exe\n" in said
    python.unlink()
    user.folder("C:\\tools\\py.exe").unlink()
    assert "there is no Python" in user.refusal("-Wheels C:\\wheels -DryRun")


def test_a_python_that_warns_serves(user: User) -> None:
    user.wheels("C:\\wheels", "9.9.1")
    write_program(user.machine, "C:\\tools\\python.exe", **PYTHON, warns="a warning\n")
    assert "installed  dflash-local 9.9.1+cpu, with CPU RPC\n" in user.says("-Wheels C:\\wheels -Offline")


def test_the_first_python_that_serves_is_the_last_that_is_tried(user: User) -> None:
    user.wheels("C:\\wheels", "9.9.1")
    write_program(user.machine, "C:\\tools\\py.exe", **PYTHON)
    user.says("-Wheels C:\\wheels -DryRun")
    assert len(user.machine.started) == 1


def test_what_is_not_its_own_stays(user: User) -> None:
    user.wheels("C:\\wheels", "9.9.1")
    mine = user.machine.make_folder(f"{HOME}\\mine")
    assert "is there and not from this script" in user.refusal("-Wheels C:\\wheels")
    assert "nothing that this script installed" in user.refusal("-Uninstall")
    assert mine.is_dir()
    mine.rmdir()
    user.says("-Wheels C:\\wheels -Offline")


def test_path_note(user: User) -> None:
    """The line that it offers works, and then it has nothing to note."""
    user.wheels("C:\\wheels", "9.9.1")
    said = user.says("-Wheels C:\\wheels -Offline")
    assert f"note       {HOME}\\bin is not on PATH." in said
    (line,) = [line for line in said.splitlines() if line.startswith("  [Environment]")]
    session = Session(user.machine, user.powershell)
    assert session.type(line.strip()) == ""
    assert (user.machine.variables["Path"] or "").startswith(f"{HOME}\\bin;C:\\Windows")
    assert "is not on PATH" not in user.says("-Wheels C:\\wheels -Offline")
    assert session.type("dflash-local --version") == "dflash-local 9.9.1+cpu\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("-Wheels C:\\nowhere", "-Wheels 'C:\\nowhere' is no folder"),
        ("-Wheels 'C:\\get it\\install.ps1'", "-Wheels 'C:\\get it\\install.ps1' is no folder"),
        ("-Wheels Q:\\wheels", "-Wheels 'Q:\\wheels' is no folder"),
        ("-Wheels 'C:\\get it'", "C:\\get it has no wheel of dflash-local for cpu on win_amd64"),
        ("-Backend tpu", "-Backend 'tpu' is no backend"),
        ("-Version latest", "-Version 'latest' is no version"),
        ("-Installer conda", "-Installer 'conda' is no installer"),
        ("-Offline", "-Offline needs a folder"),
        ("-Offline -Wheels http://wheels.example", "-Offline needs a folder"),
        ("-Offline -FromSource -Wheels C:\\tools", "-Offline needs a folder"),
    ],
)
def test_arguments_that_are_wrong(user: User, arguments: str, sentence: str) -> None:
    assert f"error: {sentence}" in user.refusal(arguments)
    assert not user.folder(HOME).exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("-Prefx C:\\place", "A parameter cannot be found that matches parameter name 'Prefx'."),
        ("C:\\wheels", "A positional parameter cannot be found that accepts argument 'C:\\wheels'."),
        ("-Wheels", "Missing an argument for parameter 'Wheels'."),
    ],
)
def test_arguments_that_powershell_refuses(user: User, arguments: str, sentence: str) -> None:
    user.wheels("C:\\wheels", "9.9.1")
    user.machine.variables["DFLASH_WHEELS"] = "C:\\wheels"
    done = user.run(arguments)
    assert done.code == 1
    assert done.said.startswith(sentence)
    assert not user.machine.started
