"""Tokens, texts and prompts."""

from __future__ import annotations

from typing import Annotated

from typing_extensions import NotRequired

from dflash_local.server.shapes.answer import Answer, about


class Piece(Answer):
    """A token and its text."""

    id: int
    piece: Annotated[str | list[int], about("its bytes, if it is a part of a character")]


class Tokens(Answer):
    """The tokens of a text."""

    tokens: list[int] | list[Piece]
    count: NotRequired[Annotated[int, about("with `prompt`, as in vLLM")]]
    max_model_len: NotRequired[Annotated[int, about("beside `count`")]]
    token_strs: NotRequired[Annotated[None, about("beside `count`")]]


class Text(Answer):
    """The text of tokens."""

    content: str
    prompt: Annotated[str, about("the same, by vLLM's name")]


class TokenizerInfo(Answer):
    """The tokenizer, as in vLLM."""

    tokenizer_class: str
    bos_token: str | None
    eos_token: str | None
    chat_template: str


class Prompt(Answer):
    """A conversation as the chat template writes it."""

    prompt: str
