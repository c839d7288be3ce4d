"""The cmdlets that are used, each with the parameters that are used."""

from __future__ import annotations

import functools
import hashlib
import http.client
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.release.powershell.dotnet import FileHash, FileObject, Resolved, check_drive
from tests.release.powershell.faults import NetFault, Thrown, unknown
from tests.release.powershell.parser import parse
from tests.release.powershell.scope import Scope
from tests.release.powershell.values import less, text_of, truth, wildcard

if TYPE_CHECKING:
    from tests.release.powershell.interpreter import Interpreter


@dataclass
class Call:
    """One use of a cmdlet: its arguments by their names in lower case, and what the pipeline brings."""

    interpreter: Interpreter
    scope: Scope
    arguments: dict[str, Any]
    stream: Iterator[Any] | None

    def text(self, name: str) -> str:
        return text_of(self.arguments[name])

    def has(self, name: str) -> bool:
        return bool(self.arguments.get(name, False))

    @property
    def input(self) -> Iterator[Any]:
        if self.stream is None:
            raise unknown("a cmdlet without the input that it waits for")
        return self.stream

    def file(self, name: str = "literalpath") -> Path:
        path = self.text(name)
        if not path:
            raise Thrown(f"Cannot bind argument to parameter '{name}' because it is an empty string.")
        try:
            check_drive(self.interpreter.machine, path)
        except NetFault as fault:
            raise Thrown(fault.message, fault.kind) from None
        return self.interpreter.machine.here(path)

    def existing(self, name: str = "literalpath") -> Path | None:
        """Of a file that isn't there, that is the cmdlet's error."""
        place = self.file(name)
        if place.exists():
            return place
        self.fail(f"Cannot find path '{self.text(name)}' because it does not exist.", "ItemNotFoundException")
        return None

    def fail(self, message: str, kind: str = "IOException") -> None:
        """An error that ends the script if -ErrorAction or $ErrorActionPreference says so."""
        action = self.arguments.get("erroraction")
        self.interpreter.report(message, kind, self.scope, text_of(action) if action else None)


@dataclass(frozen=True)
class Cmdlet:
    name: str
    run: Callable[[Call], Iterable[Any]]
    positions: tuple[str, ...]
    switches: tuple[str, ...]
    values: tuple[str, ...]
    takes_input: bool


CMDLETS: dict[str, Cmdlet] = {}
ALIASES = {"irm": "invoke-restmethod", "iex": "invoke-expression"}
Run = Callable[[Call], Iterable[Any]]
Declaration = Callable[[Run], Run]


def cmdlet(
    name: str, positions: str = "", switches: str = "", values: str = "", takes_input: bool = False
) -> Declaration:
    """Declare one. The last of `positions` takes all that are left if it ends with three dots."""

    def declare(run: Run) -> Run:
        options = (*values.split(), "ErrorAction")
        places = tuple(positions.split())
        CMDLETS[name.lower()] = Cmdlet(name, run, places, tuple(switches.split()), options, takes_input)
        return run

    return declare


@cmdlet("Set-StrictMode", values="Version")
def set_strict_mode(call: Call) -> Iterable[Any]:
    if call.arguments["version"] != 2.0:
        raise unknown("another version of the strict mode")
    call.scope.strict = True
    return ()


@cmdlet("Write-Host", "Object...", values="ForegroundColor")
def write_host(call: Call) -> Iterable[Any]:
    words = call.arguments.get("object", [])
    call.interpreter.console.append(" ".join(map(text_of, words)))
    return ()


@cmdlet("Get-Command", "Name", values="CommandType")
def get_command(call: Call) -> Iterable[Any]:
    if call.arguments.get("commandtype") != "Application":
        raise unknown("Get-Command for others than applications")
    if not call.text("name"):
        raise Thrown("Cannot validate argument on parameter 'Name'. The argument is null or empty.")
    found = call.interpreter.machine.find(call.text("name"))
    if found:
        return [FileObject(found, False)]
    call.fail(f"The term '{call.text('name')}' is not recognized.", "CommandNotFoundException")
    return ()


