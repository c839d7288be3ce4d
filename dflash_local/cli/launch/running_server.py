"""A running server: what it says about itself, and where a program finds its model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dflash_local.cache_dir import cache_dir
from dflash_local.cli.launch.launch_flags import LaunchFlags
from dflash_local.cli.launch.program import Program
from dflash_local.cli.launch.server_facts import Loading, ServerFacts, ask_facts, client_at, watched_facts
from dflash_local.cli.launch.setup import Place
from dflash_local.cli.terminal.notes import aside
from dflash_local.errors import RequestError

# Shown to programs as the key of a server without keys, which takes any: they want one.
_ANY_KEY = "none"


def running_server(url: str, key: str | None) -> ServerFacts | None:
    """The server at `url`, once it has loaded its model; None if none runs there."""
    server = client_at(url, key)
    found = ask_facts(server)
    if not isinstance(found, Loading):
        return found
    aside(f"waiting for the server at {server.address}, which loads its model ({found.progress:.0%})")
    return next(facts for facts in watched_facts(server, found) if not isinstance(facts, Loading))


def place_at(url: str, key: str | None, facts: ServerFacts | None, program: Program, args: LaunchFlags) -> Place:
    """Where `program` finds its model; without facts, where it will once a server runs there with these flags.

    Raises:
        RequestError: the context is too short, or the model is unclear.
    """
    key, folder = key or _ANY_KEY, cache_dir() / "launch"
    if facts is None:
        name = args.model_name or (args.alias[0] if args.alias else "local")
        return Place(url, name, args.n_ctx or program.context, key, folder)
    name = facts.named(args.model_name)
    meta = facts.models[name]
    context = meta.get("n_ctx")
    if context is not None and context < program.context and not args.any_context:
        raise RequestError(
            f"{program.title} needs a context of {program.context} tokens, and {name} has {context}: "
            f"{_why(context, meta, args)}",
            param="n_ctx",
            hint="take a model or flags with more ('dflash-local plan' tells), or start it anyway: --any-context",
        )
    return Place(url, name, context or program.context, key, folder)


def _why(context: int, meta: Mapping[str, Any], args: LaunchFlags) -> str:
    """Why a context is not longer."""
    trained = meta.get("n_ctx_train") or context
    if trained <= context:
        return f"it was trained for {trained}"
    if args.n_ctx:
        return f"-c {args.n_ctx} says so (it was trained for {trained})"
    return f"so its server was started, or more has no room in memory (it was trained for {trained})"
