"""Tokens, texts and prompts."""

from __future__ import annotations

from pydantic import Field

from dflash_local.server.answers.answer import Answer


class Piece(Answer):
    """A token and its text."""

    id: int
    piece: str | list[int] = Field(description="its bytes, if it is a part of a character")


class Tokens(Answer):
    """The tokens of a text."""

    tokens: list[int] | list[Piece]
    count: int | None = Field(None, description="with `prompt`, as in vLLM")
    max_model_len: int | None = Field(None, description="beside `count`")
    token_strs: None = Field(None, description="beside `count`")


class Text(Answer):
    """The text of tokens."""

    content: str
    prompt: str = Field(description="the same, by vLLM's name")


class TokenizerInfo(Answer):
    """The tokenizer, as in vLLM."""

    tokenizer_class: str
    bos_token: str | None
    eos_token: str | None
    chat_template: str


class Prompt(Answer):
    """A conversation as the chat template writes it."""

    prompt: str
