"""Errors, in OpenAI's shape."""

from __future__ import annotations

from pydantic import Field

from dflash_local.server.answers.answer import Answer


class ErrorDetail(Answer):
    """What went wrong."""

    message: str
    type: str
    param: str | None = Field(description="the field to blame")
    code: str | None
    n_prompt_tokens: int | None = Field(None, description="of a prompt that does not fit")
    n_ctx: int | None = Field(None, description="tokens that would")


class ErrorAnswer(Answer):
    """An answer to a request that failed."""

    error: ErrorDetail
    progress: float = Field(0.0, description="of loading, 0 to 1; of /health alone")
