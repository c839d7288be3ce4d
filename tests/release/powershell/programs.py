"""Programs of the machine: stand-ins for Python with pip and venv, uv, what they install, and cmd's scripts.

Each is a file whose text says what it is. What they print is in the words of the real ones.
"""

from __future__ import annotations

import json
import ntpath
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.release.powershell.command_line import split
from tests.release.powershell.faults import NetFault, unknown
from tests.release.powershell.windows import Machine

_HEAD = "MZ stand-in "


@dataclass
class Process:
    """A program that ran: its lines, each with the number of its stream, and its exit code."""

    machine: Machine
    path: str
    arguments: list[str]
    settings: dict[str, Any]
    lines: list[tuple[int, str]] = field(default_factory=list)
    code: int = 0

    def out(self, text: str) -> None:
        self.lines += [(1, line) for line in text.splitlines()]

    def fail(self, text: str, code: int = 1) -> None:
        self.lines += [(2, line) for line in text.splitlines()]
        self.code = code


def write_program(machine: Machine, path: str, kind: str, **settings: Any) -> Path:
    """Put one there: "python" (with `version`, `bits`, `venv`, and what it `warns` of), "uv", "store", or "command"
    (with `entry`)."""
    place = machine.make_folder(ntpath.dirname(path)) / ntpath.basename(path)
    place.write_text(_HEAD + json.dumps({"kind": kind, **settings}))
    return place


def start(machine: Machine, path: str, line: str) -> Process:
    """Run it to its end. Raises NetFault if Windows cannot start it."""
    place = machine.here(path)
    arguments = split(line)
    machine.started.append([path, *arguments])
    if path.lower().endswith((".cmd", ".bat")):
        return _script(machine, path, line)
    text = place.read_text(errors="replace")
    if not text.startswith(_HEAD):
        raise NetFault("The file cannot be accessed by the system", "Win32Exception")
    settings = json.loads(text.removeprefix(_HEAD))
    process = Process(machine, path, arguments, settings)
    _KINDS[settings["kind"]](process)
    return process


def _script(machine: Machine, path: str, line: str) -> Process:
    """cmd, which runs the one command of our launcher. It takes bytes for those of its code page."""
    text = machine.here(path).read_bytes().decode("cp437")
    found = re.fullmatch(r"@\"([^\"]*)\" %\*\r\n", text)
    if not found:
        return Process(machine, path, [], {}, [(2, f"{text.strip()!r} is not recognized as a command")], 1)
    program = found[1].replace("%~dp0", ntpath.dirname(path) + "\\")
    if not machine.here(program).is_file():
        return Process(machine, path, [], {}, [(2, "The system cannot find the path specified.")], 1)
    return start(machine, machine.absolute(program), line)


def _python(process: Process) -> None:
    arguments = [argument for argument in process.arguments if argument != "-I"]
    if arguments[0] == "-c":
        _code(process, arguments[1])
    elif arguments[:2] == ["-m", "venv"]:
        _environment(process.machine, arguments[2], process.settings)
    elif arguments[:2] == ["-m", "pip"]:
        _pip(process, arguments[2:])
    else:
        raise unknown(f"python with {process.arguments}")


