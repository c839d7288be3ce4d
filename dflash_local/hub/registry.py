"""The known drafters of each target: a reviewed list in the package (registry.json), and the user's own list.

A target is recognized by the name of its repository or, as a local file, by its shape. The list names published
drafters; the headers of both files show whether one fits, before anything large is downloaded.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dflash_local.errors import HubError
from dflash_local.home_dir import home_dir

_OURS = Path(__file__).with_name("registry.json")
# Additions to a model's name by those who quantize it: bartowski's USER_ in front, -GGUF and the like behind.
_BEFORE, _BEHIND = r"(?:[\w.]+_)?", r"(?:[-_.](?:ud|i1|qat|mxfp4|gguf|128k|unsloth))*"
_SHAPE = ("architecture", "n_embd", "n_layer", "n_vocab")


@dataclass(frozen=True)
class KnownDrafter:
    """A drafter in the list: in `repository`, or the GGUF `file` on this disk. `refused`: why the engine cannot run it.
    `unverified`: known by name only."""

    repository: str | None = None
    file: Path | None = None
    revision: str | None = None
    kind: str = "DFlash"
    format: str = "safetensors"
    gated: bool = False
    refused: str | None = None
    unverified: bool = False
    note: str | None = None

    def __str__(self) -> str:
        if self.repository is None:
            return str(self.file)
        return self.repository + (f"@{self.revision}" if self.revision else "")

    @property
    def shown(self) -> str:
        """In a table: a file by its name."""
        return self.file.name if self.file else str(self)

    @property
    def flags(self) -> tuple[str, str]:
        """Those with which a command takes it."""
        return ("-hfd" if self.repository else "-md", str(self))


@dataclass(frozen=True)
class KnownTarget:
    """A target in the list. `repositories` are patterns of names without user and -GGUF; `shape` has architecture,
    n_embd, n_layer and n_vocab as far as known. `none`: why no drafter is listed."""

    name: str
    repositories: tuple[str, ...]
    shape: Mapping[str, Any]
    drafters: tuple[KnownDrafter, ...]
    none: str | None = None

    def is_named(self, name: str) -> bool:
        """Whether this is the name of a repository of it (without the user), or of a file (without the folder)."""
        return any(re.fullmatch(_BEFORE + pattern + _BEHIND, name, re.IGNORECASE) for pattern in self.repositories)

    def agrees(self, shape: Mapping[str, Any]) -> bool:
        """Whether `shape` agrees with what is known of its shape."""
        return all(shape.get(key) == value for key, value in self.shape.items())

    @property
    def usable(self) -> list[KnownDrafter]:
        """Its drafters without those that are refused, and files that are gone."""
        return [one for one in self.drafters if not one.refused and (one.file is None or one.file.is_file())]

    @property
    def files(self) -> list[Path]:
        """Its usable drafters on this disk."""
        return [drafter.file for drafter in self.usable if drafter.file]

    @property
    def has_shape(self) -> bool:
        return all(key in self.shape for key in ("architecture", "n_embd", "n_layer"))


def user_file() -> Path:
    """The user's own list of pairs, in the format of registry.json. Raises DFlashError for a user without a home."""
    base = os.environ.get("XDG_CONFIG_HOME") or home_dir("XDG_CONFIG_HOME") / ".config"
    return Path(base).expanduser() / "dflash-local" / "pairs.json"


def known_targets() -> list[KnownTarget]:
    """The user's entries, then ours. Raises HubError if the user's file is wrong."""
    return [_target(path, entry) for path, entry in _entries()]


def targets_with_files() -> list[KnownTarget]:
    """Those for which a drafter on this disk is listed: few, and read sooner than all. Raises HubError if the user's
    file is wrong."""
    return [_target(path, entry) for path, entry in _entries() if _names_file(entry)]


def by_name(targets: Sequence[KnownTarget], repository: str) -> KnownTarget | None:
    """The target in a repository (USER/NAME)."""
    name = repository.partition("/")[2]
    return next((target for target in targets if target.is_named(name)), None)


def by_file_name(targets: Sequence[KnownTarget], name: str) -> KnownTarget | None:
    """The target in a file or repository of this name, with any quantization."""
    bare = bare_name(name)
    return next((target for target in targets if target.is_named(bare)), None)


def by_names(targets: Sequence[KnownTarget], shape: Mapping[str, Any], names: Sequence[str]) -> KnownTarget | None:
    """The target with one of these names and this shape."""
    bare = [bare_name(name) for name in names]
    return next((target for target in targets if target.agrees(shape) and any(map(target.is_named, bare))), None)


def by_shape(
    targets: Sequence[KnownTarget], shape: Mapping[str, Any], names: Callable[[], Sequence[str]]
) -> list[KnownTarget]:
    """The possible targets of a file with this shape: those with one of its `names`, or else all with the same shape.
    Fine-tuned models, and some generations of one family, share a shape."""
    alike = [target for target in targets if target.agrees(shape)]
    found = [bare_name(name) for name in names()] if alike else []
    named = [target for target in alike if any(map(target.is_named, found))]
    return named or [target for target in alike if target.has_shape]


def may_know(path: str, shape: Mapping[str, Any]) -> bool:
    """Whether the list can have a target in the file `path` of which `shape` is known, a part of what entries have:
    False only if it has none. An entry without any of these keys counts if the file has its name."""
    targets = known_targets()
    common = [(target.shape, [key for key in target.shape if key in shape]) for target in targets]
    alike = any(keys and all(own[key] == shape[key] for key in keys) for own, keys in common)
    return alike or by_file_name(targets, Path(path).stem) is not None


