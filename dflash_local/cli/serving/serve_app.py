"""Makes the app from the flags of `serve`, for a server and for each replica."""

from __future__ import annotations

import logging
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from dflash_local.cli.flags.adapt_flags import adapts, check_adapted_models
from dflash_local.cli.flags.chat_flags import check_budget_message, check_chat_flags
from dflash_local.cli.flags.embedding_flags import embedding_settings
from dflash_local.cli.flags.engine_arguments import attach_engine, load_native
from dflash_local.cli.flags.engine_flags import chat_template
from dflash_local.cli.flags.http_flags import http_settings
from dflash_local.cli.flags.named_models import Models, names_downloads, suggest, take_models, target_repository
from dflash_local.cli.flags.request_flags import request_defaults
from dflash_local.cli.flags.serve_flags import AppFlags
from dflash_local.cli.serving.early_load import EarlyLoad
from dflash_local.cli.typed_path import is_file
from dflash_local.engine_options import DEFAULTS
from dflash_local.errors import RequestError
from dflash_local.words import whole

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from dflash_local.engine import Engine
    from dflash_local.engine_loader import LoadedEngine
    from dflash_local.server.children.parent import Parent
    from dflash_local.server.documented_app import DocumentedApp
    from dflash_local.server.engine_life import Loader
    from dflash_local.server.service import Service
    from dflash_local.server.settings import Settings
    from dflash_local.server.tls import Tls
    from dflash_local.train.adaptation import Adaptation

log = logging.getLogger(__name__)


def make_app(args: AppFlags, native_level: int) -> DocumentedApp:
    """The app, after downloads. llama.cpp's messages are logged from `native_level` on.

    Raises:
        DFlashError: something is wrong with the flags, the library or the files.
    """
    check_flags(args)
    settings = make_settings(args)
    models = _models(args, native_level)
    settings = _with_models(settings, args, models)

    def load(progress: Callable[[float], bool]) -> Engine:
        return attach_engine(load_native(args, models, progress, max_queue=args.max_queue))

    return _app(args, settings, models, None if args.writes_no_text else load)


@contextmanager
def early_app(args: AppFlags, native_level: int) -> Iterator[DocumentedApp]:
    """Like `make_app`, after `check_flags`; its engine loads while Python imports the rest. Leaving the block ends it,
    if the app has not taken it."""
    settings = make_settings(args) if _settings_come_first(args) else None
    models = _models(args, native_level)
    settings = settings and _with_models(settings, args, models)
    with nullcontext() if args.writes_no_text else _early_load(args, models) as early:
        yield _app(args, settings or _with_models(make_settings(args), args, models), models, early)


def _settings_come_first(args: AppFlags) -> bool:
    """Whether the target is not there as a file, or another model may be downloaded or rewritten: first it should be
    known that the other flags are right."""
    others = args.embedding_model or args.rerank_model or (args.drafter and args.auto_convert)
    return bool(names_downloads(args) or others or not (args.model and is_file(Path(args.model))))


def check_flags(args: AppFlags) -> None:
    """Refuse what is known to be wrong before slow imports, downloads and addresses.

    Raises:
        DFlashError: something is wrong with the flags or the library.
    """
    from dflash_local.native import load

    if _has_target(args):
        target_repository(args)  # for its refusals
    load()  # for its refusal: there may be no library
    chat_template(args)  # likewise: it may be broken


def _has_target(args: AppFlags) -> bool:
    return not args.writes_no_text or args.embedding or args.rerank


def _models(args: AppFlags, native_level: int) -> Models:
    """The files that the flags name, after downloads."""
    from dflash_local.native import set_log_level

    models = take_models(args, writes=not args.writes_no_text) if _has_target(args) else Models("")
    check_adapted_models(args, models)
    set_log_level(native_level)
    return models


def _with_models(settings: Settings, args: AppFlags, models: Models) -> Settings:
    """The settings with these models and the names that they give, after downloads of embedding models."""
    names = settings.aliases or (whole(models.name or Path(models.target).name),)
    embeddings = embedding_settings(args, models.target, names[0])
    return replace(settings, alias=names[0], aliases=names, model_path=models.target, **embeddings)


def _app(args: AppFlags, settings: Settings, models: Models, load: Loader | None) -> DocumentedApp:
    from dflash_local.server.app import create_app

    adaptation = _adaptation(args)
    app = create_app(load and _checked(load, args, settings, adaptation), settings)
    service: Service = app.state.service
    if load is not None:
        _suggest_late(service, models)
    if adaptation is not None:
        from dflash_local.server.adapting import Adapting

        service.adapting = Adapting(adaptation, service.life)
    return app


def _adaptation(args: AppFlags) -> Adaptation | None:
    if args.adapt is None or not adapts(args):
        return None
    from dflash_local.train.adaptation import Adaptation

    n_gpu_layers = args.options.get("n_gpu_layers", DEFAULTS["n_gpu_layers"])
    return Adaptation(args.adapt, args.adapt_tokens, args.record_limit << 20, n_gpu_layers)


def _suggest_late(service: Service, models: Models) -> None:
    """Suggest a drafter once the server is ready and has a pause: what finds one is slow to import."""
    first = service.beside

    async def beside() -> None:
        import asyncio  # with the server, after the engine's load has begun

        if first is not None:
            await first()
        if service.life.engine is not None:
            await asyncio.to_thread(suggest, models, service.life.engine.info["target"])

    service.beside = beside


def _early_load(args: AppFlags, models: Models) -> EarlyLoad[LoadedEngine]:
    """Loads the engine from now on. What the load needs is imported before it: in a thread it would take turns with the
    server's imports, and the load would begin later."""
    import_module("dflash_local.engine_loader")
    return EarlyLoad(partial(load_native, args, models, max_queue=args.max_queue), attach_engine)


def _checked(load: Loader, args: AppFlags, settings: Settings, adaptation: Adaptation | None = None) -> Loader:
    """A loader of engines that can do what the flags ask for, and keep their answers, or learn from them, if they ask
    for that."""

    def checked(progress: Callable[[float], bool]) -> Engine:
        engine = load(progress)
        try:
            check_chat_flags(engine, settings.defaults.chat)
            check_budget_message(engine, settings.defaults.chat, settings.defaults.sampling)
        except RequestError:
            engine.close()
            raise
        if args.record:
            _record(engine, settings.model_path, args.record, args.record_limit)
        if adaptation is not None:
            _adapt(engine, adaptation, is_one_of_many=args.parent_pipes)
        return engine

    return checked


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


def _adapt(engine: Engine, adaptation: Adaptation, *, is_one_of_many: bool) -> None:
    """Let the engine's drafter learn. One of a router's models, which all have the same flags, only tells if it
    cannot."""
    try:
        adaptation.attach(engine)
    except RequestError as error:
        if not is_one_of_many:
            engine.close()
            raise
        log.warning("%s", error.message)
        adaptation.close()


def bound_sockets(args: AppFlags) -> AbstractContextManager[list[socket.socket]]:
    """Sockets at the addresses of the flags, which refuse clients until they are served. Entering it raises DFlashError
    if an address cannot be had."""
    from dflash_local.server.sockets import bound

    return bound(args.host, args.listening_port, reuse_port=args.reuse_port)


def serve_at(
    sockets: Sequence[socket.socket],
    args: AppFlags,
    app: DocumentedApp,
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
        alias=args.alias[0] if args.alias else whole(Path(model).name),
        model_path=model,
        n_batch=args.n_batch,
        defaults=request_defaults(args),
    )
