"""Finds a target by name, its drafter and its projector: their files, if they fit, and their paths after download."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from dflash_local.convert.conversion import check as check_checkpoint
from dflash_local.convert.conversion import check_config
from dflash_local.convert.dialects import as_text
from dflash_local.convert.gguf_metadata import read_metadata
from dflash_local.convert.relabel import relabel
from dflash_local.convert.target import Target
from dflash_local.diagnose.architectures import no_drafting, no_mtp
from dflash_local.diagnose.mtp_layers import is_split_off
from dflash_local.diagnose.pair import compare_files, read_drafter, refuse_misfit
from dflash_local.diagnose.projector import fitting
from dflash_local.draft_options import DraftKind
from dflash_local.errors import DFlashError, HubError, ModelError, PairError
from dflash_local.hub import conversions, registry, selection
from dflash_local.hub.cache import HubFile
from dflash_local.hub.client import Hub
from dflash_local.hub.headers import checkpoint_headers, gguf_header
from dflash_local.hub.model_source import Source, absent, drafter_sources, one_file
from dflash_local.hub.selection import Name


@dataclass
class Pairing:
    """Finds a target, its drafter and its projector, kept in the fields of these names; `fetch()` returns the paths of
    the first two, `fetch_projector()` that of the third."""

    hub: Hub
    outtype: str | None = None  # type of a conversion; None: that of the latest, else f16
    target: Source = field(default_factory=Source)
    drafter: Source | None = None
    projector: HubFile | None = None
    _stack: ExitStack = field(default_factory=ExitStack)
    _listing: Sequence[HubFile] = ()
    _name: Name | None = None
    _header: Target | None = None
    _whole: Target | None = None
    _told: set[str] = field(default_factory=set)

    def __enter__(self) -> Pairing:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # -- the target

    def local_target(self, path: Path) -> None:
        self.target = Source(path)

    def hub_target(self, name: Name, file: str | None = None) -> None:
        """Choose USER/NAME[:QUANT], or `file` of that repository. Raises HubError."""
        self._name, self._listing = name, self.hub.files(name.repo, name.revision)
        if any(entry.path == "preset.ini" for entry in self._listing) and file is None:
            raise HubError(
                f"{name.repo} is a preset for llama-server's router, not a model", hint="name the model's repository"
            )
        found = one_file(self._listing, file) if file else selection.model(self._listing, name.tag)
        if found is None:
            raise absent("GGUF", name, self._listing, file)
        self.target = Source(files=tuple(selection.all_parts(self._listing, found)))

    def header(self) -> Target:
        """The target's shape and tokenizer. Raises HubError or ModelError."""
        if self._header is None:
            path = self.target.path or self._stack.enter_context(gguf_header(self.hub, self.target.files[0]))
            self._header = Target.read(path)
        return self._header

    def whole_header(self) -> Target:
        """`header()` of all parts, beside each other. Most tensors of a split target are in the others, which the shape
        need not wait for. Raises its errors."""
        if self._whole is None and len(self.target.files) > 1:
            self._whole = Target.read(self._stack.enter_context(gguf_header(self.hub, *self.target.files)))
        return self._whole or self.header()

    # -- its drafter

    def hub_drafter(self, name: Name, file: str | None = None) -> None:
        """Choose the drafter of a repository: of several, the best that fits.

        Raises:
            DFlashError: there is none, it cannot run here, or it does not fit the target.
        """
        if why := registry.refusal(registry.known_targets(), name.repo):
            raise PairError(f"{name.repo} cannot be used: {why}", hint="see 'dflash-local pairs' for other drafters")
        listing = self.hub.files(name.repo, name.revision)
        failure: DFlashError | None = None
        for source in drafter_sources(name, listing, file):
            try:
                self._check(source)
            except DFlashError as error:
                failure = failure or error
                continue
            self.drafter = source
            return
        raise failure or absent("drafter", name, listing, file)

    def find_drafter(self, draft_kind: DraftKind = "auto") -> None:
        """Choose a drafter in the target's own repository, or one from the list, and after these next-token (MTP)
        layers. If there is none, or these are in the target's own file, note that; `drafter` stays None."""
        assert self._name and self.target.files
        why = no_drafting(self.header().arch)
        if draft_kind != "mtp" and not why and self._find_dflash(self._name):
            return
        if draft_kind != "dflash" and self._find_layers(self._name):
            return
        self.hub.note(f"{why}: at most prompt lookup will draft" if why else self._no_drafter(self._name))

    def find_file(self, targets: Sequence[registry.KnownTarget], names: Sequence[str]) -> bool:
        """Choose the first drafter on this disk that fits, of those that are listed for the target with one of these
        names and this shape; those that do not fit are noted. Raises the errors of `header()`."""
        known = registry.by_names(targets, _shape(self.header()), names)
        return known is not None and any(self._try(str(path), partial(self._take_file, path)) for path in known.files)

    def _find_dflash(self, name: Name) -> bool:
        for file in selection.drafters(self._listing, self.target.files[0].path, name.tag):
            if self._try(f"{name.repo}/{file.path}", partial(self._take_sidecar, file)):
                return True
        known = registry.by_name(registry.known_targets(), name.repo)
        for drafter in known.drafters if known else ():
            if drafter.refused:
                self.hub.note(f"{drafter} cannot be used: {drafter.refused}")
            elif (take := self._way_to(drafter)) and self._try(str(drafter), take):
                return True
        return False

    def _way_to(self, drafter: registry.KnownDrafter) -> Callable[[], None] | None:
        """What takes a drafter of the list; None: it is not in the cache, and nothing is to be downloaded."""
        if drafter.file:
            return partial(self._take_file, drafter.file)
        assert drafter.repository
        if self.hub.offline and not self.hub.cache.files(drafter.repository, drafter.revision):
            return None
        return partial(self.hub_drafter, Name(drafter.repository, drafter.revision))

    def _find_layers(self, name: Name) -> bool:
        """MTP layers: the target's own, or those of a file beside it."""
        header = self.header()
        if not no_mtp(header.arch, header.n_next_token_layers) and self.whole_header().has_next_token_tensors:
            self.hub.note("drafter: the model's own next-token (MTP) layers")
            return True
        file = selection.layers(self._listing, self.target.files[0].path, name.tag)
        return file is not None and self._try(f"{name.repo}/{file.path}", partial(self._take_sidecar, file))

    def _no_drafter(self, name: Name) -> str:
        known = registry.by_name(registry.known_targets(), name.repo)
        if known is None:
            return self.suggestion() or f"no drafter is known for {name.repo}: drafting by prompt lookup alone"
        because = f" ({known.none})" if known.none else ""
        return f"no drafter of {known.name} can be used{because}: drafting by prompt lookup alone"

    def _try(self, what: str, take: Callable[[], None]) -> bool:
        try:
            take()
        except DFlashError as error:
            self.hub.note(f"{what} cannot be used: {error}")
        return self.drafter is not None

    def _take_sidecar(self, first: HubFile) -> None:
        source = Source(files=tuple(selection.all_parts(self._listing, first)))
        self._check(source)
        self.drafter = source

    def _take_file(self, path: Path) -> None:
        target = self.header()
        if not path.is_file():
            raise HubError("there is no such file")
        if is_split_off(path, target.arch):
            raise PairError("it has MTP layers", hint="name it with -md")
        if relabel(path, target.path).is_needed:
            raise PairError("it is in another dialect", hint="'dflash-local convert' rewrites it")
        refuse_misfit(compare_files(target, read_drafter(path, target)))
        self.drafter = Source(path)

    def _check(self, source: Source) -> None:
        """Raise DFlashError unless the drafter can be used and fits the target."""
        target = self.header()
        if why := no_drafting(target.arch):  # no architecture with MTP layers is among these
            raise PairError(why, field="general.architecture", hint="run it without a drafter")
        if source.is_checkpoint:
            if not conversions.kept(source.files[0], target):
                self._check_checkpoint(source, target)
            return
        with gguf_header(self.hub, *source.files) as path:
            if not is_split_off(path, target.arch) and relabel(path, target.path).is_needed:
                return  # relabelled after its download, and checked then
            refuse_misfit(compare_files(target, read_drafter(path, target)))

    def _check_checkpoint(self, source: Source, target: Target) -> None:
        """Note its oddities. Raises DFlashError."""
        with checkpoint_headers(self.hub, source.early_files) as folder:
            if len(source.early_files) < len(source.files):
                check_config(folder, target.path)
                return
            config = check_checkpoint(folder, target.path)
        for warning in config.warnings:
            self._pass_on(f"{source}: {warning}")

    def suggestion(self) -> str | None:
        """One line if a drafter is known for a target of this shape. Raises the errors of `header()`."""
        header = self.header()
        found = registry.by_shape(registry.known_targets(), _shape(header), partial(_names, header.path))
        drafters = [next(iter(known.usable), None) for known in found]
        usable = [(known.name, drafter) for known, drafter in zip(found, drafters, strict=True) if drafter]
        if not usable:
            return None
        if len(usable) == 1:
            return f"a drafter is known for {usable[0][0]}: add {' '.join(usable[0][1].flags)}"
        flags = ", ".join(f"{' '.join(drafter.flags)} ({name})" for name, drafter in usable)
        return f"drafters are known for models of this shape: {flags}"

    # -- its projector

    def find_projector(self) -> None:
        """Choose the projector in the target's own repository; `projector` stays None if there is none, or, with a
        note, if it cannot be used."""
        assert self.target.files
        first = self.target.files[0]
        file = selection.projector(self._listing, first.path)
        if file is None:
            return
        try:
            with gguf_header(self.hub, file) as path:
                if fitting(self.header().path, path, self.hub.note):
                    self.projector = file
        except ModelError as error:  # it is no GGUF
            self.hub.note(f"{error.message}; {first.name} reads text only")

    # -- paths

    def missing(self) -> list[HubFile]:
        """The files that `fetch` and `fetch_projector` will download."""
        files = list(self.target.files)
        if self.drafter and not self.converted():
            files += self.drafter.files
        if self.projector:
            files.append(self.projector)
        return [file for file in files if not self.hub.find(file)]

    def converted(self) -> Path | None:
        """The kept conversion of the drafter's checkpoint."""
        if not self.drafter or not self.drafter.is_checkpoint:
            return None
        return conversions.kept(self.drafter.files[0], self.header(), self.outtype)

    def fetch(self) -> tuple[Path, Path | None]:
        """Download what is missing, the small drafter first, and convert it if necessary. Returns the paths of target
        and drafter (None: there is none). Raises DFlashError."""
        drafter = self.fetch_drafter()
        # The branch leads to a commit once all of it is there, the projector too.
        return self.target.path or self.hub.download(self.target.files, keeps_refs=self.projector is None)[0], drafter

    def fetch_projector(self) -> Path | None:
        """Download the projector, unless it is cached. Returns its path (None: there is none). Raises DFlashError."""
        return self.hub.download([self.projector])[0] if self.projector else None

    def fetch_drafter(self) -> Path | None:
        """Download and convert the drafter, as `fetch`."""
        if self.drafter is None:
            return None
        if not self.drafter.is_checkpoint:
            return self.drafter.path or self._download_drafter(self.drafter)
        first = self.drafter.files[0]
        if path := self.converted():
            conversions.choose(path, first, self.header())
            return path
        folder = self._download_drafter(self.drafter).parent
        self.hub.note(f"converting {first.repo} for {self.header().path.name}")
        return conversions.convert(folder, first, self.header(), self.type_of(first), self._pass_on, self.hub.progress)

    def type_of(self, checkpoint: HubFile) -> str:
        """The type of a conversion of the checkpoint that this file is part of."""
        return self.outtype or conversions.latest_type(checkpoint, self.header()) or "f16"

    def _download_drafter(self, drafter: Source) -> Path:
        """Its first file. In the target's repository the branch leads to both, once the target is there."""
        first = drafter.files[0]
        is_beside = any((file.repo, file.commit) == (first.repo, first.commit) for file in self.target.files)
        return self.hub.download(drafter.files, keeps_refs=not is_beside)[0]

    def _pass_on(self, text: str) -> None:
        """Note what the converter says, once: it reads a checkpoint before its download, and after it."""
        if text not in self._told:
            self._told.add(text)
            self.hub.note(text)


def _shape(header: Target) -> dict[str, object]:
    """As entries of the list have it."""
    return {
        "architecture": header.arch, "n_embd": header.n_embd, "n_layer": header.n_layer, "n_vocab": header.n_vocab,
    }  # fmt: skip


def _names(path: Path) -> list[str]:
    """The names of a GGUF: its file's, and those in its metadata."""
    metadata = read_metadata(path)
    found = (metadata.get(key) for key in ("general.name", "general.basename"))
    return [path.stem, *(as_text(value) for value in found if value and isinstance(value.data, bytes))]
