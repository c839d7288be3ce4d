"""Tokens, texts and prompts."""

from __future__ import annotations

from dflash_local.server.answers.answer import Answer


class Piece(Answer):
    """A token and its text."""

    id: int
    piece: str


class Tokens(Answer):
    """The tokens of a text."""

    tokens: list[int] | list[Piece]


class Text(Answer):
    """The text of tokens."""

    content: str


class Prompt(Answer):
    """A conversation as the chat template writes it."""

    prompt: str
