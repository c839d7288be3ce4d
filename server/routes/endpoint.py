"""Endpoint: a route that declares what it reads and what it answers, and reads its body accordingly."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from operator import attrgetter
from typing import TYPE_CHECKING, Any, get_type_hints

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from dflash_local.errors import RequestError
from dflash_local.server.documented_app import DocumentedApp
from dflash_local.server.fields.body import read_json
from dflash_local.server.fields.fields import IGNORED, Fields, ignored_header, log_ignored
from dflash_local.server.service import Service
from dflash_local.server.shapes.error import ErrorAnswer

if TYPE_CHECKING:
    from fastapi.routing import APIRoute

Handler = Callable[..., Awaitable[Response]]
_WAKE = "dflash.wake"  # in the scope of a request: wakes the engine


class Endpoint(Route):
    """A route whose handler takes the request, or the request and `body`: its annotation, a Fields, is what is read.

    Starlette runs it and FastAPI documents it: bodies are checked by `Fields.of`, whose refusals are OpenAI's, and
    answers are sent as they are.
    """

    def __init__(
        self,
        path: str,
        handler: Handler,
        *,
        methods: Sequence[str],
        event: Any = None,
        needs: Callable[[Service], object] | None,
        wakes: bool = True,
        wakes_late: bool = False,
        include_in_schema: bool = True,
        **documented: Any,
    ) -> None:
        self.handler, self.event, self.needs = handler, event, needs
        self.reads: type[Fields] | None = get_type_hints(handler).get("body")
        self.wakes, self.wakes_late = wakes and self.reads is not None, wakes_late
        answer = self._answer if self.reads is None else self._read_and_answer
        super().__init__(path, answer, name=handler.__name__, include_in_schema=include_in_schema)
        self.methods = set(methods)  # Starlette would add HEAD to GET: HeadAsGet answers that
        self._documented = documented | {"methods": methods, "include_in_schema": include_in_schema}

    def documented(self) -> APIRoute:
        """The route with the shapes of its answers, for the OpenAPI document: pydantic needs longer for them than the
        server for everything else in its routes."""
        from fastapi.routing import APIRoute

        documented = dict(self._documented)
        if callable(extra := documented.get("openapi_extra")):
            documented["openapi_extra"] = extra()
        return APIRoute(self.path, self.handler, **documented)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer; an engine that sleeps is woken, first or by the handler, and stays awake until the last byte."""
        if not self.wakes or scope["method"] not in (self.methods or ()):
            await super().handle(scope, receive, send)
            return
        life = scope["app"].state.service.life
        async with AsyncExitStack() as stack:
            scope[_WAKE] = lambda: stack.enter_async_context(life.awake())
            if not self.wakes_late:
                await scope[_WAKE]()
            await super().handle(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        return await self.handler(request)

    async def _read_and_answer(self, request: Request) -> Response:
        assert self.reads is not None
        service = request.app.state.service
        if self.needs is not None:
            self.needs(service)  # before the body is read: a server that still loads says so whatever is sent
        settings = service.settings
        body = self.reads.of(await read_json(request), strict=settings.strict_fields)
        try:
            response: Response = await self.handler(request, body)
        except RequestError as error:
            raise body.blame(error) from None
        list_ignored(response, self.path, body)
        return response


async def wake(request: Request) -> None:
    """For handlers of endpoints that wake late: load an engine that sleeps. Raises HTTPError if it is not available."""
    await request.scope[_WAKE]()


def list_ignored(answer: Response, path: str, body: Fields) -> None:
    """List the body's fields without effect in the answer's header and in the log."""
    if body.ignored:
        log_ignored(path, body.ignored)
        answer.headers[IGNORED] = ignored_header(body.ignored)


def query_parameter(name: str, description: str, schema: dict[str, Any], *, required: bool = False) -> dict[str, Any]:
    """Documents a parameter of the query, which the handler reads itself."""
    return {"name": name, "in": "query", "required": required, "description": description, "schema": schema}


def path_parameter(name: str, description: str) -> dict[str, Any]:
    """Documents a parameter of the path, which the handler reads itself."""
    return {"name": name, "in": "path", "required": True, "description": description, "schema": {"type": "string"}}


def query_number(request: Request, name: str, must: str, n_digits: int) -> int:
    """A parameter that is a whole number of at most `n_digits`; 0 if it is absent. Raises RequestError."""
    text = request.query_params.get(name, "0")
    if not (text.isascii() and text.isdecimal() and len(text) <= n_digits):
        raise RequestError(f"{name} must be {must}, got {text!r:.40}", param=name)
    return int(text)


def add_endpoint(
    app: DocumentedApp,
    paths: Sequence[str],
    handler: Handler,
    *,
    answer: Any,
    event: Any = None,
    methods: Sequence[str] = ("POST",),
    needs: Callable[[Service], object] | None = attrgetter("engine"),
    **options: Any,
) -> None:
    """Serve `handler` at all `paths`.

    Args:
        handler: `async def NAME(request: Request, body: SomeFields) -> Response`, or without the body. Its docstring is
            its text in the docs.
        answer: shape of the JSON answer, None if it is no JSON.
        event: shape of a stream's events, if the body may ask for one.
        needs: takes from the service what the handler cannot do without, or raises; None if it answers whatever is
            loaded.
        options: `wakes=False` if it reads a body, but needs no engine; `wakes_late=True` if the handler calls `wake`
            once it knows that it needs one; and those of FastAPI's `add_api_route`, where `openapi_extra` may be a
            function that makes it.
    """
    responses = {"4XX": {"model": ErrorAnswer}, "5XX": {"model": ErrorAnswer}, **options.pop("responses", {})}
    if answer is not None:
        responses.setdefault(200, {"model": answer})
    for path in paths:
        app.router.routes.append(
            Endpoint(
                path,
                handler,
                event=event,
                needs=needs,
                methods=methods,
                response_model=None,
                response_class=Response,
                responses=responses,
                **options,
            )
        )
