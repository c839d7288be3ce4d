"""Catalog: the models that the router knows, from the cache, the folder and the presets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from dflash_local.errors import ModelError, RequestError
from dflash_local.media.abilities import NO_MEDIA, Abilities
from dflash_local.server.router.folder import Folder
from dflash_local.server.router.model import Flags, Model, Options, names_of, value_of
from dflash_local.server.router.presets import EVERY, PARAM, Preset, key_of, read_presets
from dflash_local.server.shapes.router import Source
from dflash_local.server_address import shown_url

log = logging.getLogger(__name__)

CACHE: Source = "cache"
FOLDER: Source = "models_dir"
PRESET: Source = "preset"
_REMOTE = frozenset({"hf_repo", "hf_file", "hf_repo_draft", "mmproj_url"})  # places of flags that download


@dataclass(frozen=True)
class Cached:
    """A model of the Hub's cache, with its file, and that of its projector."""

    name: str
    path: Path
    options: Options
    projector: Path | None = None


@dataclass(frozen=True)
class Catalog:
    """Where models come from.

    Args:
        flags: what flags mean.
        typed: those of the router's own command line, which beat all others.
        cached: lists the cache; `files` says which of its files some flags mean.
        folder, presets: --models-dir and --models-preset.
    """

    flags: Flags
    typed: Options = field(default_factory=dict)
    cached: Callable[[], Iterable[Cached]] = lambda: ()
    files: Callable[[Options], set[Path]] = lambda _options: set()
    folder: Folder | None = None
    presets: Path | None = None

    def read(self) -> dict[str, Model]:
        """All models by their names. It takes as long as reading their headers.

        Raises:
            RequestError: the folder or the presets cannot be read, a flag is unknown, or two models share a name.
        """
        every, presets = read_presets(self.presets) if self.presets else (Preset(), {})
        common = self.flags.options(every.pairs, EVERY)
        cached = [*self.cached()]
        found = {entry.name: (CACHE, entry.options) for entry in cached}
        for model in self.folder.read() if self.folder else ():
            found[model.name] = (FOLDER, self.flags.with_files(model.path, model.drafter, model.projector))
        models = {
            name: Model(
                name,
                source,
                {**common, **_kept_offline(options, common)},
                on_startup=every.on_startup,
                stop_timeout=every.stop_timeout,
            )
            for name, (source, options) in found.items()
            if name not in presets
        }
        for name, preset in presets.items():
            models[name] = self._preset(name, preset, found.get(name, (PRESET, {}))[1])
        hidden = self._hidden(presets, models, cached)
        entries = {entry.name: entry for entry in cached}
        finished = {name: self._finished(model, hidden, entries.get(name)) for name, model in sorted(models.items())}
        _check_names(finished)
        return finished

    def _preset(self, name: str, preset: Preset, found: Options) -> Model:
        if "," in name:
            raise RequestError(
                f"[{name}] has a comma, which separates names", param=PARAM, hint="give the section another name"
            )
        own = self.flags.options(preset.pairs, name)
        options = {**_kept_offline(found, own), **own}
        if not self.flags.has_model(options):
            raise RequestError(
                f"[{name}] names no model", param=PARAM, hint="give it model = FILE.gguf, or hf-repo = USER/NAME:QUANT"
            )
        return Model(
            name,
            PRESET,
            options,
            preset=self._text(name, preset),
            on_startup=preset.on_startup,
            stop_timeout=preset.stop_timeout,
        )

    def _text(self, name: str, preset: Preset) -> str:
        """The section for clients: without the keys that the router decides, some of which are secrets."""
        shown = {key: value for key, value in preset.written.items() if not self.flags.is_own(key_of(key))}
        return f"[{name}]\n" + "".join(f"{key} = {shown_url(value)}\n" for key, value in shown.items())

    def _hidden(self, presets: Mapping[str, Preset], models: Mapping[str, Model], cached: list[Cached]) -> set[str]:
        """Models of the cache that a preset stands for."""
        taken: set[Path] = set()
        for name, preset in presets.items():
            if preset.dedup_cache:
                taken |= self.files(models[name].options)
        return {entry.name for entry in cached if entry.path in taken and models[entry.name].source == CACHE}

    def _finished(self, model: Model, hidden: set[str], cached: Cached | None) -> Model:
        """The model with its names taken out of its flags, and the router's own flags over them. `cached` is what the
        cache has of it."""
        options = dict(model.options)
        aliases, tags = names_of(options, "alias"), names_of(options, "tags")
        options = {key: words for key, words in options.items() if key not in ("alias", "tags")}
        named = value_of(options, "model")
        options |= self.typed
        path, projector = (cached.path, cached.projector) if cached else (None, None)
        if options.get("mmproj_auto", ("",))[0].startswith("--no-"):
            options.pop("mmproj", None)  # the folder's own; as a flag, it would override --no-mmproj
            projector = None
        if named_projector := value_of(options, "mmproj"):
            projector = Path(named_projector)
        return replace(
            model,
            options=options,
            aliases=aliases,
            tags=tags,
            hidden=model.name in hidden,
            on_startup=model.on_startup and model.name not in hidden,
            path=Path(named) if named else path,
            abilities=_abilities(projector) if projector else NO_MEDIA,
        )


def _kept_offline(found: Options, section: Options) -> Options:
    """Flags of what was found. A model of the cache is loaded without a download, unless its section names files that
    may be elsewhere."""
    is_offline = _REMOTE.isdisjoint(section)
    return {place: words for place, words in found.items() if is_offline or place != "offline"}


def _abilities(projector: Path) -> Abilities:
    """Which media a projector reads; none if its file cannot be read, which its instance will report."""
    from dflash_local.diagnose.projector import Projector  # numpy and gguf, for which no start waits

    with suppress(OSError, ModelError):
        kinds = Projector.read(projector).kinds
        return Abilities("vision" in kinds, "audio" in kinds)
    return NO_MEDIA


def _check_names(models: Mapping[str, Model]) -> None:
    owners = dict.fromkeys(models, "")
    for name, model in models.items():
        for alias in model.aliases:
            if alias == name:
                continue
            if alias in owners:
                other = f"an alias of {owners[alias]}" if owners[alias] else "the name of another model"
                raise RequestError(f"[{name}] the alias {alias!r} is {other}", param=PARAM, hint="choose another alias")
            owners[alias] = name
