"""OpenAI-shaped errors: one table from exceptions to HTTP status, type and code."""

from __future__ import annotations

import json
import math
from typing import Any

from starlette.responses import Response

from dflash_local.errors import ContextLengthError, DFlashError, QueueFullError, RequestError


class HTTPError(DFlashError):
    """A refusal that the HTTP layer itself makes."""

    def __init__(
        self, status: int, message: str, *, type: str = "invalid_request_error", code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.type, self.code = status, type, code


class JSON(Response):
    """A JSON body, written as UTF-8 without escapes."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def describe(error: Exception) -> tuple[int, dict[str, Any]]:
    """HTTP status and body of an error."""
    status, kind, code = 500, "server_error", None
    if isinstance(error, HTTPError):
        status, kind, code = error.status, error.type, error.code
    elif isinstance(error, ContextLengthError):
        status, kind, code = 400, "invalid_request_error", "context_length_exceeded"
    elif isinstance(error, RequestError):
        status, kind, code = 400, "invalid_request_error", "invalid_value"
    elif isinstance(error, QueueFullError):
        status, kind, code = 503, "unavailable_error", "queue_full"
    message = str(error) if isinstance(error, DFlashError) else "internal error, see the server's log"
    return status, {"error": {"message": message, "type": kind, "param": getattr(error, "param", None), "code": code}}


def error_response(error: Exception) -> JSON:
    """The whole answer to a request that failed before its first byte."""
    status, body = describe(error)
    headers = {}
    if isinstance(error, QueueFullError):
        headers["Retry-After"] = str(math.ceil(error.retry_after))
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSON(body, status, headers)


LOADING = HTTPError(503, "Loading model", type="unavailable_error", code="loading")
UNAUTHORIZED = HTTPError(401, "Invalid API key", type="authentication_error", code="invalid_api_key")
