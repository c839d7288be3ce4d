"""Flags of `launch`: its own, and those of `serve`, which say where a server is or how one starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dflash_local.cli.flags.flag import argument, declared, flag
from dflash_local.cli.flags.named_models import NO_MODEL
from dflash_local.cli.flags.serve_flags import ServeFlags
from dflash_local.cli.flags.server_access import key_of, url_of
from dflash_local.cli.launch.program import PROGRAMS
from dflash_local.errors import RequestError
from dflash_local.server_address import server_address, shown_address

# Flags of `serve` that also say which key a running server wants, and where it is, unless --url does.
_KEY = frozenset({"api_key", "api_key_file"})
_ADDRESS = frozenset({"host", "port", "api_prefix", "ssl_key_file", "ssl_cert_file", "ollama"})


class LaunchFlags(ServeFlags):
    """Which program, and the server that it uses."""

    program: str = argument(", ".join(PROGRAMS), metavar="PROGRAM", choices=tuple(PROGRAMS))
    url: str | None = flag("--url", "a running server (default: the one at --port, if there is one)", metavar="URL")
    model_name: str | None = flag("--model-name", "which model, if the server has several", metavar="NAME")
    any_context: bool = flag("--any-context", "start the program even if the context is shorter than it needs")
    print: bool = flag("--print", "print variables, files and the command for a shell, and start nothing")

    def typed_for_server(self) -> dict[str, tuple[str, ...]]:
        """The flags of `serve` that were typed, by place. Raises RequestError."""
        if self.line.words[0] != self.program:
            raise RequestError("the program comes first", hint=f"dflash-local launch {self.program} [flags]")
        own = declared(LaunchFlags)
        return {place: words for place, words in self.typed.items() if place not in own}

    def server_url(self) -> str:
        """The server's address, without /v1. Raises RequestError."""
        return server_address(self.url) if self.url else url_of(self)

    def server_key(self) -> str | None:
        """The key that the server wants; None for one that wants none."""
        return key_of(self)


def refuse_for_running(args: LaunchFlags, typed: Mapping[str, Sequence[str]], url: str) -> None:
    """Raise RequestError if flags were typed that a running server cannot follow."""
    known = _KEY if args.url else _KEY | _ADDRESS
    if other := [words[0].partition("=")[0] for place, words in typed.items() if place not in known]:
        raise RequestError(
            f"a server runs at {shown_address(url)}, and {other[0]} is for one that starts",
            param=other[0],
            hint=f"leave it out, or start another server: --port {args.listening_port + 1}",
        )


def refuse_without_model(args: LaunchFlags, url: str) -> None:
    """Raise RequestError if no server can be started, because --url names one or because no model is named."""
    if args.url:
        raise RequestError(f"no server runs at {shown_address(url)}", hint="start it, or leave out --url")
    if not (args.model or args.hf_repo or args.models_dir or args.models_found or args.models_preset):
        raise RequestError(
            f"no server runs at {shown_address(url)}, and no model is named",
            hint=f"{NO_MODEL}: dflash-local launch {args.program} -m TARGET.gguf",
        )