@cmdlet("ForEach-Object", "Process", takes_input=True)
def for_each_object(call: Call) -> Iterable[Any]:
    for item in call.input:
        yield from call.interpreter.in_place(call.arguments["process"], call.scope, item)


@cmdlet("Where-Object", "FilterScript", takes_input=True)
def where_object(call: Call) -> Iterable[Any]:
    for item in call.input:
        found = list(call.interpreter.in_place(call.arguments["filterscript"], call.scope, item))
        if truth(found):
            yield item


@cmdlet("Select-Object", values="First Last", takes_input=True)
def select_object(call: Call) -> Iterable[Any]:
    """-First ends what writes into the pipeline."""
    if "last" in call.arguments:
        yield from list(call.input)[-call.arguments["last"] :]
        return
    for number, item in enumerate(call.input, 1):
        yield item
        if number == call.arguments["first"]:
            return


@cmdlet("Sort-Object", "Property", takes_input=True)
def sort_object(call: Call) -> Iterable[Any]:
    def key(item: Any) -> Any:
        found = list(call.interpreter.in_place(call.arguments["property"], call.scope, item))
        return found[0] if len(found) == 1 else found

    def compare(one: Any, other: Any) -> int:
        return -1 if less(key(one), key(other)) else int(less(key(other), key(one)))

    return sorted(call.input, key=functools.cmp_to_key(compare))


@cmdlet("Join-Path", "Path ChildPath")
def join_path(call: Call) -> Iterable[Any]:
    if not call.text("path"):
        raise Thrown("Cannot bind argument to parameter 'Path' because it is null or empty.")
    call.file("path")
    return [call.text("path").replace("/", "\\").rstrip("\\") + "\\" + call.text("childpath").lstrip("\\")]


@cmdlet("Split-Path", "Path", switches="Leaf")
def split_path(call: Call) -> Iterable[Any]:
    if not call.has("leaf"):
        raise unknown("Split-Path without -Leaf")
    return [re.split(r"[\\/]", call.text("path").rstrip("\\/"))[-1]]


@cmdlet("Test-Path", values="LiteralPath PathType")
def test_path(call: Call) -> Iterable[Any]:
    if not call.text("literalpath"):
        raise Thrown("Cannot bind argument to parameter 'LiteralPath' because it is an empty string.")
    if not call.interpreter.machine.has_drive(call.text("literalpath")):
        return [False]
    place = call.file()
    kind = call.arguments.get("pathtype")
    if kind not in (None, "Container", "Leaf"):
        raise unknown(f"-PathType {kind}")
    return [place.is_dir() if kind == "Container" else place.is_file() if kind else place.exists()]


@cmdlet("Resolve-Path", values="LiteralPath")
def resolve_path(call: Call) -> Iterable[Any]:
    if not call.existing():
        return ()
    path = call.text("literalpath").replace("/", "\\")
    end = "\\" if path.endswith("\\") else ""  # it stays
    return [Resolved(call.interpreter.machine.absolute(path).rstrip("\\") + end)]


@cmdlet("Get-ChildItem", values="LiteralPath Filter", switches="Directory Force Recurse")
def get_child_item(call: Call) -> Iterable[Any]:
    folder = call.existing()
    if not folder:
        return
    machine = call.interpreter.machine
    path = call.text("literalpath").rstrip("\\")
    path = machine.lengthened(path) if call.interpreter.powershell.lengthens else path
    pattern = call.arguments.get("filter", "*")
    found = folder.rglob("*") if call.has("recurse") else folder.iterdir()
    for place in sorted(found) if folder.is_dir() else [folder]:
        if wildcard(pattern, place.name) and (place.is_dir() or not call.has("directory")):
            below = str(place.relative_to(folder)).replace("/", "\\")
            yield FileObject(machine.absolute(f"{path}\\{below}"), place.is_dir())


@cmdlet("New-Item", values="ItemType Path", switches="Force")
def new_item(call: Call) -> Iterable[Any]:
    if call.arguments["itemtype"] != "Directory" or not call.has("force"):
        raise unknown("New-Item for others than folders, or without -Force")
    if call.file("path").is_file():
        call.fail(f"An item with the specified name {call.text('path')} already exists.")
        return ()
    try:
        call.interpreter.machine.make_folder(call.text("path"))
    except NetFault as fault:
        call.fail(fault.message, fault.kind)
        return ()
    return [FileObject(call.text("path"), True)]


