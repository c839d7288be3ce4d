"""Errors as answers: one table from exceptions to HTTP status, type and code; OpenAI's and Anthropic's wording.

The server's own errors are here, too: each is an answer with a status, which no caller of the Python API can meet.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.types import Receive, Scope, Send

from dflash_local.errors import ContextLengthError, DFlashError, EngineLostError, QueueFullError, RequestError, RPCError
from dflash_local.server.encoding import JSON
from dflash_local.server.route_path import route_path

if TYPE_CHECKING:
    from dflash_local.server.shapes.error import ErrorAnswer, ErrorDetail
    from dflash_local.server.shapes.messages import MessageError, MessageErrorDetail, MessageErrorType
    from dflash_local.server.shapes.ollama import OllamaError

MESSAGES = "/v1/messages"
OLLAMA = "/api/"
_MESSAGE_ERRORS: dict[int, MessageErrorType] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    501: "not_supported_error",
    503: "unavailable_error",
}
# Makes the SDK send whole conversations.
_NO_THREADS = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}


class HTTPError(DFlashError):
    """A refusal by the HTTP layer itself; `type` is that of its status unless given."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        type: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.retry_after = status, code, retry_after
        self.type = type or _TYPES.get(status, "invalid_request_error")


class Cancelled(HTTPError):
    """An answer was cancelled by the name of its stream (`recordings/`), or because its client left."""

    def __init__(self) -> None:
        super().__init__(400, "the request was cancelled", code="cancelled")


class ClientLeft(HTTPError):
    """The client no longer waits for the answer."""

    def __init__(self) -> None:
        super().__init__(400, "the client left")


def not_supported(message: str) -> HTTPError:
    """501: what this server, its model or its flags cannot do."""
    return HTTPError(501, message)


# Status, type and code by the error's class, or by the nearest base that is here.
_ANSWERS: dict[type, tuple[int, str, str | None]] = {
    ContextLengthError: (400, "exceed_context_size_error", "context_length_exceeded"),
    RequestError: (400, "invalid_request_error", "invalid_value"),
    QueueFullError: (503, "unavailable_error", "queue_full"),
    EngineLostError: (503, "unavailable_error", "rpc_server_lost"),
    RPCError: (503, "unavailable_error", "rpc_server_lost"),
    Exception: (500, "server_error", None),
}


def native_error(error: Exception) -> tuple[int, ErrorAnswer]:
    """HTTP status and body of an error in llama-server's shape."""
    if isinstance(error, HTTPError):
        status, kind, code = error.status, error.type, error.code
    else:
        status, kind, code = next(_ANSWERS[base] for base in type(error).__mro__ if base in _ANSWERS)
    message = str(error) if isinstance(error, DFlashError) else "internal error, see the server's log"
    detail: ErrorDetail = {"message": message, "type": kind, "param": getattr(error, "param", None), "code": code}
    if isinstance(error, ContextLengthError) and error.n_prompt is not None and error.n_ctx is not None:
        detail |= {"n_prompt_tokens": error.n_prompt, "n_ctx": error.n_ctx}
    return status, {"error": detail}


def openai_error(error: Exception, *, too_long: tuple[str, str] | None = None) -> tuple[int, ErrorAnswer]:
    """HTTP status and body of an error in OpenAI's shape: as `native_error`, with OpenAI's types. `too_long`: field and
    wording for a prompt that is too long; completions keep those of `native_error`."""
    status, body = native_error(error)
    detail = body["error"]
    if 400 <= status < 500:
        detail["type"] = "invalid_request_error"
    if too_long and isinstance(error, ContextLengthError) and detail["param"] == "prompt":
        param, words = too_long
        detail |= {"param": param, "message": f"{words} {detail['message']}"}
    return status, body


def message_error(error: Exception) -> tuple[int, MessageError]:
    """HTTP status and body of an error in Anthropic's shape and wording."""
    status, body = native_error(error)
    kind = _MESSAGE_ERRORS.get(status, "api_error" if status >= 500 else "invalid_request_error")
    detail: MessageErrorDetail = {"type": kind, "message": _message_words(error, status, body["error"])}
    if body["error"]["param"] == "thread":
        detail["details"] = _NO_THREADS
    return status, {"type": "error", "error": detail}


def _message_words(error: Exception, status: int, detail: ErrorDetail) -> str:
    """The wording that Anthropic's clients look for, with places such as `messages.0.content.1`."""
    message, param = str(detail["message"]), detail["param"] or ""
    if isinstance(error, ContextLengthError) and error.n_prompt is not None and error.n_ctx is not None:
        count = "" if error.counted else "at least "
        return f"prompt is too long: {count}{error.n_prompt} tokens > {error.n_ctx - 1} maximum (fix: {error.hint})"
    if status == 401:
        return f"invalid x-api-key: {message}"
    if detail["code"] == "model_not_found":
        return f"model: {message}"
    return message.replace(param, re.sub(r"\[(\d+)\]", r".\1", param), 1)


def ollama_error(error: Exception) -> tuple[int, OllamaError]:
    """HTTP status and body of an error in Ollama's shape."""
    status, body = native_error(error)
    return status, {"error": str(body["error"]["message"])}


class Api(NamedTuple):
    """How an API tells errors: `error` gives the HTTP status and body; in a stream, `before` and `after` enclose the
    body."""

    error: Callable[[Exception], tuple[int, Any]]
    before: bytes = b"data: "
    after: bytes = b"\n\n"

    def last_event(self, body: bytes) -> bytes:
        """An error's body as the end of a stream."""
        return self.before + body + self.after


NATIVE = Api(native_error)
RESPONSES = Api(partial(openai_error, too_long=("input", "Your input exceeds the context window of this model.")))
# By the first of these that a path begins with. An endpoint cannot say it: the same one answers below `/v1/` with
# OpenAI's types and at llama-server's own path with that server's, and many errors come before a route is chosen.
_APIS = {
    MESSAGES: Api(message_error, before=b"event: error\ndata: "),
    "/v1/chat/completions": Api(
        partial(openai_error, too_long=("messages", "Please reduce the length of the messages."))
    ),
    "/v1/responses": RESPONSES,
    "/responses": RESPONSES,
    "/v1/": Api(openai_error),
    OLLAMA: Api(ollama_error, before=b"", after=b"\n"),
}


def api_at(path: str) -> Api:
    """The API that a route's path belongs to."""
    return next((api for root, api in _APIS.items() if path.startswith(root)), NATIVE)


class ErrorResponse(JSON):
    """An error in the shape of the API that was asked."""

    def __init__(self, error: Exception, headers: Mapping[str, str]) -> None:
        self._error = error
        status, body = native_error(error)
        super().__init__(body, status, headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.body = self.render(api_at(route_path(scope)).error(self._error)[1])
        self.headers["content-length"] = str(len(self.body))
        await super().__call__(scope, receive, send)


def error_response(error: Exception) -> ErrorResponse:
    """The whole answer to a request that failed before its first byte."""
    status, _ = native_error(error)
    headers = {}
    if retry_after := getattr(error, "retry_after", None):
        headers["Retry-After"] = str(math.ceil(retry_after))
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return ErrorResponse(error, headers)


LOADING = HTTPError(503, "Loading model", code="loading", retry_after=2)
DEAD = HTTPError(503, "the engine is dead: the server's log says why", code="engine_dead")
UNAUTHORIZED = HTTPError(401, "Invalid API key", code="invalid_api_key")
