"""Classes of .NET, with the members that are used and no others."""

from __future__ import annotations

import codecs
import ntpath
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.release.powershell.faults import NetFault, Thrown, unknown
from tests.release.powershell.parser import parse
from tests.release.powershell.syntax import Block
from tests.release.powershell.values import NOTHING, EnumValue, NetObject, Nothing, pattern_of, text_of
from tests.release.powershell.version import PowerShell
from tests.release.powershell.windows import Machine


class FileObject(NetObject):
    """FileInfo and DirectoryInfo."""

    def __init__(self, path: str, is_folder: bool) -> None:
        self.FullName = path
        self.Name = ntpath.basename(path)
        self._is_folder = is_folder

    def _text(self) -> str:
        raise unknown("the text of a file, in which 5.1 and 7 differ")


class Resolved(NetObject):
    def __init__(self, path: str) -> None:
        self.ProviderPath = path


class FileHash(NetObject):
    def __init__(self, digest: str) -> None:
        self.Hash = digest.upper()


class RegexMatch(NetObject):
    def __init__(self, found: re.Match[str] | None) -> None:
        self.Success = found is not None
        self.Value = found[0] if found else ""
        self.Groups = [RegexGroup(text) for text in (found[0], *found.groups())] if found else []


class RegexGroup(NetObject):
    def __init__(self, text: str | None) -> None:
        self.Value = text or ""


class Disposable(NetObject):
    def Dispose(self) -> Nothing:
        return NOTHING


class ZipArchive(Disposable):
    def __init__(self, place: Path) -> None:
        try:
            with zipfile.ZipFile(place) as archive:
                self.Entries = [ZipEntry(name, archive.read(name)) for name in archive.namelist()]
        except zipfile.BadZipFile:
            raise NetFault("End of Central Directory record could not be found.", "InvalidDataException") from None


class ZipEntry(NetObject):
    def __init__(self, name: str, content: bytes) -> None:
        self.FullName = name
        self._content = content

    def Open(self) -> Stream:
        return Stream(self._content)


class Stream(Disposable):
    def __init__(self, content: bytes) -> None:
        self._content = content


class StreamReader(Disposable):
    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def ReadToEnd(self) -> str:
        return self._stream._content.decode("utf-8-sig")


class Utf8(NetObject):
    def __init__(self, mark: bool = False) -> None:
        self._mark = mark


class PathClass(NetObject):
    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def GetTempPath(self) -> str:
        return self._machine.temporary + "\\"

    def IsPathRooted(self, path: str) -> bool:
        return re.match(r"[\\/]|[A-Za-z]:", path) is not None


class FileClass(NetObject):
    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def WriteAllText(self, path: str, text: str, encoding: Utf8) -> Nothing:
        mark = codecs.BOM_UTF8 if encoding._mark else b""
        self._machine.here(path).write_bytes(mark + text.encode())
        return NOTHING

    def Open(self, path: str, mode: str, access: str, share: str) -> Stream:
        if (mode, access, share) != ("Open", "ReadWrite", "None"):
            raise unknown(f"to open a file for {mode}, {access}, {share}")
        place = self._machine.here(path)
        if self._machine.used(place):
            raise self._machine.busy(place)
        return Stream(place.read_bytes())


class ZipFileClass(NetObject):
    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def OpenRead(self, path: str) -> ZipArchive:
        return ZipArchive(self._machine.here(path))


class EnvironmentClass(NetObject):
    def __init__(self, machine: Machine) -> None:
        self._stored = machine.variables
        self.OSVersion = OperatingSystem()

    def GetEnvironmentVariable(self, name: str, _kept: str) -> str | None:
        return self._stored[name]

    def SetEnvironmentVariable(self, name: str, value: str, _kept: str) -> Nothing:
        self._stored[name] = value
        return NOTHING


class OperatingSystem(NetObject):
    def __init__(self) -> None:
        self.Platform = EnumValue("Win32NT")