@cmdlet("Set-Content", values="LiteralPath Value")
def set_content(call: Call) -> Iterable[Any]:
    call.file().write_text(call.text("value") + "\r\n", newline="")
    return ()


@cmdlet("Get-Content", values="LiteralPath")
def get_content(call: Call) -> Iterable[Any]:
    place = call.existing()
    return place.read_text(encoding="utf-8-sig").splitlines() if place else ()


@cmdlet("Copy-Item", values="LiteralPath Destination")
def copy_item(call: Call) -> Iterable[Any]:
    if call.existing():
        call.interpreter.machine.copy(call.text("literalpath"), call.text("destination"))
    return ()


@cmdlet("Remove-Item", values="LiteralPath", switches="Recurse Force")
def remove_item(call: Call) -> Iterable[Any]:
    place = call.existing()
    if place and place.is_dir() and not call.has("recurse"):
        raise unknown("Remove-Item of a folder without -Recurse")
    if place:
        for fault in call.interpreter.machine.delete(place):
            call.fail(f"Cannot remove item {call.text('literalpath')}: {fault.message}", fault.kind)
    return ()


@cmdlet("Get-FileHash", values="LiteralPath Algorithm")
def get_file_hash(call: Call) -> Iterable[Any]:
    if call.arguments["algorithm"] != "SHA256":
        raise unknown("another algorithm of Get-FileHash")
    place = call.existing()
    return [FileHash(hashlib.sha256(place.read_bytes()).hexdigest())] if place else ()


@cmdlet("Get-Date", values="Format")
def get_date(call: Call) -> Iterable[Any]:
    """Each call is in a second of its own, as installations are."""
    if call.arguments["format"] != "yyyyMMddHHmmss":
        raise unknown("another format of a date")
    machine = call.interpreter.machine
    machine.time += timedelta(seconds=1)
    return [f"{machine.time:%Y%m%d%H%M%S}"]


@cmdlet("Add-Type", values="AssemblyName")
def add_type(call: Call) -> Iterable[Any]:
    call.interpreter.classes.add(call.text("assemblyname"))
    return ()


@cmdlet("New-Object", "TypeName ArgumentList...")
def new_object(call: Call) -> Iterable[Any]:
    return [call.interpreter.classes.new(call.text("typename"), call.arguments.get("argumentlist", []))]


def download(call: Call, url: str) -> bytes:
    refusal = "Unable to connect to the remote server"
    if call.interpreter.machine.online:
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as error:
            if call.interpreter.powershell.escapes:
                refusal = f"Response status code does not indicate success: {error.code} ({error.reason})."
            else:
                refusal = f"The remote server returned an error: ({error.code}) {error.reason}."
        except (OSError, http.client.HTTPException):
            pass
    raise Thrown(refusal, "WebException")


@cmdlet("Invoke-WebRequest", values="Uri OutFile", switches="UseBasicParsing")
def invoke_web_request(call: Call) -> Iterable[Any]:
    if not call.interpreter.powershell.has_all_classes:
        # As servers do to an old Windows: without TLS 1.2, and without the engine of Internet Explorer.
        points = call.interpreter.classes.static("Net.ServicePointManager")
        if not vars(points)["SecurityProtocol"]._bits & 0xC00:
            raise Thrown("The underlying connection was closed.", "WebException")
        if not call.has("usebasicparsing"):
            raise Thrown("The response content cannot be parsed because the Internet Explorer engine is not available.")
    content = download(call, call.text("uri"))
    call.file("outfile").write_bytes(content)
    return ()


@cmdlet("Invoke-RestMethod", "Uri")
def invoke_rest_method(call: Call) -> Iterable[Any]:
    return [download(call, call.text("uri")).decode()]


@cmdlet("Invoke-Expression", takes_input=True)
def invoke_expression(call: Call) -> Iterable[Any]:
    """Runs in the scope of its caller. What parameters set there is put back afterwards."""
    for text in call.input:
        yield from call.interpreter.dotted(parse(text_of(text)), call.scope)
