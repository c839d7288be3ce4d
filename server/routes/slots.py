"""Slots to files and back."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from dflash_local.engine import Engine
from dflash_local.errors import RequestError
from dflash_local.server.connected import while_connected
from dflash_local.server.documented_app import DocumentedApp
from dflash_local.server.encoding import JSON
from dflash_local.server.fields.any_model import AnyModelFields
from dflash_local.server.fields.body import parse_json, read_bytes, read_json
from dflash_local.server.fields.slot import SlotFileRequest, checked_filename
from dflash_local.server.http_errors import not_supported
from dflash_local.server.routes.endpoint import add_endpoint, list_ignored
from dflash_local.server.service import Service
from dflash_local.server.settings import Settings
from dflash_local.server.shapes.slots import SlotErased, SlotRestored, SlotSaved

T = TypeVar("T")
PATH = "/slots/{id_slot}"


def _documented() -> dict[str, Any]:
    """What FastAPI cannot know: it is checked here, since FastAPI's refusals have another shape than ours."""
    return {
        "parameters": [
            {"name": "id_slot", "in": "path", "required": True, "schema": {"type": "integer", "minimum": 0}},
            {
                "name": "action",
                "in": "query",
                "required": True,
                "schema": {"type": "string", "enum": ["save", "restore", "erase"]},
            },
        ],
        "requestBody": {"content": {"application/json": {"schema": SlotFileRequest.model_json_schema()}}},
    }


def add_routes(app: DocumentedApp, service: Service) -> None:
    """llama-server's one path for three actions."""
    settings = service.settings

    async def slot_action(request: Request) -> Response:
        """Save a slot to a file, restore it from one, or erase it. Waits for a slot that is busy."""
        if settings.slot_save_path is None:
            raise not_supported("This server does not support slots action. Start it with `--slot-save-path`")
        async with service.life.awake():
            return await _act(request, service.engine, settings, settings.slot_save_path)

    add_endpoint(app, (PATH,), slot_action, answer=SlotSaved | SlotRestored | SlotErased, openapi_extra=_documented)


async def _act(request: Request, engine: Engine, settings: Settings, folder: Path) -> Response:
    slot = _slot(request.path_params["id_slot"], engine)
    action = request.query_params.get("action")
    if action == "erase":
        raw = await read_bytes(request)
        body = AnyModelFields.of(parse_json(raw) if raw.strip() else {}, strict=settings.strict_fields)
        erased = JSON(SlotErased(id_slot=slot, n_erased=await _result(request, engine.erase_slot_soon(slot))))
        list_ignored(erased, PATH, body)
        return erased
    if action not in ("save", "restore"):
        raise RequestError(f"action must be save, restore or erase, got {action!r:.40}", param="action")
    file = SlotFileRequest.of(await read_json(request), strict=settings.strict_fields)
    answer = JSON(await _move(request, engine, slot, action, folder / checked_filename(file.filename)))
    list_ignored(answer, PATH, file)
    return answer


def _slot(text: str, engine: Engine) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9 or int(text) >= engine.n_slots:
        raise RequestError(f"id_slot must be between 0 and {engine.n_slots - 1}, got {text!r:.40}", param="id_slot")
    return int(text)


async def _result(request: Request, action: Future[T]) -> T:
    """The result of an action, which is cancelled if the client leaves before its slot is idle."""

    async def wait() -> T:
        return await asyncio.wrap_future(action)

    return await while_connected(request.receive, wait())


async def _move(request: Request, engine: Engine, slot: int, action: str, path: Path) -> SlotSaved | SlotRestored:
    move = engine.save_slot_soon if action == "save" else engine.restore_slot_soon
    filename = path.name
    try:
        done = await _result(request, move(slot, path))
    except RequestError as error:
        param = "filename" if error.param == "path" else error.param
        raise RequestError(f"unable to {action} {filename!r}: {error.message}", param=param) from None
    if action == "save":
        return SlotSaved(
            id_slot=slot,
            filename=filename,
            n_saved=done.n_tokens,
            n_written=done.n_bytes,
            timings={"save_ms": done.milliseconds},
        )
    return SlotRestored(
        id_slot=slot,
        filename=filename,
        n_restored=done.n_tokens,
        n_read=done.n_bytes,
        timings={"restore_ms": done.milliseconds},
    )
