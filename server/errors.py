"""OpenAI-shaped errors: one table from exceptions to HTTP status, type and code."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dflash_local.errors import ContextLengthError, DFlashError, EngineLostError, QueueFullError, RequestError, RPCError
from dflash_local.server.encoding import encode

MESSAGES = "/v1/messages"  # below which errors have Anthropic's shape
_MESSAGE_ERRORS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
# By this the SDK learns to send whole conversations.
_NO_THREADS = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}


class HTTPError(DFlashError):
    """A refusal that the HTTP layer itself makes."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str = "invalid_request_error",
        code: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.type, self.code, self.retry_after = status, type, code, retry_after


def not_supported(message: str) -> HTTPError:
    """501: what this server, its model or its flags cannot do."""
    return HTTPError(501, message, type="not_supported_error")


class JSON(Response):
    """A JSON body, written as UTF-8 without escapes."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return encode(content)


def describe(error: Exception) -> tuple[int, dict[str, Any]]:
    """HTTP status and body of an error."""
    status, kind, code = 500, "server_error", None
    if isinstance(error, HTTPError):
        status, kind, code = error.status, error.type, error.code
    elif isinstance(error, ContextLengthError):
        status, kind, code = 400, "exceed_context_size_error", "context_length_exceeded"
    elif isinstance(error, RequestError):
        status, kind, code = 400, "invalid_request_error", "invalid_value"
    elif isinstance(error, QueueFullError):
        status, kind, code = 503, "unavailable_error", "queue_full"
    elif isinstance(error, EngineLostError | RPCError):
        status, kind, code = 503, "unavailable_error", "rpc_server_lost"
    message = str(error) if isinstance(error, DFlashError) else "internal error, see the server's log"
    told = {"message": message, "type": kind, "param": getattr(error, "param", None), "code": code}
    if isinstance(error, ContextLengthError) and error.n_prompt is not None:
        told |= {"n_prompt_tokens": error.n_prompt, "n_ctx": error.n_ctx}
    return status, {"error": told}


def describe_message_error(error: Exception) -> tuple[int, dict[str, Any]]:
    """HTTP status and body of an error in Anthropic's shape."""
    status, body = describe(error)
    kind = _MESSAGE_ERRORS.get(status, "api_error" if status >= 500 else "invalid_request_error")
    told: dict[str, Any] = {"type": kind, "message": body["error"]["message"]}
    if body["error"]["param"] == "thread":
        told["details"] = _NO_THREADS
    return status, {"type": "error", "error": told}


class ErrorResponse(JSON):
    """An error in the shape of whose API was asked."""

    def __init__(self, error: Exception, headers: Mapping[str, str]) -> None:
        self._error = error
        status, body = describe(error)
        super().__init__(body, status, headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if MESSAGES in scope["path"]:
            self.body = self.render(describe_message_error(self._error)[1])
            self.headers["content-length"] = str(len(self.body))
        await super().__call__(scope, receive, send)


def error_response(error: Exception) -> ErrorResponse:
    """The whole answer to a request that failed before its first byte."""
    status, _ = describe(error)
    headers = {}
    if retry_after := getattr(error, "retry_after", None):
        headers["Retry-After"] = str(math.ceil(retry_after))
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return ErrorResponse(error, headers)


LOADING = HTTPError(503, "Loading model", type="unavailable_error", code="loading", retry_after=2)
UNAUTHORIZED = HTTPError(401, "Invalid API key", type="authentication_error", code="invalid_api_key")
