"""Models on this disk, of every program that keeps some, and each file of theirs that is none, with the reason.

They are served where they lie. Of each file only the beginning is read (`Glance`). Nothing in these folders is an
error: what is missing, damaged or unreadable is left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from dflash_local.cache_dir import cache_dir
from dflash_local.convert.gguf_glance import Glance
from dflash_local.convert.gguf_parts import SPLIT_NAME
from dflash_local.diagnose.companions import media_of, projector_beside
from dflash_local.errors import ModelError, RequestError
from dflash_local.hub import inventory
from dflash_local.hub.cache import Cache, cache_root
from dflash_local.hub.jan_models import jan_files
from dflash_local.hub.model_programs import HERE, HUB, JAN, LM_STUDIO, OLLAMA, OTHERS, OWN, Program, System
from dflash_local.hub.ollama_store import ollama_files
from dflash_local.hub.stored_file import StoredFile, header_fault
from dflash_local.words import first_names

_TAG = re.compile(r"[-._ ]((?:UD-)?(?:I?Q\d\w*|TQ\d\w*|B?F16|F32|MXFP4\w*|NVFP4\w*))$", re.IGNORECASE)
_MOST_LISTED = 12


@dataclass(frozen=True)
class LocalModel:
    """A target on this disk.

    Attributes:
        name: what `-m` calls it (in the Hub's cache: also `-hf`).
        also: other names of the same file.
        program: the title of the program that keeps it.
        size: bytes, all parts together.
        quantization: "" if unknown.
        is_named: does `-hf` accept its name?
        projector: the file of the projector that it came with.
        media: what that reads, of "images" and "audio".
    """

    name: str
    program: str
    path: Path
    size: int
    quantization: str = ""
    is_named: bool = False
    also: tuple[str, ...] = ()
    glance: Glance = field(default_factory=lambda: Glance(0), repr=False)
    projector: Path | None = None
    media: tuple[str, ...] = ()

    @property
    def flags(self) -> tuple[str, str]:
        """The flag of `serve` that names it."""
        return ("-hf" if self.is_named else "-m"), self.name


@dataclass(frozen=True)
class LeftOut:
    """A file or folder that cannot be served, and why."""

    name: str
    program: str
    path: Path
    why: str


@dataclass
class LocalModels:
    """What was found. `drafters` are the paths of drafters, with their headers."""

    models: list[LocalModel] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    drafters: list[tuple[Path, Glance]] = field(default_factory=list)

    def named(self, text: str) -> LocalModel | None:
        """The model that `text` names: exactly, or else by the beginning of a name. The word of its program may be left
        out. None if there is none.

        Raises:
            RequestError: it means several.
        """
        exact = [model for model in self.models if text in _spellings(model)]
        wanted = text.casefold()
        found = exact or [
            model for model in self.models if any(name.casefold().startswith(wanted) for name in _spellings(model))
        ]
        if len(found) > 1:
            raise RequestError(
                f"{text!r} names {len(found)} models: {first_names([model.name for model in found], _MOST_LISTED)}",
                param="--model",
                hint="type the whole name",
            )
        return found[0] if found else None


def find_models(system: System | None = None) -> LocalModels:
    """All models of all programs, each file once. Never fails because of what is on the disk."""
    found = LocalModels()
    seen: dict[object, int] = {}  # the index of a file's model; -1: it is none
    for file in _files(system or System.here(), found.left_out):
        try:
            identity = file.identity()
            if identity in seen:
                _also(found.models, seen[identity], file)
                continue
            seen[identity] = -1
            _sort_in(found, file)
            if found.models and found.models[-1].path == file.path:
                seen[identity] = len(found.models) - 1
        except OSError as error:
            is_gone = isinstance(error, FileNotFoundError)
            found.left_out.append(_left_out(file, "its file is missing" if is_gone else _unreadable(error)))
        except ValueError:  # a zero byte, or half of a letter
            found.left_out.append(_left_out(file, "its program names a path that no file can have"))
    _separate(found.models)
    used = {model.projector for model in found.models}
    found.left_out = [one for one in found.left_out if one.path not in used]
    return found


def _sort_in(found: LocalModels, file: StoredFile) -> None:
    """Add a file to the models, the drafters, or what is left out. Raises OSError."""
    if why := file.refusal():
        found.left_out.append(_left_out(file, why))
        return
    try:
        glance, why = file.glance()
    except ModelError as error:
        found.left_out.append(_left_out(file, header_fault(error)))
        return
    if file.is_drafter(glance):
        found.drafters.append((file.path, glance))
    elif why:
        found.left_out.append(_left_out(file, why))
    else:
        name, *also = _names(file)
        quantization = _quantization(file, glance)
        size, is_named = file.n_bytes(), file.program is HUB
        model = LocalModel(name, file.program.title, file.path, size, quantization, is_named, tuple(also), glance)
        if projector := file.own_projector():
            model = replace(model, projector=file.projector, media=media_of(projector))
        found.models.append(model)


def _names(file: StoredFile) -> list[str]:
    prefix = f"{file.program.word}:" if file.program.word else ""
    return [prefix + name for name in file.names]


def _also(models: list[LocalModel], index: int, file: StoredFile) -> None:
    """Note other names of a model that was found already."""
    if index >= 0:
        models[index] = replace(models[index], also=(*models[index].also, *_names(file)))


def _separate(models: list[LocalModel]) -> None:
    """A name that several files have goes to the first; the others are called by their paths."""
    taken = set()
    for index, model in enumerate(models):
        if model.name in taken:
            models[index] = replace(model, name=str(model.path), is_named=False)
        taken.add(model.name)


def _spellings(model: LocalModel) -> list[str]:
    names = [model.name, *model.also]
    return [*names, *(name.partition(":")[2] for name in names if not model.is_named and ":" in name)]


def _quantization(file: StoredFile, glance: Glance) -> str:
    """As its file's name says; else by its header or its program."""
    match = SPLIT_NAME.fullmatch(file.path.stem)
    stem = match[1] if match else file.path.stem
    names = (stem, *file.names) if file.path.suffix == ".gguf" else ()
    tag = next((found[1].upper() for name in names if (found := _TAG.search(name))), "")
    return tag or glance.quantization or file.quantization


def _left_out(file: StoredFile, why: str) -> LeftOut:
    return LeftOut(_names(file)[0], file.program.title, file.path, why)


def _unreadable(error: OSError) -> str:
    return f"it cannot be read: {error.strerror}"


# ---- the files of each program ----


def _files(system: System, left_out: list[LeftOut]) -> Iterator[StoredFile]:
    """Every candidate; folders that cannot be read are added to `left_out`."""
    yield from _hub_files(left_out)
    yield from _in_folder(HERE, Path(), left_out)
    yield from _in_folder(OWN, cache_dir() / "models", left_out)
    for program in OTHERS:
        for folder in program.places(system):
            if program is OLLAMA:
                yield from _guarded(program, folder, ollama_files(folder), left_out)
            elif program is JAN:
                yield from _guarded(program, folder, jan_files(folder), left_out)
            else:
                yield from _in_folder(program, folder, left_out)


def _hub_files(left_out: list[LeftOut]) -> Iterator[StoredFile]:
    def leave_out(folder: Path, error: OSError) -> None:
        left_out.append(LeftOut(str(folder), HUB.title, folder, _unreadable(error)))

    for entry in inventory.entries(Cache(cache_root()), leave_out):
        yield StoredFile(HUB, entry.path, (entry.name,), projector=entry.projector)


def _in_folder(program: Program, folder: Path, left_out: list[LeftOut]) -> Iterator[StoredFile]:
    yield from _guarded(program, folder, _gguf_files(program, folder), left_out)


def _guarded(
    program: Program, folder: Path, files: Iterable[StoredFile], left_out: list[LeftOut]
) -> Iterator[StoredFile]:
    """The files, unless the folder cannot be read."""
    try:
        if folder.is_dir():
            next(folder.iterdir(), None)
            yield from files
    except OSError as error:
        left_out.append(LeftOut(str(folder), program.title, folder, _unreadable(error)))


def _gguf_files(program: Program, folder: Path) -> Iterator[StoredFile]:
    """GGUFs in a folder; of split models the first part. They go by their names, and where two are alike, by their
    paths."""
    found = [path for pattern in program.patterns for path in sorted(folder.glob(pattern))]
    first = [path for path in found if not (part := SPLIT_NAME.fullmatch(path.stem)) or int(part[2]) == 1]
    stems = Counter(_stem(path) for path in first)
    for path in first:
        long = (path.parent.relative_to(folder) / _stem(path)).as_posix()
        names = (_stem(path),) if stems[_stem(path)] == 1 else (long,)
        projector = projector_beside(path) if program is LM_STUDIO else None
        yield StoredFile(program, path, (path.as_posix(),) if program is HERE else names, projector=projector)


def _stem(path: Path) -> str:
    part = SPLIT_NAME.fullmatch(path.stem)
    return part[1] if part else path.stem


def target_names(model: LocalModel) -> Sequence[str]:
    """What the model may be called: by its file, its program, and its header."""
    glance = model.glance
    pieces = (glance.text(f"general.{key}") for key in ("basename", "size_label", "finetune"))
    own = ("-".join(filter(None, pieces)), glance.text("general.name"), model.path.stem)
    called = [name.partition(":") for name in (model.name, *model.also)]
    plain = [(before if model.is_named else behind).rpartition("/")[2] for before, _, behind in called]
    return [name.replace(":", "-") for name in (*plain, *own) if name]
