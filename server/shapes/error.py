"""Errors, in OpenAI's shape."""

from __future__ import annotations

from typing import Annotated

from typing_extensions import NotRequired

from dflash_local.server.shapes.answer import Answer, about


class ErrorDetail(Answer):
    """What went wrong."""

    message: str
    type: str
    param: Annotated[str | None, about("the field to blame")]
    code: str | None
    n_prompt_tokens: NotRequired[Annotated[int, about("of a prompt that does not fit")]]
    n_ctx: NotRequired[Annotated[int, about("tokens that would fit")]]


class ErrorAnswer(Answer):
    """An answer to a request that failed."""

    error: ErrorDetail
    progress: NotRequired[Annotated[float, about("of loading, 0 to 1; of /health alone")]]
