"""The request body: bytes to a JSON object."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.requests import ClientDisconnect, Request

from dflash_local.call_arguments import no_constant
from dflash_local.server.http_errors import HTTPError

LONG = 1 << 20  # bytes that no other answer should wait for


async def read_json(request: Request, limit: int) -> dict[str, Any]:
    """The request's body, a JSON object of at most `limit` bytes.

    Raises:
        HTTPError: 413 if it is longer, 400 if it is no JSON object.
    """
    return await parsed(await read_bytes(request, limit))


async def read_bytes(request: Request, limit: int) -> bytes:
    """The request's body. Raises HTTPError 413 if it is longer than `limit`."""
    raw = bytearray()
    try:
        async for chunk in request.stream():
            raw += chunk
            if len(raw) > limit:
                raise HTTPError(413, f"the body is longer than {limit} bytes", code="body_too_large")
    except ClientDisconnect:
        raise HTTPError(400, "the client left in the middle of its request") from None
    return bytes(raw)


async def parsed(raw: bytes) -> dict[str, Any]:
    """`parse_json`; a long body, such as one with pictures, is read in a thread."""
    return parse_json(raw) if len(raw) < LONG else await asyncio.to_thread(parse_json, raw)


def parse_json(raw: bytes) -> dict[str, Any]:
    """A JSON object. Raises HTTPError 400 if it is not one."""
    try:
        text = raw.decode(json.detect_encoding(raw))  # json.loads() itself accepts half a character
        body = json.loads(text, parse_constant=no_constant)
        if "\\ud" in text.lower():
            json.dumps(body, ensure_ascii=False).encode()  # a lone surrogate cannot be encoded
    except (ValueError, RecursionError) as error:
        raise HTTPError(400, f"the request body is not valid JSON: {error}", code="invalid_json") from None
    if not isinstance(body, dict):
        raise HTTPError(400, "the request body must be a JSON object", code="invalid_json")
    return body