class ServicePoints(NetObject):
    def __init__(self, powershell: PowerShell) -> None:
        # Older Windows leave TLS 1.2 out, without which many servers refuse.
        self.SecurityProtocol = EnumValue("Ssl3, Tls", 0x30 | 0xC0) if powershell.lengthens else EnumValue("Default")


class Protocols(NetObject):
    Tls12 = EnumValue("Tls12", 0xC00)


class RegexClass(NetObject):
    def Match(self, text: str, pattern: str) -> RegexMatch:
        return RegexMatch(re.search(pattern_of(pattern), text))

    def Escape(self, text: str) -> str:
        return re.sub(r"[\\*+?|{\[()^$.#\s]", lambda sign: "\\" + sign[0], text)


class ScriptBlockClass(NetObject):
    def Create(self, text: str) -> Block:
        return parse(text)


class Classes:
    """The classes that a session can name: `[Name]::Member`, and `New-Object Name`."""

    def __init__(self, machine: Machine, powershell: PowerShell) -> None:
        self._statics: dict[str, NetObject] = {
            "io.path": PathClass(machine), "io.file": FileClass(machine),
            "io.compression.zipfile": ZipFileClass(machine), "environment": EnvironmentClass(machine),
            "net.servicepointmanager": ServicePoints(powershell),
            "net.securityprotocoltype": Protocols(), "regex": RegexClass(), "scriptblock": ScriptBlockClass(),
        }  # fmt: skip
        self._new: dict[str, Callable[..., NetObject]] = {"io.streamreader": StreamReader, "text.utf8encoding": Utf8}
        self._absent = set() if powershell.has_all_classes else {"io.compression.zipfile"}

    def add(self, assembly: str) -> None:
        if assembly != "System.IO.Compression.FileSystem":
            raise unknown(f"the assembly {assembly}")
        self._absent.discard("io.compression.zipfile")

    def static(self, name: str) -> NetObject:
        key = name.lower().removeprefix("system.")
        if key in self._absent:
            raise Thrown(f"Unable to find type [{name}].")
        if key not in self._statics:
            raise unknown(f"[{name}]")
        return self._statics[key]

    def new(self, name: str, arguments: list[Any]) -> NetObject:
        key = name.lower().removeprefix("system.")
        if key not in self._new:
            raise unknown(f"New-Object {name}")
        return self._new[key](*arguments)


class Provider(NetObject):
    """$ExecutionContext.SessionState.Path"""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def GetUnresolvedProviderPathFromPSPath(self, path: str) -> str:
        drive = re.match(r"([^\\/:]+):", path)
        if drive and drive[1].lower() in ("hkcu", "hklm"):
            return re.sub(r"^[^:]*:", "HKEY_CURRENT_USER", path)
        check_drive(self._machine, path)
        path = path.replace("/", "\\")
        if path == "~" or path.startswith("~\\"):
            return self._machine.home + path[1:]
        return path if drive else self._machine.absolute(path)


class SessionState(NetObject):
    def __init__(self, machine: Machine) -> None:
        self.Path = Provider(machine)


class Context(NetObject):
    """$ExecutionContext"""

    def __init__(self, machine: Machine) -> None:
        self.SessionState = SessionState(machine)


def check_drive(machine: Machine, path: str) -> None:
    if not machine.has_drive(path):
        name = path.partition(":")[0]
        raise NetFault(f"Cannot find drive. A drive with the name '{name}' does not exist.", "DriveNotFoundException")


def string_member(text: str, name: str, arguments: list[Any] | None) -> Any:
    """A property of a string, or what one of its methods returns."""
    texts = [text_of(argument) for argument in arguments or ()]
    match name.lower(), arguments is not None, len(texts):
        case "length", False, 0:
            return len(text)
        case "replace", True, 2:
            return text.replace(texts[0], texts[1])
        case "trimend", True, number if number:
            return text.rstrip("".join(texts))
        case "trimend", True, 0:
            return text.rstrip()
    raise unknown(f"a string's {name}")