def _code(process: Process, code: str) -> None:
    """By this Python, which says to be another one."""
    settings = process.settings
    packages = _packages(process.machine, process.path)
    before = [f"import sys; sys.path.insert(0, {str(packages)!r}); sys.maxsize = 2 ** {settings['bits']} // 2 - 1"]
    before += [f"sys.version_info = {tuple(settings['version'])}"]
    before += ["import ensurepip"] if settings["venv"] else ["sys.modules['ensurepip'] = None"]
    command = [sys.executable, "-I", "-S", "-c", f"{'; '.join(before)}; exec({code!r})"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    process.fail(settings.get("warns", "") + done.stderr, done.returncode)
    process.out(done.stdout)


def _packages(machine: Machine, program: str) -> Path:
    return machine.here(ntpath.join(ntpath.dirname(program), "..", "Lib", "site-packages"))


def _environment(machine: Machine, folder: str, settings: dict[str, Any]) -> None:
    write_program(machine, ntpath.join(folder, "Scripts", "python.exe"), **settings)
    machine.make_folder(ntpath.join(folder, "Lib", "site-packages"))


def _pip(process: Process, arguments: list[str]) -> None:
    options = {"--disable-pip-version-check", "--no-input", "--quiet", "--no-user"}
    words = [word for word in arguments if word not in options]
    if process.machine.pip_user and "--no-user" not in arguments:
        process.fail(
            "ERROR: Can not perform a '--user' install. User site-packages are not visible in this virtualenv."
        )
        return
    installation = Installation(process.machine, process.path, *_sources(words))
    for fault in installation.run():
        if fault == "network":
            process.fail(
                "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(': Failed to "
                f"establish a new connection: [Errno 11001] getaddrinfo failed')': /simple/{installation.wanted}/"
            )
        elif fault == "certificate":
            process.fail(
                "WARNING: Retrying (Retry(total=0)) after connection broken by 'SSLError(SSLCertVerificationError(1, "
                "'[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: unable to get local issuer certificate "
                f"(_ssl.c:1000)'))': /simple/{installation.wanted}/"
            )
            process.fail(f"ERROR: No matching distribution found for {installation.wanted}")
        elif fault == "missing":
            process.fail(f"ERROR: No matching distribution found for {installation.wanted}")
        else:
            process.fail(f"ERROR: {fault}")


def _sources(words: list[str]) -> tuple[list[str], list[str], bool]:
    """Of `install`: what, the folders to find it in, and whether an index may be asked."""
    if words[0] != "install":
        raise unknown(f"pip with {words}")
    what, folders, index = [], [], True
    rest = iter(words[1:])
    for word in rest:
        if word == "--find-links":
            folders.append(next(rest))
        elif word == "--no-index":
            index = False
        elif word.startswith("-"):
            raise unknown(f"pip install with {word}")
        else:
            what.append(word)
    return what, folders, index


def _uv(process: Process) -> None:
    words = [word for word in process.arguments if word != "--quiet"]
    if words[0] == "venv":
        _uv_environment(process, words[1:])
    elif words[:4] == ["pip", "install", "--compile-bytecode", "--python"]:
        installation = Installation(process.machine, words[4], *_sources(["install", *words[5:]]))
        for fault in installation.run():
            if fault == "network":
                process.fail("error: Failed to fetch\n  Caused by: dns error: No such host is known.", 2)
            elif fault == "certificate":
                process.fail(
                    "error: Failed to fetch\n  Caused by: error sending request for url (https://index.example)\n"
                    "  Caused by: client error (Connect)\n  Caused by: invalid peer certificate: UnknownIssuer",
                    2,
                )
            elif fault == "missing":
                process.fail(f"error: Because {installation.wanted} was not found, it cannot be used.")
            else:
                process.fail(f"error: {fault}", 2)
    else:
        raise unknown(f"uv with {process.arguments}")


def _uv_environment(process: Process, words: list[str]) -> None:
    words = [word for word in words if word not in ("--seed", "--offline")]
    if words[0] != "--python" or len(words) != 3:
        raise unknown(f"uv venv with {words}")
    asked = words[1]
    if asked != ">=3.10" and not process.machine.here(asked).is_file():
        process.fail(f"error: No interpreter found for {asked}", 2)
        return
    _environment(process.machine, words[2], {"kind": "python", "version": (3, 12, 4), "bits": 64, "venv": True})


@dataclass
class Installation:
    """Of packages, into the environment of the Python `program`. After a fault, `wanted` says for which one."""

    machine: Machine
    program: str
    what: list[str]
    folders: list[str]
    index: bool
    wanted: str = ""

    def run(self) -> Iterator[str]:
        """Yields what is wrong, at most once."""
        waiting = list(self.what)
        while waiting:
            self.wanted = waiting.pop(0)
            wheel = self._find(self.wanted)
            if wheel is None:
                yield self._unfound()
                return
            if not wheel.is_file():
                yield f"Could not find {self.wanted}"
                return
            if not wheel.name.endswith(("-win_amd64.whl", "-any.whl")):
                yield f"{wheel.name} is not a supported wheel on this platform."
                return
            try:
                waiting += self._unpack(wheel)
            except zipfile.BadZipFile:
                yield f"Wheel {wheel.name} is invalid."
                return

    def _unfound(self) -> str:
        """Why a package is not there."""
        if not self.index:
            return "missing"
        if not self.machine.online:
            return "network"
        return "missing" if self.machine.trusts_index else "certificate"

    def _find(self, wanted: str) -> Path | None:
        if wanted.endswith(".whl"):
            return self.machine.here(wanted)
        name, _, version = wanted.partition("==")
        places = [self.machine.here(word) for word in (*self.what, *self.folders)]
        places += [self.machine.index] if self.index and self.machine.online and self.machine.index else []
        wheels = [wheel for place in places for wheel in ([place] if place.is_file() else place.glob("*.whl"))]
        start_of_name = f"{name.replace('-', '_')}-{version}"
        return next((wheel for wheel in wheels if wheel.name.startswith(start_of_name)), None)

    def _unpack(self, wheel: Path) -> list[str]:
        """Returns what it requires."""
        packages = _packages(self.machine, self.program)
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(packages)
            info = {
                Path(name).name: archive.read(name).decode() for name in archive.namelist() if ".dist-info/" in name
            }
        for name, entry in re.findall(r"^([\w-]+) = (\S+)$", info.get("entry_points.txt", ""), re.MULTILINE):
            program = ntpath.join(ntpath.dirname(self.program), f"{name}.exe")
            write_program(self.machine, program, "command", entry=entry)
        return re.findall(r"^Requires-Dist: (\S+)$", info["METADATA"], re.MULTILINE)


def _command(process: Process) -> None:
    module, _, function = process.settings["entry"].partition(":")
    packages = _packages(process.machine, process.path)
    code = f"import sys; sys.path.insert(0, {str(packages)!r}); from {module} import {function}; sys.exit({function}())"
    command = [sys.executable, "-I", "-S", "-c", code, *process.arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    process.fail(done.stderr, done.returncode)
    process.out(done.stdout)


def _store(process: Process) -> None:
    process.fail("Python was not found; run without arguments to install from the Microsoft Store.", 9009)


_KINDS: dict[str, Callable[[Process], None]] = {"python": _python, "uv": _uv, "command": _command, "store": _store}
