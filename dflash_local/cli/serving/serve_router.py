"""A router of several models, from the flags of `serve`."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from dflash_local.child_process import module_command
from dflash_local.cli.flags.router_flags import PRESET
from dflash_local.cli.flags.serve_flags import ServeFlags
from dflash_local.cli.serving.instance_flags import MODELS, OWN, InstanceFlags
from dflash_local.cli.serving.serve_app import bound_sockets, serve_at
from dflash_local.disk import temporary_space
from dflash_local.errors import DFlashError, RequestError
from dflash_local.words import whole

if TYPE_CHECKING:
    from dflash_local.server.router.catalog import Cached
    from dflash_local.server.router.model import Options
    from dflash_local.server.settings import Settings

log = logging.getLogger(__name__)

# Bytes that the path of a UNIX socket may have on every system, and those of it behind the folder of temporary files.
_MOST_BYTES, _NAME_BYTES = 103, len("/dflash-12345678/123456.sock")


def serve_router(args: ServeFlags, settings: Settings) -> int:
    """Serve until SIGINT or SIGTERM."""
    from dflash_local.server.router.catalog import Catalog
    from dflash_local.server.router.folder import Folder
    from dflash_local.server.router.instance import Launch
    from dflash_local.server.router.router import Router, RouterOptions
    from dflash_local.server.router.router_app import create_router_app
    from dflash_local.server.tls import Tls

    flags, typed = InstanceFlags(args.line.parser), args.typed
    if wrong := sorted(typed.keys() & MODELS):
        raise RequestError(
            f"{typed[wrong[0]][0].partition('=')[0]} is about one model, and this command line names none",
            param="--model",
            hint=f"add -m or -hf, or put it into a section of {PRESET}",
        )
    catalog = Catalog(
        flags=flags,
        typed={place: words for place, words in typed.items() if place not in OWN},
        cached=lambda: [*cached_models(flags), *(_found(flags) if args.models_found else ())],
        files=_cached_files,
        folder=Folder(args.models_dir) if args.models_dir else None,
        presets=args.models_preset,
    )
    tls = Tls.of(args.ssl_key_file, args.ssl_cert_file)
    with sockets_folder() as folder:
        command = (*module_command("dflash_local.cli"), "serve")
        # Not on the command line, which GET /models shows.
        token = {"HF_TOKEN": args.hf_token} if args.hf_token else {}
        launch = Launch(command, flags.environment(os.environ) | token, Path(folder))
        options = RouterOptions(args.models_max, args.models_autoload, args.max_queue)
        router = Router(catalog, launch, options, settings)
        router.read()
        with bound_sockets(args) as sockets:
            return serve_at(sockets, args, create_router_app(router), tls, "a router of models")


def sockets_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder for instances' sockets: in /tmp where paths in TMPDIR would be too long for sockets. Raises
    DFlashError."""
    with temporary_space():
        parents = [tempfile.gettempdir(), *(["/tmp"] if os.access("/tmp", os.W_OK) else [])]
    fitting = [parent for parent in parents if len(os.fsencode(parent)) <= _MOST_BYTES - _NAME_BYTES]
    if not fitting:
        raise DFlashError(
            f"the path of the folder for temporary files is too long for sockets: {parents[0]}",
            hint="set TMPDIR to a shorter folder, such as /tmp",
        )
    with temporary_space():
        return tempfile.TemporaryDirectory(prefix="dflash-", dir=fitting[0], ignore_cleanup_errors=True)


def cached_models(flags: InstanceFlags) -> Iterator[Cached]:
    """The models of the Hub's cache."""
    from dflash_local.hub.cache import Cache, cache_root
    from dflash_local.hub.inventory import entries
    from dflash_local.server.router.catalog import Cached

    def warn(folder: Path, error: OSError) -> None:
        log.warning("models in %s are left out: %s", folder, error.strerror or error)

    for entry in entries(Cache(cache_root()), warn):
        # A request downloads nothing, not even a newer commit.
        options = {**flags.given({"hf_repo": entry.name}), "offline": ("--offline",)}
        yield Cached(entry.name, entry.path, options, entry.projector)


def _found(flags: InstanceFlags) -> Iterator[Cached]:
    """The models of other programs on this disk, each with a drafter that is here, too."""
    from dflash_local.cli.terminal.model_list import rows_of
    from dflash_local.hub.local_models import find_models
    from dflash_local.server.router.catalog import Cached

    for row in rows_of(find_models()):
        if not row.model.is_named:
            drafter = Path(row.drafting.flags[1]) if row.drafting.flags[:1] == ("-md",) else None
            path = row.model.path.absolute()
            projector = row.model.projector
            if projector and not _fits(path, projector):
                projector = None
            yield Cached(whole(row.model.name).replace(",", "_"), path, flags.with_files(path, drafter, projector))


@cache
def _fits(target: Path, projector: Path) -> bool:
    """Whether a projector can be used; if not, that is logged once."""
    from dflash_local.diagnose.projector import fitting

    return fitting(target, projector, log.warning)


def _cached_files(options: Options) -> set[Path]:
    """The cached files of the models that these flags name."""
    from dflash_local.hub.cache import Cache, cache_root
    from dflash_local.hub.inventory import path_of
    from dflash_local.server.router.model import value_of

    cache, found = Cache(cache_root()), set()
    for repository, file in (("hf_repo", "hf_file"), ("hf_repo_draft", "drafter")):
        if name := value_of(options, repository):
            found.add(path_of(cache, name, value_of(options, file)))
    return {path for path in found if path is not None}
