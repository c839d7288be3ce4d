"""Text without generation: tokens and templates."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from dflash_local.engine import Engine
from dflash_local.errors import RequestError
from dflash_local.server.chat_prompt import render_chat
from dflash_local.server.documented_app import DocumentedApp
from dflash_local.server.encoding import JSON
from dflash_local.server.fields.chat import ChatRequest
from dflash_local.server.fields.text import DetokenizeRequest, TokenizeRequest
from dflash_local.server.routes.endpoint import add_endpoint
from dflash_local.server.service import Service
from dflash_local.server.shapes.tokens import Piece, Prompt, Text, TokenizerInfo, Tokens


def tokenizer(service: Service) -> object:
    """The engine's tokenizer; without an engine, that of a model for embeddings."""
    return service.engine if service.has_engine else service.processes[0].facts


def add_routes(app: DocumentedApp, service: Service) -> None:
    """Text to tokens and back, and the chat template."""

    async def tokenize(request: Request, body: TokenizeRequest) -> Response:
        """The tokens of a text."""
        if not service.has_engine:
            return await _tokens_of_process(service, body)
        return await asyncio.to_thread(_tokens, service.engine, body)  # a long text takes seconds

    async def detokenize(request: Request, body: DetokenizeRequest) -> Response:
        """The text of tokens."""
        text = await asyncio.to_thread(service.engine.detokenize, body.tokens or [], special=True)
        return JSON(Text(content=text, prompt=text))

    async def tokenizer_info(request: Request) -> Response:
        """The tokenizer as vLLM describes it, so that evaluation harnesses need none of their own."""
        info = TokenizerInfo(
            tokenizer_class="gguf",
            bos_token=service.control_texts["bos_token"] or None,
            eos_token=service.control_texts["eos_token"] or None,
            chat_template=service.engine.info.get("chat_template", ""),
        )
        return JSON(info)

    async def apply_template(request: Request, body: ChatRequest) -> Response:
        """The prompt that a conversation becomes."""
        prompt = await service.media_gate.run(body.messages, lambda: render_chat(service, body).prompt)
        return JSON(Prompt(prompt=prompt))

    add_endpoint(app, ("/tokenize",), tokenize, answer=Tokens, needs=tokenizer)
    add_endpoint(app, ("/detokenize",), detokenize, answer=Text)
    add_endpoint(app, ("/tokenizer_info",), tokenizer_info, answer=TokenizerInfo, methods=("GET",))
    add_endpoint(app, ("/apply-template",), apply_template, answer=Prompt)


def _tokens(engine: Engine, body: TokenizeRequest) -> Response:
    tokens = engine.tokenize_parts(body.text, **body.flags)
    if body.with_pieces:
        return _with_pieces(engine, tokens)
    if not body.is_vllm:
        return JSON(Tokens(tokens=tokens))
    return JSON(Tokens(tokens=tokens, count=len(tokens), max_model_len=engine.n_ctx_slot, token_strs=None))


async def _tokens_of_process(service: Service, body: TokenizeRequest) -> Response:
    """Tokens as a model for embeddings counts them, from its process."""
    text = body.text
    if body.with_pieces:
        raise RequestError("with_pieces needs a server with an engine", param="with_pieces")
    if not isinstance(text, str):
        raise RequestError("a list as content needs a server with an engine", param="content")
    return JSON(Tokens(tokens=await service.processes[0].tokenize(text, **body.flags)))


def _with_pieces(engine: Engine, tokens: list[int]) -> Response:
    # Each distinct token is converted once: a long text repeats few of them.
    kinds = sorted(set(tokens))
    items = {
        token: bytes(JSON(Piece(id=token, piece=_text_or_bytes(piece))).body)
        for token, piece in zip(kinds, engine.token_bytes(kinds), strict=True)
    }
    content = b'{"tokens":[' + b",".join([items[token] for token in tokens]) + b"]}"
    return Response(content, media_type=JSON.media_type)


def _text_or_bytes(piece: bytes) -> str | list[int]:
    """A token's text; its bytes if it is only a part of a character."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)
