"""Flags of a router's instances: which they get, and how those are written."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dflash_local.cli.command_parser import UsageError
from dflash_local.cli.flags.flag import declared
from dflash_local.cli.flags.foreign import GivenForeign
from dflash_local.cli.flags.http_flags import ClientFlags
from dflash_local.cli.flags.replica_flags import ReplicaFlags
from dflash_local.cli.flags.router_flags import PRESET, TARGETS, RouterFlags
from dflash_local.cli.flags.values import truth
from dflash_local.cli.parser_actions import actions_by_name, actions_of, place_of, variables_of
from dflash_local.errors import RequestError

if TYPE_CHECKING:
    from dflash_local.server.router.model import Options

log = logging.getLogger(__name__)

# The router's own flags, by place; instances do not get them.
OWN = frozenset({
    *declared(RouterFlags), *declared(ReplicaFlags), *declared(ClientFlags), "hf_token",
    "host", "port", "ollama", "reuse_port", "api_prefix", "path", "webui", "ui_config", "ui_config_file",
    "ssl_key_file", "ssl_cert_file", "log_disable", "log_file", "log_jsonl", "log_colors", "log_prefix",
    "log_timestamps",
})  # fmt: skip
# Flags that name models.
MODELS = TARGETS | {"hf_file", "drafter", "hf_repo_draft", "mmproj", "mmproj_url", "alias", "tags"}


class InstanceFlags:
    """Writes flags of `serve`: words of a command line, by their place in `parser`."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._parser, self._actions = parser, actions_of(parser)
        names = [
            (name.lstrip("-"), action) for name, action in actions_by_name(parser).items() if not _ends_process(action)
        ]
        variables = [(name, action) for action in self._actions for name in variables_of(action)]
        self._by_key = dict(reversed(names + variables))

    def options(self, pairs: Mapping[str, str], section: str) -> dict[str, tuple[str, ...]]:
        """The flags for the keys and values of a section of presets.

        Raises:
            RequestError: there is no such flag, it is refused, or its value is wrong.
        """
        found: dict[str, tuple[str, ...]] = {}
        for key, value in pairs.items():
            action = self._by_key.get(key)
            if action is None:
                raise _wrong(section, key, "there is no such flag of a model", "see 'dflash-local serve --help'")
            if self.is_own(key):
                log.warning("[%s] %s: the router decides this, so the key has no effect", section, key)
                continue
            try:
                words = self._words(action, value, negated=key.startswith("LLAMA_ARG_NO_"))
                self._parser.parse_args(words)
            except argparse.ArgumentTypeError as error:
                raise _wrong(section, key, str(error)) from None
            except UsageError as error:
                raise _wrong(section, key, error.message.removeprefix("argument ")) from None
            found[place_of(action)] = words
        return {place: words for place, words in found.items() if words}

    def is_own(self, key: str) -> bool:
        """Whether the router decides what a key says, so that it has no effect in a section."""
        action = self._by_key.get(key)
        return action is not None and place_of(action) in OWN

    def with_files(
        self, model: Path, drafter: Path | None = None, projector: Path | None = None
    ) -> dict[str, tuple[str, ...]]:
        """Flags that name a target, its drafter and its projector."""
        files = {"model": model, "drafter": drafter, "mmproj": projector}
        return self.given({place: str(path) for place, path in files.items() if path})

    def given(self, values: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
        """Flags with these values, by place."""
        actions = {action.dest: action for action in reversed(self._actions)}
        return {place: (f"{_longest(actions[place])}={value}",) for place, value in values.items()}

    def has_model(self, options: Options) -> bool:
        """Whether they name a model."""
        return not TARGETS.isdisjoint(options)

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """The variables for instances: without the router's own, and (with a warning) without those that name one
        model."""
        own: set[str] = set()
        for action in self._actions:
            if place_of(action) in OWN | MODELS:
                own.update(variables_of(action))
            if place_of(action) in MODELS:
                for name in variables.keys() & set(variables_of(action)):
                    log.warning("%s is about one model: those of a router do not get it", name)
        return {name: value for name, value in variables.items() if name not in own}

    def _words(self, action: argparse.Action, value: str, *, negated: bool) -> tuple[str, ...]:
        if action.nargs != 0:
            return (f"{_longest(action)}={value}",)
        if not negated and truth(value):
            return (_longest(action),)
        opposite = self._opposite(action)
        return (opposite,) if opposite else ()

    def _opposite(self, action: argparse.Action) -> str | None:
        """The name that switches off what a flag switches on, or the other way round."""
        if isinstance(action, GivenForeign):
            return next((name for name in action.foreign.off if name not in action.option_strings), None)
        same = (other for other in self._actions if other.dest == action.dest and other.nargs == 0)
        return next((_longest(other) for other in same if type(other) is not type(action)), None)


def _ends_process(action: argparse.Action) -> bool:
    """Whether a flag prints something and ends the process, as --help does."""
    return action.default == argparse.SUPPRESS and not isinstance(action, GivenForeign)


def _longest(action: argparse.Action) -> str:
    return max(action.option_strings, key=lambda name: (name.startswith("--"), len(name)))


def _wrong(section: str, key: str, why: str, hint: str | None = None) -> RequestError:
    return RequestError(f"[{section}] {key}: {why}", param=PRESET, hint=hint or f"correct or remove {key} there")
