"""Flags of `serve` for several models behind one endpoint, and the flags of their instances."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from dflash_local.cli.flags.flag import SILENT, add_flag
from dflash_local.cli.flags.values import count, truth
from dflash_local.cli.parser_actions import actions_by_name, actions_of
from dflash_local.errors import RequestError

if TYPE_CHECKING:
    from dflash_local.server.router.model import Options

log = logging.getLogger(__name__)

# The router's own flags, by `dest` in the parser; instances do not get them.
OWN = frozenset({
    "host", "port", "ollama", "reuse_port", "api_prefix", "path", "webui", "ui_config", "ui_config_file",
    "ssl_key_file", "ssl_cert_file", "api_key", "api_key_file", "allowed_hosts", "cors_origins", "cors_methods",
    "cors_headers", "cors_credentials", "log_disable", "log_file", "log_jsonl", "log_colors", "log_prefix",
    "log_timestamps", "models_dir", "models_found", "models_preset", "models_max", "models_autoload", "parent_pipes",
    "hf_token",
    "replicas", "replica_requests", "replica_cpus", "replica_gpus", "ray_address",
})  # fmt: skip
# Flags that name models.
_TARGETS = ("model", "hf_repo", "embedding_model", "rerank_model")
MODELS = frozenset((*_TARGETS, "hf_file", "drafter", "hf_repo_draft", "alias", "tags"))
PRESET = "--models-preset"


def add_router_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "several models", "without a model, those of the cache, the folder and the presets; a request's field chooses"
    )
    add_flag(
        group,
        "--models-dir",
        env="LLAMA_ARG_MODELS_DIR",
        type=Path,
        metavar="DIR",
        help="folder with GGUF models; each gets the drafter of the folder that fits it",
    )
    add_flag(
        group,
        "--models-found",
        action="store_true",
        help="also the models that 'dflash-local models' lists, by these names",
    )
    add_flag(
        group,
        PRESET,
        env="LLAMA_ARG_MODELS_PRESET",
        type=Path,
        metavar="FILE",
        help="INI file: a section for each model, with flags as keys; [*] is for all",
    )
    add_flag(
        group,
        "--models-max",
        env="LLAMA_ARG_MODELS_MAX",
        type=count(),
        default=4,
        metavar="N",
        help="models loaded at once; the least recently used one makes room (default: 4; 0: no limit)",
    )
    add_flag(
        group,
        "--models-autoload",
        env="LLAMA_ARG_MODELS_AUTOLOAD",
        off=("--no-models-autoload",),
        off_help="only POST /models/load loads them",
        help="load a model when it is asked for (default)",
    )
    group.add_argument("--parent-pipes", action="store_true", help=SILENT)


def is_router(args: argparse.Namespace) -> bool:
    """Whether this command line starts a router. Typed flags take precedence over variables.

    Raises:
        RequestError: both a single model and several models are named.
    """
    if not any(getattr(args, name) for name in _TARGETS):
        return True
    if not (args.models_dir or args.models_found or args.models_preset):
        return False
    typed = ServeFlags(args.parser).typed(getattr(args, "arguments", []))
    several = bool({"models_dir", "models_found", "models_preset"} & typed.keys())
    if several == bool(typed.keys() & set(_TARGETS)):
        raise RequestError(
            "--models-dir, --models-found and --models-preset make a router of many models, and another flag names one",
            param="--models-dir",
            hint=f"leave one of them out; a separate model is a section of {PRESET}",
        )
    return several


class ServeFlags:
    """The flags of `serve` for a router: words of a command line, by `dest` in the parser."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._parser = parser
        self._actions, self._by_name = actions_of(parser), actions_by_name(parser)
        self._by_key: dict[str, argparse.Action] = {}
        for name, action in self._by_name.items():
            self._by_key.setdefault(name.lstrip("-"), action)
        for action in self._actions:
            for variable in getattr(action, "variables", ()):
                self._by_key.setdefault(variable, action)

    # ---- sections of presets ----

    def options(self, pairs: Mapping[str, str], section: str) -> dict[str, tuple[str, ...]]:
        """The flags for the keys and values of a section.

        Raises:
            RequestError: there is no such flag, it is refused, or its value is wrong.
        """
        found: dict[str, tuple[str, ...]] = {}
        for key, value in pairs.items():
            action = self._by_key.get(key)
            if action is None:
                raise _wrong(section, key, "there is no such flag", "see 'dflash-local serve --help'")
            place = _place(action)
            if place in OWN:
                log.warning("[%s] %s: the router decides this, so the key has no effect", section, key)
                continue
            try:
                found[place] = self._words(action, value, negated=key.startswith("LLAMA_ARG_NO_"))
                self._check(found[place])
            except argparse.ArgumentTypeError as error:
                raise _wrong(section, key, str(error)) from None
        return {place: words for place, words in found.items() if words}

    def _words(self, action: argparse.Action, value: str, *, negated: bool = False) -> tuple[str, ...]:
        name = _longest(action)
        if action.nargs != 0:
            return (f"{name}={value}",)
        if not negated and truth(value):
            return (name,)
        opposite = self._opposite(action)
        return (_longest(opposite),) if opposite else ()

    def _opposite(self, action: argparse.Action) -> argparse.Action | None:
        place, foreign = action.dest, getattr(action, "foreign", None)
        for other in self._actions:
            same = getattr(other, "foreign", None) is foreign if foreign else other.dest == place
            if other is not action and same and other.nargs == 0 and type(other) is not type(action):
                return other
            if foreign and same and other is not action and set(other.option_strings) & set(foreign.off):
                return other
        return None

    def _check(self, words: Sequence[str]) -> None:
        def fail(message: str) -> NoReturn:
            raise argparse.ArgumentTypeError(message.removeprefix("argument "))

        before, self._parser.error = self._parser.error, fail  # type: ignore[method-assign]
        try:
            self._parser.parse_args(list(words))
        finally:
            self._parser.error = before  # type: ignore[method-assign]

    # ---- the command line ----

    def typed(self, arguments: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """The flags of a command line that the parser accepted."""
        found: dict[str, tuple[str, ...]] = {}
        rest = list(arguments)
        while rest:
            word = rest.pop(0)
            action = self._by_name.get(word)
            words = [word]
            if action is None:
                action = self._by_name.get(word.partition("=")[0]) or self._by_name.get(word[:2])
            elif action.nargs == "?":
                words += [rest.pop(0)] if rest and not rest[0].startswith("-") else []
            elif action.nargs != 0:
                n_values = action.nargs if isinstance(action.nargs, int) else 1
                words += [rest.pop(0) for _ in range(min(n_values, len(rest)))]
            if action is None:
                raise RequestError(f"{word!r} belongs to no flag", param=word)
            place = _place(action)
            before = found.get(place, ()) if getattr(action, "repeats", False) else ()
            found[place] = (*before, *words)
        return found

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """The variables for instances: without the router's own, and (with a warning) without those that name one
        model."""
        own: set[str] = set()
        for action in self._actions:
            if _place(action) in OWN | MODELS:
                own.update(_variables(action))
            if _place(action) in MODELS:
                for name in variables.keys() & set(_variables(action)):
                    log.warning("%s is about one model: those of a router do not get it", name)
        return {name: value for name, value in variables.items() if name not in own}

    # ---- single flags ----

    def given(self, values: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
        """Flags with these values, by `dest`."""
        actions = {action.dest: action for action in reversed(self._actions)}
        return {place: (f"{_longest(actions[place])}={value}",) for place, value in values.items()}

    def value(self, options: Options, place: str) -> str | None:
        """A flag's value; None if it is not given."""
        words = options.get(place)
        if not words:
            return None
        return words[1] if len(words) > 1 else words[0].partition("=")[2]

    def names(self, options: Options, flag: str) -> tuple[str, ...]:
        """The names that the flag `flag` lists."""
        listed = (self.value(options, flag) or "").split(",")
        return tuple(sorted({name.strip() for name in listed} - {""}))

    def has_model(self, options: Options) -> bool:
        """Whether they name a model."""
        return any(place in options for place in _TARGETS)

    def with_files(self, model: str, drafter: str | None) -> dict[str, tuple[str, ...]]:
        """Flags that name a target and its drafter."""
        return self.given({"model": model, **({"drafter": drafter} if drafter else {})})


def _place(action: argparse.Action) -> str:
    """The `dest` of a flag; foreign flags, which have none, go by their names."""
    return action.option_strings[0] if action.dest == SILENT and action.option_strings else action.dest


def _variables(action: argparse.Action) -> tuple[str, ...]:
    return getattr(action, "variables", ())


def _longest(action: argparse.Action) -> str:
    return max(action.option_strings, key=lambda name: (name.startswith("--"), len(name)))


def _wrong(section: str, key: str, why: str, hint: str | None = None) -> RequestError:
    return RequestError(f"[{section}] {key}: {why}", param=PRESET, hint=hint or f"correct or remove {key} there")
