"""The request body: bytes to a JSON object."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

from starlette.requests import ClientDisconnect, Request

from dflash_local.call_arguments import no_constant
from dflash_local.server.http_errors import HTTPError

# Bytes of a body that is read in a thread. Decoding and parsing let no other thread run, but others run in between.
LONG = 1 << 20
# Opening brackets and commas of such a body, outside its texts. `[],` is three bytes there and some seventy as a Python
# list, a token's id thirty-six: a thousand prompts of eight thousand tokens have fewer.
MOST_OBJECTS = 1 << 20
MOST_VALUES = 1 << 23
_TEXT = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
# Some clients name a charset there, which changes nothing.
_COMPRESSED = frozenset(("br", "compress", "deflate", "gzip", "x-compress", "x-gzip", "zstd"))


async def read_json(request: Request) -> dict[str, Any]:
    """The request's body, a JSON object. Raises HTTPError 400 if it is none, and those of `read_bytes`."""
    return await parsed(await read_bytes(request))


async def read_bytes(request: Request) -> bytes:
    """The request's body. Raises HTTPError: 400 if the client leaves, 415 if it is compressed, and those of BodyLimits,
    which bounds it."""
    encoding = request.headers.get("content-encoding", "")
    if not _COMPRESSED.isdisjoint(encoding.lower().replace(",", " ").split()):
        raise HTTPError(
            415,
            f"Content-Encoding {encoding!r:.40} is not supported: send the body uncompressed, without this header",
            code="unsupported_encoding",
        )
    try:
        return b"".join([chunk async for chunk in request.stream()])  # body() would keep it until the answer's end
    except ClientDisconnect:
        raise HTTPError(400, "the client left in the middle of its request") from None


async def parsed(raw: bytes) -> dict[str, Any]:
    """`parse_json`; a long body, such as one with pictures, is read in a thread."""
    return parse_json(raw) if len(raw) < LONG else await asyncio.to_thread(parse_json, raw)


def parse_json(raw: bytes) -> dict[str, Any]:
    """A JSON object. Raises HTTPError: 400 if it is not one, 413 if it would be many times as long in memory."""
    if len(raw) >= LONG:
        _check_values(raw)
    try:
        text = raw.decode(json.detect_encoding(raw))  # json.loads() itself accepts half a character
        body = json.loads(text, parse_constant=no_constant)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(body, ensure_ascii=False).encode()  # a lone surrogate cannot be encoded
    except (ValueError, RecursionError) as error:
        raise HTTPError(400, f"the request body is not valid JSON: {error}", code="invalid_json") from None
    if not isinstance(body, dict):
        raise HTTPError(400, "the request body must be a JSON object", code="invalid_json")
    return body


def _check_values(raw: bytes) -> None:
    """Refuse a body of too many values. Texts are left out only where they matter, since that takes time."""
    if _has_many(raw) and _has_many(_TEXT.sub(b"", raw)):
        raise HTTPError(
            413,
            f"the body holds too many values: it may have {MOST_OBJECTS} opening brackets and {MOST_VALUES} commas",
            code="body_too_large",
        )


def _has_many(raw: bytes) -> bool:
    return raw.count(b"[") + raw.count(b"{") > MOST_OBJECTS or raw.count(b",") > MOST_VALUES
