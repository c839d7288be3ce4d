"""Folder: the models of --models-dir, each with the drafter and the projector of the folder that fit it."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path

from dflash_local.convert.dialects import as_text, is_foreign
from dflash_local.convert.gguf_metadata import read_metadata
from dflash_local.convert.gguf_parts import SPLIT_NAME
from dflash_local.convert.names import ARCH
from dflash_local.convert.target import Target
from dflash_local.diagnose.architectures import ASSISTANTS
from dflash_local.diagnose.companions import companion, is_mtp_file, is_projector_file, projector_beside
from dflash_local.diagnose.finding import Level
from dflash_local.diagnose.mtp_layers import unused_layers
from dflash_local.diagnose.pair import Drafter, compare_files, convert_command, read_drafter
from dflash_local.diagnose.projector import fitting
from dflash_local.errors import ModelError, RequestError
from dflash_local.words import whole

log = logging.getLogger(__name__)

PARAM = "--models-dir"

Stamp = tuple[str, int, int]  # identifies a file's content: path, size, time of the last change


@dataclass(frozen=True)
class Found:
    """A model of the folder."""

    name: str
    path: Path
    drafter: Path | None = None
    projector: Path | None = None


class Folder:
    """What --models-dir holds. The header of each file is read once, and again after it changed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._kinds: dict[Stamp, str] = {}
        self._drafters: dict[tuple[Stamp, ...], Path | None] = {}
        self._projectors: dict[tuple[Stamp, ...], Path | None] = {}

    def read(self) -> list[Found]:
        """Every model, in the order of their names.

        Raises:
            RequestError: there is no such folder.
        """
        if not self.path.is_dir():
            raise RequestError(f"{self.path} is no folder", param=PARAM, hint=f"give {PARAM} a folder with GGUF files")
        try:
            return self._read()
        except OSError as error:
            raise RequestError(f"cannot read {self.path}: {error}", param=PARAM, hint="look once more") from None

    def _read(self) -> list[Found]:
        files = [path for path in self._files() if self._kind(path) == "model"]
        drafters = [path for path in self._files() if self._kind(path) == "drafter"]
        names = _names(self.path, files)
        return [
            Found(names[path], path, self._drafter(path, drafters), self._projector(path))
            for path in sorted(files, key=names.__getitem__)
        ]

    def _files(self) -> Iterator[Path]:
        """GGUFs of the folder and of the folders in it; of a split model the first part."""
        inside = [entry for entry in sorted(self.path.iterdir()) if entry.is_dir()]
        for folder in (self.path, *inside):
            for path in sorted(folder.glob("*.gguf")):
                shard = SPLIT_NAME.fullmatch(path.stem)
                if path.is_file() and (shard is None or int(shard[2]) == 1):
                    yield path

    def _kind(self, path: Path) -> str:
        """model, drafter, projector or neither, which is logged once."""
        stamp = _stamp(path)
        if stamp not in self._kinds:
            kind, why = _look(path)
            if why:
                log.warning("%s is left out: %s", path, why)
            self._kinds[stamp] = kind
        return self._kinds[stamp]

    def _drafter(self, target: Path, drafters: Sequence[Path]) -> Path | None:
        if not drafters:
            return None
        key = (_stamp(target), *map(_stamp, drafters))
        if key not in self._drafters:
            self._drafters[key] = found = best_drafter(target, drafters)
            log.info("%s: %s", target.name, f"drafter {found.name}" if found else "no drafter of the folder fits")
        return self._drafters[key]

    def _projector(self, target: Path) -> Path | None:
        """That of a model with a folder of its own, as in llama-server's router."""
        found = projector_beside(target) if target.parent != self.path else None
        if found is None:
            return None
        key = (_stamp(target), _stamp(found))
        if key not in self._projectors:
            self._projectors[key] = found if fitting(target, found, log.warning) else None
        return self._projectors[key]


def best_drafter(target: Path, drafters: Sequence[Path]) -> Path | None:
    """Of the drafters whose headers fit the target, the one with the fewest reservations; among equals the one beside
    it, then the one with the most similar name. DFlash drafters come before MTP layers, for which there is no file if
    the target's own has some."""
    try:
        header = Target.read(target)
        has_layers = not unused_layers(header)
    except ModelError:
        return None  # its instance will say what is wrong with it
    ranked = []
    for path in drafters:
        try:
            drafter = read_drafter(path, header)
        except ModelError:
            continue
        is_mtp = not isinstance(drafter, Drafter)
        if is_mtp and has_layers:
            continue
        levels = [finding.level for finding in compare_files(header, drafter)]
        if Level.FAIL not in levels:
            same = _n_same(_word(path), _word(target))
            ranked.append((is_mtp, levels.count(Level.WARN), path.parent != target.parent, -same, path.name, path))
    return min(ranked)[-1] if ranked else None


def _word(path: Path) -> str:
    """A name without the parts that only mark a drafter."""
    return re.sub(r"^(dflash|dspark|mtp)[-_.]", "", path.stem.lower())


def _n_same(one: str, other: str) -> int:
    """Length of their common beginning."""
    pairs = zip(one, other, strict=False)
    return next((index for index, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _look(path: Path) -> tuple[str, str]:
    """What a file is, and why it is left out."""
    if is_projector_file(path.name):
        return "projector", ""
    if what := companion(path.name):
        return "", what
    try:
        keys = read_metadata(path)
    except ModelError as error:
        return "", error.message
    arch = as_text(keys["general.architecture"]) if "general.architecture" in keys else ""
    if is_foreign(arch, keys):
        return "", f"a drafter in another dialect of GGUF; rewrite it: {convert_command(path, None)}"
    if arch == ARCH or arch in ASSISTANTS or is_mtp_file(path.name):
        return "drafter", ""
    kind = as_text(keys["general.type"]) if "general.type" in keys else "model"
    return ("model", "") if kind == "model" else ("", f"a GGUF of the type {kind!r}")


def _names(root: Path, files: Sequence[Path]) -> dict[Path, str]:
    """Models are named after their files, a folder's only model after the folder; where another one has that name,
    after more of their path. Commas, which separate the names of a model, become underscores, bytes that are no UTF-8
    U+FFFD."""
    names: dict[Path, str] = {}
    for path in files:
        shard, within = SPLIT_NAME.fullmatch(path.stem), path.relative_to(root)
        own = shard[1] if shard else path.stem
        longer = [within.with_name(name).as_posix() for name in (own, path.stem, path.name)]
        alone = path.parent != root and sum(other.parent == path.parent for other in files) == 1
        taken = {*names.values()}
        possible = [whole(name).replace(",", "_") for name in [path.parent.name] * alone + longer]
        numbered = (f"{possible[-1]}-{number}" for number in count(2))  # where commas alone made a difference
        names[path] = next(name for name in chain(possible, numbered) if name not in taken)
    return names


def _stamp(path: Path) -> Stamp:
    status = path.stat()
    return str(path), status.st_size, status.st_mtime_ns