def bare_name(name: str) -> str:
    """A file's or model's name without its quantization: Qwen3-8B-Q4_K_M -> Qwen3-8B."""
    name = re.sub(r"-\d{5}-of-\d{5}$", "", name.strip().replace(" ", "-"))
    return re.sub(r"[-.](?:UD-)?(?:I?Q\d\w*|B?F16|F32|MXFP4\w*|NVFP4\w*)$", "", name, flags=re.IGNORECASE)


def refusal(targets: Sequence[KnownTarget], repository: str) -> str | None:
    """Why the engine cannot run a drafter, according to the list."""
    drafters = (drafter for target in targets for drafter in target.drafters)
    return next((drafter.refused for drafter in drafters if drafter.repository == repository), None)


def _entries() -> Iterator[tuple[Path, Any]]:
    """Each with its list, the user's first."""
    own = user_file()
    for path in (own, _OURS) if own.is_file() else (_OURS,):
        yield from ((path, entry) for entry in _read(path))


def _names_file(entry: Any) -> bool:
    drafters = entry.get("drafters") if isinstance(entry, dict) else None
    return isinstance(drafters, list) and any(isinstance(one, dict) and "file" in one for one in drafters)


def _read(path: Path) -> list[Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise HubError(f"cannot read {path}: {error}", hint=_SEE) from None
    _known_keys(path, "the file", content, {"about", "targets"})
    entries = content.get("targets")
    if not isinstance(entries, list):
        raise _wrong(path, "'targets' must be a list")
    return entries


def _target(path: Path, entry: Any) -> KnownTarget:
    _known_keys(path, "a target", entry, {"target", "repositories", "shape", "drafters", "none"})
    name = entry.get("target")
    if not isinstance(name, str):
        raise _wrong(path, "a target has no name ('target')")
    patterns, shape, drafters = entry.get("repositories", []), entry.get("shape", {}), entry.get("drafters", [])
    _known_keys(path, f"the shape of {name}", shape, set(_SHAPE))
    for key, kind in ((key, str if key == "architecture" else int) for key in shape):
        if type(shape[key]) is not kind:
            raise _wrong(path, f"{name}: {key!r} must be of type {kind.__name__}")
    if not isinstance(patterns, list) or not all(map(_is_pattern, patterns)):
        raise _wrong(path, f"{name}: 'repositories' must be a list of patterns (regular expressions)")
    if not patterns and not all(key in shape for key in ("architecture", "n_embd", "n_layer")):
        raise _wrong(path, f"{name} needs 'repositories', or a 'shape' with architecture, n_embd and n_layer")
    if not isinstance(drafters, list):
        raise _wrong(path, f"{name}: 'drafters' must be a list")
    return KnownTarget(
        name, tuple(patterns), shape, tuple(_drafters(path, name, drafters)), _text(path, name, entry, "none")
    )


def _drafters(path: Path, target: str, entries: Sequence[Any]) -> Iterator[KnownDrafter]:
    texts, flags = ("repository", "file", "revision", "kind", "format", "refused", "note"), ("gated", "unverified")
    for entry in entries:
        _known_keys(path, f"a drafter of {target}", entry, {*texts, *flags})
        name, file = entry.get("repository"), _text(path, f"a drafter of {target}", entry, "file")
        if file is None and not _is_repository(name):
            raise _wrong(path, f"a drafter of {target} has no 'repository' (USER/NAME), and no 'file' instead")
        if file and (key := next((key for key in ("repository", "revision", "gated") if entry.get(key)), None)):
            raise _wrong(path, f"a drafter of {target} has a 'file' and {key!r}, which is for the Hub")
        for key in texts:
            _text(path, name or str(file), entry, key)
        for key in flags:
            if not isinstance(entry.get(key, False), bool):
                raise _wrong(path, f"{name or file}: {key!r} must be true or false")
        facts = {key: value for key, value in entry.items() if value is not None}
        if file:
            facts = {"format": "GGUF", **facts, "file": _file(path, file)}
        yield KnownDrafter(**facts)


def _is_repository(name: Any) -> bool:
    from dflash_local.hub.cache import is_repository  # takes longer to import than all of this

    return isinstance(name, str) and is_repository(name)


def _file(path: Path, file: str) -> Path:
    try:
        return path.parent / Path(file).expanduser()
    except RuntimeError:
        raise _wrong(path, f"the file {file!r} begins with a user who is not known here") from None


def _text(path: Path, name: str, entry: Mapping[str, Any], key: str) -> str | None:
    value = entry.get(key)
    if value is not None and not isinstance(value, str):
        raise _wrong(path, f"{name}: {key!r} must be a text")
    return value


def _is_pattern(value: Any) -> bool:
    try:
        return bool(re.compile(value))
    except (re.error, TypeError):
        return False


def _known_keys(path: Path, what: str, entry: Any, keys: set[str]) -> None:
    if not isinstance(entry, dict):
        raise _wrong(path, f"{what} must be an object")
    if unknown := sorted(entry.keys() - keys):
        raise _wrong(path, f"{what} has the unknown key {unknown[0]!r}; known are {', '.join(sorted(keys))}")


_SEE = "docs/models.md describes the file"


def _wrong(path: Path, what: str) -> HubError:
    return HubError(f"{path}: {what}", hint=_SEE)
