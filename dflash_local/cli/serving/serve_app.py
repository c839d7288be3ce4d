"""Makes the app from the flags of `serve`, for a server and for each replica."""

from __future__ import annotations

import logging
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dflash_local.cli.flags.chat_flags import check_chat_flags
from dflash_local.cli.flags.embedding_flags import embedding_settings
from dflash_local.cli.flags.engine_arguments import load_engine
from dflash_local.cli.flags.engine_flags import chat_template
from dflash_local.cli.flags.http_flags import http_settings
from dflash_local.cli.flags.named_models import Models, take_models, target_repository
from dflash_local.cli.flags.request_flags import request_defaults
from dflash_local.cli.flags.serve_flags import AppFlags
from dflash_local.cli.serving.early_load import EarlyLoad
from dflash_local.errors import RequestError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from fastapi import FastAPI

    from dflash_local.engine import Engine
    from dflash_local.server.children.parent import Parent
    from dflash_local.server.engine_life import Loader
    from dflash_local.server.settings import Settings
    from dflash_local.server.tls import Tls

log = logging.getLogger(__name__)


def make_app(args: AppFlags, native_level: int) -> FastAPI:
    """The app, after downloads. llama.cpp's messages are logged from `native_level` on.

    Raises:
        DFlashError: something is wrong with the flags, the library or the files.
    """
    settings, load = _prepare(args, checked_settings(args), native_level)
    from dflash_local.server.app import create_app

    return create_app(load, settings)


@contextmanager
def early_app(args: AppFlags, settings: Settings, native_level: int) -> Iterator[FastAPI]:
    """Like `make_app`, with `checked_settings`; its engine begins to load at once. Leaving the block ends it, if the
    app has not taken it."""
    settings, load = _prepare(args, settings, native_level)
    with nullcontext() if load is None else EarlyLoad(load) as early:
        from dflash_local.server.app import create_app  # slow, and the engine loads meanwhile

        yield create_app(early, settings)


def checked_settings(args: AppFlags) -> Settings:
    """The app's settings, as far as they are known before downloads and before an address is taken.

    Raises:
        DFlashError: something is wrong with the flags or the library.
    """
    from dflash_local.native import load

    if _has_target(args):
        target_repository(args)  # for its refusals
    settings = make_settings(args)
    load()  # for its refusal: there may be no library
    chat_template(args)  # likewise: it may be broken
    return settings


def _has_target(args: AppFlags) -> bool:
    return not args.writes_no_text or args.embedding or args.rerank


def _prepare(args: AppFlags, settings: Settings, native_level: int) -> tuple[Settings, Loader | None]:
    """The app's settings, after downloads, and what loads its engine, if it has one."""
    from dflash_local.native import set_log_level

    writes = not args.writes_no_text
    models = take_models(args, writes=writes) if _has_target(args) else Models("")
    names = settings.aliases or (models.name or Path(models.target).name,)
    embeddings = embedding_settings(args, models.target, names[0])
    settings = replace(settings, alias=names[0], aliases=names, model_path=models.target, **embeddings)
    set_log_level(native_level)
    return settings, _loader(args, models, settings) if writes else None


def _loader(args: AppFlags, models: Models, settings: Settings) -> Loader:
    def load(progress: Callable[[float], bool]) -> Engine:
        engine = load_engine(args, models, progress=progress, max_queue=args.max_queue)
        try:
            check_chat_flags(engine, settings.defaults.chat)
        except RequestError:
            engine.close()
            raise
        if args.record:
            _record(engine, models.target, args.record, args.record_limit)
        return engine

    return load


def _record(engine: Engine, target: str, folder: Path, limit: int) -> None:
    """Keep the answers in a folder of at most `limit` MiB, as long as the engine lives."""
    from dflash_local.train.answer_record import AnswerRecord

    try:
        record = AnswerRecord(folder, Path(target), limit << 20)
    except RequestError:
        engine.close()
        raise
    engine.watch_answers(record)
    engine.ended.add_done_callback(lambda _: record.close())


def bound_sockets(args: AppFlags) -> AbstractContextManager[list[socket.socket]]:
    """Sockets at the addresses of the flags, which refuse clients until they are served. Entering it raises DFlashError
    if an address cannot be had."""
    from dflash_local.server.sockets import bound

    return bound(args.host, args.listening_port, reuse_port=args.reuse_port)


def serve_at(
    sockets: Sequence[socket.socket],
    args: AppFlags,
    app: FastAPI,
    tls: Tls | None,
    what: str,
    parent: Parent | None = None,
) -> int:
    """Serve `app` at `bound_sockets` until SIGINT or SIGTERM; `what` is logged beside their addresses.

    Raises:
        DFlashError: an address is taken, the model cannot be loaded, or the engine died.
    """
    from dflash_local.server.process import serve
    from dflash_local.server.sockets import url

    urls = ", ".join(url(sock, "https" if tls else "http") + args.api_prefix for sock in sockets)
    serve(
        app,
        sockets,
        drain_timeout=args.drain_timeout,
        tls=tls,
        on_ready=lambda: log.info("listening on %s, %s", urls, what),
        parent=parent,
    )
    return 0


def make_settings(args: AppFlags) -> Settings:
    """The server's settings from the flags.

    Raises:
        RequestError: a file cannot be read, or a value is malformed.
    """
    model = args.model or ""
    return replace(
        http_settings(args),
        alias=args.alias[0] if args.alias else Path(model).name,
        model_path=model,
        n_batch=args.n_batch,
        defaults=request_defaults(args),
    )
