"""A machine with Windows: drives that are folders here, names in any case, variables, programs, and files in use."""

from __future__ import annotations

import ntpath
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from tests.release.powershell.faults import NetFault

PROCESS = 4711


class Variables:
    """Environment variables: names in any case, and none is empty."""

    def __init__(self, **values: str) -> None:
        self._values: dict[str, str] = {}
        for name, value in values.items():
            self[name] = value

    def __getitem__(self, name: str) -> str | None:
        return self._values.get(name.upper())

    def __setitem__(self, name: str, value: str) -> None:
        self._values[name.upper()] = value
        if not value:
            del self._values[name.upper()]

    def copy(self) -> dict[str, str]:
        return dict(self._values)


@dataclass
class Machine:
    folder: Path
    home: str = "C:\\Users\\a user"
    online: bool = True
    trusts_index: bool = True
    pip_user: bool = False  # pip.ini says so
    index: Path | None = None  # a folder of wheels that is the index of packages
    in_use: set[Path] = field(default_factory=set)
    read_only: set[Path] = field(default_factory=set)  # folders where nothing new may be made
    short_names: dict[str, str] = field(default_factory=dict)  # NAME~1 and what it is short for
    time: datetime = datetime(2026, 1, 1)
    started: list[list[str]] = field(default_factory=list)  # programs, each with its arguments

    def __post_init__(self) -> None:
        local = f"{self.home}\\AppData\\Local"
        self.variables = Variables(
            USERPROFILE=self.home, LOCALAPPDATA=local, TEMP=f"{local}\\Temp",
            PATH="C:\\Windows\\System32;C:\\tools", PATHEXT=".COM;.EXE;.BAT;.CMD",
        )  # fmt: skip
        for name in ("C:\\Windows\\System32", "C:\\tools", self.temporary):
            self.make_folder(name)

    @property
    def temporary(self) -> str:
        return self.variables["TEMP"] or "C:\\Windows\\Temp"

    def absolute(self, path: str) -> str:
        return ntpath.normpath(ntpath.join(self.home, path))

    def has_drive(self, path: str) -> bool:
        drive = re.match(r"([^\\/:]+):", path)
        return drive is None or (self.folder / drive[1].upper()).is_dir()

    def here(self, path: str) -> Path:
        """Where a path of Windows is: on the file that it names in whatever case, else where that would be."""
        drive, rest = ntpath.splitdrive(self.absolute(path))
        place = self.folder / drive.rstrip(":").upper()
        for part in filter(None, rest.split("\\")):
            name = self.short_names.get(part.upper(), part)
            if not (place / name).exists() and place.is_dir():
                same = (other.name for other in place.iterdir() if other.name.casefold() == name.casefold())
                name = next(same, name)
            place /= name
        return place

    def path_of(self, place: Path) -> str:
        """The other way round."""
        drive, *parts = place.relative_to(self.folder).parts
        return "\\".join([f"{drive}:", *parts])

    def lengthened(self, path: str) -> str:
        return "\\".join(self.short_names.get(part.upper(), part) for part in path.split("\\"))

    def make_folder(self, path: str) -> Path:
        place = self.here(path)
        missing = [parent for parent in (place, *place.parents) if not parent.exists()]
        if missing and missing[-1].parent in self.read_only:
            raise NetFault(f"Access to the path '{self.path_of(place)}' is denied.", "UnauthorizedAccessException")
        place.mkdir(parents=True, exist_ok=True)
        return place

    def used(self, place: Path) -> bool:
        return any(file == place or place in file.parents for file in self.in_use)

    def busy(self, place: Path) -> NetFault:
        path = self.path_of(place)
        return NetFault(
            f"The process cannot access the file '{path}' because it is being used by another process.", "IOException"
        )

    def delete(self, place: Path) -> Iterator[NetFault]:
        """All that may be deleted; for the rest, why not."""
        if place.is_dir():
            for child in sorted(place.iterdir(), key=lambda child: (child.is_file(), child.name)):
                yield from self.delete(child)
            if any(place.iterdir()):
                yield NetFault(f"Directory {self.path_of(place)} cannot be removed because it is not empty.")
            else:
                place.rmdir()
        elif place in self.in_use:
            yield self.busy(place)
        else:
            place.unlink()

    def copy(self, source: str, target: str) -> None:
        shutil.copyfile(self.here(source), self.here(target))

    def find(self, name: str) -> str | None:
        """The program of that name: a path, or on PATH, with or without its ending."""
        folders = [""] if re.search(r"[\\/]", name) else (self.variables["PATH"] or "").split(";")
        endings = (self.variables["PATHEXT"] or "").split(";")
        for folder in folders:
            for ending in ("", *endings):
                path = self.absolute(ntpath.join(folder, name + ending))
                if self.here(path).is_file() and ntpath.splitext(path)[1].upper() in endings:
                    return path
        return None
