"""Programs that keep models on this disk: the folders of each, on every system, and the files in them.

Sources: `fs_get_cache_directory` of llama.cpp's common/common.cpp, from before it adopted the Hub's layout; LM Studio's
page on importing models (lmstudio.ai/docs/basics/import-model) and its ~/.lmstudio-home-pointer; Jan's
src-tauri/src/core/app/commands.rs; GPT4All's settings (docs.gpt4all.io) and gpt4all-chat/src/modellist.cpp;
modules/paths.py of text-generation-webui; envconfig/config.go of Ollama.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from dflash_local.home_dir import home_dir

SETTINGS_BYTES = 1 << 20  # most that is read of a settings file; real ones have a few kilobytes

# Where a system keeps files of its users: a variable ("": none), and the usual place below the home folder.
_LINUX = {
    "cache": ("XDG_CACHE_HOME", ".cache"),
    "config": ("XDG_CONFIG_HOME", ".config"),
    "data": ("XDG_DATA_HOME", ".local/share"),
    "local": ("XDG_DATA_HOME", ".local/share"),
}
_MACOS = {
    "cache": ("", "Library/Caches"),
    "config": ("", "Library/Application Support"),
    "data": ("", "Library/Application Support"),
    "local": ("", "Library/Application Support"),
}
_WINDOWS = {
    "cache": ("LOCALAPPDATA", "AppData/Local"),
    "config": ("APPDATA", "AppData/Roaming"),
    "data": ("APPDATA", "AppData/Roaming"),
    "local": ("LOCALAPPDATA", "AppData/Local"),
}


@dataclass(frozen=True)
class System:
    """An operating system (as in `sys.platform`), a home folder, and variables."""

    platform: str
    home: Path
    env: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def here(cls) -> System:
        """This one. Raises DFlashError for a user without a home."""
        return cls(sys.platform, home_dir(), os.environ)

    def path(self, text: str) -> Path:
        """A path of the table below: {home}, {cache}, {config}, {data} and {local} are the folders above."""
        table = {"darwin": _MACOS, "win32": _WINDOWS}.get(self.platform, _LINUX)
        folders = {name: self.env.get(variable) or str(self.home / usual) for name, (variable, usual) in table.items()}
        return Path(text.format(home=self.home, **folders))


@dataclass(frozen=True)
class Setting:
    """A file of settings that may name a folder: as the value of `key` in JSON or in an INI file, or (no key) as the
    first line. The models are `below` it."""

    file: str
    key: str = ""
    below: str = ""

    def folder(self, system: System) -> Path | None:
        """None if it names none. Never fails."""
        with suppress(OSError, ValueError, AttributeError, RecursionError):
            path = system.path(self.file)
            with path.open(encoding="utf-8") as file:
                text = file.read(SETTINGS_BYTES)
            if value := self._value(path.suffix, text):
                return _expanded(value) / self.below
        return None

    def _value(self, suffix: str, text: str) -> str:
        if suffix == ".json":
            value = json.loads(text).get(self.key)
            return value if isinstance(value, str) else ""
        wanted = f"{self.key}=" if self.key else ""
        found = (line.strip() for line in text.splitlines())
        return next((line.removeprefix(wanted) for line in found if line and line.startswith(wanted)), "")


@dataclass(frozen=True)
class Program:
    """A program with models.

    Attributes:
        title: as people call it.
        word: what its models' names begin with, before a colon; "": nothing.
        folders: where it keeps models; each may be a pattern.
        patterns: its models below such a folder.
        variables: environment variables that name such a folder.
        settings: files that name another.
    """

    title: str
    word: str
    folders: tuple[str, ...]
    patterns: tuple[str, ...] = ("*.gguf",)
    variables: tuple[str, ...] = ()
    settings: tuple[Setting, ...] = ()

    def places(self, system: System) -> Iterator[Path]:
        """Its folders, each once, existing or not; first those that the user chose."""
        chosen = [_expanded(system.env[name]) for name in self.variables if system.env.get(name)]
        named = [folder for setting in self.settings if (folder := setting.folder(system))]
        usual = (place for text in self.folders for place in _matching(system.path(text)))
        yield from dict.fromkeys([*chosen, *named, *usual])


def _expanded(text: str) -> Path:
    """A path that may begin with ~. One of an unknown user stays as it is, as in a shell."""
    with suppress(RuntimeError):
        return Path(text).expanduser()
    return Path(text)


def _matching(path: Path) -> list[Path]:
    """The folders that match a path, whose parts may have wildcards; a path without any may be missing."""
    first = next((index for index, part in enumerate(path.parts) if "*" in part), None)
    if first is None:
        return [path]
    with suppress(OSError):
        return sorted(Path(*path.parts[:first]).glob("/".join(path.parts[first:])))
    return []


# Whose folders are known elsewhere: hub/cache.py, the current folder, $DFLASH_CACHE.
HUB = Program("Hugging Face cache", "", ())
HERE = Program("this folder", "", ())
OWN = Program("dflash-local", "dflash", ())
LLAMA = Program("llama.cpp", "llama.cpp", ("{cache}/llama.cpp",), variables=("LLAMA_CACHE",))
OLLAMA = Program(
    "Ollama",
    "ollama",
    ("{home}/.ollama/models", "/usr/share/ollama/.ollama/models", "/var/snap/ollama/common/models"),
    variables=("OLLAMA_MODELS",),
)
LM_STUDIO = Program(
    "LM Studio",
    "lmstudio",
    ("{home}/.lmstudio/models", "{home}/.cache/lm-studio/models"),
    patterns=("*/*/*.gguf",),
    settings=(
        Setting("{home}/.lmstudio-home-pointer", below="models"),
        Setting("{home}/.lmstudio/settings.json", "downloadsFolder"),
        Setting("{config}/LM Studio/settings.json", "downloadsFolder"),
    ),
)
JAN = Program(
    "Jan",
    "jan",
    ("{data}/Jan/data", "{config}/Jan/data", "{home}/jan"),
    settings=(Setting("{data}/Jan/settings.json", "data_folder"), Setting("{config}/Jan/settings.json", "data_folder")),
)
GPT4ALL = Program(
    "GPT4All",
    "gpt4all",
    ("{local}/nomic.ai/GPT4All", "{home}/.cache/gpt4all"),
    settings=(
        Setting("{home}/.config/nomic.ai/GPT4All.ini", "modelPath"),
        Setting("{config}/nomic.ai/GPT4All.ini", "modelPath"),
    ),
)
WEBUI = Program(
    "text-generation-webui",
    "webui",
    (
        "{home}/text-generation-webui*/user_data/models",
        "{home}/text-generation-webui*/models",
        "{home}/textgen*/user_data/models",
        "{home}/textgen*/models",
        "{home}/user_data/models",
    ),
    patterns=("*.gguf", "*/*.gguf"),
)
OTHERS = (OLLAMA, LM_STUDIO, LLAMA, JAN, GPT4ALL, WEBUI)  # in the order in which their models are listed
