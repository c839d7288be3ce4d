"""Drafting: how a model on this disk would be drafted for, by its header and the list of pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from dflash_local.convert.gguf_glance import Glance
from dflash_local.diagnose.architectures import ASSISTANTS, NO_LOOKUP, no_drafting, no_mtp
from dflash_local.hub import registry
from dflash_local.hub.cache import Cache, cache_root
from dflash_local.hub.local_models import LocalModel, LocalModels, target_names
from dflash_local.hub.registry import KnownDrafter, KnownTarget

DFLASH = "dflash"  # architecture of the drafters that run here; ARCH of convert/names.py, which imports numpy
Way = Literal["drafter", "mtp", "lookup", "none"]  # best first
_PADDING = 1024  # tokens by which the vocabularies of a drafter and its target may differ
_SHORT = 5  # letters; shorter names, and "model", occur in too many others


@dataclass(frozen=True)
class Drafting:
    """How tokens of a model would be drafted.

    Attributes:
        way: by a DFlash drafter, by next-token (MTP) layers, by prompt lookup alone, or not at all.
        drafter: a file, or a repository on the Hub; "" if there is none, or the layers are in the model's own file.
        flags: that name it, unless the model's own flag finds it.
        is_here: is what drafts on this disk?
        next_token_layers: of the model's own file.
    """

    way: Way
    drafter: str = ""
    flags: tuple[str, ...] = ()
    is_here: bool = False
    next_token_layers: int = 0

    def __str__(self) -> str:
        if self.drafter:
            return self.drafter if self.is_here else f"{self.drafter}, to be downloaded"
        if self.way == "mtp":
            return "its own MTP layers"
        text = "lookup" if self.way == "lookup" else "none: its state cannot be rolled back"
        return text + (", its MTP layers are not used" if self.next_token_layers else "")


@dataclass(frozen=True)
class LocalPairs:
    """Finds the drafting of models. `targets` is the list of pairs; `drafters` are those on this disk."""

    targets: Sequence[KnownTarget]
    drafters: Sequence[tuple[Path, Glance]] = ()
    _cache: Cache = field(default_factory=lambda: Cache(cache_root()))

    @classmethod
    def of(cls, found: LocalModels) -> LocalPairs:
        """With the user's list and ours. Raises HubError if the user's is wrong."""
        return cls(registry.known_targets(), found.drafters)

    def drafting(self, model: LocalModel) -> Drafting:
        arch, n_next = model.glance.architecture, model.glance.n_next_token_layers
        if arch in NO_LOOKUP:
            return Drafting("none", next_token_layers=n_next)
        names = target_names(model)
        if not no_drafting(arch):
            if path := self._local(model, names, _agree):
                return Drafting("drafter", path.name, ("-md", str(path)), True, n_next)
            known = registry.by_names(self.targets, model.glance.shape, names)
            drafter = next(iter(known.usable), None) if known else None
            if drafter:
                flags = () if model.is_named else drafter.flags  # -hf finds it itself
                return Drafting("drafter", drafter.shown, flags, self._is_here(drafter), n_next)
        if not no_mtp(arch, n_next):
            return Drafting("mtp", "", (), True, n_next)
        if path := self._local(model, names, _has_its_layers):
            return Drafting("mtp", path.name, ("-md", str(path)), True, n_next)
        return Drafting("lookup", next_token_layers=n_next)

    def _is_here(self, drafter: KnownDrafter) -> bool:
        return not drafter.repository or bool(self._cache.files(drafter.repository, drafter.revision))

    def _local(self, model: LocalModel, names: Sequence[str], agree: Callable[[Glance, Glance], bool]) -> Path | None:
        """A drafter on this disk whose header agrees with the model's and whose name contains the model's. `serve`
        compares all of both headers."""
        wanted = {_plain(registry.bare_name(name)) for name in names}
        fitting = [
            path
            for path, drafter in self.drafters
            if agree(model.glance, drafter) and any(name in _plain(path.stem) for name in wanted if len(name) > _SHORT)
        ]
        return min(fitting, key=lambda path: (path.parent != model.path.parent, path.name), default=None)


def _agree(target: Glance, drafter: Glance) -> bool:
    """Whether a DFlash drafter may be the target's."""
    is_dflash = drafter.architecture == DFLASH and f"{DFLASH}.block_size" in drafter.keys
    return is_dflash and _is_alike(target, drafter)


def _has_its_layers(target: Glance, drafter: Glance) -> bool:
    """Whether a file may have MTP layers that were split off the target, or be its assistant."""
    if drafter.architecture in ASSISTANTS:
        is_its = ASSISTANTS[drafter.architecture] == target.architecture
        return is_its and drafter.size("embedding_length_out") == target.size("embedding_length")
    is_mtp = not no_mtp(drafter.architecture, drafter.n_next_token_layers)
    return is_mtp and drafter.architecture == target.architecture and _is_alike(target, drafter)


def _is_alike(target: Glance, drafter: Glance) -> bool:
    pre = "tokenizer.ggml.pre"
    return (
        drafter.size("embedding_length") == target.size("embedding_length")
        and abs(drafter.n_vocab - target.n_vocab) <= _PADDING
        and drafter.text(pre) == target.text(pre)
    )


def _plain(name: str) -> str:
    return name.lower().replace("_", "-").replace(" ", "-")
