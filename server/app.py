"""The HTTP routes, llama-server's and OpenAI's, over a Service."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from dflash_local import __version__
from dflash_local.engine import Engine, Generation
from dflash_local.errors import DFlashError, RequestError
from dflash_local.sampling import SamplingParams
from dflash_local.server.errors import JSON, UNAUTHORIZED, HTTPError, error_response
from dflash_local.server.replies import ChatReply, NativeReply, Reply, TextReply
from dflash_local.server.request_fields import (
    MAX_CHOICES,
    RequestFields,
    parse_chat,
    parse_fields,
    parse_prompts,
    read_json,
)
from dflash_local.server.service import Loader, Service, Settings
from dflash_local.server.streaming import EventStream, cancelled_on_disconnect

PUBLIC = frozenset({"/", "/health", "/v1/health"})


class KeyCheck:
    """ASGI middleware: 401 for every path that is not public, unless the client shows one of the keys."""

    def __init__(self, app: ASGIApp, keys: Sequence[str]) -> None:
        self._app, self._keys = app, [key.encode() for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in PUBLIC and not self._allows(dict(scope["headers"])):
            await error_response(UNAUTHORIZED)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _allows(self, headers: dict[bytes, bytes]) -> bool:
        credential = headers.get(b"authorization", headers.get(b"x-api-key", b"")).removeprefix(b"Bearer ")
        return True in [hmac.compare_digest(credential, key) for key in self._keys]  # all of them: time tells nothing


def create_app(load: Loader, settings: Settings | None = None) -> FastAPI:
    """The app; `app.state.service` is its Service. `load` makes the engine, in a thread, once the app has started.

    It gets a function to report progress (0..1) to, which returns False when loading should stop.
    """
    settings = settings or Settings()
    service = Service(load, settings)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        await service.close()

    app = FastAPI(
        title="dflash-local", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None
    )
    app.state.service = service
    if settings.api_keys:
        app.add_middleware(KeyCheck, keys=settings.api_keys)
    app.add_middleware(  # the outermost: preflight requests carry no key
        CORSMiddleware, allow_origins=settings.cors_origins, allow_methods=["*"], allow_headers=["*"]
    )
    _add_error_handlers(app)
    _add_generation(app, service)
    _add_facts(app, service)
    _add_text(app, service)
    return app


def _add_error_handlers(app: FastAPI) -> None:
    async def on_error(_request: Request, error: Exception) -> Response:
        return error_response(error)

    async def on_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        kind = "not_found_error" if error.status_code == 404 else "invalid_request_error"
        return error_response(
            HTTPError(error.status_code, f"{request.method} {request.url.path}: {error.detail}", type=kind)
        )

    app.add_exception_handler(DFlashError, on_error)
    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(Exception, on_error)


# ---- generation ----


def _add_generation(app: FastAPI, service: Service) -> None:
    settings = service.settings

    async def respond(
        request: Request, fields: RequestFields, reply: Reply, generations: list[Generation], n_prompts: int
    ) -> Response:
        if fields.stream:
            return EventStream(reply, generations, n_prompts, include_usage=fields.include_usage)
        async with cancelled_on_disconnect(request.receive, generations):
            completions = [await generation.completed() for generation in generations]
        return JSON(reply.whole(completions, n_prompts))

    async def chat_completions(request: Request) -> Response:
        engine = service.engine
        body = await read_json(request, settings.max_body)
        fields, chat = parse_fields(body, settings.defaults, chat=True), parse_chat(body, settings.defaults)

        def start() -> tuple[list[Generation], Reply]:
            prompt = engine.apply_chat(chat)
            generations = _submit_all(
                fields, 1, lambda _, sampling: engine.submit_chat(prompt, sampling, **fields.options)
            )
            return generations, ChatReply(fields.model or settings.alias, [engine.answer(prompt) for _ in generations])

        # Templates, grammars and long prompts take their time: not on the loop's.
        generations, reply = await asyncio.to_thread(start)
        return await respond(request, fields, reply, generations, 1)

    def completions(reply_type: type[Reply]) -> Callable[[Request], Any]:
        async def handler(request: Request) -> Response:
            engine = service.engine
            body = await read_json(request, settings.max_body)
            fields, prompts = parse_fields(body, settings.defaults), parse_prompts(body)

            def start() -> list[Generation]:
                tokens = [engine.tokenize(prompt) if isinstance(prompt, str) else prompt for prompt in prompts]
                return _submit_all(
                    fields,
                    len(tokens),
                    lambda index, sampling: engine.submit(tokens[index], sampling, **fields.options),
                )

            generations = await asyncio.to_thread(start)
            return await respond(request, fields, reply_type(fields.model or settings.alias), generations, len(prompts))

        return handler

    for path in ("/v1/chat/completions", "/chat/completions"):
        app.add_api_route(path, chat_completions, methods=["POST"])
    app.add_api_route("/v1/completions", completions(TextReply), methods=["POST"])
    for path in ("/completion", "/completions"):  # llama-server's own format
        app.add_api_route(path, completions(NativeReply), methods=["POST"])


def _submit_all(
    fields: RequestFields, n_prompts: int, submit: Callable[[int, SamplingParams], Generation]
) -> list[Generation]:
    """All choices of all prompts, or none. Each choice has a seed of its own."""
    if fields.n * n_prompts > MAX_CHOICES:
        raise RequestError(
            f"n times the number of prompts must be at most {MAX_CHOICES}, got {fields.n * n_prompts}", param="n"
        )
    seed = fields.sampling.seed
    samplings = [
        fields.sampling if seed in (None, -1) else replace(fields.sampling, seed=seed + choice)
        for choice in range(fields.n)
    ]
    generations: list[Generation] = []
    try:
        for prompt in range(n_prompts):
            for sampling in samplings:
                generations.append(submit(prompt, sampling))
    except BaseException:
        for generation in generations:
            generation.cancel()
        raise
    return generations


# ---- facts ----


def _add_facts(app: FastAPI, service: Service) -> None:
    settings = service.settings
    created = int(time.time())

    async def health() -> Response:
        status, body = service.health()
        return JSON(body, status)

    async def models() -> Response:
        target = service.engine.info["target"]
        meta = {name: target.get(name) for name in ("n_params", "size", "n_vocab", "n_embd", "n_ctx_train")}
        meta["n_ctx"] = service.engine.n_ctx_slot
        entry = {"id": settings.alias, "object": "model", "created": created, "owned_by": "dflash-local", "meta": meta}
        return JSON({"object": "list", "data": [entry]})

    async def props() -> Response:
        engine = service.engine
        return JSON({
            "default_generation_settings": {"params": _sampling_dict(settings), "n_ctx": engine.n_ctx_slot},
            "total_slots": engine.n_slots,
            "model_alias": settings.alias,
            "model_path": settings.model_path,
            "modalities": {"vision": False, "audio": False, "video": False},
            "endpoint_slots": settings.slots_endpoint,
            "endpoint_props": False,
            "endpoint_metrics": True,
            "chat_template": engine.info.get("chat_template", ""),
            "bos_token": _token_text(engine, "bos_token"),
            "eos_token": _token_text(engine, "eos_token"),
            "build_info": f"dflash-local {__version__}",
            "dflash": {name: value for name, value in engine.info.items() if name != "chat_template"},
        })  # fmt: skip

    async def slots() -> Response:
        if not settings.slots_endpoint:
            raise HTTPError(501, "started with --no-slots", type="not_supported_error")
        return JSON(service.engine.slots())

    async def metrics() -> Response:
        return PlainTextResponse(service.metrics.render(await service.stats()), media_type="text/plain; version=0.0.4")

    async def page() -> Response:
        if not settings.webui:
            raise HTTPException(404, "started with --no-webui")
        return HTMLResponse(files(__package__).joinpath("page.html").read_text(encoding="utf-8"))

    for paths, handler in (
        (("/health", "/v1/health"), health),
        (("/models", "/v1/models"), models),
        (("/props",), props),
        (("/slots",), slots),
        (("/metrics",), metrics),
        (("/",), page),
    ):
        for path in paths:
            app.add_api_route(path, handler, methods=["GET"])


def _sampling_dict(settings: Settings) -> dict[str, Any]:
    sampling = settings.defaults.sampling
    return {name: getattr(sampling, name) for name in sampling.__dataclass_fields__} | {
        "max_tokens": settings.defaults.max_tokens
    }


def _token_text(engine: Engine, name: str) -> str:
    token = engine.info.get(name, -1)
    return engine.detokenize([token], special=True) if token >= 0 else ""


# ---- text ----


def _add_text(app: FastAPI, service: Service) -> None:
    limit = service.settings.max_body

    async def tokenize(request: Request) -> Response:
        body = await read_json(request, limit)
        text = body.get("content", "")
        if not isinstance(text, str):
            raise RequestError("content must be a string", param="content")
        special, parse = bool(body.get("add_special", False)), bool(body.get("parse_special", True))
        engine = service.engine
        tokens = await asyncio.to_thread(engine.tokenize, text, add_special=special, parse_special=parse)
        if body.get("with_pieces"):
            return JSON(
                {"tokens": [{"id": token, "piece": engine.detokenize([token], special=True)} for token in tokens]}
            )
        return JSON({"tokens": tokens})

    async def detokenize(request: Request) -> Response:
        body = await read_json(request, limit)
        tokens = body.get("tokens", [])
        if not isinstance(tokens, list):
            raise RequestError("tokens must be a list of token ids", param="tokens")
        return JSON({"content": service.engine.detokenize(tokens, special=True)})

    async def apply_template(request: Request) -> Response:
        body = await read_json(request, limit)
        chat = parse_chat(body, service.settings.defaults)
        return JSON({"prompt": (await asyncio.to_thread(service.engine.apply_chat, chat)).prompt})

    for path, handler in (("/tokenize", tokenize), ("/detokenize", detokenize), ("/apply-template", apply_template)):
        app.add_api_route(path, handler, methods=["POST"])
